//! The host's requirements on answers, written independently of the host.

use crate::{ActionColumns, Estimates, ParallelismColumns, PreemptColumns, Scores};

/// The problem, if a check fails.
pub(super) type Check = Result<(), String>;

pub(super) fn length(what: &str, found: usize, rows: usize) -> Check {
    if found == rows {
        return Ok(());
    }
    Err(format!("{what}: {found} entries for {rows} rows"))
}

/// One entry per row, each as expected.
fn each<T: Copy + std::fmt::Display>(
    what: &str,
    values: &[T],
    rows: usize,
    expected: &str,
    holds: impl Fn(usize, T) -> bool,
) -> Check {
    length(what, values.len(), rows)?;
    match (0..rows).find(|&row| !holds(row, values[row])) {
        None => Ok(()),
        Some(row) => Err(format!(
            "{what}: {} in row {row}, expected {expected}",
            values[row]
        )),
    }
}

pub(super) fn finite(what: &str, values: &[f64], rows: usize) -> Check {
    each(what, values, rows, "a finite number", |_, value| {
        value.is_finite()
    })
}

pub(super) fn shares(values: &[f64], rows: usize) -> Check {
    each("weigh", values, rows, "0 to 1", |_, value| {
        (0.0..=1.0).contains(&value)
    })
}

/// Rows in order of time: no weight above the one before.
pub(super) fn never_growing(weights: &[f64]) -> Check {
    match weights.windows(2).position(|pair| pair[0] < pair[1]) {
        None => Ok(()),
        Some(row) => Err(format!(
            "weigh: grows from {} to {} with the time in the same tool call",
            weights[row],
            weights[row + 1]
        )),
    }
}

pub(super) fn workers(what: &str, values: &[u32], rows: usize, workers: usize) -> Check {
    each(what, values, rows, "a row of the workers", |_, worker| {
        (worker as usize) < workers
    })
}

pub(super) fn estimates(given: &Estimates, rows: usize) -> Check {
    let positive = |_: usize, value: f64| value.is_finite() && value >= 0.0;
    let expected = "a finite number not below 0";
    let mean = &given.remaining_tokens;
    each("remaining_tokens", mean, rows, expected, positive)?;
    let tool = &given.remaining_tool_s;
    each("remaining_tool_s", tool, rows, expected, positive)?;
    let p90 = &given.remaining_tokens_p90;
    let expected = "a finite number not below the mean";
    each("remaining_tokens_p90", p90, rows, expected, |row, value| {
        value.is_finite() && value >= mean[row]
    })
}

pub(super) fn preempt(gives_way: &[bool], steps: &PreemptColumns<'_>) -> Check {
    length("preempt", gives_way.len(), steps.len())?;
    let giving = gives_way.iter().filter(|gives_way| **gives_way).count();
    let waiting = steps.waiting_score.len();
    if giving <= waiting {
        return Ok(());
    }
    Err(format!("preempt: {giving} give way to {waiting}"))
}

/// Takes the units of each row that starts, from chunks as the host grants them: the smallest
/// sufficient one, split in halves.
pub(super) fn arrangement(chosen: &[i32], actions: &ActionColumns<'_>) -> Check {
    let expected = "-1, or an option of the row";
    each("arrange", chosen, actions.len(), expected, |row, option| {
        option == -1 || usize::try_from(option).is_ok_and(|at| at < actions.options(row).len())
    })?;
    let mut free = actions.pools.free_units.to_vec();
    let mut chunks = actions.pools.free_chunks.to_vec();
    for (row, &option) in chosen.iter().enumerate() {
        let Ok(option) = usize::try_from(option) else {
            continue;
        };
        let pool = actions.pool[row] as usize;
        let units = actions.option_units[actions.options(row).start + option];
        let is_there = if actions.pools.chunked[pool] == 0 {
            let left = free[pool].checked_sub(units);
            free[pool] = left.unwrap_or(free[pool]);
            left.is_some()
        } else {
            units == 0 || split(&mut chunks[pool * 4..][..4], units)
        };
        if !is_there {
            return Err(format!(
                "arrange: {units} units in row {row}, which pool {pool} no longer has"
            ));
        }
    }
    Ok(())
}

fn split(chunks: &mut [u32], units: u32) -> bool {
    let Some(level) = (0..4).find(|level| units <= 1 << level) else {
        return false;
    };
    let Some(from) = (level..4).find(|&from| chunks[from] > 0) else {
        return false;
    };
    chunks[from] -= 1;
    for half in &mut chunks[level..from] {
        *half += 1;
    }
    true
}

pub(super) fn parallelism(counts: &[u32], degrees: &ParallelismColumns<'_>) -> Check {
    length("parallelism", counts.len(), degrees.len())?;
    let used: u64 = counts
        .iter()
        .zip(degrees.degree)
        .map(|(count, degree)| u64::from(*count) * u64::from(*degree))
        .sum();
    if used <= u64::from(degrees.gpus) {
        return Ok(());
    }
    Err(format!("parallelism: {used} devices of {}", degrees.gpus))
}

pub(super) fn rewards(given: &Scores, rows: usize) -> Check {
    finite("totals", &given.totals, rows)?;
    finite("parts", &given.parts, rows * given.part_names.len())
}
