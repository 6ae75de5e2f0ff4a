//! Sets of policies, by name or as JSON.

use super::policies::{PolicyBytes, WORLDS};
use super::{SETS_MAX, WhatIfError};
use crate::recorded::WhatIfPolicy;
use serde::Deserialize;
use serde_json::{Map, Value};
use treadle_config::out_of_bounds;
use treadle_core::{CoreConfig, Mode};
use treadle_model::{PolicyRef, World};
use treadle_policy::evaluator::{BoundPolicy, Change, EvaluatorLimits, PolicyEvaluator, Scope};
use treadle_policy_runtime::{InstanceOptions, PolicyEngine, PolicyModule};
use treadle_registry::eviction_by_default;

/// Maximum length of a set's name, in bytes.
const NAME_BYTES_MAX: usize = 128;

/// One policy of a set: a file or a stored plugin, and its configuration.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct PolicySpec {
    /// A path, or a stored plugin's name, name@version or digest.
    pub policy: String,
    /// Its configuration, a JSON object.
    #[serde(default)]
    pub config: Map<String, Value>,
}

/// A set of policies as requested.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct SetSpec {
    /// The set's name in the report.
    pub name: String,
    /// The scheduling mode; by default as recorded.
    #[serde(default)]
    pub mode: Option<Mode>,
    /// At most one for each world; the built-in defaults answer for the others.
    #[serde(default)]
    pub policies: Vec<PolicySpec>,
    /// Settings of the core that differ from the recorded ones, by their names in the journal.
    #[serde(default)]
    pub settings: Map<String, Value>,
    /// Whether the set uses the bound policies, if its mode calls any: the set `recorded`.
    #[serde(skip)]
    pub takes_bound: bool,
}

impl SetSpec {
    /// The set with a name: a mode, `recorded` (the window's mode and the bound policies), or a
    /// policy.
    pub fn named(name: &str) -> Self {
        let mode = match name {
            "least-load" => Some(Mode::LeastLoad),
            "sticky" => Some(Mode::Sticky),
            "program-aware" | "treadle" => Some(Mode::ProgramAware),
            _ => None,
        };
        let takes_bound = name == "recorded";
        let is_policy = mode.is_none() && !takes_bound;
        let policy = is_policy.then(|| PolicySpec {
            policy: name.to_owned(),
            config: Map::new(),
        });
        Self {
            name: name.to_owned(),
            mode: mode.or_else(|| is_policy.then_some(Mode::ProgramAware)),
            policies: policy.into_iter().collect(),
            settings: Map::new(),
            takes_bound,
        }
    }

    /// Parses sets from JSON: names and objects.
    pub fn list(values: &[Value]) -> Result<Vec<Self>, WhatIfError> {
        let read = |(place, value): (usize, &Value)| match value {
            Value::String(name) => Ok(Self::named(name)),
            other => serde_path_to_error::deserialize(other).map_err(|error| {
                let field = match error.path().to_string().as_str() {
                    "." => format!("sets[{place}]"),
                    path => format!("sets[{place}].{path}"),
                };
                let error = error.inner();
                let problem =
                    format!("{error}; give a name or {{name, mode?, policies?, settings?}}");
                WhatIfError::field(field, problem)
            }),
        };
        let sets: Result<Vec<Self>, WhatIfError> = values.iter().enumerate().map(read).collect();
        Self::checked(sets?)
    }

    /// Checks the number of sets and their names.
    pub fn checked(sets: Vec<Self>) -> Result<Vec<Self>, WhatIfError> {
        let wrong = |problem: String| Err(WhatIfError::field("sets", problem));
        if sets.is_empty() {
            return wrong(
                "is empty; name at least one, such as \"least-load\" or \"treadle\"".into(),
            );
        }
        if sets.len() > SETS_MAX {
            return wrong(format!("has {}; give at most {SETS_MAX}", sets.len()));
        }
        for (place, set) in sets.iter().enumerate() {
            let is_name = (1..=NAME_BYTES_MAX).contains(&set.name.len())
                && !set.name.contains(char::is_control);
            if !is_name {
                return wrong(format!(
                    "[{place}].name must have 1 to {NAME_BYTES_MAX} bytes and no control character"
                ));
            }
            if sets[..place].iter().any(|other| other.name == set.name) {
                return wrong(format!("two are named `{}`; rename one", set.name));
            }
            if set.policies.len() > WORLDS.len() {
                return wrong(format!(
                    "[{place}].policies has {}; give at most {}, one of each world",
                    set.policies.len(),
                    WORLDS.len()
                ));
            }
        }
        Ok(sets)
    }

