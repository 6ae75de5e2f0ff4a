//! Which candidates start (Algorithm 1).

use crate::arrange::Arrange;
use crate::config::Config;
use crate::estimate::Estimate;
use crate::queue::{Choice, Queue};

/// Number of rows that the estimates of one call evaluate before no further candidate is left
/// waiting.
const ESTIMATED_ROWS_MAX: usize = 1 << 14;

/// The rows of a queue that start, each with its option.
pub(crate) fn start(config: &Config, queue: &Queue) -> Vec<(usize, i32)> {
    let started = chosen(config, queue);
    let pairs = queue.waiting.iter().zip(&started);
    pairs
        .map(|(waiting, choice)| (waiting.row, choice.option.cast_signed()))
        .collect()
}

/// The choices of the first candidates, which start.
fn chosen(config: &Config, queue: &Queue) -> Vec<Choice> {
    let candidates = &queue.waiting[..queue.candidates];
    if candidates.iter().all(|waiting| waiting.choices.len() == 1) {
        return candidates.iter().map(|waiting| *waiting.least()).collect();
    }
    let arrange = Arrange::new(queue);
    let mut estimate = Estimate::new(queue, config.depth as usize);
    let mut objective = |head: usize| {
        let started = arrange.head(head);
        let own_us: u64 = started.iter().map(|choice| choice.us).sum();
        let others_us = estimate.others_us(&started);
        (own_us.saturating_add(others_us), started)
    };
    let mut best = objective(candidates.len());
    let unknown = candidates.iter().rposition(|waiting| !waiting.is_known);
    let kept = unknown.map_or(1, |last| last + 1);
    let mut rows_left = ESTIMATED_ROWS_MAX;
    for head in (kept..candidates.len()).rev() {
        let rows = (queue.waiting.len() - head) * config.depth as usize;
        let Some(left) = rows_left.checked_sub(rows) else {
            break;
        };
        rows_left = left;
        let shorter = objective(head);
        if shorter.0 >= best.0 {
            break;
        }
        best = shorter;
    }
    best.1
}
