//! Fills in missing columns of a question of parallelism, from engines and from the job's last
//! rollout.

use super::refuse;
use crate::app::App;
use crate::rest::{stopped, store_failed};
use axum::response::Response;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use treadle_core::estimates::DecodeTime;
use treadle_core::estimates::EngineClass;
use treadle_core::programs::Worker;
use treadle_store::LengthRow;
use treadle_wire::ErrorCode;
use utoipa::ToSchema;

/// Most ended programs of a job that are read.
const PROGRAMS_MAX: u32 = 4_096;
/// A group of programs smaller than the largest by more than this factor is not a rollout.
const SMALLER_MAX: usize = 4;
/// Columns with one row per degree.
const OF_DEGREES: [&str; 5] = [
    "degree",
    "token_us",
    "step_us",
    "prefill_us",
    "capacity_tokens",
];

type Columns = BTreeMap<String, Value>;

/// The columns that were filled in for the answer.
#[derive(Serialize, ToSchema)]
pub(super) struct Filled {
    /// The columns that were filled in.
    #[schema(value_type = Object)]
    columns: Columns,
    /// Number of programs of the rollout that lengths were taken from; 0 if the question had
    /// lengths.
    programs: usize,
}

/// Fills in the missing columns.
pub(super) async fn fill(
    app: &App,
    job: Option<&str>,
    columns: &mut Columns,
) -> Result<Filled, Response> {
    let mut filled = Filled {
        columns: Columns::new(),
        programs: 0,
    };
    let is_given = |columns: &Columns, name: &str| columns.contains_key(name);
    if !OF_DEGREES.iter().any(|name| is_given(columns, name)) {
        let workers = app.driver.workers().await.map_err(|_| stopped())?;
        let gone = app.driver.engine_classes().await.map_err(|_| stopped())?;
        filled.columns.extend(of_engines(&workers, &gone)?);
        if !is_given(columns, "gpus") {
            let at_work = workers.iter().filter(|worker| is_at_work(worker));
            let gpus = at_work
                .filter_map(|worker| worker.capacity.gpus)
                .fold(0_u32, u32::saturating_add);
            if gpus == 0 {
                let message =
                    "`gpus` is missing, and no working engine reports its number of GPUs; send it";
                return Err(refuse(ErrorCode::InvalidField, message.to_owned()));
            }
            filled.columns.insert("gpus".into(), gpus.into());
        }
    }
    if !is_given(columns, "expected_tokens") {
        let job = job.ok_or_else(|| {
            let message = "`expected_tokens` is missing; send it, or a `job` with ended programs";
            refuse(ErrorCode::InvalidField, message.to_owned())
        })?;
        // Afterwards the store is as recent as the scheduler.
        app.driver.recorded().await.map_err(|_| stopped())?;
        let rows = app.store.lengths(job, PROGRAMS_MAX).await;
        let rows = rows.map_err(|error| store_failed(&error))?;
        let rollout = last_rollout(&rows);
        filled.programs = rollout.len();
        filled.columns.extend(of_programs(rollout)?);
    }
    let open = filled.columns.iter();
    let open = open.filter(|(name, _)| !is_given(columns, name));
    let open: Columns = open.map(|(n, v)| (n.clone(), v.clone())).collect();
    columns.extend(open.clone());
    filled.columns = open;
    Ok(filled)
}

/// Figures of an engine, or of the last one of its class; -1 if unknown.
struct Row {
    token_us: f64,
    step_us: f64,
    prefill_us: f64,
    capacity_tokens: f64,
}

impl Row {
    fn of(time: DecodeTime, prefill_tokens_per_s: Option<u64>, capacity: Option<u64>) -> Self {
        let unknown = -1.0;
        Self {
            token_us: time.alone.0 as f64,
            step_us: time.further.map_or(unknown, |span| span.0 as f64),
            prefill_us: prefill_tokens_per_s.map_or(unknown, |speed| 1e6 / speed as f64),
            capacity_tokens: capacity.map_or(unknown, |tokens| tokens as f64),
        }
    }
}

