//! Chooses a worker for each program to be placed, one by one, taking previous placements into
//! account.

use std::collections::BTreeMap;

use treadle_plugin::affinity::Choice;
use treadle_plugin::{AssignColumns, PolicyError};

use crate::config::Config;
use crate::load::{Load, need};
use crate::ranks::Ranks;

pub(crate) fn assign(
    config: &Config,
    programs: &AssignColumns<'_>,
) -> Result<Vec<u32>, PolicyError> {
    let mut load = Load::of(&programs.workers);
    let mut ranks = Ranks::of(&programs.workers, &load);
    let mut counts = GroupCounts::of_workers(load.workers());
    let mut places = Vec::with_capacity(programs.len());
    for row in 0..programs.len() {
        let given = counts.of(programs.group[row]);
        let context = programs.tokens[row] as f64;
        let preferred = programs.preferred_class[row];
        let fits = |worker: usize| load.fits(worker, context);
        let choice = Choice::of(&programs.workers, preferred, fits);
        let worker = last_place(config, &load, programs.last_worker[row], context)
            .filter(|worker| choice.includes(*worker))
            .or_else(|| {
                let worker = cheapest(config, &load, given, context, choice)?;
                let as_full = |rank: usize| fits(rank) == fits(worker);
                let may = |rank: usize| choice.includes(rank) && as_full(rank);
                Some(ranks.lightest(&load, given, worker, may))
            })
            .ok_or_else(|| PolicyError::invalid_input("there are no workers; add one first"))?;
        load.add(
            worker,
            need(programs.tokens[row], programs.remaining_tokens[row]),
        );
        ranks.add(worker);
        given[worker] += 1;
        places.push(worker as u32);
    }
    Ok(places)
}

/// Number of programs of a group that this answer has given to each worker.
struct GroupCounts {
    /// For the latest group; programs of a group are mostly consecutive.
    present: Vec<u32>,
    group: Option<u64>,
    /// For the other groups: workers with programs of the group, and their numbers.
    others: BTreeMap<u64, Vec<(usize, u32)>>,
}

impl GroupCounts {
    fn of_workers(workers: usize) -> Self {
        Self {
            present: vec![0; workers],
            group: None,
            others: BTreeMap::new(),
        }
    }

    fn of(&mut self, group: u64) -> &mut [u32] {
        if self.group != Some(group) {
            if let Some(before) = self.group.replace(group) {
                let counts = self.present.iter().copied().enumerate();
                let some = counts.filter(|(_, count)| *count > 0).collect();
                self.others.insert(before, some);
                self.present.fill(0);
            }
            for (worker, count) in self.others.remove(&group).unwrap_or_default() {
                self.present[worker] = count;
            }
        }
        &mut self.present
    }
}

/// The worker with room on which the program costs least, if there is one.
fn cheapest(
    config: &Config,
    load: &Load,
    given: &[u32],
    context: f64,
    choice: Choice<'_>,
) -> Option<usize> {
    let mut best: Option<(bool, f64, usize)> = None;
    let chosen = given.iter().enumerate();
    for (worker, &of_group) in chosen.filter(|(worker, _)| choice.includes(*worker)) {
        let full = !load.fits(worker, context);
        let cost = load.share(worker) + config.spread * f64::from(of_group);
        let better = best.is_none_or(|(was_full, least, _)| {
            if full == was_full {
                cost < least
            } else {
                was_full
            }
        });
        if better {
            best = Some((full, cost, worker));
        }
    }
    best.map(|(_, _, worker)| worker)
}

