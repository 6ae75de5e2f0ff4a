//! Metrics of actions.

use std::time::Duration;
use treadle_core::actions::Pool;
use treadle_http::{Exposition, Histogram, escape};
use treadle_model::Span;
use treadle_scheduler::ActionsOverview;

/// Completion times of ended actions, by part.
#[derive(Debug, Default)]
pub(super) struct Times {
    queue: Histogram,
    overhead: Histogram,
    execution: Histogram,
}

impl Times {
    /// Records an ended action.
    pub(super) fn observe(&self, queue: Span, overhead: Span, execution: Span) {
        for (histogram, took) in [
            (&self.queue, queue),
            (&self.overhead, overhead),
            (&self.execution, execution),
        ] {
            histogram.observe(Duration::from_micros(took.micros()));
        }
    }
}

/// Renders the metrics in Prometheus' text format.
pub(super) fn render(overview: &ActionsOverview, times: &Times) -> String {
    let mut text = Exposition::default();
    let count = |number: usize| number as u64;
    for (name, help, value) in [
        (
            "treadle_actions_waiting",
            "Actions that wait for resources.",
            count(overview.waiting),
        ),
        (
            "treadle_actions_started",
            "Actions that have their resources and have not ended.",
            count(overview.started),
        ),
    ] {
        text.gauge(name, help, value);
    }
    let name = "treadle_action_seconds";
    text.head(
        name,
        "histogram",
        "Completion time of actions by part: queue until they got their resources, overhead until \
         they started, execution. Execution divided by overhead plus execution is the active share \
         of reserved resources.",
    );
    for (part, histogram) in [
        ("queue", &times.queue),
        ("overhead", &times.overhead),
        ("execution", &times.execution),
    ] {
        histogram.render(&mut text, name, &format!("part=\"{part}\""));
    }
    render_resources(&mut text, overview);
    render_counters(&mut text, overview);
    text.into_string()
}

fn render_resources(text: &mut Exposition, overview: &ActionsOverview) {
    type Column = (&'static str, &'static str, fn(&Pool) -> u64);
    let columns: [Column; 2] = [
        (
            "treadle_resource_units",
            "Capacity of a resource: cores, mebibytes, devices or concurrent requests.",
            Pool::total,
        ),
        (
            "treadle_resource_used_units",
            "Amount of a resource in use by actions.",
            |pool| pool.used,
        ),
    ];
    for (name, help, value) in columns {
        text.head(name, "gauge", help);
        for pool in overview.pools.iter().filter(|pool| pool.total() < u64::MAX) {
            let labels = format!("resource=\"{}\"", escape(&pool.resource.name));
            text.row(name, &labels, value(pool));
        }
    }
}

fn render_counters(text: &mut Exposition, overview: &ActionsOverview) {
    let counters = overview.counters;
    for (name, help, value) in [
        (
            "treadle_actions_submitted_total",
            "Actions that were submitted.",
            counters.submitted,
        ),
        (
            "treadle_action_attempts_total",
            "Attempts that were started.",
            counters.started,
        ),
        (
            "treadle_actions_exited_total",
            "Actions that ran to completion.",
            counters.exited,
        ),
        (
            "treadle_actions_failed_total",
            "Actions that ended otherwise, including cancelled ones.",
            counters.failed,
        ),
        (
            "treadle_actions_unknown_total",
            "Actions that ended with an unknown outcome.",
            counters.unknown,
        ),
        (
            "treadle_action_retries_total",
            "Attempts with an unknown outcome that were retried.",
            counters.retried,
        ),
        (
            "treadle_quota_refusals_total",
            "Requests that services refused because of a quota.",
            counters.refusals,
        ),
        (
            "treadle_service_loads_total",
            "Loads of services onto devices.",
            counters.loads,
        ),
        (
            "treadle_allocation_questions_total",
            "Questions to the allocation policy.",
            counters.asked,
        ),
        (
            "treadle_allocation_corrected_total",
            "Answers of the allocation policy that could not be applied unchanged.",
            counters.corrected,
        ),
    ] {
        text.counter(name, help, value);
    }
}