    fn mentions_retention(&self) -> bool {
        let kv = self.settings.get("kv").and_then(Value::as_object);
        kv.is_some_and(|kv| kv.contains_key("retention"))
    }

    /// The settings of the core under this set. If the set's mode is not the recorded one,
    /// `kv.retention` has the mode's default.
    pub fn core(&self, recorded: &CoreConfig) -> Result<CoreConfig, WhatIfError> {
        let field = || format!("sets.{}", self.name);
        let mut core = recorded.clone();
        if !self.settings.is_empty() {
            let whole = serde_json::to_value(&core).unwrap_or_default();
            let Value::Object(mut whole) = whole else {
                return Err(WhatIfError::field(field(), "the settings can't be read"));
            };
            let merged = merge(&mut whole, &self.settings, "settings");
            merged.map_err(|problem| WhatIfError::field(field(), problem))?;
            core = serde_json::from_value(Value::Object(whole)).map_err(|error| {
                WhatIfError::field(field(), format!("settings: {error}; check the type"))
            })?;
            // Values that a daemon refuses at its start could stop a replay, or keep it from
            // ending.
            if let Some((name, problem)) = out_of_bounds(&core) {
                let problem = format!("settings.{name} {problem}");
                return Err(WhatIfError::field(field(), problem));
            }
        }
        core.mode = self.mode.unwrap_or(core.mode);
        if core.mode != recorded.mode && !self.mentions_retention() {
            // The default of a daemon in that mode.
            core.kv.retention = core.mode == Mode::ProgramAware;
        }
        if core.mode != Mode::ProgramAware && !self.policies.is_empty() {
            let problem = "policies are called only in the mode `program-aware`; omit them or the \
                           mode";
            return Err(WhatIfError::field(field(), problem));
        }
        Ok(core)
    }
}

/// Overrides settings, group by group.
fn merge(
    whole: &mut Map<String, Value>,
    given: &Map<String, Value>,
    path: &str,
) -> Result<(), String> {
    for (name, value) in given {
        let known: Vec<&str> = whole.keys().map(String::as_str).collect();
        let known = known.join(", ");
        let Some(place) = whole.get_mut(name) else {
            return Err(format!("{path}.{name} is not known; there are {known}"));
        };
        match (place, value) {
            (Value::Object(group), Value::Object(given)) => {
                merge(group, given, &format!("{path}.{name}"))?;
            }
            (Value::Object(group), _) => {
                let known: Vec<&str> = group.keys().map(String::as_str).collect();
                let known = known.join(", ");
                return Err(format!(
                    "{path}.{name} is a group; give an object of {known}"
                ));
            }
            (place, value) => *place = value.clone(),
        }
    }
    Ok(())
}

/// A set with compiled policies, which can be replayed any number of times.
pub struct ReadySet {
    /// Its name.
    pub name: String,

    /// The core's settings.
    pub core: CoreConfig,
    modules: Vec<Seated>,
}

struct Seated {
    policy: PolicyRef,
    module: PolicyModule,
    config: String,
    is_default: bool,
}

impl Seated {
    /// Compiles a policy.
    fn new(policy: &PolicyBytes, engine: &PolicyEngine) -> Result<Self, WhatIfError> {
        let wrong = |error: &dyn std::fmt::Display| WhatIfError::Policy {
            policy: policy.asked.clone(),
            cause: error.to_string(),
        };
        let inspected = engine.inspect(&policy.bytes).map_err(|e| wrong(&e))?;
        let module = engine
            .compile(&inspected.component)
            .map_err(|e| wrong(&e))?;
        let world = module.world();
        if !WORLDS.contains(&world) {
            let cause = format!(
                "it is of the world `{world}`, which a replay does not call; give policies of \
                 eviction, priority or placement"
            );
            return Err(wrong(&cause));
        }
        let said = inspected.description;
        Ok(Self {
            policy: PolicyRef(format!("{}@{}", said.name, said.version)),
            module,
            config: policy.config.clone(),
            is_default: policy.answers_anyway,
        })
    }

