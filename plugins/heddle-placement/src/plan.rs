//! The plan: groups of lengths and their workers, and the group of each new program.

use std::cmp::Ordering;

use heddle_partition::{
    Drained, LENGTH_MAX, Pace, Paper, Run, level, partition_any_order, partition_fluid,
};
use serde::{Deserialize, Serialize};
use treadle_plugin::{AssignColumns, PolicyError};

use crate::config::{Config, Objective, Order};
use crate::deal;
use crate::speed::habits;
use crate::workers::Kinds;

/// Maximum number of lengths that are stored; beyond it the older half is forgotten.
const SEEN_MAX: usize = 8_192;
/// Maximum number of workers of a restored plan.
const WORKERS_MAX: usize = 65_536;

/// Groups in the order of their lengths.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    capacity_tokens: Vec<u64>,
    pub(crate) groups: Vec<Group>,
    /// Number of programs that the plan was made for.
    pub(crate) programs: usize,
    /// Whether every group has some of each length.
    #[serde(default)]
    pub(crate) even: bool,
    /// Lengths of programs since the rollout began, in order of arrival.
    seen: Vec<f64>,
}

/// The programs of one worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Group {
    pub(crate) worker: u32,
    pub(crate) size: usize,
    pub(crate) longest: f64,
    pub(crate) shortest: f64,
    /// Number of programs that it got.
    given: u64,
}

impl Group {
    #[cfg(test)]
    pub(crate) fn of_size(worker: u32, size: usize) -> Self {
        Self {
            worker,
            size,
            longest: 0.0,
            shortest: 0.0,
            given: 0,
        }
    }
}

impl Plan {
    /// Whether it was made for these workers.
    pub(crate) fn is_for(&self, capacity_tokens: &[u64]) -> bool {
        self.capacity_tokens == capacity_tokens
    }

    /// Validates a restored plan.
    pub(crate) fn checked(self) -> Result<Self, PolicyError> {
        let workers = self.capacity_tokens.len();
        let sizes = self.groups.iter().map(|group| group.size as u64);
        let sound = workers <= WORKERS_MAX
            && self.groups.len() == workers
            && self.seen.len() <= SEEN_MAX
            && self
                .seen
                .iter()
                .all(|length| (1.0..=LENGTH_MAX).contains(length))
            && self
                .groups
                .iter()
                .all(|group| (group.worker as usize) < workers)
            && sizes.fold(0, u64::saturating_add) == self.programs as u64;
        if sound {
            return Ok(self);
        }
        Err(PolicyError::invalid_input(
            "the snapshot's groups, workers and lengths contradict each other; start without it",
        ))
    }

    /// The group for a length: of several with programs of that length the one that is furthest
    /// below its share.
    fn group(&self, length: f64) -> usize {
        let used = || (0..self.groups.len()).filter(|&row| self.groups[row].size > 0);
        let holds = |row: &usize| {
            let group = &self.groups[*row];
            group.shortest <= length && length <= group.longest
        };
        let share = |row: usize| self.groups[row].given as f64 / self.groups[row].size as f64;
        let least = used()
            .filter(holds)
            .min_by(|&left, &right| share(left).total_cmp(&share(right)));
        // Between two groups: the longer one is slower to begin with, so its neighbour.
        least
            .or_else(|| used().find(|&row| self.groups[row].longest <= length))
            .or_else(|| used().next_back())
            .unwrap_or(0)
    }
}

/// The plan after a call, and the worker of each of its programs.
pub(crate) fn assign(
    config: &Config,
    plan: Option<Plan>,
    programs: &AssignColumns<'_>,
    lengths: &[f64],
) -> (Plan, Vec<u32>) {
    let capacities = programs.workers.capacity_tokens;
    let rows = lengths.len();
    let habits = habits(config, programs.growth, programs.tool_us);
    let kinds = |programs_max: usize| {
        let workers = &programs.workers;
        Kinds::of(
            config,
            workers,
            programs.tokens,
            habits,
            lengths,
            programs_max,
        )
    };
    let seen = plan.as_ref().map_or(0, |plan| plan.seen.len());
    if plan.is_none() || (rows > capacities.len() && rows * 2 > seen) {
        let mut order: Vec<usize> = (0..rows).collect();
        order.sort_by(|&left, &right| longest_first(lengths[left], lengths[right]));
        let sorted: Vec<f64> = order.iter().map(|&row| lengths[row]).collect();
        let kinds = kinds(rows);
        let mut plan = make(config, &sorted, &kinds, capacities, true);
        plan.seen.extend(&lengths[rows.saturating_sub(SEEN_MAX)..]);
        let most = config.longest_tokens.unwrap_or(LENGTH_MAX);
        plan.even = config.objective == Objective::Mixed && deal::is_even(&sorted, &kinds, most);
        let ranks = if plan.even {
            deal::evenly(&mut plan.groups, &sorted, &kinds)
        } else if config.objective.is_fluid() {
            deal::mixed(&mut plan.groups, &sorted, &kinds)
        } else {
            deal::in_order(&plan.groups)
        };
        let mut places = vec![0; rows];
        for (group, ranks) in plan.groups.iter_mut().zip(ranks) {
            group.given = group.size as u64;
            for rank in ranks {
                places[order[rank]] = group.worker;
            }
        }
        return (plan, places);
    }
    let mut plan = plan.unwrap_or_else(|| make(config, &[], &kinds(0), capacities, true));
    see(config, &mut plan, lengths, kinds);
    let places = (0..rows).map(|row| {
        let by_length = plan.group(lengths[row]);
        let last = programs.last_worker[row];
        // A returning program goes where its cache may be, if the group fits.
        let back = plan.groups.iter().position(|group| {
            let fits = group.shortest <= lengths[row] && lengths[row] <= group.longest;
            group.worker == last && group.size > 0 && fits
        });
        let group = &mut plan.groups[back.unwrap_or(by_length)];
        group.given += 1;
        group.worker
    });
    let places = places.collect();
    (plan, places)
}

