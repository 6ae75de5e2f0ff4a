//! Moves programs away from workers that are clearly more loaded than the mean, and between ranks
//! that step together from those that are more loaded than their mean. Only acting
//! programs move: while a tool runs, no step waits for the move. Programs stay within the class of
//! hardware that they prefer, and return to it.

use treadle_plugin::affinity::{is_of_class, return_to_classes};
use treadle_plugin::{MigrateColumns, Phase};

use crate::config::Config;
use crate::load::{Load, need};
use crate::ranks::Ranks;

pub(crate) fn migrate(config: &Config, programs: &MigrateColumns<'_>) -> Vec<u32> {
    let mut load = Load::of(&programs.workers);
    let mut places = programs.at_worker.to_vec();
    if load.workers() == 0 {
        return places;
    }
    let ranks = Ranks::of(&programs.workers, &load);
    let bound = load.mean() + config.migrate_slack;
    let mut moves = 0;
    for row in shortest_context_first(programs) {
        if moves == config.moves_max {
            break;
        }
        let from = programs.at_worker[row] as usize;
        if from >= load.workers() {
            continue;
        }
        let mean = ranks.mean_share(from);
        let is_uneven = mean.is_some_and(|mean| load.share(from) > mean + config.lockstep_slack);
        if !is_uneven && load.share(from) <= bound {
            continue;
        }
        let (context, whole) = (
            programs.tokens[row] as f64,
            need(programs.tokens[row], programs.remaining_tokens[row]),
        );
        let preferred = programs.preferred_class[row];
        let is_own = |worker: usize| is_of_class(&programs.workers, worker, preferred);
        let to = (0..load.workers())
            .filter(|to| !is_own(from) || is_own(*to))
            .filter(|to| !is_uneven || ranks.are_together(from, *to))
            .min_by(|&left, &right| load.share(left).total_cmp(&load.share(right)));
        let better =
            |to: &usize| load.fits(*to, context) && load.share_with(*to, whole) < load.share(from);
        if let Some(to) = to.filter(better) {
            load.remove(from, context);
            load.add(to, whole);
            places[row] = to as u32;
            moves += 1;
        }
    }
    return_to_classes(programs, &mut places, config.moves_max as usize);
    places
}

/// Acting programs; short contexts are the cheapest to move or recompute.
fn shortest_context_first(programs: &MigrateColumns<'_>) -> Vec<usize> {
    let mut rows: Vec<usize> = (0..programs.len())
        .filter(|&row| programs.phase[row] == Phase::Acting)
        .collect();
    rows.sort_by_key(|&row| programs.tokens[row]);
    rows
}

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::{Migrate, Workers};
    use treadle_plugin::random::SplitMix64;
    use treadle_plugin::{NO_CLASS, NO_GROUP};

    use super::*;

    #[test]
    fn acting_programs_leave_an_overloaded_worker_and_no_others() {
        let workers = Workers {
            used_tokens: vec![95_000, 5_000],
            running: vec![3, 0],
            ..Workers::idle(&[100_000; 2])
        };
        let programs = Migrate {
            at_worker: vec![0, 0, 0, 1],
            tokens: vec![30_000, 20_000, 45_000, 5_000],
            remaining_tokens: vec![-1.0; 4],
            growth: vec![-1.0; 4],
            tool_us: vec![-1.0; 4],
            preferred_class: vec![NO_CLASS; 4],
            phase: vec![
                Phase::Acting,
                Phase::Acting,
                Phase::Reasoning,
                Phase::Acting,
            ],
            extra: Vec::new(),
        };
        let places = migrate(&Config::default(), &programs.columns_with(&workers));
        // The shorter one moves; then the load is within the limit.
        assert_eq!(places, [0, 1, 0, 1]);
        let classes = Workers {
            hardware_class: vec![0, 1],
            ..workers
        };
        let programs = Migrate {
            preferred_class: vec![0; 4],
            ..programs
        };
        let places = migrate(&Config::default(), &programs.columns_with(&classes));
        assert_eq!(places, programs.at_worker, "they would leave their class");
    }

    #[test]
    fn between_ranks_smaller_differences_count() {
        let mut workers = Workers {
            used_tokens: vec![60_000, 30_000, 5_000],
            ..Workers::idle(&[100_000; 3])
        };
        let programs = Migrate {
            at_worker: vec![0; 3],
            tokens: vec![10_000, 20_000, 30_000],
            remaining_tokens: vec![-1.0; 3],
            growth: vec![-1.0; 3],
            tool_us: vec![-1.0; 3],
            preferred_class: vec![NO_CLASS; 3],
            phase: vec![Phase::Acting; 3],
            extra: Vec::new(),
        };
        let moved =
            |workers: &Workers| migrate(&Config::default(), &programs.columns_with(workers));
        assert_eq!(moved(&workers), [0, 0, 0]);
        workers.lockstep_group = vec![0, 0, NO_GROUP];
        assert_eq!(moved(&workers), [1, 0, 0], "to the rank beside it");
    }

    #[test]
    fn moves_are_bounded_and_of_acting_programs() {
        let mut random = SplitMix64::new(5);
        for _ in 0..200 {
            let workers = Workers::draw(&mut random, 4);
            let programs = Migrate::draw_with(&mut random, 60, 0, &workers);
            let places = migrate(&Config::default(), &programs.columns_with(&workers));
            let moved: Vec<usize> = (0..60)
                .filter(|&row| places[row] != programs.at_worker[row])
                .collect();
            assert!(moved.len() <= 8);
            assert!(
                moved
                    .iter()
                    .all(|&row| programs.phase[row] == Phase::Acting)
            );
        }
    }
}
