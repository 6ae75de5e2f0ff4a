//! Calls of a policy as JSON, recorded or sent, and their execution.

mod shaping;

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use treadle_plugin::Phase;
use treadle_policy_runtime::{
    ActingColumns, ActionColumns, ActiveColumns, AnswerColumns, AssignColumns, CacheAction,
    CallContext, EvictionInstance, FinishedColumns, LiveColumns, MigrateColumns,
    ParallelismColumns, PlacementInstance, PolicyFault, PolicyInstance, PoolColumns,
    PreemptColumns, PriorityInstance, QueueColumns, RetentionColumns, RouteColumns, RunningColumns,
    WaitingColumns, WorkerColumns,
};

use super::background_native::{Allocation, Native, Prediction, Reward};

/// One call of a policy.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedCall {
    /// The world of the policy.
    pub world: String,
    /// Name of the function in the contract, such as `pause-order`.
    pub function: String,
    /// The binding's configuration.
    #[serde(default = "empty_object")]
    pub config: Value,
    /// The time of the decision, in milliseconds.
    #[serde(default)]
    pub now_ms: u64,
    /// Seed of the random stream.
    #[serde(default)]
    pub seed: u64,
    /// The columns by their names in the contract, with underscores.
    pub columns: BTreeMap<String, Value>,
    /// The expected answer; `{"error": CODE}` if the policy has to refuse.
    #[serde(default)]
    pub expect: Option<Value>,
}

fn empty_object() -> Value {
    json!({})
}

/// Why a call has no answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// The call does not match the contract.
    BadLine(String),
    /// The policy failed.
    Fault(PolicyFault),
}

impl From<PolicyFault> for NoAnswer {
    fn from(fault: PolicyFault) -> Self {
        Self::Fault(fault)
    }
}

type Answered = Result<Value, NoAnswer>;

/// Columns of a call, and the names of those that were read.
struct Columns<'c> {
    given: &'c BTreeMap<String, Value>,
    known: RefCell<Vec<&'static str>>,
}

impl<'c> Columns<'c> {
    fn of(call: &'c RecordedCall) -> Self {
        Self {
            given: &call.columns,
            known: RefCell::default(),
        }
    }

    /// Reads a required column or value.
    fn take<T: DeserializeOwned>(&self, name: &'static str) -> Result<T, NoAnswer> {
        self.known.borrow_mut().push(name);
        let Some(value) = self.given.get(name) else {
            return Err(NoAnswer::BadLine(format!("the column {name} is missing")));
        };
        T::deserialize(value)
            .map_err(|error| NoAnswer::BadLine(format!("the column {name}: {error}")))
    }

    /// The phase of each program, by the names of the contract.
    fn phases(&self) -> Result<Vec<Phase>, NoAnswer> {
        let names: Vec<String> = self.take("phase")?;
        let phase = |name: String| match name.as_str() {
            "reasoning" => Ok(Phase::Reasoning),
            "acting" => Ok(Phase::Acting),
            _ => Err(NoAnswer::BadLine(format!(
                "the column phase has {name:?}; give reasoning or acting"
            ))),
        };
        names.into_iter().map(phase).collect()
    }

    /// Reads an optional column.
    fn take_or<T: DeserializeOwned>(
        &self,
        name: &'static str,
        unless_given: impl FnOnce() -> T,
    ) -> Result<T, NoAnswer> {
        if self.given.contains_key(name) {
            return self.take(name);
        }
        self.known.borrow_mut().push(name);
        Ok(unless_given())
    }

    /// The extra columns; none if absent.
    fn extra(&self) -> Result<Vec<f32>, NoAnswer> {
        if self.given.contains_key("extra") {
            return self.take("extra");
        }
        Ok(Vec::new())
    }

    /// Fails if there are unexpected columns.
    fn all_taken(&self) -> Result<(), NoAnswer> {
        let known = self.known.borrow();
        let unknown = self
            .given
            .keys()
            .find(|name| !known.contains(&name.as_str()));
        unknown.map_or(Ok(()), |name| {
            let known = known.join(", ");
            Err(NoAnswer::BadLine(format!(
                "the column {name} is not known; there are {known} and extra"
            )))
        })
    }
}

/// Calls a policy and returns the answer as JSON.
pub fn ask(instance: &mut PolicyInstance, context: &CallContext, call: &RecordedCall) -> Answered {
    let world = instance.world();
    if call.world != world.as_str() {
        let given = &call.world;
        return Err(NoAnswer::BadLine(format!(
            "it is of the world {given}, and the policy of {world}"
        )));
    }
    let columns = Columns::of(call);
    let function = call.function.as_str();
    match instance {
        PolicyInstance::Prediction(policy) => prediction(policy, context, function, &columns),
        PolicyInstance::Priority(policy) => priority(policy, context, function, &columns),
        PolicyInstance::Placement(policy) => placement(policy, context, function, &columns),
        PolicyInstance::Allocation(policy) => allocation(policy, context, function, &columns),
        PolicyInstance::Eviction(policy) => eviction(policy, context, function, &columns),
        PolicyInstance::Reward(policy) => reward(policy, context, function, &columns),
        PolicyInstance::Shaping(policy) => shaping::ask(policy, context, function, &columns),
    }
}

