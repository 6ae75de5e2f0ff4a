//! Mixed lengths: every worker gets some of each, so that all have the same amount of work.
//!
//! Programs of one length that share a worker fill its memory at once and leave it at once. Mixed
//! ones end one after the other, and while memory suffices for all that have begun, the end of a
//! worker is simple: each token of context is read once for every generated token, whichever
//! programs share the batch, and the fixed cost of an iteration (weights, launches) is paid once
//! per token of the longest program.
//!
//! The longest programs are unknown, only their expected lengths are known. The more programs share
//! a worker, the longer the longest of them is likely to be: half of each expectation is assumed to
//! be certain, the other half to be distributed exponentially.

use crate::{Habits, Member, Pace};

/// Share of a worker's memory in use while programs wait for some.
const MEMORY_SHARE: f64 = 0.8;
/// Share of an expectation that is random.
const SPREAD: f64 = 0.5;
/// Number of lengths for which the number of longer programs is stored; the first, in tokens, and
/// the ratio between neighbours.
const POINTS: usize = 40;
const FIRST: f64 = 32.0;
const RATIO: f64 = 1.25;
/// Expected number of programs longer than the longest.
const LONGER: f64 = 0.5;

/// The work of programs that begin. Loads are additive.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// Tokens of their prompts.
    context: f64,
    /// Tokens to be generated.
    tokens: f64,
    /// Tokens of context in memory, summed over generated tokens.
    held: f64,
    /// Expected number of programs that are longer than each of the points.
    longer: [f64; POINTS],
}

impl Default for Load {
    fn default() -> Self {
        Self {
            context: 0.0,
            tokens: 0.0,
            held: 0.0,
            longer: [0.0; POINTS],
        }
    }
}

impl Load {
    /// The load of one program.
    pub fn of(member: Member, habits: Habits) -> Self {
        let (sure, spread) = (member.remaining * (1.0 - SPREAD), member.remaining * SPREAD);
        let mut longer = [0.0; POINTS];
        let mut length = FIRST;
        for point in &mut longer {
            // Approximately the exponential distribution.
            let base = 1.0 / (1.0 + (length - sure).max(0.0) / (8.0 * spread.max(1e-9)));
            let fourth = base * base * base * base;
            *point = fourth * fourth;
            length *= RATIO;
        }
        let mean = member.context + habits.growth * member.remaining / 2.0;
        Self {
            context: member.context,
            tokens: member.remaining,
            held: member.remaining * mean,
            longer,
        }
    }

    /// Adds another load.
    pub fn add(&mut self, other: &Self) {
        self.context += other.context;
        self.tokens += other.tokens;
        self.held += other.held;
        for (point, more) in self.longer.iter_mut().zip(&other.longer) {
            *point += more;
        }
    }

