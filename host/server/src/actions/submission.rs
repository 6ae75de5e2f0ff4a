//! An action as clients submit it, read into what the core schedules and what the executor runs.

use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use treadle_actions::ActionBody;
use treadle_core::actions::{ActionSpec, Demand, OPTIONS_MAX};
use treadle_model::{ClientName, Span, Tenant, Timestamp};
use treadle_wire::{ErrorBody, ErrorCode};
use utoipa::ToSchema;

/// Memory is shared out in mebibytes.
pub(crate) const MEBIBYTE: u64 = 1 << 20;
/// The resource that clients give in bytes.
pub(crate) const MEMORY: &str = "memory";
/// What an action needs that does not say.
const CPU: &str = "cpu";
/// How long an action may run that does not say, in seconds.
const RUN_S: u64 = 600;
/// The longest, in seconds.
const RUN_S_MAX: u64 = 86_400;
/// The longest wait for a start, in seconds.
const START_S_MAX: u64 = 7 * 86_400;
/// The job of actions that name none.
const DEFAULT_JOB: &str = "default";

/// An action for treadle to run.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Submission {
    /// The program whose action it is. It ends with its program; one without a program does not.
    #[serde(default)]
    program_id: Option<String>,
    /// The RL run; the program's own where a program is named, else `default`.
    #[serde(default)]
    job: Option<String>,
    /// The tool or the reward: actions of a job and kind are taken to last equally long.
    kind: String,
    /// What it needs of each resource: `cpu` in cores, `memory` in bytes, `gpu` in devices, or that
    /// of a quota in requests; one core without it.
    #[serde(default)]
    cost: BTreeMap<String, Cost>,
    /// How long it lasts with each amount of the resource that it can use more or less of, in
    /// milliseconds and in the order of the amounts; learnt per kind without it.
    #[serde(default)]
    durations_ms: Vec<u64>,
    /// After so long it is stopped.
    #[serde(default)]
    run_s_max: Option<u64>,
    /// After so long in the queue it is given up.
    #[serde(default)]
    start_s_max: Option<u64>,
    /// Whether it may be run again where nobody knows whether it ran.
    #[serde(default)]
    idempotent: bool,
    /// A name of the client's: the same name with the same action is the same action.
    #[serde(default)]
    idempotency_key: Option<String>,
    /// What to run: `command` or `shell`, with `stdin`, `env` and `cwd`; or `http`, perhaps to a
    /// `service`.
    #[schema(value_type = Object)]
    run: Box<RawValue>,
}

/// What an action needs of one resource.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Cost {
    /// So much.
    Fixed(u64),
    /// Any of these amounts.
    OneOf(Vec<u64>),
    /// Any amount of a range.
    Range {
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
}

/// What a submission comes to.
#[derive(Debug)]
pub(crate) struct Submitted {
    /// What is scheduled.
    pub(crate) spec: ActionSpec,
    /// What is run.
    pub(crate) body: ActionBody,
    /// The same as it came.
    pub(crate) written: Box<RawValue>,
}

impl Submission {
    /// Reads a tenant's submission, which came at `now`.
    ///
    /// # Errors
    /// The field that is wrong, and the remedy.
    pub(crate) fn read(self, tenant: &Tenant, now: Timestamp) -> Result<Submitted, ErrorBody> {
        let inside = |field: &str, text: &str| {
            let name = ClientName::parse(field, text)?;
            Ok::<Box<str>, ErrorBody>(tenant.inside(&name).into())
        };
        let body = ActionBody::parse(self.run.get().as_bytes()).map_err(|error| {
            let field = format!("run.{}", error.field());
            ErrorBody::new(ErrorCode::InvalidField, format!("`run`: {error}")).with_param(&field)
        })?;
        let program = self.program_id.as_deref();
        let program = program.map(|text| inside("program_id", text)).transpose()?;
        let job = inside("job", self.job.as_deref().unwrap_or(DEFAULT_JOB))?;
        let key = self.idempotency_key.as_deref();
        let key = key.map(|text| inside("idempotency_key", text));
        let run_s = bounded("run_s_max", self.run_s_max.unwrap_or(RUN_S), RUN_S_MAX)?;
        let start_s = self.start_s_max;
        let start_s = start_s.map(|seconds| bounded("start_s_max", seconds, START_S_MAX));
        let start_by = start_s.transpose()?;
        let spec = ActionSpec {
            program,
            job,
            kind: ClientName::parse("kind", &self.kind)?.to_string().into(),
            demands: demands(self.cost)?,
            durations: self.durations_ms.into_iter().map(Span::from_millis).collect(),
            service: match &body {
                ActionBody::Service(service) => Some(service.service.as_str().into()),
                ActionBody::Process(_) | ActionBody::Http(_) => None,
            },
            run_max: Span::from_secs(run_s),
            start_by: start_by.map(|seconds| now + Span::from_secs(seconds)),
            idempotent: self.idempotent,
            idempotency_key: key.transpose()?,
            body: body.digest().into(),
        };
        Ok(Submitted {
            spec,
            body,
            written: self.run,
        })
    }
}

