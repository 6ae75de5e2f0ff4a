//! Metrics over time, in the store: those that charts need, four times a minute.

use crate::app::App;
use crate::memory::MemoryUses;
use crate::metrics;
use std::collections::BTreeMap;
use std::time::Duration;
use treadle_store::SampleRow;

/// Pause between two samples in the scheduler's time, and the minimum in real time.
const PAUSE: Duration = Duration::from_secs(15);
const PAUSE_MIN: Duration = Duration::from_secs(2);
/// How long samples are stored, in microseconds.
const KEPT_US: u64 = 3 * 86_400 * 1_000_000;
/// Samples between two removals of old ones.
const PRUNE_EACH: u32 = 240;
/// Metrics that are stored, summed over all workers.
const KEPT: [&str; 23] = [
    "treadle_programs",
    "treadle_programs_reasoning",
    "treadle_programs_acting",
    "treadle_programs_paused",
    "treadle_queue_programs",
    "treadle_queue_steps",
    "treadle_steps_running",
    "treadle_worker_programs_acting",
    "treadle_worker_used_tokens",
    "treadle_worker_capacity_tokens",
    "treadle_steps_arrived_total",
    "treadle_steps_finished_total",
    "treadle_steps_failed_total",
    "treadle_steps_refused_total",
    "treadle_policy_answers_total",
    "treadle_policy_faults_total",
    "treadle_policy_rollbacks_total",
    "treadle_journal_refused_records_total",
    "treadle_prompt_tokens_total",
    "treadle_output_tokens_total",
    "treadle_cache_reported_prompt_tokens_total",
    "treadle_cached_tokens_total",
    "treadle_kv_token_seconds_total",
];
/// The label for the use of KV memory, which is stored separately.
const USE: &str = "use=\"";

/// Samples as long as this daemon schedules. Failures only leave a gap in charts.
pub(crate) async fn sample_forever(app: App, time_scale: f64) {
    let pause = PAUSE.div_f64(time_scale.max(1.0)).max(PAUSE_MIN);
    let mut samples = tokio::time::interval(pause);
    samples.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for taken in 0_u32.. {
        samples.tick().await;
        let Some(row) = sample(&app).await else {
            return;
        };
        let before_us = row.at_us.saturating_sub(KEPT_US);
        if let Err(error) = app.store.add_sample(&row).await {
            tracing::debug!(%error, "a sample of the metrics could not be stored");
        } else if taken % PRUNE_EACH == 0
            && let Err(error) = app.store.prune_samples(before_us).await
        {
            tracing::debug!(%error, "old samples of the metrics could not be removed");
        }
    }
}

/// Takes a sample; `None` once the scheduler has stopped.
async fn sample(app: &App) -> Option<SampleRow> {
    let overview = app.driver.overview().await.ok()?;
    let accounts = app.driver.memory_accounts().await.ok()?;
    let policies = app.policies.totals().await.ok()?;
    let mut text = metrics::render(
        &app.gateway.metrics,
        &overview.totals,
        &overview.counters,
        &policies,
        &|_| None,
    );
    text.push_str(&MemoryUses::of_all(accounts).render());
    Some(SampleRow {
        at_us: overview.at.0,
        values_json: serde_json::to_string(&values(&text)).unwrap_or_default(),
    })
}

/// The stored metrics of a page, without labels except for the use of memory.
fn values(text: &str) -> BTreeMap<String, f64> {
    let mut values = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((series, value)) = line.rsplit_once(' ') else {
            continue;
        };
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        if !KEPT.contains(&name) {
            continue;
        }
        let what = labels
            .split_once(USE)
            .and_then(|(_, rest)| rest.split('"').next());
        let key = what.map_or_else(
            || name.to_owned(),
            |what| format!("{name}{{{USE}{what}\"}}"),
        );
        *values.entry(key).or_insert(0.0) += value.parse().unwrap_or(0.0);
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_charts_need_is_kept_over_all_workers() {
        let text = "# HELP treadle_programs Live programs.\n\
                    treadle_programs 7\n\
                    treadle_resident_bytes 99\n\
                    treadle_worker_used_tokens{worker=\"a\"} 5\n\
                    treadle_worker_used_tokens{worker=\"b\"} 6\n\
                    treadle_kv_token_seconds_total{worker=\"a b\",use=\"decode\"} 1.5\n\
                    treadle_kv_token_seconds_total{worker=\"c\",use=\"decode\"} 2\n";
        let expected = [
            ("treadle_kv_token_seconds_total{use=\"decode\"}", 3.5),
            ("treadle_programs", 7.0),
            ("treadle_worker_used_tokens", 11.0),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value));
        assert_eq!(values(text), BTreeMap::from(expected));
    }
}