    fn asked(&self) -> WhatIfPolicy {
        let (name, version) = self
            .policy
            .0
            .split_once('@')
            .unwrap_or((&self.policy.0, ""));
        WhatIfPolicy {
            world: self.module.world().as_str().to_owned(),
            name: name.to_owned(),
            version: version.to_owned(),
            // It was valid JSON when the request was accepted.
            config: serde_json::from_str(&self.config).unwrap_or_default(),
            is_default: self.is_default,
        }
    }
}

impl ReadySet {
    /// Compiles the policies of a set. Blocks for a while, so not for an async thread.
    pub fn new(
        spec: &SetSpec,
        recorded: &CoreConfig,
        policies: &[PolicyBytes],
        engine: &PolicyEngine,
    ) -> Result<Self, WhatIfError> {
        let core = spec.core(recorded)?;
        // Bound policies are called only in one mode.
        let policies = match core.mode {
            Mode::ProgramAware => policies,
            _ => &[],
        };
        let mut modules: Vec<Seated> = Vec::with_capacity(policies.len());
        let asked = |policy: &&PolicyBytes| core.kv.retention || !policy.answers_anyway;
        for policy in policies.iter().filter(asked) {
            let module = Seated::new(policy, engine)?;
            let world = module.module.world();
            if modules.iter().any(|other| other.module.world() == world) {
                return Err(WhatIfError::Policy {
                    policy: policy.asked.clone(),
                    cause: format!("the set has two of the world `{world}`"),
                });
            }
            modules.push(module);
        }
        let decides_eviction = modules
            .iter()
            .any(|module| module.module.world() == World::Eviction);
        if core.mode == Mode::ProgramAware && core.kv.retention && !decides_eviction {
            // As in a daemon with that setting.
            let bytes = PolicyBytes {
                asked: "the default of kv.retention".to_owned(),
                bytes: eviction_by_default(true).into(),
                config: "{}".to_owned(),
                answers_anyway: false,
            };
            let mut module = Seated::new(&bytes, engine)?;
            module.is_default = true;
            modules.push(module);
        }
        let set = Self {
            name: spec.name.clone(),
            core,
            modules,
        };
        // Reports a refused configuration before hours of replay.
        set.evaluator()?;
        Ok(set)
    }

    /// The policies that the set calls.
    pub fn asked(&self) -> Vec<WhatIfPolicy> {
        self.modules.iter().map(Seated::asked).collect()
    }

