//! Predictions: observed programs go to the prediction policy in batches, its forecasts go to the
//! driver, and the actual outcomes go back to the policy. A service may replace the policy; what it
//! does not answer the policy does.

use super::seen::{Lesson, SeenColumns};
use super::{PluginRegistry, RemotePredictor};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio::sync::mpsc::Receiver;
use treadle_model::ProgramId;
use treadle_plugin::Estimates;
use treadle_policy::evaluator::Forecast;
use treadle_policy_runtime::{FinishedColumns, LiveColumns};
use treadle_scheduler::{DriverHandle, Observation};

/// Sightings taken into one round.
const ROUND_MAX: usize = 1_024;
/// Sightings of one program that are kept to learn from.
const KEPT_MAX: usize = 32;
/// Programs whose sightings are kept; those beyond teach nothing.
const PROGRAMS_MAX: usize = 100_000;

/// Predicts for ever.
pub async fn forecast(
    registry: Arc<PluginRegistry>,
    driver: DriverHandle,
    mut seen: Receiver<Observation>,
    remote: Option<RemotePredictor>,
) {
    let mut kept: HashMap<ProgramId, Vec<Observation>> = HashMap::new();
    let mut round = Vec::with_capacity(ROUND_MAX);
    while seen.recv_many(&mut round, ROUND_MAX).await > 0 {
        let (over, live): (Vec<_>, Vec<_>) = round.drain(..).partition(|s| s.is_over);
        let mut live = by_job(live);
        let finished = finished(&mut kept, over);
        remember(&mut kept, &live);
        let mut forecasts = Vec::new();
        if let Some(remote) = &remote {
            forecasts = ask_remote(remote, &mut live, &finished).await;
        }
        let registry = registry.clone();
        // A policy has seconds for its answer.
        let asked = tokio::task::spawn_blocking(move || {
            for (job, rows) in &finished {
                registry.learn(job, rows);
            }
            let jobs = live.iter();
            jobs.flat_map(|(job, rows)| registry.predict(job, rows))
                .collect::<Vec<_>>()
        });
        forecasts.extend(asked.await.unwrap_or_default());
        if driver.expect(forecasts).is_err() {
            return;
        }
    }
}

/// The service's answer; the jobs that it answered for are removed.
async fn ask_remote(
    remote: &RemotePredictor,
    live: &mut BTreeMap<Box<str>, Vec<Observation>>,
    finished: &BTreeMap<Box<str>, Vec<Lesson>>,
) -> Vec<(ProgramId, Forecast)> {
    let mut forecasts = Vec::new();
    let mut left = BTreeMap::new();
    for (job, rows) in std::mem::take(live) {
        match remote.predict(&job, &rows).await {
            Some(told) => forecasts.extend(told),
            None => {
                left.insert(job, rows);
            }
        }
    }
    *live = left;
    for (job, lessons) in finished {
        remote.learn(job, lessons).await;
    }
    forecasts
}

fn by_job(sightings: Vec<Observation>) -> BTreeMap<Box<str>, Vec<Observation>> {
    let mut jobs: BTreeMap<Box<str>, Vec<Observation>> = BTreeMap::new();
    for observation in sightings {
        jobs.entry(observation.job.clone())
            .or_default()
            .push(observation);
    }
    jobs
}

fn remember(
    kept: &mut HashMap<ProgramId, Vec<Observation>>,
    live: &BTreeMap<Box<str>, Vec<Observation>>,
) {
    for observation in live.values().flatten() {
        if kept.len() >= PROGRAMS_MAX && !kept.contains_key(&observation.program) {
            continue;
        }
        let of_program = kept.entry(observation.program).or_default();
        if of_program.len() < KEPT_MAX {
            of_program.push(observation.clone());
        }
    }
}

fn finished(
    kept: &mut HashMap<ProgramId, Vec<Observation>>,
    over: Vec<Observation>,
) -> BTreeMap<Box<str>, Vec<Lesson>> {
    let mut lessons: BTreeMap<Box<str>, Vec<Lesson>> = BTreeMap::new();
    for end in over {
        let seen = kept.remove(&end.program).unwrap_or_default();
        let of_job = lessons.entry(end.job.clone()).or_default();
        of_job.extend(seen.into_iter().map(|seen| Lesson {
            remaining_tokens: end.output_tokens.saturating_sub(seen.output_tokens),
            remaining_tool_ms: end.tool_ms.saturating_sub(seen.tool_ms),
            seen,
        }));
    }
    lessons
}

