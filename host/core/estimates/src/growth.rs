//! Peak memory of running programs: they grow in step, and those with the least remaining tokens
//! end first.

use std::collections::{BTreeMap, BTreeSet};
use treadle_model::WorkerId;

/// A running program.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Growing {
    /// Predicted number of tokens still to generate.
    pub remaining: u64,
    /// Present context.
    pub held: u64,
    /// Growth of the context per generated token, in millionths.
    pub growth_ppm: u64,
}

/// The memory of one worker.
#[derive(Clone, Debug)]
pub struct WorkerGrowth {
    capacity_tokens: u64,
    /// The programs, the most remaining tokens first.
    under_way: Vec<Growing>,
}

impl WorkerGrowth {
    /// The memory of a worker with these programs.
    pub fn new(capacity_tokens: u64, mut under_way: Vec<Growing>) -> Self {
        under_way.sort_unstable_by_key(|growing| std::cmp::Reverse(growing.remaining));
        Self {
            capacity_tokens,
            under_way,
        }
    }

    /// Admits a program if the memory suffices for all, or if it is the only one.
    fn admits(&mut self, program: Growing) -> bool {
        let place = |growing: &Growing| growing.remaining > program.remaining;
        let place = self.under_way.partition_point(place);
        self.under_way.insert(place, program);
        let admitted = self.under_way.len() == 1 || self.peak_tokens() <= self.capacity_tokens;
        if !admitted {
            self.under_way.remove(place);
        }
        admitted
    }

    /// The peak: just before each of them ends, those with more remaining tokens have generated as
    /// much as it.
    fn peak_tokens(&self) -> u64 {
        let (mut held, mut growth, mut peak) = (0_u64, 0_u64, 0_u64);
        for growing in &self.under_way {
            held = held.saturating_add(growing.held);
            growth = growth.saturating_add(growing.growth_ppm);
            let grown = u128::from(growing.remaining) * u128::from(growth) / 1_000_000;
            let grown = u64::try_from(grown).unwrap_or(u64::MAX);
            peak = peak.max(held.saturating_add(grown));
        }
        peak
    }
}

/// The memory of the workers while the programs of one answer are placed.
#[derive(Clone, Debug, Default)]
pub struct Forecast {
    memory: BTreeMap<WorkerId, WorkerGrowth>,
    kept: BTreeSet<WorkerId>,
}

impl Forecast {
    /// Reserves this worker for a waiting program: no less urgent one takes it.
    pub fn keep(&mut self, worker: WorkerId) {
        self.kept.insert(worker);
    }

    /// Whether this worker is reserved.
    pub fn is_kept(&self, worker: WorkerId) -> bool {
        self.kept.contains(&worker)
    }

    /// Admits a program if the worker's memory suffices for all.
    pub fn admits(
        &mut self,
        worker: WorkerId,
        memory: impl FnOnce() -> WorkerGrowth,
        program: Growing,
    ) -> bool {
        let memory = self.memory.entry(worker).or_insert_with(memory);
        memory.admits(program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growing(remaining: u64, held: u64) -> Growing {
        Growing {
            remaining,
            held,
            growth_ppm: 1_000_000,
        }
    }

    #[test]
    fn the_peak_is_when_the_sum_is_largest() {
        // At the end of the short ones three hold 110 each; at its end the long one alone holds
        // 200.
        let under_way = vec![growing(100, 100), growing(10, 100), growing(10, 100)];
        let memory = WorkerGrowth::new(0, under_way);
        assert_eq!(memory.peak_tokens(), 330);
    }

    #[test]
    fn each_grows_as_its_job_does() {
        let fast = Growing {
            growth_ppm: 3_000_000,
            ..growing(100, 0)
        };
        let memory = WorkerGrowth::new(0, vec![fast, growing(50, 10)]);
        assert_eq!(memory.peak_tokens(), 300, "the fast one alone, at its end");
        let memory = WorkerGrowth::new(0, vec![fast, growing(90, 10)]);
        assert_eq!(memory.peak_tokens(), 370, "both, when the slow one ends");
    }

    #[test]
    fn a_program_is_let_in_if_all_will_fit_and_the_first_always() {
        let mut memory = WorkerGrowth::new(250, Vec::new());
        assert!(memory.admits(growing(900, 100)), "alone");
        assert!(
            !memory.admits(growing(1, 1)),
            "the first needs more than there is"
        );
        let mut memory = WorkerGrowth::new(250, vec![growing(100, 100)]);
        assert!(memory.admits(growing(10, 40)));
        assert!(!memory.admits(growing(60, 100)));
    }
}