    /// Expected length of the longest program in this and another load.
    fn longest(&self, other: &Self) -> f64 {
        let at = |point: usize| self.longer[point] + other.longer[point];
        let (mut from, mut to) = (0, POINTS);
        while from < to {
            let middle = usize::midpoint(from, to);
            if at(middle) > LONGER {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        let length = (0..from).fold(FIRST, |length, _| length * RATIO);
        if from == 0 || from == POINTS {
            return length * (at(from.min(POINTS - 1)) / LONGER).min(1.0);
        }
        let (before, after) = (at(from - 1), at(from));
        let share = (before - LONGER) / (before - after).max(1e-12);
        length / RATIO * (1.0 + (RATIO - 1.0) * share.clamp(0.0, 1.0))
    }

    /// Time for all tokens of this and another load without the fixed cost of iterations, in
    /// microseconds.
    fn work_us(&self, other: &Self, pace: &Pace, habits: Habits) -> f64 {
        let sum = |of: fn(&Self) -> f64| of(self) + of(other);
        let prefill_us = (habits.growth - 1.0).max(0.0) * pace.prefill_us;
        sum(|load| load.context) * pace.prefill_us
            + sum(|load| load.tokens) * (pace.program_us + prefill_us)
            + sum(|load| load.held) * pace.kilotoken_us / 1_000.0
    }

    /// The end of a worker with this and another load, in microseconds.
    pub fn end_us(&self, other: &Self, pace: &Pace, habits: Habits) -> f64 {
        let work_us = self.work_us(other, pace, habits);
        let longest = self.longest(other);
        let for_memory = (self.held + other.held) / (pace.capacity_tokens * MEMORY_SHARE);
        let for_seats = (self.tokens + other.tokens) / pace.batch_max;
        let iterations = longest.max(for_memory).max(for_seats);
        // While the longest is in a tool, others run, but in smaller batches.
        let tools_us = longest * habits.tool_us;
        let (more, less) = (work_us.max(tools_us), work_us.min(tools_us));
        iterations * pace.base_us + more + less / 2.0
    }

    /// Whether the total work takes all workers together longer than the longest program takes
    /// by itself on the fastest: then no program gains much from being separated. None has more than
    /// `most` tokens.
    pub fn is_mostly_work(&self, workers: &[Pace], habits: Habits, most: f64) -> bool {
        let none = Self::default();
        let longest = self.longest(&none).min(most);
        let lone_us = workers.iter().map(Pace::lone_us);
        let token_us = lone_us.fold(f64::INFINITY, f64::min) + habits.tool_us;
        let rates = workers
            .iter()
            .map(|pace| 1.0 / self.work_us(&none, pace, habits).max(1e-9));
        1.0 / rates.sum::<f64>() > longest * token_us
    }
}

/// Deals programs out, the longest first, each to the worker that ends first with it. Returns each
/// program's worker.
pub fn deal_evenly(workers: &[Pace], loads: &[Load], habits: Habits) -> Vec<usize> {
    let mut piles = vec![Load::default(); workers.len()];
    let deal = |load: &Load| {
        let ends = piles.iter().zip(workers);
        let ends = ends.map(|(pile, pace)| pile.end_us(load, pace, habits));
        let first = ends.enumerate().min_by(|(_, l), (_, r)| l.total_cmp(r));
        let worker = first.map_or(0, |(worker, _)| worker);
        if let Some(pile) = piles.get_mut(worker) {
            pile.add(load);
        }
        worker
    };
    loads.iter().map(deal).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace {
        base_us: 100.0,
        program_us: 1.0,
        kilotoken_us: 10.0,
        prefill_us: 0.0,
        capacity_tokens: 1e6,
        batch_max: 1_000.0,
    };

    fn loads(lengths: &[f64]) -> Vec<Load> {
        let load = |&remaining: &f64| {
            let context = 100.0;
            Load::of(Member { remaining, context }, Habits::default())
        };
        lengths.iter().map(load).collect()
    }

    fn all(lengths: &[f64]) -> Load {
        let mut all = Load::default();
        for load in loads(lengths) {
            all.add(&load);
        }
        all
    }

    #[test]
    fn the_longest_is_expected_to_be_longer_the_more_there_are() {
        let none = Load::default();
        let one = all(&[1_000.0]).longest(&none);
        assert!((600.0..1_000.0).contains(&one), "{one}");
        let mut before = one;
        for count in [10, 100, 1_000] {
            let longest = all(&vec![1_000.0; count]).longest(&none);
            assert!(longest > before && longest < 20_000.0, "{count}: {longest}");
            before = longest;
        }
    }

    #[test]
    fn a_worker_ends_no_earlier_with_more_to_do() {
        let mut pile = Load::default();
        let mut before = 0.0;
        for load in loads(&[900.0, 30.0, 5_000.0, 1.0, 700.0]) {
            let end_us = pile.end_us(&load, &PACE, Habits::default());
            assert!(end_us > before, "{end_us} {before}");
            pile.add(&load);
            before = end_us;
        }
    }

    #[test]
    fn equal_workers_get_as_much_and_each_some_of_every_length() {
        let lengths: Vec<f64> = (1..=400).rev().map(|n| f64::from(n) * 20.0).collect();
        let dealt = deal_evenly(&[PACE; 4], &loads(&lengths), Habits::default());
        for worker in 0..4 {
            let own = (0..400).filter(|row| dealt[*row] == worker);
            let own: Vec<f64> = own.map(|row| lengths[row]).collect();
            let share = own.iter().sum::<f64>() / lengths.iter().sum::<f64>();
            assert!((0.23..0.27).contains(&share), "{share}");
            let long = own.iter().filter(|length| **length > 4_000.0).count();
            assert!((40..=60).contains(&long), "{long}");
        }
        assert!(deal_evenly(&[], &loads(&[1.0]), Habits::default()) == [0]);
    }

    #[test]
    fn faster_workers_get_more() {
        let fast = Pace {
            base_us: 50.0,
            program_us: 0.5,
            kilotoken_us: 5.0,
            ..PACE
        };
        let dealt = deal_evenly(&[PACE, fast], &loads(&[500.0; 90]), Habits::default());
        let of_fast = dealt.iter().filter(|worker| **worker == 1).count();
        assert!((55..75).contains(&of_fast), "{of_fast}");
    }

    #[test]
    fn few_programs_are_not_mostly_work_and_many_are() {
        let habits = Habits::default();
        assert!(!all(&[5_000.0; 4]).is_mostly_work(&[PACE; 2], habits, f64::INFINITY));
        assert!(all(&vec![5_000.0; 4_000]).is_mostly_work(&[PACE; 2], habits, f64::INFINITY));
        // Nor are few if none of them can be long.
        assert!(all(&[5_000.0; 4]).is_mostly_work(&[PACE; 2], habits, 50.0));
    }
}
