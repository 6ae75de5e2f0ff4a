//! Parses a submitted action into the core's specification and the executor's command.

use super::devices::{DevicesAsked, GPU_MEMORY};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use treadle_actions::ActionBody;
use treadle_config::{CPU, GPU, MEMORY, REQUESTS};
use treadle_core::actions::{ActionSpec, Demand, OPTIONS_MAX};
use treadle_model::{ClientName, Span, Tenant};
use treadle_wire::{ErrorBody, ErrorCode};
use utoipa::ToSchema;

/// The unit of memory as a resource.
pub(super) const MEBIBYTE: u64 = 1 << 20;
/// Default run time limit, in seconds.
const RUN_S: u64 = 600;
/// Longest run time limit, in seconds.
pub(super) const RUN_S_MAX: u64 = 86_400;
/// The longest wait for a start, in seconds.
const START_S_MAX: u64 = 7 * 86_400;
/// The default job.
const DEFAULT_JOB: &str = "default";

/// An action for treadle to run.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Submission {
    /// Its program. The action ends with its program, if it has one.
    #[serde(default)]
    program_id: Option<String>,
    /// The RL run; default that of the program if one is named, else `default`.
    #[serde(default)]
    job: Option<String>,
    /// The tool or the reward: actions of the same job and kind are assumed to have the same
    /// duration.
    kind: String,
    /// Required resources: `cpu` in cores, `memory` in bytes, `gpu` in devices, `gpu_memory` in
    /// bytes per device, or a quota in requests. Defaults: one core for a process, one request of
    /// its quota for a request, any of its numbers of devices for a service.
    #[serde(default)]
    cost: BTreeMap<String, Cost>,
    /// Its duration with each amount of its elastic resource, in microseconds and in the order of
    /// the amounts; by default learned per job and kind.
    #[serde(default)]
    durations_us: Vec<u64>,
    /// Time limit of its run in seconds.
    #[serde(default)]
    run_s_max: Option<u64>,
    /// Time limit in the queue in seconds.
    #[serde(default)]
    start_s_max: Option<u64>,
    /// Whether it may be run again if its outcome is unknown.
    #[serde(default)]
    idempotent: bool,
    /// The client's key: submitting the same action with the same key again has no effect.
    #[serde(default)]
    idempotency_key: Option<String>,
    /// What to run: one of `process` (`command`, `stdin`, `env`, `cwd`), `sandbox` (`id`, and as a
    /// process), `http` (`method`, `url`,
    /// `headers`, `body`, `quota`) and `service` (`name`, `method`, `path`, `headers`, `body`).
    #[schema(value_type = Object)]
    run: Value,
}

/// What an action needs of one resource.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Cost {
    /// A fixed amount.
    Fixed(u64),
    /// Any of these amounts.
    OneOf(Vec<u64>),
    /// Any amount of a range.
    Range {
        /// The smallest amount.
        min: u64,
        /// The largest amount.
        max: u64,
    },
}

/// A parsed submission.
#[derive(Debug)]
pub(super) struct Submitted {
    /// The core's specification; the digest of the command is not set yet.
    pub(super) spec: ActionSpec,
    /// Whether its client named a job.
    pub(super) job_named: bool,
    /// Time limit in the queue.
    pub(super) start_max: Option<Span>,
    /// The command.
    pub(super) body: ActionBody,
    /// The client's demand for devices.
    pub(super) devices: DevicesAsked,
}

impl Submission {
    /// Sets its idempotency key to `unless_given` if the client sent none.
    pub fn named(mut self, unless_given: impl FnOnce() -> String) -> Self {
        self.idempotency_key.get_or_insert_with(unless_given);
        self
    }

    /// Checks everything about it that does not depend on the daemon's state, as submitting it does.
    ///
    /// # Errors
    /// The field that is wrong, and the remedy.
    pub fn check(self, tenant: &Tenant, sandboxes_only: bool) -> Result<(), ErrorBody> {
        self.check_client(sandboxes_only)?;
        self.read(tenant).map(|_| ())
    }