/// One row per number of GPUs of engines with measured speed, present or past: of the models that
/// are served, else of the last one that was.
fn of_engines(workers: &[Worker], gone: &[EngineClass]) -> Result<Columns, Response> {
    let mut degrees: BTreeMap<u32, Vec<Row>> = BTreeMap::new();
    let at_work = || workers.iter().filter(|worker| is_at_work(worker));
    for worker in at_work() {
        if let (Some(gpus), Some(time)) = (worker.capacity.gpus, worker.speeds.decode_time()) {
            let prefill = worker.speeds.prefill_tokens_per_s();
            let row = Row::of(time, prefill, worker.capacity.tokens);
            degrees.entry(gpus).or_default().push(row);
        }
    }
    let served: Vec<_> = at_work().map(|worker| &worker.model).collect();
    let last = gone.iter().find(|class| class.gpus.is_some());
    let is_meant = |class: &EngineClass| match served[..] {
        [] => last.is_some_and(|last| last.model == class.model),
        _ => served.contains(&&class.model),
    };
    for class in gone.iter().filter(|class| is_meant(class)) {
        let known = class.gpus.map(|gpus| degrees.entry(gpus).or_default());
        // The most recent one comes first.
        if let Some(known) = known.filter(|known| known.is_empty()) {
            known.push(Row::of(
                class.time,
                class.prefill_tokens_per_s,
                class.capacity_tokens,
            ));
        }
    }
    if degrees.is_empty() {
        let message = "no engine has both a known number of GPUs and a measured speed; register \
                       engines with `gpus` and run steps on them, or send `degree`, `token_us` and \
                       `capacity_tokens`";
        return Err(refuse(ErrorCode::InvalidField, message.to_owned()));
    }
    let column = |of: fn(&Row) -> f64| -> Vec<f64> {
        let means = degrees.values().map(|rows| {
            let known: Vec<f64> = rows.iter().map(of).filter(|value| *value >= 0.0).collect();
            mean(&known).unwrap_or(-1.0)
        });
        means.collect()
    };
    let capacities = column(|row| row.capacity_tokens);
    let capacities: Vec<u64> = capacities.iter().map(|mean| mean.max(0.0) as u64).collect();
    Ok(Columns::from([
        (
            "degree".to_owned(),
            json!(degrees.keys().collect::<Vec<_>>()),
        ),
        ("token_us".to_owned(), json!(column(|row| row.token_us))),
        ("step_us".to_owned(), json!(column(|row| row.step_us))),
        ("prefill_us".to_owned(), json!(column(|row| row.prefill_us))),
        ("capacity_tokens".to_owned(), json!(capacities)),
    ]))
}

