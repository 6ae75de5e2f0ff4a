//! Predictions: observed programs go to the prediction policy in batches, its forecasts go to the
//! driver, and the actual outcomes go back to the policy. A service may replace the policy, which
//! then answers only what the service does not.

use super::backfill::earlier_observations;
use super::reservoir::Reservoir;
use super::samples::{Sample, SampleColumns};
use super::{PluginRegistry, RemotePredictor};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use tokio::sync::mpsc::Receiver;
use treadle_plugin::Estimates;
use treadle_policy::evaluator::Forecast;
use treadle_policy_runtime::{FinishedColumns, LiveColumns};
use treadle_scheduler::{DriverHandle, Expected, Observation};

/// Maximum number of observations in one round.
const ROUND_MAX: usize = 1_024;

/// Predicts until the channel closes.
pub async fn forecast(
    registry: Arc<PluginRegistry>,
    driver: DriverHandle,
    mut seen: Receiver<Observation>,
    remote: Option<RemotePredictor>,
) {
    let mut reservoir = Reservoir::default();
    let mut round = Vec::with_capacity(ROUND_MAX);
    while seen.recv_many(&mut round, ROUND_MAX).await > 0 {
        complete(&registry, &mut reservoir, &round).await;
        let (over, live): (Vec<_>, Vec<_>) = round.drain(..).partition(|o| o.moment.is_over());
        reservoir.add(live.iter().cloned());
        let finished = reservoir.take(&over);
        let mut live = by_job(live);
        let mut forecasts = Vec::new();
        if let Some(remote) = &remote {
            forecasts = ask_remote(remote, &mut live, &finished).await;
            remote.forget(&over);
        }
        let registry = registry.clone();
        // A policy may take seconds to answer.
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

/// Adds earlier observations of programs that began before they were observed here.
async fn complete(registry: &PluginRegistry, reservoir: &mut Reservoir, round: &[Observation]) {
    let mut begun = HashSet::new();
    for observation in round {
        if !begun.insert(observation.program) || !reservoir.lacks(observation) {
            continue;
        }
        match earlier_observations(&*registry.store, observation).await {
            Ok(past) => reservoir.add(past),
            Err(error) => {
                tracing::warn!(%error, "reading earlier observations of programs failed");
                return;
            }
        }
    }
}

/// The service's answer; the jobs that it answered for are removed.
async fn ask_remote(
    remote: &RemotePredictor,
    live: &mut BTreeMap<Box<str>, Vec<Observation>>,
    finished: &BTreeMap<Box<str>, Vec<Sample>>,
) -> Vec<Expected> {
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
    for (job, samples) in finished {
        remote.learn(job, samples).await;
    }
    forecasts
}

fn by_job(observations: Vec<Observation>) -> BTreeMap<Box<str>, Vec<Observation>> {
    let mut jobs: BTreeMap<Box<str>, Vec<Observation>> = BTreeMap::new();
    for observation in observations {
        jobs.entry(observation.job.clone())
            .or_default()
            .push(observation);
    }
    jobs
}

impl PluginRegistry {
    fn predict(&self, job: &str, rows: &[Observation]) -> Vec<Expected> {
        let seen = SampleColumns::of(rows.iter());
        let columns = LiveColumns {
            group: &seen.group,
            tokens: &seen.tokens,
            output_tokens: &seen.output_tokens,
            steps: &seen.steps,
            tool_ms: &seen.tool_ms,
            extra: &[],
        };
        let extra = |named: &[usize]| seen.extra(named, rows.len());
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
            Some(Expected::of(seen, forecast))
        };
        rows.iter().enumerate().filter_map(forecast).collect()
    }

    fn learn(&self, job: &str, samples: &[Sample]) {
        let seen = SampleColumns::of_samples(samples);
        let ended = samples.iter().take_while(|sample| sample.has_ended);
        let tokens: Vec<u64> = samples.iter().map(|l| l.remaining_tokens).collect();
        let tool_ms: Vec<u64> = samples.iter().map(|l| l.remaining_tool_ms).collect();
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
            ended.count(),
            |named, rows| seen.extra(named, rows),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::reservoir::tests::seen;
    use super::*;
    use treadle_scheduler::Moment;

    #[test]
    fn extra_columns_come_one_after_the_other_in_the_order_asked_for() {
        let rows = [seen(1, 3, Moment::Acting), seen(2, 4, Moment::Acting)];
        let seen = SampleColumns::of(rows.iter());
        assert_eq!(seen.extra(&[1, 0], 2), [2.0, 2.0, 1.0, 1.0]);
        assert_eq!(seen.extra(&[1, 0], 1), [2.0, 1.0]);
        assert!(seen.extra(&[], 2).is_empty());
    }
}