/// Calls the built-in default of a world, if clients ask that world.
pub(crate) fn ask_native(
    native: &mut Native,
    context: &CallContext,
    call: &RecordedCall,
) -> Answered {
    let (columns, function) = (Columns::of(call), call.function.as_str());
    match call.world.as_str() {
        "prediction" => prediction(&mut native.prediction, context, function, &columns),
        "allocation" => allocation(&mut native.allocation, context, function, &columns),
        "reward" => reward(&mut native.reward, context, function, &columns),
        world => Err(NoAnswer::BadLine(format!(
            "the world {world} is asked by the scheduler alone; ask prediction, allocation or reward"
        ))),
    }
}

fn unknown(function: &str, known: &str) -> Answered {
    Err(NoAnswer::BadLine(format!(
        "the function {function} is not known; there are {known}"
    )))
}

/// Reads columns as fields, checks that none is left over, and calls the policy.
macro_rules! answer {
    ($policy:ident.$function:ident($context:ident, $given:ident: $columns:ident {
        $($field:ident $(= $value:expr)?),* $(,)?
    })) => {{
        $(let $field = answer!(@taken $given, $field $(; $value)?);)*
        $given.all_taken()?;
        let columns = $columns { $($field: answer!(@passed $field $(; $value)?)),* };
        $policy.$function($context, &columns)?
    }};
    (@taken $given:ident, extra) => { $given.extra()? };
    (@taken $given:ident, phase) => { $given.phases()? };
    (@taken $given:ident, $field:ident) => { $given.take::<Vec<_>>(stringify!($field))? };
    (@taken $given:ident, $field:ident; $value:expr) => { $value };
    (@passed $field:ident) => { &$field };
    (@passed $field:ident; $value:expr) => { $field };
}

fn prediction(
    policy: &mut impl Prediction,
    context: &CallContext,
    function: &str,
    given: &Columns<'_>,
) -> Answered {
    match function {
        "predict" => {
            let estimates = answer!(policy.predict(context, given: LiveColumns {
                group, tokens, output_tokens, steps, tool_ms, extra,
            }));
            Ok(json!({
                "remaining_tokens": estimates.remaining_tokens,
                "remaining_tokens_p90": estimates.remaining_tokens_p90,
                "remaining_tool_s": estimates.remaining_tool_s,
            }))
        }
        "learn" => {
            answer!(policy.learn(context, given: FinishedColumns {
                group, tokens, output_tokens, steps, tool_ms, remaining_tokens,
                remaining_tool_ms, extra,
            }));
            Ok(Value::Null)
        }
        _ => unknown(function, "predict and learn"),
    }
}

fn priority(
    policy: &mut PriorityInstance,
    context: &CallContext,
    function: &str,
    given: &Columns<'_>,
) -> Answered {
    match function {
        "score" => Ok(json!(answer!(policy.score(context, given: QueueColumns {
            tokens, output_tokens, steps, waited_ms, remaining_tokens, remaining_tool_s, extra,
        })))),
        "preempt" => Ok(json!(
            answer!(policy.preempt(context, given: PreemptColumns {
                running_score, running_ms, waiting_score,
            }))
        )),
        _ => unknown(function, "score and preempt"),
    }
}

/// Columns of workers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Workers {
    capacity_tokens: Vec<u64>,
    used_tokens: Vec<u64>,
    running: Vec<u32>,
    token_us: Vec<f64>,
    step_us: Vec<f64>,
    prefill_us: Vec<f64>,
    hardware_class: Vec<u32>,
    lockstep_group: Vec<u32>,
}

fn placement(
    policy: &mut PlacementInstance,
    context: &CallContext,
    function: &str,
    given: &Columns<'_>,
) -> Answered {
    let workers: Workers = given.take("workers")?;
    let all = WorkerColumns {
        capacity_tokens: &workers.capacity_tokens,
        used_tokens: &workers.used_tokens,
        running: &workers.running,
        token_us: &workers.token_us,
        step_us: &workers.step_us,
        prefill_us: &workers.prefill_us,
        hardware_class: &workers.hardware_class,
        lockstep_group: &workers.lockstep_group,
    };
    match function {
        "assign" => Ok(json!(answer!(policy.assign(context, given: AssignColumns {
            group, tokens, remaining_tokens, last_worker, growth, tool_us, preferred_class,
            workers = all, extra,
        })))),
        "route" => Ok(json!(answer!(policy.route(context, given: RouteColumns {
            tokens = given.take("tokens")?, cached_tokens, workers = all, extra,
        })))),
        "migrate" => Ok(json!(
            answer!(policy.migrate(context, given: MigrateColumns {
                at_worker, tokens, remaining_tokens, phase, growth, tool_us, preferred_class,
                workers = all, extra,
            }))
        )),
        _ => unknown(function, "assign, route and migrate"),
    }
}

/// Resources of actions.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pools {
    free_units: Vec<u32>,
    chunked: Vec<u8>,
    free_chunks: Vec<u32>,
}