fn demands(cost: BTreeMap<String, Cost>) -> Result<Vec<Demand>, ErrorBody> {
    let mut demands = Vec::with_capacity(cost.len().max(1));
    for (resource, cost) in cost {
        let field = format!("cost.{resource}");
        let mut options = cost.options(&field)?;
        if resource == MEMORY {
            options.iter_mut().for_each(|n| *n = n.div_ceil(MEBIBYTE));
            options.dedup();
        }
        demands.push(Demand {
            resource: resource.into(),
            options,
        });
    }
    if demands.is_empty() {
        demands.push(Demand {
            resource: CPU.into(),
            options: vec![1],
        });
    }
    Ok(demands)
}

impl Cost {
    /// The amounts, ascending.
    fn options(self, field: &str) -> Result<Vec<u64>, ErrorBody> {
        let wrong = |problem: String| {
            let message = format!("`{field}` {problem}");
            Err(ErrorBody::new(ErrorCode::InvalidField, message).with_param(field))
        };
        match self {
            Self::Fixed(amount) => Ok(vec![amount]),
            Self::OneOf(amounts) => Ok(amounts),
            Self::Range { min, max } if min > max => {
                wrong(format!("has `min` {min} above `max` {max}; swap them"))
            }
            Self::Range { min, max } if max - min >= OPTIONS_MAX as u64 => wrong(format!(
                "is a range of more than {OPTIONS_MAX} amounts; list those that matter"
            )),
            Self::Range { min, max } => Ok((min..=max).collect()),
        }
    }
}

fn bounded(field: &str, seconds: u64, most: u64) -> Result<u64, ErrorBody> {
    if (1..=most).contains(&seconds) {
        return Ok(seconds);
    }
    let message = format!("`{field}` is {seconds}; send a number of seconds from 1 to {most}");
    Err(ErrorBody::new(ErrorCode::InvalidField, message).with_param(field))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(value: &Value) -> Result<Submitted, ErrorBody> {
        let submission = serde_json::from_str::<Submission>(&value.to_string());
        let submission = submission.expect("it is a submission");
        submission.read(&Tenant::default(), Timestamp(5_000_000))
    }

    fn with(field: &str, value: Value) -> Value {
        let mut body = json!({"kind": "pytest", "run": {"shell": "pytest"}});
        body[field] = value;
        body
    }

    #[test]
    fn what_is_not_said_has_a_default() {
        let spec = read(&with("kind", json!("pytest"))).expect("it is read").spec;
        assert_eq!((&*spec.job, &*spec.kind), ("default", "pytest"));
        assert_eq!(spec.demands.len(), 1);
        assert_eq!(&*spec.demands[0].resource, "cpu");
        assert_eq!(spec.run_max, Span::from_secs(600));
        assert_eq!(spec.start_by, None);
    }

    #[test]
    fn costs_are_fixed_listed_or_a_range_and_memory_is_rounded_up() {
        let cost = json!({"cpu": {"min": 1, "max": 4}, "memory": 1_048_577, "gpu": [1, 2, 8]});
        let spec = read(&with("cost", cost)).expect("it is read").spec;
        let options: Vec<_> = spec.demands.iter().map(|d| d.options.clone()).collect();
        assert_eq!(options, [vec![1, 2, 3, 4], vec![1, 2, 8], vec![2]]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (body, param) in [
            (with("cost", json!({"cpu": {"min": 4, "max": 1}})), "cost.cpu"),
            (with("cost", json!({"cpu": {"min": 1, "max": 1_000}})), "cost.cpu"),
            (with("run_s_max", json!(0)), "run_s_max"),
            (with("start_s_max", json!(u64::MAX)), "start_s_max"),
            (with("run", json!({})), "run.body"),
            (with("run", json!({"shell": ""})), "run.shell"),
            (with("run", json!({"shell": "a", "stdin": "x".repeat(2 << 20)})), "run.stdin"),
            (with("program_id", json!("a\u{0}b")), "program_id"),
            (with("kind", json!("")), "kind"),
        ] {
            let error = read(&body).expect_err("it is wrong");
            assert_eq!(error.param.as_deref(), Some(param), "{}", error.message);
        }
        let negative = serde_json::from_value::<Cost>(json!(-1));
        assert!(negative.is_err());
    }
}