    /// Checks that clients may submit it.
    ///
    /// # Errors
    /// Clients may not run this, or not outside of sandboxes.
    pub(super) fn check_client(&self, sandboxes_only: bool) -> Result<(), ErrorBody> {
        let problem = if self.run.get("held").is_some() {
            "`run` has `held`, which clients may not send; send `process`, `sandbox`, `http` or \
             `service`"
        } else if sandboxes_only && self.run.get("process").is_some() {
            "`run` has `process`, but this daemon runs commands only in sandboxes; send `sandbox` \
             with the `id` of one (docs/sandboxes.md)"
        } else {
            return Ok(());
        };
        Err(ErrorBody::new(ErrorCode::InvalidField, problem).with_param("run"))
    }

    /// Reads a tenant's submission.
    ///
    /// # Errors
    /// The field that is wrong, and the remedy.
    pub(super) fn read(mut self, tenant: &Tenant) -> Result<Submitted, ErrorBody> {
        let inside = |field: &str, text: &str| {
            let name = ClientName::parse(field, text)?;
            Ok::<Box<str>, ErrorBody>(tenant.inside(&name).into())
        };
        let run = serde_json::to_vec(&self.run).unwrap_or_default();
        let body = ActionBody::parse(&run).map_err(|error| {
            let field = format!("run.{}", error.field());
            ErrorBody::new(ErrorCode::InvalidField, format!("`run`: {error}")).with_param(&field)
        })?;
        let program = self.program_id.as_deref();
        let program = program.map(|text| inside("program_id", text)).transpose()?;
        let key = self.idempotency_key.as_deref();
        let key = key.map(|text| ClientName::parse("idempotency_key", text));
        let key = key.transpose()?.map(|name| name.to_string().into());
        let run_s = bounded("run_s_max", self.run_s_max.unwrap_or(RUN_S), RUN_S_MAX)?;
        let start_s = self
            .start_s_max
            .map(|seconds| bounded("start_s_max", seconds, START_S_MAX));
        let devices = self.devices()?;
        let spec = ActionSpec {
            program,
            job: inside("job", self.job.as_deref().unwrap_or(DEFAULT_JOB))?,
            kind: ClientName::parse("kind", &self.kind)?.to_string().into(),
            demands: demands(self.cost, &body)?,
            durations: self.durations_us.into_iter().map(Span).collect(),
            service: body
                .service()
                .map(|name| format!("{}{name}", tenant.prefix()).into()),
            run_max: Span::from_secs(run_s),
            start_by: None,
            idempotent: self.idempotent,
            idempotency_key: key,
            body: "".into(),
        };
        Ok(Submitted {
            spec,
            job_named: self.job.is_some(),
            start_max: start_s.transpose()?.map(Span::from_secs),
            body,
            devices,
        })
    }

    /// Its demand for devices; their memory is not a separate resource.
    fn devices(&mut self) -> Result<DevicesAsked, ErrorBody> {
        let memory_bytes = match self.cost.remove(GPU_MEMORY) {
            None => None,
            Some(Cost::Fixed(bytes)) => Some(bytes),
            Some(Cost::OneOf(_) | Cost::Range { .. }) => {
                let field = format!("cost.{GPU_MEMORY}");
                let message = format!("`{field}` has several amounts; send the bytes per device");
                let error = ErrorBody::new(ErrorCode::InvalidField, message);
                return Err(error.with_param(field));
            }
        };
        Ok(DevicesAsked {
            number_named: self.cost.contains_key(GPU),
            memory_bytes,
        })
    }
}