/// Whether it is active and its speed was measured.
fn is_at_work(worker: &Worker) -> bool {
    !worker.leaving && worker.speeds.decode_time().is_some()
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The newest rollout: between two rollouts no program of the job is alive. A few separate
/// programs, such as a check between rollouts, do not count as one.
fn last_rollout(rows: &[LengthRow]) -> &[LengthRow] {
    // Sorted by start time, newest first; for each row, the latest end of programs that started
    // before.
    let mut ends_before = vec![0; rows.len() + 1];
    for (place, row) in rows.iter().enumerate().rev() {
        ends_before[place] = ends_before[place + 1].max(row.ended_at_us);
    }
    let mut rollouts = Vec::new();
    let mut first = 0;
    for place in 1..=rows.len() {
        if place == rows.len() || ends_before[place] < rows[place - 1].created_at_us {
            rollouts.push(&rows[first..place]);
            first = place;
        }
    }
    let largest = rollouts.iter().map(|rollout| rollout.len()).max();
    let is_one = |rollout: &&[LengthRow]| rollout.len() * SMALLER_MAX >= largest.unwrap_or(0);
    rollouts.into_iter().find(is_one).unwrap_or(&[])
}

/// Lengths and growth of programs.
fn of_programs(rollout: &[LengthRow]) -> Result<Columns, Response> {
    let lengths: Vec<u64> = rollout.iter().map(|row| row.output_tokens.max(1)).collect();
    if lengths.is_empty() {
        let message = "`expected_tokens` is missing, and no program of the job has ended yet; send \
                       it, or ask after the first rollout";
        return Err(refuse(ErrorCode::InvalidField, message.to_owned()));
    }
    let sum = |of: fn(&LengthRow) -> u64| rollout.iter().map(of).fold(0_u64, u64::saturating_add);
    let output = sum(|row| row.output_tokens).max(1) as f64;
    let grown = sum(|row| row.context_tokens.saturating_sub(row.prompt_tokens)) as f64;
    let lived = sum(|row| row.ended_at_us.saturating_sub(row.created_at_us));
    let in_tools = lived.saturating_sub(sum(|row| row.steps_us)) as f64;
    let prompt = sum(|row| row.prompt_tokens) / lengths.len() as u64;
    Ok(Columns::from([
        ("expected_tokens".to_owned(), json!(lengths)),
        ("prompt_tokens".to_owned(), json!(prompt)),
        ("growth".to_owned(), json!((grown / output).max(1.0))),
        ("tool_us".to_owned(), json!(in_tools / output)),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use treadle_model::{EngineKind, Span, Timestamp};

    fn row(created_at_us: u64, ended_at_us: u64) -> LengthRow {
        LengthRow {
            created_at_us,
            ended_at_us,
            prompt_tokens: 100,
            context_tokens: 400,
            output_tokens: 150,
            steps_us: 10,
        }
    }

    fn gone(model: &str, gpus: u32, token_us: u64) -> EngineClass {
        EngineClass {
            hardware: None,
            engine: EngineKind::Vllm,
            model: Some(model.into()),
            gpus: Some(gpus),
            capacity_tokens: Some(1_000 * u64::from(gpus)),
            time: DecodeTime {
                alone: Span(token_us),
                further: None,
            },
            prefill_tokens_per_s: None,
            at: Timestamp(0),
        }
    }

    #[test]
    fn degrees_that_ran_before_are_known() {
        // The last one first: degrees of other models do not count.
        let before = [
            gone("m", 4, 9),
            gone("n", 2, 15),
            gone("m", 1, 30),
            gone("m", 4, 8),
        ];
        let columns = of_engines(&[], &before).expect("two degrees");
        assert_eq!(columns["degree"], json!([1, 4]));
        assert_eq!(columns["token_us"], json!([30.0, 9.0]));
        assert_eq!(columns["step_us"], json!([-1.0, -1.0]));
        assert_eq!(columns["capacity_tokens"], json!([1_000, 4_000]));
        let columns = of_engines(&[], &before[1..2]).expect("one degree");
        assert_eq!(columns["degree"], json!([2]));
        assert!(of_engines(&[], &[]).is_err());
    }

    #[test]
    fn a_rollout_ends_where_no_program_is_alive() {
        let rows = [
            row(910, 950),
            row(700, 800),
            row(600, 640),
            row(500, 900),
            row(300, 400),
            row(100, 490),
        ];
        // The newest is a single program; one of the 500 lives to the end of its rollout.
        assert_eq!(last_rollout(&rows[1..]), &rows[1..4]);
        assert_eq!(
            last_rollout(&rows),
            &rows[..1],
            "three are not many more than one"
        );
        let mut many: Vec<LengthRow> = (0..8).map(|at| row(400 - at, 480)).collect();
        many.insert(0, row(900, 950));
        assert_eq!(last_rollout(&many), &many[1..], "a check between rollouts");
        assert_eq!(last_rollout(&[]), &[]);
    }

    #[test]
    fn lengths_and_habits_are_those_of_the_programs() {
        let columns = of_programs(&[row(0, 310), row(0, 310)]).expect("they have ended");
        assert_eq!(columns["expected_tokens"], json!([150, 150]));
        assert_eq!(columns["prompt_tokens"], json!(100));
        assert_eq!(
            (&columns["growth"], &columns["tool_us"]),
            (&json!(2.0), &json!(2.0))
        );
        assert!(of_programs(&[]).is_err());
    }
}
