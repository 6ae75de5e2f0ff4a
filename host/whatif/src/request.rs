//! Requests for what-if replay, as JSON.

use super::WhatIfError;
use super::policies::{PolicyFound, bound};
use super::profile;
use super::sets::SetSpec;
use super::trace::{self, TraceBody, TraceWork};
use super::{DIFFERENCES_MAX, RUN_S_MAX, SEEDS_MAX};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use treadle_engine_model::engine::EngineProfile;
use treadle_model::{ClientName, Tenant};
use treadle_store::Bindings;
use utoipa::ToSchema;

/// Default number of seeds.
const SEEDS: u32 = 3;
/// Default variation of tool times and arrivals under the seeds after the first.
const JITTER: f64 = 0.05;
/// Default maximum number of differing decisions listed for each set.
const DIFFERENCES: usize = 10;
/// Default lag, in seconds, within which a program takes the slot of another.
const SLOT_LAG_S: f64 = 2.0;
/// Largest such lag, in seconds.
const SLOT_LAG_S_MAX: f64 = 86_400.0;

/// The events to replay.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WindowSpec {
    /// First event of the window.
    #[serde(default)]
    pub from_seq: Option<u64>,
    /// Last event of the window.
    #[serde(default)]
    pub to_seq: Option<u64>,
    /// Only events from this time on, in microseconds of the journal's clock.
    #[serde(default)]
    pub from_us: Option<u64>,
    /// Only events up to this time, in microseconds of the journal's clock.
    #[serde(default)]
    pub to_us: Option<u64>,
    /// Only programs of this job.
    #[serde(default, deserialize_with = "job_name")]
    #[schema(value_type = Option<String>)]
    pub job: Option<ClientName>,
}

fn job_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ClientName>, D::Error> {
    let job = Option::<String>::deserialize(deserializer)?;
    let job = job.map(|job| ClientName::parse("window.job", job));
    job.transpose().map_err(D::Error::custom)
}

/// Settings of the replay.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Number of seeds; the first one replays times as recorded.
    pub seeds: u32,
    /// Variation of tool times and arrivals under the other seeds, as a share.
    pub jitter: f64,
    /// Maximum number of differing decisions listed for each set.
    pub differences: usize,
    /// A program that opens within this time after another one's end takes its slot.
    pub slot_lag_us: u64,
    /// KV memory of every engine in tokens, instead of the recorded one.
    pub kv_tokens: Option<u64>,
    /// Time limit of all replays together, in seconds of real time.
    pub limit_s: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seeds: SEEDS,
            jitter: JITTER,
            differences: DIFFERENCES,
            slot_lag_us: (SLOT_LAG_S * 1e6) as u64,
            kv_tokens: None,
            limit_s: RUN_S_MAX,
        }
    }
}

impl Settings {
    /// Checks the limits. Without jitter all seeds are equal, so only one is kept.
    pub fn checked(mut self) -> Result<Self, WhatIfError> {
        if !(1..=SEEDS_MAX).contains(&self.seeds) {
            let problem = format!("is {}; give 1 to {SEEDS_MAX}", self.seeds);
            return Err(WhatIfError::field("seeds", problem));
        }
        if !(0.0..=0.9).contains(&self.jitter) {
            let problem = format!("is {}; give 0 to 0.9", self.jitter);
            return Err(WhatIfError::field("jitter", problem));
        }
        if self.differences > DIFFERENCES_MAX {
            let problem = format!("is {}; give at most {DIFFERENCES_MAX}", self.differences);
            return Err(WhatIfError::field("differences", problem));
        }
        if self.kv_tokens == Some(0) {
            return Err(WhatIfError::field("kv_tokens", "is 0; give 1 or more"));
        }
        if self.jitter <= 0.0 {
            self.seeds = 1;
        }
        Ok(self)
    }
}

/// Converts a lag from seconds to microseconds.
pub fn slot_lag_us(seconds: f64) -> Result<u64, WhatIfError> {
    if (0.0..=SLOT_LAG_S_MAX).contains(&seconds) {
        return Ok((seconds * 1e6) as u64);
    }
    let problem = format!("is {seconds}; give 0 to {SLOT_LAG_S_MAX} seconds");
    Err(WhatIfError::field("slot_lag_s", problem))
}

/// The body of `POST /api/v1/what-if/runs`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartRun {
    /// The part of the journal to replay; by default all of it.
    #[serde(default)]
    window: WindowSpec,
    /// Recorded programs to replay instead of the journal's.
    #[serde(default)]
    trace: Option<TraceBody>,
    /// Sets of policies: a name, or `{name, mode?, policies?, settings?}`.
    sets: Vec<Value>,
    /// A preset's name or a document of `treadle calibrate`; by default the engines are queried,
    /// and for a trace `glm-4.6-8xh100`.
    #[serde(default)]
    profile: Option<Value>,
    /// Number of seeds; the first one replays times as recorded.
    #[serde(default)]
    seeds: Option<u32>,
    /// Variation of tool times and arrivals under the other seeds, as a share.
    #[serde(default)]
    jitter: Option<f64>,
    /// Maximum number of differing decisions listed for each set.
    #[serde(default)]
    differences: Option<usize>,
    /// A program that opens within this many seconds after another one's end takes its slot.
    #[serde(default)]
    slot_lag_s: Option<f64>,
    /// KV memory of every engine in tokens, instead of the recorded one.
    #[serde(default)]
    kv_tokens: Option<u64>,
}

