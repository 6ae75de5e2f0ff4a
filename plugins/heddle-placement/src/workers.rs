//! Kinds of workers: their speeds, and how much their programs slow each other down.

use heddle_partition::{Drained, Habits, Member, Objective as _, Pace, Paper, Units};
use treadle_plugin::WorkerColumns;

use crate::config::{Config, Objective};
use crate::speed::{Speed, speeds};

/// Running steps are cut to this number.
const RUNNING_MAX: u32 = 4_096;

/// The workers of a call, with the time per token of each by the size of its group.
pub(crate) struct Kinds {
    /// The kind of each worker.
    pub(crate) of_worker: Vec<usize>,
    /// Running steps of each worker.
    pub(crate) running: Vec<usize>,
    /// Worker rows, the fastest kind first, with equal ones adjacent.
    pub(crate) by_speed: Vec<usize>,
    pub(crate) units: Vec<Units>,
    /// The speed of each kind.
    pub(crate) paces: Vec<Pace>,
    /// Mean context of the programs of the call.
    pub(crate) context: f64,
    objective: Objective,
    pub(crate) habits: Habits,
}

impl Kinds {
    /// `tokens` and `lengths` are of the programs of the call: their contexts so far, and
    /// what they have still to generate. Groups have up to `programs_max` of them.
    pub(crate) fn of(
        config: &Config,
        workers: &WorkerColumns<'_>,
        tokens: &[u64],
        habits: Habits,
        lengths: &[f64],
        programs_max: usize,
    ) -> Self {
        let contexts = tokens.iter().zip(lengths);
        let whole: f64 = contexts
            .map(|(&tokens, length)| tokens as f64 + length)
            .sum();
        let mean = (whole / tokens.len().max(1) as f64).max(1.0);
        let running: Vec<usize> = workers
            .running
            .iter()
            .map(|&running| running.min(RUNNING_MAX) as usize)
            .collect();
        let size_max = programs_max + 1 + running.iter().copied().max().unwrap_or(0);
        // Kinds differ in their speed, and with a bound in what they hold.
        let mut kinds: Vec<(Speed, Option<u64>)> = Vec::new();
        let (mut units, mut paces) = (Vec::new(), Vec::new());
        let speeds = speeds(config, workers);
        let of_worker = speeds.iter().zip(workers.capacity_tokens);
        let of_worker = of_worker.map(|(speed, &capacity)| {
            let bound = config.kv_bound.filter(|_| capacity > 0);
            let by_capacity = bound.is_some() || config.objective.is_fluid();
            let key = (*speed, by_capacity.then_some(capacity));
            if let Some(known) = kinds.iter().position(|kind| *kind == key) {
                return known;
            }
            let mut profile = speed.profile(config);
            if let Some(bound) = bound {
                profile = profile.capped(bound * capacity as f64 / mean);
            }
            paces.push(speed.pace(config, capacity));
            kinds.push(key);
            units.push(Units::new(speed.token_us(config), &profile, size_max));
            kinds.len() - 1
        });
        let of_worker: Vec<usize> = of_worker.collect();
        let mut by_speed: Vec<usize> = (0..of_worker.len()).collect();
        by_speed.sort_by(|&left, &right| {
            let speed = |worker: usize| kinds[of_worker[worker]].0.token_us(config);
            let by_speed = speed(left).total_cmp(&speed(right));
            // Of equally fast ones the larger first.
            let kind = |worker: usize| of_worker[worker];
            let capacity = |worker: usize| workers.capacity_tokens[worker];
            by_speed
                .then(
                    capacity(right)
                        .cmp(&capacity(left))
                        .then(kind(left).cmp(&kind(right))),
                )
                .then(running[left].cmp(&running[right]))
                .then(left.cmp(&right))
        });
        Self {
            of_worker,
            running,
            by_speed,
            units,
            paces,
            objective: config.objective,
            habits,
            context: tokens.iter().map(|&tokens| tokens as f64).sum::<f64>()
                / tokens.len().max(1) as f64,
        }
    }

    /// The end of a worker with a group, sorted with the longest first, and some more programs.
    pub(crate) fn end_us(&self, worker: usize, group: &[Member], more: &[Member]) -> f64 {
        let units = self.units[self.of_worker[worker]].after(0);
        let size = group.len() + more.len();
        match self.objective {
            Objective::Paper => {
                let heads = group.first().into_iter().chain(more);
                let longest = heads.map(|member| member.remaining).fold(0.0, f64::max);
                Paper::end_us(&[longest], size, units)
            }
            Objective::Drained => {
                let all = group.iter().chain(more);
                let mut all: Vec<f64> = all.map(|member| member.remaining).collect();
                all.sort_by(|left, right| right.total_cmp(left));
                Drained::end_us(&all, size, units)
            }
            Objective::Fluid | Objective::Mixed => {
                let mut more = more.to_vec();
                more.sort_by(|left, right| right.remaining.total_cmp(&left.remaining));
                self.paces[self.of_worker[worker]].end_us(group, &more, self.habits, 1.0)
            }
        }
    }
}