/// The worker that may still have the program's cache, if it has room and is not clearly more
/// loaded than the mean.
fn last_place(config: &Config, load: &Load, last: u32, context: f64) -> Option<usize> {
    let worker = Some(last as usize).filter(|worker| *worker < load.workers())?;
    let bound = load.mean() + config.load_slack;
    let taken = load.fits(worker, context) && load.share(worker) <= bound;
    taken.then_some(worker)
}

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::{Assign, Workers};
    use treadle_plugin::{NO_CLASS, NO_GROUP, NOWHERE, PlacementPolicy};

    use crate::DefaultPlacement;

    fn workers(used_tokens: &[u64]) -> Workers {
        Workers {
            used_tokens: used_tokens.to_vec(),
            ..Workers::idle(&vec![100_000; used_tokens.len()])
        }
    }

    fn programs(group: &[u64], tokens: u64, last_worker: u32) -> Assign {
        Assign {
            group: group.to_vec(),
            tokens: vec![tokens; group.len()],
            remaining_tokens: vec![-1.0; group.len()],
            growth: vec![-1.0; group.len()],
            tool_us: vec![-1.0; group.len()],
            last_worker: vec![last_worker; group.len()],
            preferred_class: vec![NO_CLASS; group.len()],
            extra: Vec::new(),
        }
    }

    fn places(programs: &Assign, workers: &Workers) -> Vec<u32> {
        let mut policy = DefaultPlacement::default();
        policy.assign(&programs.columns_with(workers)).unwrap()
    }

    #[test]
    fn a_program_goes_back_to_its_cache_within_the_load_bound() {
        let back = programs(&[1], 1_000, 1);
        assert_eq!(places(&back, &workers(&[10_000, 40_000])), [1]);
        assert_eq!(places(&back, &workers(&[10_000, 80_000])), [0]);
        assert_eq!(places(&back, &workers(&[99_500, 99_500, 90_000])), [2]);
    }

    #[test]
    fn a_group_is_spread_out() {
        let group = programs(&[7; 8], 100, NOWHERE);
        let mut places = places(&group, &workers(&[0, 1_000, 2_000, 3_000]));
        places.sort_unstable();
        assert_eq!(places, [0, 0, 1, 1, 2, 2, 3, 3]);
    }

    #[test]
    fn predicted_tokens_keep_long_programs_apart() {
        let mut long = programs(&[1, 2, 3], 100, NOWHERE);
        long.remaining_tokens = vec![50_000.0, -1.0, -1.0];
        assert_eq!(places(&long, &workers(&[0, 0])), [0, 1, 1]);
    }

    #[test]
    fn a_group_stays_within_its_class_while_that_has_room() {
        let mut group = programs(&[7; 4], 30_000, NOWHERE);
        group.preferred_class = vec![1; 4];
        let mut workers = workers(&[0, 50_000, 50_000]);
        workers.hardware_class = vec![0, 1, 1];
        assert_eq!(places(&group, &workers), [1, 2, 0, 0]);
        // A cache elsewhere is no reason to stay there.
        group.last_worker = vec![0; 4];
        assert_eq!(places(&group, &workers), [1, 2, 0, 0]);
        workers.hardware_class = vec![NO_CLASS; 3];
        assert_eq!(places(&group, &workers)[0], 0);
    }

    #[test]
    fn among_ranks_the_largest_load_stays_smallest_and_a_group_is_spread() {
        // The second rank has room, as its programs have just begun; they will grow.
        let mut ranks = workers(&[30_000, 22_000, 30_000, 10_000]);
        ranks.running = vec![2, 8, 2, 1];
        ranks.lockstep_group = vec![0, 0, 0, NO_GROUP];
        let one = programs(&[1], 1_000, NOWHERE);
        assert_eq!(places(&one, &ranks), [3], "between endpoints room decides");
        ranks.used_tokens[3] = 90_000;
        assert_eq!(places(&one, &ranks), [0]);
        ranks.lockstep_group = vec![NO_GROUP; 4];
        assert_eq!(places(&one, &ranks), [1], "each steps by itself");
        // A rank that has just become empty does not get the whole group.
        let mut ranks = workers(&[30_000, 0, 30_000, 30_000]);
        ranks.running = vec![3, 0, 3, 3];
        ranks.lockstep_group = vec![5; 4];
        let places = places(&programs(&[7; 16], 100, NOWHERE), &ranks);
        let count = |rank| places.iter().filter(|place| **place == rank).count();
        let counts = [count(0), count(1), count(2), count(3)];
        assert!(
            counts.iter().all(|count| (3..=6).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn no_workers_are_told() {
        let programs = programs(&[1], 1, NOWHERE);
        let error = DefaultPlacement::default()
            .assign(&programs.columns())
            .unwrap_err();
        assert_eq!(error.code, "invalid-input");
    }
}