/// A validated request.
#[derive(Clone, Debug)]
pub struct WhatIfRequest {
    /// The part of the journal to replay.
    pub window: WindowSpec,
    /// The trace to replay instead.
    pub trace: Option<TraceWork>,
    /// The sets to compare.
    pub sets: Vec<SetSpec>,
    /// The engines' profile; without it the engines are queried.
    pub profile: Option<EngineProfile>,

    /// Settings of the replay.
    pub settings: Settings,
}

impl WhatIfRequest {
    /// Validates a body.
    ///
    /// # Errors
    /// The invalid field, and a valid value. A long trace takes a while, so not for an async
    /// thread.
    pub fn of(body: StartRun) -> Result<Self, WhatIfError> {
        let default = Settings::default();
        let lag = body.slot_lag_s.map(slot_lag_us).transpose()?;
        let settings = Settings {
            seeds: body.seeds.unwrap_or(default.seeds),
            jitter: body.jitter.unwrap_or(default.jitter),
            differences: body.differences.unwrap_or(default.differences),
            slot_lag_us: lag.unwrap_or(default.slot_lag_us),
            kv_tokens: body.kv_tokens,
            limit_s: default.limit_s,
        };
        let (sets, settings) = (SetSpec::list(&body.sets)?, settings.checked()?);
        let mut profile = body.profile.as_ref().map(profile::of_value).transpose()?;
        let mut trace = None;
        if let Some(given) = &body.trace {
            let unused = [
                ("window", body.window != WindowSpec::default()),
                ("slot_lag_s", body.slot_lag_s.is_some()),
            ];
            if let Some((field, _)) = unused.iter().find(|(_, is_given)| *is_given) {
                let problem = "has no effect on a trace; leave it out, or `trace`";
                return Err(WhatIfError::field(*field, problem));
            }
            let own = match profile {
                Some(profile) => profile,
                None => profile::named(trace::PROFILE)?,
            };
            trace = Some(given.work(&own, settings.kv_tokens)?);
            profile = Some(own);
        }
        Ok(Self {
            window: body.window,
            trace,
            sets,
            profile,
            settings,
        })
    }
}