/// Running actions; none if absent.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Running {
    pool: Vec<u32>,
    units: Vec<u32>,
    left_us: Vec<u64>,
}

fn arrange(policy: &mut impl Allocation, context: &CallContext, given: &Columns<'_>) -> Answered {
    let pools: Pools = given.take("pools")?;
    let running: Running = given.take_or("running", Running::default)?;
    let all = PoolColumns {
        free_units: &pools.free_units,
        chunked: &pools.chunked,
        free_chunks: &pools.free_chunks,
    };
    let ends = RunningColumns {
        pool: &running.pool,
        units: &running.units,
        left_us: &running.left_us,
    };
    Ok(json!(
        answer!(policy.arrange(context, given: ActionColumns {
            pool, candidate, waited_us, option_start, option_units, option_us, option_load_us,
            pools = all, running = ends, extra,
        }))
    ))
}

fn allocation(
    policy: &mut impl Allocation,
    context: &CallContext,
    function: &str,
    given: &Columns<'_>,
) -> Answered {
    match function {
        "arrange" => arrange(policy, context, given),
        "parallelism" => {
            let degrees = given.take::<Vec<u32>>("degree")?.len();
            let unknown = || vec![-1.0; degrees];
            let (step_us, prefill_us): (Vec<f64>, Vec<f64>) = (
                given.take_or("step_us", unknown)?,
                given.take_or("prefill_us", unknown)?,
            );
            Ok(json!(
                answer!(policy.parallelism(context, given: ParallelismColumns {
                    gpus = given.take("gpus")?, degree, token_us, step_us = &step_us,
                    prefill_us = &prefill_us, capacity_tokens, expected_tokens,
                    prompt_tokens = given.take_or("prompt_tokens", || 0)?,
                    growth = given.take_or("growth", || -1.0)?,
                    tool_us = given.take_or("tool_us", || -1.0)?,
                }))
            ))
        }
        _ => unknown(function, "arrange and parallelism"),
    }
}

fn eviction(
    policy: &mut EvictionInstance,
    context: &CallContext,
    function: &str,
    given: &Columns<'_>,
) -> Answered {
    match function {
        "weigh" => Ok(json!(answer!(policy.weigh(context, given: ActingColumns {
            tokens, phase_ms, extra,
        })))),
        "pause-order" => Ok(json!(
            answer!(policy.pause_order(context, given: ActiveColumns {
                tokens, phase, phase_ms, steps, extra,
            }))
        )),
        "restore-order" => Ok(json!(
            answer!(policy.restore_order(context, given: WaitingColumns {
                tokens, phase, waited_ms, steps, extra,
            }))
        )),
        "retain" => {
            let actions = answer!(policy.retain(context, given: RetentionColumns {
                capacity_tokens = given.take("capacity_tokens")?,
                free_tokens = given.take("free_tokens")?,
                wanted_tokens = given.take("wanted_tokens")?,
                tokens, phase_ms, idle_ms, soonest_ms, back_ms, moved_ms, prefill_ms, steps, extra,
            }));
            let names: Vec<&str> = actions.into_iter().map(CacheAction::as_str).collect();
            Ok(json!(names))
        }
        _ => unknown(function, "weigh, pause-order, restore-order and retain"),
    }
}

fn reward(
    policy: &mut impl Reward,
    context: &CallContext,
    function: &str,
    given: &Columns<'_>,
) -> Answered {
    match function {
        "score" => {
            let scores = answer!(policy.score(context, given: AnswerColumns {
                answer, reference, output_tokens, steps, extra,
            }));
            Ok(json!({
                "totals": scores.totals, "part_names": scores.part_names, "parts": scores.parts,
            }))
        }
        _ => unknown(function, "score"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(given: &BTreeMap<String, Value>) -> Columns<'_> {
        Columns {
            given,
            known: RefCell::default(),
        }
    }

    #[test]
    fn missing_and_extra_fields_of_a_line_are_named() {
        let given = BTreeMap::from([
            ("tokens".to_owned(), json!([1, 2])),
            ("colour".to_owned(), json!([3])),
        ]);
        let columns = columns(&given);
        assert_eq!(columns.take::<Vec<u64>>("tokens").unwrap(), [1, 2]);
        assert!(columns.extra().unwrap().is_empty());
        let said = |result: Result<(), NoAnswer>| match result.unwrap_err() {
            NoAnswer::BadLine(text) => text,
            NoAnswer::Fault(fault) => fault.to_string(),
        };
        assert!(said(columns.take::<Vec<u64>>("steps").map(drop)).contains("steps is missing"));
        assert!(said(columns.all_taken()).contains("colour is not known"));
        assert!(
            said(
                columns
                    .take::<Vec<u8>>("colour")
                    .and(columns.take("tokens"))
            )
            .contains("tokens")
        );
    }

    #[test]
    fn every_sample_line_is_read() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/inputs");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let world = path.file_stem().and_then(|stem| stem.to_str());
            for line in std::fs::read_to_string(&path).unwrap().lines() {
                let call: RecordedCall = serde_json::from_str(line).unwrap();
                assert_eq!(world, Some(call.world.as_str()));
            }
        }
    }
}
