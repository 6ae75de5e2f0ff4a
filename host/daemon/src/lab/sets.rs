//! Sets of policies by name.

use super::{LabFailure, SETS_MAX};
use crate::driver::{BoundPolicy, Change, DeskLimits, PolicyDesk, Scope};
use serde::Deserialize;
use serde_json::{Map, Value};
use treadle_core::{CoreConfig, Mode};
use treadle_model::{PolicyRef, World};
use treadle_policy_runtime::{InstanceOptions, PolicyEngine, PolicyModule};

/// Fuel for one decision, about one unit per instruction.
const FUEL_PER_CALL: u64 = 100_000_000;
/// Longest name of a set, in bytes.
const NAME_BYTES_MAX: usize = 128;

/// One policy of a set: a file or a stored plugin, and its configuration.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicySpec {
    /// A path, or a stored plugin's name, name@version or digest.
    pub(crate) policy: String,
    /// A JSON object.
    #[serde(default)]
    pub(crate) config: Map<String, Value>,
}

/// A set of policies as it is asked for.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct SetSpec {
    /// What the report calls it.
    pub(crate) name: String,
    /// How steps find their worker; as recorded unless given.
    #[serde(default)]
    pub(crate) mode: Option<Mode>,
    /// One for each world at most; the built-in defaults answer the others.
    #[serde(default)]
    pub(crate) policies: Vec<PolicySpec>,
    /// Settings of the core in place of the recorded ones, by their names in the journal.
    #[serde(default)]
    pub(crate) settings: Map<String, Value>,
}

impl SetSpec {
    /// A set that is given by a word: a mode, `recorded` (the mode of the window), or a policy.
    pub(crate) fn named(name: &str) -> Self {
        let mode = match name {
            "least-load" => Some(Mode::LeastLoad),
            "sticky" => Some(Mode::Sticky),
            "program-aware" | "treadle" => Some(Mode::ProgramAware),
            _ => None,
        };
        let is_policy = mode.is_none() && name != "recorded";
        let policy = is_policy.then(|| PolicySpec {
            policy: name.to_owned(),
            config: Map::new(),
        });
        Self {
            name: name.to_owned(),
            mode: mode.or_else(|| is_policy.then_some(Mode::ProgramAware)),
            policies: policy.into_iter().collect(),
            settings: Map::new(),
        }
    }

    /// Sets from JSON: words and objects.
    pub(crate) fn list(values: &[Value]) -> Result<Vec<Self>, LabFailure> {
        let read = |(place, value): (usize, &Value)| match value {
            Value::String(name) => Ok(Self::named(name)),
            other => serde_json::from_value(other.clone()).map_err(|error| {
                let problem =
                    format!("{error}; give a word or {{name, mode?, policies?, settings?}}");
                LabFailure::field(format!("sets[{place}]"), problem)
            }),
        };
        let sets: Result<Vec<Self>, LabFailure> = values.iter().enumerate().map(read).collect();
        Self::checked(sets?)
    }

    /// Checks how many there are and what they are called.
    pub(crate) fn checked(sets: Vec<Self>) -> Result<Vec<Self>, LabFailure> {
        let wrong = |problem: String| Err(LabFailure::field("sets", problem));
        if sets.is_empty() {
            return wrong(
                "is empty; name at least one, such as \"least-load\" or \"treadle\"".into(),
            );
        }
        if sets.len() > SETS_MAX {
            return wrong(format!("has {}; give at most {SETS_MAX}", sets.len()));
        }
        for (place, set) in sets.iter().enumerate() {
            if set.name.is_empty() || set.name.len() > NAME_BYTES_MAX {
                return wrong(format!(
                    "[{place}].name must have 1 to {NAME_BYTES_MAX} bytes"
                ));
            }
            if sets[..place].iter().any(|other| other.name == set.name) {
                return wrong(format!("two are called `{}`; rename one", set.name));
            }
        }
        Ok(sets)
    }

    /// The settings of the core under this set.
    pub(crate) fn core(&self, recorded: &CoreConfig) -> Result<CoreConfig, LabFailure> {
        let field = || format!("sets.{}", self.name);
        let mut core = recorded.clone();
        if !self.settings.is_empty() {
            let whole = serde_json::to_value(&core).unwrap_or_default();
            let Value::Object(mut whole) = whole else {
                return Err(LabFailure::field(field(), "the settings can't be read"));
            };
            for (name, value) in &self.settings {
                if !whole.contains_key(name) {
                    let known: Vec<&str> = whole.keys().map(String::as_str).collect();
                    let problem = format!(
                        "settings.{name} is not known; there are {}",
                        known.join(", ")
                    );
                    return Err(LabFailure::field(field(), problem));
                }
                whole.insert(name.clone(), value.clone());
            }
            core = serde_json::from_value(Value::Object(whole)).map_err(|error| {
                LabFailure::field(field(), format!("settings: {error}; mind the type"))
            })?;
        }
        core.mode = self.mode.unwrap_or(core.mode);
        if core.mode == Mode::Rollout {
            let problem = "the mode `rollout` is not replayed; name `program-aware`, `sticky` or \
                           `least-load` as its mode (`treadle sim` simulates rollouts)";
            return Err(LabFailure::field(field(), problem));
        }
        if core.mode != Mode::ProgramAware && !self.policies.is_empty() {
            let problem = "policies are asked in the mode `program-aware` alone; leave them or \
                           the mode out";
            return Err(LabFailure::field(field(), problem));
        }
        Ok(core)
    }
}