/// Looks up the policies that are active for a request's job, for the sets that use bound policies:
/// for each world the job's own, else its tenant's, else everyone's.
pub async fn add_bound(
    store: &dyn Bindings,
    tenant: &Tenant,
    request: &WhatIfRequest,
    found: &mut [Vec<PolicyFound>],
) -> Result<(), WhatIfError> {
    if !request.sets.iter().any(|set| set.takes_bound) {
        return Ok(());
    }
    let bound = bound(store, tenant, request.window.job.as_ref()).await?;
    for (set, found) in request.sets.iter().zip(found) {
        if set.takes_bound {
            found.clone_from(&bound);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(body: Value) -> Result<WhatIfRequest, String> {
        let body = serde_json::from_value(body).map_err(|error| error.to_string())?;
        WhatIfRequest::of(body).map_err(|error| error.to_string())
    }

    #[test]
    fn a_request_is_read_with_its_defaults() {
        let request = read(json!({"sets": ["sticky", "treadle"], "window": {"from_seq": 3}}));
        let request = request.unwrap();
        assert_eq!(request.settings, Settings::default());
        assert_eq!(request.window.from_seq, Some(3));
        assert_eq!(request.sets.len(), 2);
    }

    #[test]
    fn without_jitter_one_seed_suffices() {
        let request = read(json!({"sets": ["sticky"], "seeds": 9, "jitter": 0})).unwrap();
        assert_eq!(request.settings.seeds, 1);
    }

    #[test]
    fn a_profile_is_read_before_the_run_waits_for_its_turn() {
        let with = |profile: Value| read(json!({"sets": ["sticky"], "profile": profile}));
        let whole = EngineProfile::qwen3_8b_h100().to_json(json!({"engine": "vllm"}));
        let profile = with(whole.clone()).unwrap().profile;
        assert_eq!(profile, Some(EngineProfile::qwen3_8b_h100()));
        assert!(with(json!("qwen3-8b-h100")).unwrap().profile.is_some());
        let changed = |field: &str, value: Value| {
            let mut document = whole.clone();
            document["profile"][field] = value;
            with(document).unwrap_err()
        };
        for (error, wanted) in [
            (with(json!("gpu")).unwrap_err(), "`profile`: `gpu` is not"),
            (with(json!({})).unwrap_err(), "missing field `version`"),
            (
                changed("kv_blocks", json!(0)),
                "`profile.profile.kv_blocks`: ",
            ),
            (
                changed("pass_us", json!("x")),
                "`profile.profile.pass_us`: ",
            ),
            (
                changed("name", json!("x".repeat(600_000))),
                "a profile of `treadle calibrate` has at most 524288",
            ),
        ] {
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn a_trace_is_read_before_the_run_waits_for_its_turn() {
        let line = r#"{"id": "p-1", "steps": [[1840, 0, 312, 2.5], [2310, 2152, 95, 0.0]]}"#;
        let with = |trace: Value| read(json!({"sets": ["sticky"], "trace": trace}));
        let request = with(json!({"text": line, "engines": 3, "kv_fraction": 6.0})).unwrap();
        let trace = request.trace.unwrap();
        assert_eq!(
            (trace.workload.runs.len(), trace.workload.workers.len()),
            (1, 3)
        );
        assert_eq!(trace.workload.steps(), 2);
        assert!(trace.scenario.contains("divided by 4, 64 programs"));
        let name = request.profile.map(|profile| profile.name);
        assert_eq!(name.as_deref(), Some(trace::PROFILE));
        let torn = format!("{line}\n{}", r#"{"id": "q", "steps": [[1, 0, -1, 0]]}"#);
        for (trace, wanted) in [
            (
                json!({"text": torn}),
                "`trace.text`: line 2: steps[0].output_tokens",
            ),
            (json!({"text": "x"}), "`trace.text`: line 1"),
            (json!({}), "missing field `text`"),
            (json!({"text": line, "lines": 1}), "unknown field `lines`"),
            (
                json!({"text": line, "programs": 0}),
                "`trace.programs`: is 0; give 1 to 10000",
            ),
            (json!({"text": line, "runs": 0}), "`trace.runs`: is 0"),
            (
                json!({"text": line, "engines": 65}),
                "`trace.engines`: is 65; give 1 to 64",
            ),
            (
                json!({"text": line, "kv_fraction": 0}),
                "`trace.kv_fraction`: is 0; give",
            ),
            (
                json!({"text": line, "kv_fraction": 0.000_1}),
                "`trace.text`: none of its runs fits the engines",
            ),
        ] {
            let error = with(trace.clone()).unwrap_err();
            assert!(error.contains(wanted), "{trace}: {error}");
        }
    }

    #[test]
    fn what_has_no_effect_beside_a_trace_is_refused() {
        let line = r#"{"id": "p-1", "steps": [[1840, 0, 312, 0.0]]}"#;
        let trace = json!({"text": line});
        for (body, wanted) in [
            (
                json!({"sets": ["sticky"], "trace": trace, "window": {"from_seq": 1}}),
                "`window`: has no effect on a trace",
            ),
            (
                json!({"sets": ["sticky"], "trace": trace, "slot_lag_s": 1}),
                "`slot_lag_s`: has no effect on a trace",
            ),
            (
                json!({
                    "sets": ["sticky"], "kv_tokens": 9_000,
                    "trace": {"text": line, "kv_fraction": 1},
                }),
                "`trace.kv_fraction`: has no effect beside `kv_tokens`",
            ),
        ] {
            let error = read(body.clone()).unwrap_err();
            assert!(error.contains(wanted), "{body}: {error}");
        }
    }

    #[test]
    fn nonsense_names_the_field_and_the_remedy() {
        let sets = json!(["sticky"]);
        for (body, wanted) in [
            (json!({}), "missing field `sets`"),
            (json!({"sets": []}), "`sets`: is empty"),
            (
                json!({"sets": sets, "seeds": 0}),
                "`seeds`: is 0; give 1 to 32",
            ),
            (
                json!({"sets": sets, "jitter": 2}),
                "`jitter`: is 2; give 0 to 0.9",
            ),
            (
                json!({"sets": sets, "slot_lag_s": -1}),
                "`slot_lag_s`: is -1",
            ),
            (json!({"sets": sets, "kv_tokens": 0}), "`kv_tokens`: is 0"),
            (
                json!({"sets": sets, "differences": 900}),
                "`differences`: is 900",
            ),
            (
                json!({"sets": sets, "window": {"job": "\u{1f}acme\u{1f}train"}}),
                "`window.job` holds the control character U+001F",
            ),
            (
                json!({"sets": sets, "windows": {}}),
                "unknown field `windows`",
            ),
            (
                json!({"sets": [{"name": "a", "policy": []}]}),
                "unknown field `policy`",
            ),
            (
                json!({"sets": ["sticky", {"name": "a", "policies": [{"policy": 3}]}]}),
                "`sets[1].policies[0].policy`: invalid type",
            ),
            (
                json!({"sets": [{"name": "a", "mode": "fast"}]}),
                "`sets[0].mode`: unknown variant `fast`",
            ),
            (json!({"sets": [3]}), "`sets[0]`: invalid type"),
            (
                json!({"sets": ["sticky", "sticky"]}),
                "`sets`: two are named `sticky`",
            ),
        ] {
            let error = read(body.clone()).unwrap_err();
            assert!(error.contains(wanted), "{body}: {error}");
        }
    }
}
