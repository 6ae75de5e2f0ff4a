//! The waiting actions of each pool, with times in whole microseconds.

use crate::config::Config;
use treadle_plugin::{ActionColumns, FreeUnits};

/// Times are cut to this, about 200 days, so that their sum over a call can't overflow.
const TIME_MAX_US: f64 = (1_u64 << 44) as f64;

/// An option of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Index within the options of the row.
    pub(crate) option: u32,
    /// Units that it takes from the pool: for chunks a whole chunk.
    pub(crate) units: u32,
    /// Time from its start to its end.
    pub(crate) us: u64,
}

/// A waiting action.
#[derive(Debug, Clone)]
pub(crate) struct Waiting {
    /// Its row in the call.
    pub(crate) row: usize,
    /// Its smallest option, then those with more units and less time. Only possible candidates and
    /// the first action after them have more than one.
    pub(crate) choices: Vec<Choice>,
    /// Whether its run time with the smallest option is known.
    pub(crate) is_known: bool,
}

impl Waiting {
    /// Its smallest option.
    pub(crate) fn least(&self) -> &Choice {
        &self.choices[0]
    }
}

/// The waiting actions of a pool, its free units, and its running actions.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    pub(crate) free: FreeUnits,
    /// Free chunks of 1, 2, 4 and 8, where units come in chunks.
    pub(crate) chunks: Option<[u32; 4]>,
    /// In serving order, as far as the horizon.
    pub(crate) waiting: Vec<Waiting>,
    /// Number of candidates among them.
    pub(crate) candidates: usize,
    /// Number of actions beyond the horizon.
    pub(crate) beyond: usize,
    /// End and units of each running action.
    pub(crate) running: Vec<(u64, u32)>,
}

/// The queues of all pools, with `horizon_rows` actions after the candidates of each.
pub(crate) fn of_pools(actions: &ActionColumns<'_>, config: &Config) -> Vec<Queue> {
    let horizon = config.horizon_rows as usize;
    let pools = 0..actions.pools.len();
    let mut building: Vec<Building> = pools
        .map(|pool| {
            let free = FreeUnits::of(&actions.pools, pool);
            Building::new(free, actions.pools.chunks(pool))
        })
        .collect();
    for row in 0..actions.len() {
        building[actions.pool[row] as usize].push(actions, row, horizon);
    }
    let running = &actions.running;
    for (row, &pool) in running.pool.iter().enumerate() {
        let left_us = running.left_us[row].min(TIME_MAX_US as u64);
        let ends = &mut building[pool as usize].queue.running;
        ends.push((left_us, running.units[row]));
    }
    let mut queues: Vec<Queue> = building.into_iter().map(Building::done).collect();
    for queue in &mut queues {
        queue.bound_shares(config.share_percent);
    }
    queues
}

impl Queue {
    /// Removes options beyond an action's share of the pool; the smallest stays.
    fn bound_shares(&mut self, percent: u32) {
        if percent == 0 || self.chunks.is_some() {
            return;
        }
        let running = self.running.iter().map(|(_, units)| u64::from(*units));
        let units = self.free.units() + running.sum::<u64>();
        let actions = self.running.len() + self.waiting.len() + self.beyond;
        let share = units * u64::from(percent) / 100 / actions.max(1) as u64;
        for waiting in &mut self.waiting {
            let within = waiting.choices.iter();
            let within = within.take_while(|choice| u64::from(choice.units) <= share);
            let kept = within.count().max(1);
            waiting.choices.truncate(kept);
        }
    }
}

struct Building {
    queue: Queue,
    /// Units left if the candidates so far get their smallest options.
    left: FreeUnits,
    /// Whether all candidates are known.
    ended: bool,
}

impl Building {
    fn new(free: FreeUnits, chunks: Option<[u32; 4]>) -> Self {
        Self {
            queue: Queue {
                free,
                chunks,
                waiting: Vec::new(),
                candidates: 0,
                beyond: 0,
                running: Vec::new(),
            },
            left: free,
            ended: false,
        }
    }

    fn push(&mut self, actions: &ActionColumns<'_>, row: usize, horizon: usize) {
        let queue = &mut self.queue;
        let behind = queue.waiting.len() - queue.candidates;
        if self.ended && behind >= horizon {
            queue.beyond += 1;
            return;
        }
        let first = actions.options(row).start;
        let least = actions.options(row).next();
        let least = least.and_then(|least| queue.free.taken(actions.option_units[least]));
        // An action that can never start blocks nobody.
        let Some(units) = least else {
            return;
        };
        self.ended |= !actions.is_candidate(row) || !self.left.take(units);
        let known_us = time_us(actions, first);
        let mut choices = vec![Choice {
            option: 0,
            units,
            us: known_us.unwrap_or(0),
        }];
        if let Some(least_us) = known_us
            && (!self.ended || behind == 0)
        {
            add_faster(actions, row, &queue.free, least_us, &mut choices);
        }
        queue.candidates += usize::from(!self.ended);
        queue.waiting.push(Waiting {
            row,
            choices,
            is_known: known_us.is_some(),
        });
    }

    /// Replaces unknown run times by the mean of the known ones.
    fn done(self) -> Queue {
        let mut queue = self.queue;
        let known = queue.waiting.iter().filter(|waiting| waiting.is_known);
        let (count, sum) = known.fold((0_u64, 0_u64), |(count, sum), waiting| {
            (count + 1, sum + waiting.least().us)
        });
        let mean_us = sum.checked_div(count).unwrap_or(0);
        for waiting in &mut queue.waiting {
            if !waiting.is_known {
                waiting.choices[0].us = mean_us;
            }
        }
        queue
    }
}

/// Adds options with more units and less time than those before them.
fn add_faster(
    actions: &ActionColumns<'_>,
    row: usize,
    free: &FreeUnits,
    least_us: u64,
    choices: &mut Vec<Choice>,
) {
    let options = actions.options(row);
    let (mut fastest_us, first) = (least_us, options.start);
    for at in options.skip(1) {
        let units = free.taken(actions.option_units[at]);
        let (Some(units), Some(us)) = (units, time_us(actions, at)) else {
            continue;
        };
        if us >= fastest_us {
            continue;
        }
        fastest_us = us;
        let choice = Choice {
            option: (at - first) as u32,
            units,
            us,
        };
        match choices.last_mut() {
            // Three and four devices take the same chunk.
            Some(last) if last.units == units => *last = choice,
            _ => choices.push(choice),
        }
    }
}

/// The total time of an option, if known.
fn time_us(actions: &ActionColumns<'_>, option: usize) -> Option<u64> {
    let time_us = actions.option_time_us(option)?;
    Some(time_us.min(TIME_MAX_US) as u64)
}