/// The demands of an action: the client's, with defaults for its kind.
fn demands(cost: BTreeMap<String, Cost>, body: &ActionBody) -> Result<Vec<Demand>, ErrorBody> {
    let mut demands = Vec::with_capacity(cost.len() + 1);
    for (resource, cost) in cost {
        let field = format!("cost.{resource}");
        if crate::nodes::is_of_node(&resource) {
            let message = format!(
                "`{field}` belongs to a node; send `cpu` or `memory`, which commands in its \
                 sandboxes take from the node"
            );
            return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_param(field));
        }
        let mut options = cost.options(&field)?;
        if resource == MEMORY {
            for amount in &mut options {
                *amount = amount.div_ceil(MEBIBYTE);
            }
            options.dedup();
        }
        demands.push(Demand {
            resource: resource.into(),
            options,
        });
    }
    let used = match body {
        ActionBody::Process(_) | ActionBody::Sandbox(_) | ActionBody::Held(_) => CPU,
        ActionBody::Http(request) => request.quota.as_deref().unwrap_or(REQUESTS),
        ActionBody::Service(_) => GPU,
    };
    if crate::nodes::is_of_node(used) {
        let message = format!("`run.http.quota` is {used}, which belongs to a node; name a quota");
        let error = ErrorBody::new(ErrorCode::InvalidField, message);
        return Err(error.with_param("run.http.quota"));
    }
    if demands.iter().all(|demand| &*demand.resource != used) {
        demands.push(Demand {
            resource: used.into(),
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
                "is a range of more than {OPTIONS_MAX} amounts; send a list of fewer"
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
    use treadle_model::tenant::DEFAULT_TENANT;

    fn read(value: &Value) -> Result<Submitted, ErrorBody> {
        let submission = serde_json::from_value::<Submission>(value.clone());
        let submission = submission.expect("it is a submission");
        submission.read(&Tenant::new(DEFAULT_TENANT))
    }

    fn with(field: &str, value: Value) -> Value {
        let run = json!({"process": {"command": ["pytest"]}});
        let mut body = json!({"kind": "pytest", "run": run});
        body[field] = value;
        body
    }

    fn demanded(body: &Value) -> Vec<(String, Vec<u64>)> {
        let spec = read(body).expect("it is read").spec;
        let demands = spec.demands.into_iter();
        demands.map(|d| (d.resource.into(), d.options)).collect()
    }

    #[test]
    fn what_is_not_said_has_a_default() {
        let body = with("kind", json!("pytest"));
        let read = read(&body).expect("it is read");
        assert_eq!((&*read.spec.job, &*read.spec.kind), ("default", "pytest"));
        assert_eq!(read.spec.run_max, Span::from_secs(600));
        assert_eq!((read.start_max, read.job_named), (None, false));
        assert_eq!(demanded(&body), [("cpu".to_owned(), vec![1])]);
        let quota = json!({"http": {"url": "http://h/", "quota": "search"}});
        let http = json!({"http": {"url": "http://h/"}});
        let service = json!({"service": {"name": "judge", "path": "/"}});
        for (run, used) in [(quota, "search"), (http, "requests"), (service, "gpu")] {
            assert_eq!(demanded(&with("run", run)), [(used.to_owned(), vec![1])]);
        }
    }

    #[test]
    fn costs_are_fixed_listed_or_a_range_and_memory_is_rounded_up() {
        let cost = json!({"cpu": {"min": 1, "max": 4}, "memory": 1_048_577, "gpu": [1, 2, 8]});
        let options: Vec<_> = demanded(&with("cost", cost)).into_iter().collect();
        let options: Vec<_> = options.into_iter().map(|(_, options)| options).collect();
        assert_eq!(options, [vec![1, 2, 3, 4], vec![1, 2, 8], vec![2]]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let process = |field: &str, value: Value| {
            let mut process = json!({"command": ["a"]});
            process[field] = value;
            with("run", json!({"process": process}))
        };
        for (body, param) in [
            (
                with("cost", json!({"cpu": {"min": 4, "max": 1}})),
                "cost.cpu",
            ),
            (
                with("cost", json!({"cpu": {"min": 1, "max": 1_000}})),
                "cost.cpu",
            ),
            (with("run_s_max", json!(0)), "run_s_max"),
            (with("start_s_max", json!(u64::MAX)), "start_s_max"),
            (with("run", json!({})), "run.body"),
            (process("command", json!([])), "run.process.command"),
            (
                process("stdin", json!("x".repeat(2 << 20))),
                "run.process.stdin",
            ),
            (with("program_id", json!("a\u{0}b")), "program_id"),
            (with("kind", json!("")), "kind"),
        ] {
            let error = read(&body).expect_err("it is wrong");
            assert_eq!(error.param.as_deref(), Some(param), "{}", error.message);
        }
        for cost in [json!(-1), json!("2"), json!({"min": 1})] {
            assert!(serde_json::from_value::<Cost>(cost).is_err());
        }
    }
}
