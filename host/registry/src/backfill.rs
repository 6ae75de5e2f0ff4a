//! Observations of programs from before this daemon or its predictions began, rebuilt from their
//! steps in the store. The results of their tool calls are not included.

use std::cmp::Reverse;
use treadle_policy::columns::EXTRA_COLUMNS;
use treadle_scheduler::{Moment, Observation};
use treadle_store::{PAGE_ROWS_MAX, Programs, StepPage, StepRow, StoreError};

/// Maximum number of steps read per program.
const STEPS_MAX: usize = 16 * PAGE_ROWS_MAX as usize;
/// Results of steps that generated nothing to count.
const UNFINISHED: [&str; 3] = ["failed", "cancelled", "interrupted"];

/// The observations of a program before `present`.
///
/// # Errors
/// The store failed.
pub(super) async fn earlier_observations(
    store: &dyn Programs,
    present: &Observation,
) -> Result<Vec<Observation>, StoreError> {
    let mut steps: Vec<StepRow> = Vec::new();
    loop {
        let page = StepPage {
            after: steps.last().map(|step| step.step),
            limit: PAGE_ROWS_MAX,
        };
        let rows = store.steps(&present.key, &page).await?;
        let is_last = rows.len() < PAGE_ROWS_MAX as usize;
        steps.extend(rows);
        if is_last || steps.len() >= STEPS_MAX {
            break;
        }
    }
    Ok(seen_of(steps, present))
}

fn seen_of(mut steps: Vec<StepRow>, present: &Observation) -> Vec<Observation> {
    steps.retain(|step| step.finished_at_us.is_some());
    steps.retain(|step| !UNFINISHED.contains(&step.outcome.as_str()));
    // Steps of several gateways are not ordered by their ids; the oldest may have been removed.
    steps.sort_by_key(|step| Reverse(step.finished_at_us));
    steps.truncate(present.steps as usize);
    steps.reverse();
    let unseen = present.steps - steps.len() as u32;
    let listed: u64 = steps.iter().map(|step| step.output_tokens).sum();
    let mut seen = Observation {
        output_tokens: present.output_tokens.saturating_sub(listed),
        steps: unseen,
        tool_ms: 0,
        extra: unknown(present),
        after: None,
        ..present.clone()
    };
    let mut all = Vec::new();
    let mut before: Option<&StepRow> = None;
    for step in &steps {
        match before.and_then(|before| before.finished_at_us) {
            Some(finished) => {
                seen.tool_ms += step.arrived_at_us.saturating_sub(finished) / 1_000;
                seen.moment = Moment::Returned;
                seen.extra[4] = 1.0;
                all.push(seen.clone());
            }
            None if unseen == 0 => {
                seen.tokens = step.prompt_tokens;
                seen.moment = Moment::Acting;
                all.push(seen.clone());
            }
            None => {}
        }
        seen.tokens = step.prompt_tokens + step.output_tokens;
        seen.output_tokens += step.output_tokens;
        seen.steps += 1;
        seen.moment = Moment::Acting;
        seen.extra[1] = step.output_tokens as f32;
        seen.extra[4] = 0.0;
        all.push(seen.clone());
        before = Some(step);
    }
    // The present observation is added separately.
    let is_present = |seen: &Observation| {
        seen.steps == present.steps && !present.moment.is_over() && seen.moment == present.moment
    };
    all.retain(|seen| !is_present(seen));
    all
}

/// The extra columns of an earlier observation; only its first prompt is known.
fn unknown(present: &Observation) -> [f32; EXTRA_COLUMNS.len()] {
    let mut extra = [-1.0; EXTRA_COLUMNS.len()];
    extra[0] = present.extra[0];
    extra
}

#[cfg(test)]
mod tests {
    use super::super::reservoir::tests::seen;
    use super::*;
    use treadle_store::{Batch, Location, ProgramRow, open};

    fn step(number: u64, outcome: &str) -> StepRow {
        StepRow {
            step: number,
            program: "p-7".to_owned(),
            worker: None,
            arrived_at_us: number * 1_000_000,
            dispatched_at_us: None,
            first_token_at_us: None,
            finished_at_us: Some(number * 1_000_000 + 400_000),
            prompt_tokens: 100 * number,
            output_tokens: if outcome == "stop" { 50 } else { 0 },
            cached_tokens: None,
            outcome: outcome.to_owned(),
            waited_us: 0,
            ..StepRow::default()
        }
    }

    fn program() -> ProgramRow {
        ProgramRow {
            program: "p-7".to_owned(),
            job: "run".to_owned(),
            parent: None,
            status: "active".into(),
            phase: "acting".into(),
            worker: None,
            context_tokens: 0,
            steps: 3,
            ..ProgramRow::default()
        }
    }

    fn figures(all: &[Observation]) -> Vec<(u32, u64, u64, f32)> {
        let figures =
            |seen: &Observation| (seen.steps, seen.output_tokens, seen.tool_ms, seen.extra[4]);
        all.iter().map(figures).collect()
    }

    #[tokio::test]
    async fn what_a_daemon_had_seen_before_it_restarted_is_in_the_store() {
        let store = open(&Location::Memory).await.expect("it opens");
        let steps = vec![
            step(1, "stop"),
            step(2, "cancelled"),
            step(3, "stop"),
            step(4, "length"),
        ];
        let steps = steps.into_iter().map(|mut step| {
            step.output_tokens = if step.outcome == "cancelled" { 0 } else { 50 };
            step
        });
        let batch = Batch {
            programs: vec![program()],
            steps: steps.collect(),
            ..Batch::default()
        };
        store.append(&batch).await.expect("it appends");
        let all = earlier_observations(&*store, &seen(7, 3, Moment::Returned))
            .await
            .expect("it reads");
        let expected = [
            (0, 0, 0, -1.0),
            (1, 50, 0, 0.0),
            (1, 50, 1_600, 1.0),
            (2, 100, 1_600, 0.0),
            (2, 100, 2_200, 1.0),
            (3, 150, 2_200, 0.0),
        ];
        assert_eq!(figures(&all), expected);
        let over = earlier_observations(&*store, &seen(7, 3, Moment::Ended))
            .await
            .expect("it reads");
        assert_eq!(figures(&over), expected);
        let acting = earlier_observations(&*store, &seen(7, 3, Moment::Acting))
            .await
            .expect("it reads");
        assert_eq!(figures(&acting), expected[..5]);
    }

    #[test]
    fn steps_that_were_removed_count_as_done() {
        let all = seen_of(
            vec![step(4, "stop"), step(5, "stop")],
            &seen(7, 5, Moment::Returned),
        );
        let expected = [(4, 200, 0, 0.0), (4, 200, 600, 1.0), (5, 250, 600, 0.0)];
        assert_eq!(figures(&all), expected);
    }
}
