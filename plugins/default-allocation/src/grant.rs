//! Units of actions: the least for as many as fit, in order of arrival, then what is
//! left over where it makes the slowest end soonest.

use std::cmp::Reverse;

use treadle_plugin::GrantColumns;

use crate::config::Config;

/// Halvings of the time that is searched for: to within 1e-12 of the slowest action.
const HALVINGS: u32 = 40;

pub(crate) fn grant(config: &Config, actions: &GrantColumns<'_>) -> Vec<u32> {
    let mut units = vec![0; actions.len()];
    let mut free = actions.free_units.to_vec();
    let mut kept = vec![false; free.len()];
    let mut running: Vec<Vec<usize>> = vec![Vec::new(); free.len()];
    let mut rows: Vec<usize> = (0..actions.len()).collect();
    rows.sort_by_key(|&row| Reverse(actions.waited_ms[row]));
    for row in rows {
        let pool = actions.pool[row] as usize;
        let least = least(actions, row);
        // An action that could never run keeps nothing from others.
        if kept[pool] || least > actions.units_max[row] {
            continue;
        }
        if least <= free[pool] {
            free[pool] -= least;
            units[row] = least;
            running[pool].push(row);
        } else if actions.waited_ms[row] as f64 >= config.reserve_s * 1_000.0 {
            kept[pool] = true;
        }
    }
    for (pool, rows) in running.iter().enumerate() {
        // What is kept for an action that waits is not lent to those that run.
        if config.elastic && !kept[pool] {
            share_out(actions, rows, free[pool], &mut units);
        }
    }
    units
}

/// The least that an action can run with.
fn least(actions: &GrantColumns<'_>, row: usize) -> u32 {
    actions.units_min[row].max(1)
}

/// Shares the free units of one pool out among its actions: the shortest time is
/// searched in which all can end that profit from more units.
fn share_out(actions: &GrantColumns<'_>, rows: &[usize], free: u32, units: &mut [u32]) {
    let known: Vec<usize> = rows
        .iter()
        .copied()
        .filter(|&row| actions.expected_ms[row] > 0.0)
        .collect();
    let slowest_ms = known
        .iter()
        .map(|&row| actions.expected_ms[row])
        .fold(0.0, f64::max);
    let wanted = |row: usize, time_ms: f64| {
        let work = actions.expected_ms[row] * f64::from(least(actions, row));
        let units = (work / time_ms).ceil() as u32;
        units.max(least(actions, row)).min(actions.units_max[row])
    };
    let more = |time_ms: f64| -> u64 {
        known
            .iter()
            .map(|&row| u64::from(wanted(row, time_ms) - least(actions, row)))
            .sum()
    };
    let (mut too_short, mut enough) = (0.0, slowest_ms);
    for _ in 0..HALVINGS {
        let between = f64::midpoint(too_short, enough);
        if between > 0.0 && more(between) <= u64::from(free) {
            enough = between;
        } else {
            too_short = between;
        }
    }
    if known.is_empty() || more(enough) > u64::from(free) {
        return;
    }
    for row in known {
        units[row] = wanted(row, enough);
    }
}

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::{Grant, draw};
    use treadle_plugin::random::SplitMix64;

    use super::*;

    fn actions<'a>(
        units_max: &'a [u32],
        waited_ms: &'a [u64],
        expected_ms: &'a [f64],
        free_units: &'a [u32],
    ) -> GrantColumns<'a> {
        GrantColumns {
            pool: &[0, 0, 0],
            units_min: &[1, 1, 4],
            units_max,
            waited_ms,
            expected_ms,
            free_units,
            extra: &[],
        }
    }

    #[test]
    fn units_left_over_make_the_slowest_end_soonest() {
        let actions = actions(&[8, 8, 4], &[0; 3], &[4_000.0, 1_000.0, -1.0], &[9]);
        // 4 s of work on 4 units takes as long as 1 s on 1.
        assert_eq!(grant(&Config::default(), &actions), [4, 1, 4]);
        let rigid = Config {
            elastic: false,
            ..Config::default()
        };
        assert_eq!(grant(&rigid, &actions), [1, 1, 4]);
    }

    #[test]
    fn a_pool_is_kept_for_an_action_that_has_waited_long() {
        let config = Config::default();
        let young = actions(&[1, 1, 4], &[3, 2, 29_999], &[-1.0; 3], &[3]);
        assert_eq!(grant(&config, &young), [1, 1, 0]);
        let old = actions(&[1, 1, 4], &[3, 2, 30_000], &[-1.0; 3], &[3]);
        assert_eq!(grant(&config, &old), [0, 0, 0]);
        let enough = actions(&[1, 1, 4], &[3, 2, 30_000], &[-1.0; 3], &[5]);
        assert_eq!(grant(&config, &enough), [1, 0, 4]);
    }

    /// The end of the slowest action when each has these units.
    fn end_ms(table: &Grant, units: &[u32]) -> f64 {
        let end = |row: usize| {
            table.expected_ms[row] * f64::from(table.units_min[row]) / f64::from(units[row])
        };
        (0..units.len()).map(end).fold(0.0, f64::max)
    }

    #[test]
    fn no_other_way_to_share_out_ends_sooner() {
        let mut random = SplitMix64::new(6);
        for _ in 0..300 {
            let mut small = || 1 + draw::below(&mut random, 4) as u32;
            let units_min = vec![small(), small(), small()];
            let table = Grant {
                pool: vec![0; 3],
                units_max: units_min.iter().map(|least| least + small()).collect(),
                waited_ms: vec![0; 3],
                expected_ms: (0..3).map(|_| f64::from(small() * 100 + small())).collect(),
                units_min,
                extra: Vec::new(),
            };
            let free = [table.units_min.iter().sum::<u32>() + small()];
            let granted = grant(
                &Config::default(),
                &GrantColumns {
                    free_units: &free,
                    ..table.columns()
                },
            );
            let range = |row: usize| table.units_min[row]..=table.units_max[row];
            let best = range(0)
                .flat_map(|a| range(1).map(move |b| (a, b)))
                .flat_map(|(a, b)| range(2).map(move |c| [a, b, c]))
                .filter(|units| units.iter().sum::<u32>() <= free[0])
                .map(|units| end_ms(&table, &units))
                .fold(f64::INFINITY, f64::min);
            let found = end_ms(&table, &granted);
            // The slowest may be at its most already; then the others don't matter.
            assert!(
                found <= best * (1.0 + 1e-9),
                "{table:?} {granted:?}: {found} {best}"
            );
        }
    }
}