/// A policy whose bytes are at hand.
#[derive(Clone)]
pub(crate) struct PolicyBytes {
    /// What it was asked for as.
    pub(crate) asked: String,
    /// A component, or a core module with embedded WIT.
    pub(crate) bytes: Vec<u8>,
    /// Its configuration as JSON.
    pub(crate) config: String,
}

/// A set that is ready to decide, any number of times.
pub(crate) struct ReadySet {
    pub(crate) name: String,
    pub(crate) core: CoreConfig,
    modules: Vec<Seated>,
}

struct Seated {
    policy: PolicyRef,
    module: PolicyModule,
    config: String,
}

impl ReadySet {
    /// Compiles the policies of a set. Takes a while: not for an async thread.
    pub(crate) fn new(
        spec: &SetSpec,
        recorded: &CoreConfig,
        policies: &[PolicyBytes],
        engine: &PolicyEngine,
    ) -> Result<Self, LabFailure> {
        let core = spec.core(recorded)?;
        let mut modules = Vec::with_capacity(policies.len());
        let mut worlds = Vec::new();
        for policy in policies {
            let wrong = |error: &dyn std::fmt::Display| LabFailure::Policy {
                policy: policy.asked.clone(),
                cause: error.to_string(),
            };
            let inspected = engine.inspect(&policy.bytes).map_err(|e| wrong(&e))?;
            let module = engine
                .compile(&inspected.component)
                .map_err(|e| wrong(&e))?;
            let world = module.world();
            if !matches!(world, World::Eviction | World::Priority | World::Placement) {
                let cause = format!(
                    "it is of the world `{world}`, which a replay does not ask; give policies of \
                     eviction, priority or placement"
                );
                return Err(wrong(&cause));
            }
            if worlds.contains(&world) {
                return Err(wrong(&format!("the set has two of the world `{world}`")));
            }
            worlds.push(world);
            modules.push(Seated {
                policy: PolicyRef(format!("{}@{}", inspected.name, inspected.version)),
                module,
                config: policy.config.clone(),
            });
        }
        let set = Self {
            name: spec.name.clone(),
            core,
            modules,
        };
        // A configuration that a policy refuses should be told before hours of replay.
        set.desk()?;
        Ok(set)
    }

    /// A desk at which the policies begin anew.
    pub(crate) fn desk(&self) -> Result<PolicyDesk, LabFailure> {
        let mut desk = PolicyDesk::new(DeskLimits {
            restarts_in_place: true,
            ..DeskLimits::default()
        });
        for module in &self.modules {
            let wrong = |error: &dyn std::fmt::Display| LabFailure::Policy {
                policy: module.policy.0.clone(),
                cause: error.to_string(),
            };
            let options = InstanceOptions::configured(module.config.clone());
            let instance = module.module.instance(&options).map_err(|e| wrong(&e))?;
            let bound = BoundPolicy {
                extra: Vec::new(),
                policy: module.policy.clone(),
                instance,
            };
            let change = Change::Activate(Some(bound));
            desk.change(module.module.world(), &Scope::Everyone, change, 0)
                .map_err(|e| wrong(&e))?;
        }
        Ok(desk)
    }
}

/// An engine that gives policies fuel in place of time, so that a replay can be repeated.
pub(crate) fn deterministic(
    limits: treadle_policy_runtime::Limits,
) -> Result<PolicyEngine, treadle_policy_runtime::RuntimeError> {
    PolicyEngine::deterministic(limits, FUEL_PER_CALL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn words_are_modes_the_recorded_one_or_policies() {
        let core = |name: &str| SetSpec::named(name).core(&CoreConfig::default()).unwrap();
        assert_eq!(core("sticky").mode, Mode::Sticky);
        assert_eq!(core("treadle"), CoreConfig::default());
        assert_eq!(core("recorded"), CoreConfig::default());
        let policy = SetSpec::named("lru-eviction@0.1.0");
        assert_eq!(policy.policies[0].policy, "lru-eviction@0.1.0");
        assert_eq!(policy.mode, Some(Mode::ProgramAware));
        let recorded = CoreConfig {
            mode: Mode::Rollout,
            ..CoreConfig::default()
        };
        let error = SetSpec::named("recorded").core(&recorded).unwrap_err();
        assert!(error.to_string().contains("`rollout` is not replayed"));
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
        ] {
            let error = set(settings).core(&CoreConfig::default()).unwrap_err();
            assert!(error.to_string().contains(wanted), "{error}");
        }
    }

    #[test]
    fn plain_routing_asks_no_policies() {
        let set = json!([{"name": "a", "mode": "sticky", "policies": [{"policy": "x"}]}]);
        let set = SetSpec::list(set.as_array().unwrap()).unwrap().remove(0);
        let error = set.core(&CoreConfig::default()).unwrap_err().to_string();
        assert!(error.contains("`program-aware` alone"), "{error}");
    }
}
