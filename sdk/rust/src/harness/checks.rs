//! What the host demands of an answer, written down apart from the host.

use crate::{Estimates, GrantColumns, ParallelismColumns, PreemptColumns, Scores};

/// Says what is wrong.
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

pub(super) fn grants(units: &[u32], actions: &GrantColumns<'_>) -> Check {
    let expected = "0, or from units_min to units_max";
    each("grant", units, actions.len(), expected, |row, units| {
        units == 0 || (actions.units_min[row]..=actions.units_max[row]).contains(&units)
    })?;
    for (pool, &free) in actions.free_units.iter().enumerate() {
        let of_pool = actions.pool.iter().zip(units);
        let granted: u64 = of_pool
            .filter(|(drawn, _)| **drawn as usize == pool)
            .map(|(_, units)| u64::from(*units))
            .sum();
        if granted > u64::from(free) {
            return Err(format!(
                "grant: {granted} from pool {pool}, which has {free}"
            ));
        }
    }
    Ok(())
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