impl PluginRegistry {
    fn predict(&self, job: &str, rows: &[Observation]) -> Vec<(ProgramId, Forecast)> {
        let seen = SeenColumns::of(rows.iter());
        let columns = LiveColumns {
            group: &seen.group,
            tokens: &seen.tokens,
            output_tokens: &seen.output_tokens,
            steps: &seen.steps,
            tool_ms: &seen.tool_ms,
            extra: &[],
        };
        let extra = |named: &[usize]| seen.extra(named);
        let Some(estimates) = self.background.predict(job, &columns, extra) else {
            return Vec::new();
        };
        let Estimates {
            remaining_tokens,
            remaining_tokens_p90,
            remaining_tool_s,
        } = estimates;
        let forecast = |(row, seen): (usize, &Observation)| {
            let forecast = Forecast {
                remaining_tokens: *remaining_tokens.get(row)?,
                remaining_tokens_p90: *remaining_tokens_p90.get(row)?,
                remaining_tool_s: *remaining_tool_s.get(row)?,
            };
            Some((seen.program, forecast))
        };
        rows.iter().enumerate().filter_map(forecast).collect()
    }

    fn learn(&self, job: &str, lessons: &[Lesson]) {
        let seen = SeenColumns::of(lessons.iter().map(|lesson| &lesson.seen));
        let tokens: Vec<u64> = lessons.iter().map(|l| l.remaining_tokens).collect();
        let tool_ms: Vec<u64> = lessons.iter().map(|l| l.remaining_tool_ms).collect();
        self.background.learn(
            job,
            &FinishedColumns {
                group: &seen.group,
                tokens: &seen.tokens,
                output_tokens: &seen.output_tokens,
                steps: &seen.steps,
                tool_ms: &seen.tool_ms,
                remaining_tokens: &tokens,
                remaining_tool_ms: &tool_ms,
                extra: &[],
            },
            |named| seen.extra(named),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(program: u64, steps: u32, output_tokens: u64, is_over: bool) -> Observation {
        Observation {
            program: ProgramId(program),
            job: "run".into(),
            group: 1,
            tokens: 0,
            output_tokens,
            steps,
            tool_ms: output_tokens * 10,
            extra: [steps as f32, output_tokens as f32, -1.0, 0.0],
            is_over,
        }
    }

    #[test]
    fn a_finished_program_teaches_what_came_after_each_step() {
        let mut kept = HashMap::new();
        let live = vec![seen(1, 1, 100, false), seen(2, 1, 50, false)];
        remember(&mut kept, &by_job(live));
        remember(&mut kept, &by_job(vec![seen(1, 2, 250, false)]));
        let lessons = finished(&mut kept, vec![seen(1, 2, 250, true)]);
        let lessons = &lessons["run"];
        let learnt: Vec<_> = lessons
            .iter()
            .map(|l| (l.seen.steps, l.remaining_tokens, l.remaining_tool_ms))
            .collect();
        assert_eq!(learnt, [(1, 150, 1_500), (2, 0, 0)]);
        assert_eq!(kept.len(), 1);
    }

    #[test]
    fn extra_columns_come_one_after_the_other_in_the_order_asked_for() {
        let rows = [seen(1, 3, 100, false), seen(2, 4, 200, false)];
        let seen = SeenColumns::of(rows.iter());
        assert_eq!(seen.extra(&[1, 0]), [100.0, 200.0, 3.0, 4.0]);
        assert!(seen.extra(&[]).is_empty());
    }

    #[test]
    fn what_is_kept_of_a_program_is_bounded() {
        let mut kept = HashMap::new();
        for step in 0..100 {
            remember(&mut kept, &by_job(vec![seen(1, step, 0, false)]));
        }
        assert_eq!(kept[&ProgramId(1)].len(), KEPT_MAX);
    }
}
