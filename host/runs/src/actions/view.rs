//! The view of actions for clients.

use super::submission::MEBIBYTE;
use crate::nodes::own_name;
use serde::Serialize;
use serde_json::{Map, Value, json};
use treadle_config::MEMORY;
use treadle_core::actions::{ActionSpec, Grant};
use treadle_model::Tenant;
use treadle_store::ActionRow;
use utoipa::ToSchema;

/// An action. Times are microseconds since 1970.
#[derive(Debug, Serialize, ToSchema)]
pub struct ActionView {
    /// Its number.
    action: u64,
    /// Its program, if any.
    program_id: Option<String>,
    /// The RL run.
    job: String,
    /// The tool or the reward.
    kind: String,
    /// waiting, starting, running, stopping or ended.
    status: String,
    /// How it ended: `outcome` is exited (with `code`: the process's exit code, or the response's
    /// status), killed (with `signal`), out_of_memory, timed_out, infrastructure_failure (with
    /// `cause`), unknown, cancelled or expired. Only exited is a result of the action itself.
    #[schema(value_type = Option<Object>)]
    outcome: Option<Value>,
    /// Digest of its output, if it has any.
    output_digest: Option<String>,
    /// Its output; only in responses for a single action.
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<OutputView>,
    /// The amounts of each resource that it can use.
    #[schema(value_type = Object)]
    cost: Value,
    /// The resources that it holds, or that it held of its key resource.
    #[schema(value_type = Object)]
    given: Value,
    /// How often it was started.
    attempts: u64,
    /// The client's name for it.
    idempotency_key: Option<String>,
    /// When it was submitted.
    submitted_at_us: u64,
    /// When it got its resources.
    granted_at_us: Option<u64>,
    /// When its process or request started.
    began_at_us: Option<u64>,
    /// When it ended.
    ended_at_us: Option<u64>,
}

/// The output of an action: of a process, standard output and standard error merged; of a request,
/// the response's body.
#[derive(Debug, Serialize, ToSchema)]
pub struct OutputView {
    /// Its length in bytes, if it is still stored.
    bytes: usize,
    /// The output as text. The middle of a long one is replaced by a marker.
    text: String,
}

impl OutputView {
    /// The output of an action.
    pub fn of(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.len(),
            text: String::from_utf8_lossy(bytes).into_owned(),
        }
    }
}

impl ActionView {
    /// An action as its tenant sees it; `None` for another tenant's.
    pub fn of(tenant: &Tenant, row: ActionRow) -> Option<Self> {
        let job = tenant.outside(&row.job)?.to_owned();
        let spec: Option<ActionSpec> = serde_json::from_str(&row.spec).ok();
        let grants: Vec<Grant> = row
            .grants
            .as_deref()
            .and_then(|grants| serde_json::from_str(grants).ok())
            .unwrap_or_default();
        let demands = spec.iter().flat_map(|spec| &spec.demands);
        let cost = demands.map(|d| (d.resource.to_string(), amounts(&d.resource, &d.options)));
        let given = grants
            .iter()
            .map(|grant| (grant.resource.to_string(), given(grant)));
        let program = row.program.as_deref();
        Some(Self {
            action: row.action,
            program_id: program
                .and_then(|key| tenant.outside(key))
                .map(str::to_owned),
            job,
            kind: row.kind,
            status: row.status,
            outcome: row
                .outcome
                .as_deref()
                .and_then(|outcome| serde_json::from_str(outcome).ok()),
            output_digest: row.output,
            output: None,
            cost: Value::Object(cost.collect::<Map<_, _>>()),
            given: Value::Object(given.collect::<Map<_, _>>()),
            attempts: row.attempts,
            idempotency_key: spec.and_then(|spec| spec.idempotency_key).map(Into::into),
            submitted_at_us: row.submitted_at_us,
            granted_at_us: row.granted_at_us,
            began_at_us: row.began_at_us,
            ended_at_us: row.ended_at_us,
        })
    }

    /// Digest of its output.
    pub fn output_digest(&self) -> Option<&str> {
        self.output_digest.as_deref()
    }

    /// Adds its output.
    pub fn with_output(self, output: Option<OutputView>) -> Self {
        Self { output, ..self }
    }
}

/// An amount in the units of the API.
fn counted(resource: &str, units: u64) -> u64 {
    if own_name(resource) == MEMORY {
        return units.saturating_mul(MEBIBYTE);
    }
    units
}

fn amounts(resource: &str, options: &[u64]) -> Value {
    let counted = options.iter().map(|units| counted(resource, *units));
    match options {
        [_] => json!(counted.sum::<u64>()),
        _ => json!(counted.collect::<Vec<_>>()),
    }
}

fn given(grant: &Grant) -> Value {
    let units = counted(&grant.resource, grant.units);
    match grant.chunk {
        Some(chunk) => json!({
            "units": units, "node": chunk.node, "devices": chunk.devices().collect::<Vec<_>>(),
        }),
        None => json!(units),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use treadle_model::tenant::DEFAULT_TENANT;

    #[test]
    fn amounts_are_in_the_units_of_clients_and_names_without_tenants() {
        let row = ActionRow {
            action: 7,
            job: "j".to_owned(),
            kind: "pytest".to_owned(),
            status: "running".to_owned(),
            spec: json!({
                "job": "j", "kind": "pytest", "run_max": 1, "body": "d",
                "demands": [
                    {"resource": "cpu", "options": [1, 2]},
                    {"resource": "memory", "options": [3]},
                ],
            })
            .to_string(),
            grants: Some(
                json!([
                    {"resource": "memory", "units": 3},
                    {"resource": "gpu", "units": 2, "chunk": {"node": 0, "first": 2, "size": 2}},
                ])
                .to_string(),
            ),
            ..ActionRow::default()
        };
        let other = ActionRow {
            job: "\u{1f}acme\u{1f}j".to_owned(),
            ..row.clone()
        };
        let tenant = Tenant::new(DEFAULT_TENANT);
        assert!(ActionView::of(&tenant, other).is_none());
        let view = ActionView::of(&tenant, row).expect("it is one's own");
        assert_eq!(view.cost, json!({"cpu": [1, 2], "memory": 3 << 20}));
        let gpu = json!({"units": 2, "node": 0, "devices": [2, 3]});
        assert_eq!(view.given, json!({"memory": 3 << 20, "gpu": gpu}));
    }
}