    /// An evaluator with new instances of the policies.
    pub fn evaluator(&self) -> Result<PolicyEvaluator, WhatIfError> {
        let mut evaluator = PolicyEvaluator::new(EvaluatorLimits {
            is_repeatable: true,
            ..EvaluatorLimits::default()
        });
        for module in &self.modules {
            let wrong = |error: &dyn std::fmt::Display| WhatIfError::Policy {
                policy: module.policy.0.clone(),
                cause: error.to_string(),
            };
            let options = InstanceOptions::configured(module.config.clone());
            let instance = module.module.instance(&options).map_err(|e| wrong(&e))?;
            let bound = BoundPolicy {
                id: 0,
                policy: module.policy.clone(),
                instance,
            };
            let change = Change::Activate(Some(bound));
            evaluator
                .change(module.module.world(), &Scope::Everyone, change, 0)
                .map_err(|e| wrong(&e))?;
        }
        Ok(evaluator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn set_names_are_modes_recorded_or_policies() {
        let core = |name: &str| SetSpec::named(name).core(&CoreConfig::default()).unwrap();
        assert_eq!(core("sticky").mode, Mode::Sticky);
        assert_eq!(core("treadle"), CoreConfig::default());
        assert_eq!(core("recorded"), CoreConfig::default());
        let policy = SetSpec::named("lru-eviction@0.1.0");
        assert_eq!(policy.policies[0].policy, "lru-eviction@0.1.0");
        assert_eq!(policy.mode, Some(Mode::ProgramAware));
    }

    #[test]
    fn settings_replace_the_recorded_ones_and_unknown_ones_are_refused() {
        let set = |settings: Value| {
            let set = json!([{"name": "a", "settings": settings}]);
            SetSpec::list(set.as_array().unwrap()).unwrap().remove(0)
        };
        let core = set(json!({"low_watermark_ppm": 500_000})).core(&CoreConfig::default());
        assert_eq!(core.unwrap().low_watermark_ppm, 500_000);
        for (settings, wanted) in [
            (json!({"low": 1}), "settings.low is not known"),
            (json!({"low_watermark_ppm": "x"}), "invalid type"),
            (json!({"kv": {"host": 1}}), "settings.kv.host is not known"),
            (
                json!({"kv": true}),
                "settings.kv is a group; give an object of",
            ),
            (json!({"tick": 0}), "settings.tick is 0; give 1000 to"),
            (
                json!({"kv": {"host_tokens_per_s": 0}}),
                "settings.kv.host_tokens_per_s is 0; give 1 to",
            ),
        ] {
            let error = set(settings).core(&CoreConfig::default()).unwrap_err();
            assert!(error.to_string().contains(wanted), "{error}");
        }
    }

    #[test]
    fn a_setting_of_a_group_leaves_the_others_of_it_as_recorded() {
        let mut recorded = CoreConfig::default();
        recorded.kv.host_tokens_max = 900_000;
        recorded.kv.host_tokens_per_s = 70_000;
        let set = json!([{"name": "a", "settings": {"kv": {"retention": true}}}]);
        let set = SetSpec::list(set.as_array().unwrap()).unwrap().remove(0);
        let mut wanted = recorded.clone();
        wanted.kv.retention = true;
        assert_eq!(set.core(&recorded).unwrap(), wanted);
    }

    #[test]
    fn another_mode_than_the_recorded_one_has_its_own_default_of_retention() {
        let retains = |recorded: (Mode, bool), set: Value| {
            let mut core = CoreConfig::default();
            (core.mode, core.kv.retention) = recorded;
            let set = SetSpec::list(&[set]).unwrap().remove(0);
            set.core(&core).unwrap().kv.retention
        };
        assert!(retains((Mode::Sticky, false), json!("treadle")));
        assert!(!retains((Mode::ProgramAware, true), json!("sticky")));
        assert!(!retains((Mode::ProgramAware, false), json!("treadle")));
        assert!(retains((Mode::ProgramAware, true), json!("treadle")));
        let settings = json!({"kv": {"retention": false}});
        let without = json!({"name": "a", "mode": "program-aware", "settings": settings});
        assert!(!retains((Mode::Sticky, false), without));
    }

    #[test]
    fn with_retention_eviction_has_the_default_that_a_daemon_has() {
        let engine =
            treadle_policy::repeatable_engine(treadle_policy_runtime::Limits::default()).unwrap();
        let policies_with = |set: Value, bound: &[PolicyBytes]| {
            let set = SetSpec::list(&[set]).unwrap().remove(0);
            let ready = ReadySet::new(&set, &CoreConfig::default(), bound, &engine).unwrap();
            let names = ready.modules.into_iter().map(|module| module.policy.0);
            names.collect::<Vec<_>>()
        };
        let policies = |set: Value| policies_with(set, &[]);
        assert_eq!(policies(json!("treadle")), [""; 0]);
        let settings = json!({"kv": {"retention": true}});
        let found = policies(json!({"name": "a", "settings": settings}));
        assert!(found[0].starts_with("foresight-eviction@"), "{found:?}");
        let plain = json!({"name": "a", "mode": "sticky", "settings": settings});
        assert_eq!(policies(plain), [""; 0]);
        // An installation that has bound the other default uses it.
        let bound = PolicyBytes {
            asked: "bound".to_owned(),
            bytes: treadle_registry::default_eviction_module().into(),
            config: "{}".to_owned(),
            answers_anyway: true,
        };
        let retaining = json!({"name": "a", "settings": settings});
        let found = policies_with(retaining, std::slice::from_ref(&bound));
        assert!(found[0].starts_with("thunderagent-eviction@"), "{found:?}");
        assert_eq!(policies_with(json!("treadle"), &[bound]), [""; 0]);
    }

    #[test]
    fn a_set_has_at_most_one_policy_of_each_world() {
        let set = json!([{"name": "a", "policies": vec![json!({"policy": "x"}); 4]}]);
        let error = SetSpec::list(set.as_array().unwrap()).unwrap_err();
        let wanted = "`sets`: [0].policies has 4; give at most 3";
        assert!(error.to_string().contains(wanted), "{error}");
    }

    #[test]
    fn plain_routing_asks_no_policies() {
        let set = json!([{"name": "a", "mode": "sticky", "policies": [{"policy": "x"}]}]);
        let set = SetSpec::list(set.as_array().unwrap()).unwrap().remove(0);
        let error = set.core(&CoreConfig::default()).unwrap_err().to_string();
        assert!(
            error.contains("only in the mode `program-aware`"),
            "{error}"
        );
    }
}