fn longest_first(left: f64, right: f64) -> Ordering {
    right.total_cmp(&left)
}

/// Records lengths, and renews the plan when their number has doubled.
fn see(config: &Config, plan: &mut Plan, lengths: &[f64], kinds: impl Fn(usize) -> Kinds) {
    for &length in lengths {
        if plan.seen.len() == SEEN_MAX {
            plan.seen.drain(..SEEN_MAX / 2);
        }
        plan.seen.push(length);
    }
    if plan.seen.len() < 2 * plan.programs {
        return;
    }
    let mut sorted = plan.seen.clone();
    sorted.sort_by(|&left, &right| longest_first(left, right));
    let kinds = kinds(sorted.len());
    let fresh = make(config, &sorted, &kinds, &plan.capacity_tokens, false);
    (plan.groups, plan.programs) = (fresh.groups, fresh.programs);
    if plan.even {
        deal::evenly(&mut plan.groups, &sorted, &kinds);
    }
}

/// A plan for lengths, the longest first, with or without the running steps.
pub(crate) fn make(
    config: &Config,
    sorted: &[f64],
    kinds: &Kinds,
    capacity_tokens: &[u64],
    beside: bool,
) -> Plan {
    let (workers, sizes) = split(config, sorted, kinds, beside);
    let mut from = 0;
    let groups = workers.into_iter().zip(sizes).map(|(worker, size)| {
        let group = &sorted[from..from + size];
        from += size;
        Group {
            worker: worker as u32,
            size,
            longest: group.first().copied().unwrap_or(0.0),
            shortest: group.last().copied().unwrap_or(0.0),
            given: 0,
        }
    });
    Plan {
        groups: groups.collect(),
        capacity_tokens: capacity_tokens.to_vec(),
        programs: sorted.len(),
        even: false,
        seen: Vec::new(),
    }
}

/// Workers in the order of their groups, and the groups' sizes.
fn split(config: &Config, sorted: &[f64], kinds: &Kinds, beside: bool) -> (Vec<usize>, Vec<usize>) {
    if config.objective.is_fluid() {
        return split_fluid(sorted, kinds);
    }
    // Equal workers, in the order of speed.
    let mut alike: Vec<Vec<usize>> = Vec::new();
    let key = |worker: usize| {
        let running = if beside { kinds.running[worker] } else { 0 };
        (kinds.of_worker[worker], running)
    };
    for &worker in &kinds.by_speed {
        match alike.last_mut() {
            Some(last) if key(last[0]) == key(worker) => last.push(worker),
            _ => alike.push(vec![worker]),
        }
    }
    let runs: Vec<Run<'_>> = alike
        .iter()
        .map(|workers| Run {
            units: &kinds.units[kinds.of_worker[workers[0]]],
            offset: key(workers[0]).1,
            count: workers.len(),
        })
        .collect();
    let paper = config.objective == Objective::Paper;
    if config.order == Order::Any
        && paper
        && let Some(ordered) = partition_any_order(sorted, &runs)
    {
        // The same order again, evened out.
        let runs: Vec<Run<'_>> = ordered
            .runs
            .iter()
            .map(|&row| Run {
                count: 1,
                ..runs[row]
            })
            .collect();
        let sizes =
            level::<Paper>(sorted, &runs).map_or(ordered.partition.sizes, |even| even.sizes);
        let mut left: Vec<_> = alike.into_iter().map(Vec::into_iter).collect();
        let workers = ordered.runs.iter().filter_map(|&row| left[row].next());
        return (workers.collect(), sizes);
    }
    let even = if paper {
        level::<Paper>(sorted, &runs)
    } else {
        level::<Drained>(sorted, &runs)
    };
    let workers: Vec<usize> = alike.concat();
    let sizes = even.map_or_else(|| vec![0; workers.len()], |even| even.sizes);
    (workers, sizes)
}

/// Longer lists are split by samples: a plan need not be finer.
const SAMPLES_MAX: usize = 1_024;

fn split_fluid(sorted: &[f64], kinds: &Kinds) -> (Vec<usize>, Vec<usize>) {
    let workers = kinds.by_speed.clone();
    let paces: Vec<Pace> = workers
        .iter()
        .map(|&worker| kinds.paces[kinds.of_worker[worker]])
        .collect();
    let each = sorted.len().div_ceil(SAMPLES_MAX).max(1);
    let samples: Vec<f64> = sorted.iter().copied().step_by(each).collect();
    let weight = sorted.len() as f64 / samples.len().max(1) as f64;
    let split = partition_fluid(&paces, &samples, kinds.context, kinds.habits, weight);
    let mut left = sorted.len();
    let mut sizes: Vec<usize> = split.map_or_else(Vec::new, |(sizes, _)| sizes);
    sizes.resize(workers.len(), 0);
    for size in &mut sizes {
        *size = (*size * each).min(left);
        left -= *size;
    }
    (workers, sizes)
}
