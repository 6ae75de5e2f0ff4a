//! Rows as a busy cluster has them: contexts of up to 200,000 tokens, groups of
//! eight, most programs with a prediction. The same ones in every run.

use treadle_plugin::harness::{
    Actions, Active, Answers, Assign, Finished, Live, Queue, Workers, draw,
};
use treadle_plugin::random::SplitMix64;
use treadle_plugin::{NO_CLASS, NO_GROUP, NOWHERE};

/// Workers that programs are placed on.
const WORKERS: usize = 8;
/// Pools that actions draw from.
const POOLS: u64 = 4;
/// Programs of one group.
const GROUP: u64 = 8;

/// Draws rows.
pub(super) struct Draw(SplitMix64);

impl Draw {
    pub(super) fn new() -> Self {
        Self(SplitMix64::new(1))
    }

    fn below(&mut self, bound: u64) -> u64 {
        draw::below(&mut self.0, bound)
    }

    fn column(&mut self, rows: usize, bound: u64) -> Vec<u64> {
        (0..rows).map(|_| self.below(bound)).collect()
    }

    fn counts(&mut self, rows: usize, bound: u64) -> Vec<u32> {
        (0..rows).map(|_| self.below(bound) as u32).collect()
    }

    /// One in eight is not known.
    fn predicted(&mut self, rows: usize, bound: u64) -> Vec<f64> {
        let mut entry = || match self.below(8) {
            0 => -1.0,
            _ => self.below(bound) as f64,
        };
        (0..rows).map(|_| entry()).collect()
    }

    fn groups(rows: usize) -> Vec<u64> {
        (0..rows as u64).map(|row| row / GROUP).collect()
    }

    /// Live programs, for predictions.
    pub(super) fn live(&mut self, rows: usize) -> Live {
        Live {
            group: Self::groups(rows),
            tokens: self.column(rows, 200_000),
            output_tokens: self.column(rows, 40_000),
            steps: self.counts(rows, 50),
            tool_ms: self.column(rows, 600_000),
            extra: Vec::new(),
        }
    }

    /// What is learnt before anything is predicted.
    pub(super) fn finished(&mut self, rows: usize) -> Finished {
        Finished {
            group: Self::groups(rows),
            tokens: self.column(rows, 200_000),
            output_tokens: self.column(rows, 40_000),
            steps: self.counts(rows, 50),
            tool_ms: self.column(rows, 600_000),
            remaining_tokens: self.column(rows, 20_000),
            remaining_tool_ms: self.column(rows, 60_000),
            extra: Vec::new(),
        }
    }

    /// Waiting programs.
    pub(super) fn queue(&mut self, rows: usize) -> Queue {
        Queue {
            tokens: self.column(rows, 200_000),
            output_tokens: self.column(rows, 40_000),
            steps: self.counts(rows, 50),
            waited_ms: self.column(rows, 120_000),
            remaining_tokens: self.predicted(rows, 20_000),
            remaining_tool_s: self.predicted(rows, 600),
            extra: Vec::new(),
        }
    }

    /// Programs to be placed, half of them on the worker that they had.
    pub(super) fn assign(&mut self, rows: usize) -> Assign {
        let mut last = || match self.below(2) {
            0 => NOWHERE,
            _ => self.below(WORKERS as u64) as u32,
        };
        Assign {
            last_worker: (0..rows).map(|_| last()).collect(),
            group: Self::groups(rows),
            tokens: self.column(rows, 200_000),
            remaining_tokens: self.predicted(rows, 20_000),
            growth: vec![2.0; rows],
            tool_us: vec![8_000.0; rows],
            preferred_class: vec![NO_CLASS; rows],
            extra: Vec::new(),
        }
    }

    /// The workers for them, with room for all.
    pub(super) fn workers(&mut self, rows: usize) -> Workers {
        let capacity = 1_000_000 + rows as u64 * 30_000;
        Workers {
            capacity_tokens: vec![capacity; WORKERS],
            used_tokens: self.column(WORKERS, capacity / 2),
            running: self.counts(WORKERS, 256),
            token_us: vec![22_000.0; WORKERS],
            step_us: vec![60.0; WORKERS],
            prefill_us: vec![66.0; WORKERS],
            hardware_class: vec![NO_CLASS; WORKERS],
            lockstep_group: vec![NO_GROUP; WORKERS],
        }
    }

    /// Waiting actions of a few pools, a quarter of them of devices.
    pub(super) fn actions(&mut self, rows: usize) -> Actions {
        let mut actions = Actions {
            pool: self.counts(rows, POOLS),
            waited_us: self.column(rows, 20_000_000),
            option_start: vec![0],
            // Enough for the least of most, and for more of some.
            free_units: vec![8 + rows as u32 / 2; POOLS as usize],
            chunked: vec![0; POOLS as usize],
            free_chunks: vec![0; 4 * POOLS as usize],
            ..Actions::default()
        };
        let nodes = 1 + rows as u32 / 16;
        actions.chunked[0] = 1;
        actions.free_units[0] = 8 * nodes;
        actions.free_chunks[3] = nodes;
        actions.waited_us.sort_unstable_by(|a, b| b.cmp(a));
        for _ in 0..rows {
            self.options(&mut actions, 3);
        }
        actions.mark_candidates(rows);
        actions
    }

    /// Options of up to `2^doublings` units, or one of 1 to 4; one in eight is not known.
    fn options(&mut self, actions: &mut Actions, doublings: u32) {
        let alone_us = 1_000.0 + self.below(60_000_000) as f64;
        let (known, elastic) = (self.below(8) > 0, self.below(4) > 0);
        let parallel = 0.5 + self.below(500) as f64 / 1_000.0;
        let powers = if elastic { 0..=doublings } else { 0..=0 };
        for power in powers {
            let units = 1 << power;
            let time_us = alone_us * (1.0 - parallel + parallel / f64::from(units));
            actions.option_units.push(units);
            actions.option_us.push(if known { time_us } else { -1.0 });
            actions.option_load_us.push(0.0);
        }
        let options = actions.option_units.len() as u32;
        actions.option_start.push(options);
    }

    /// Placed programs.
    pub(super) fn active(&mut self, rows: usize) -> Active {
        Active {
            tokens: self.column(rows, 200_000),
            phase: (0..rows).map(|_| draw::phase(&mut self.0)).collect(),
            phase_ms: self.column(rows, 60_000),
            steps: self.counts(rows, 50),
            extra: Vec::new(),
        }
    }

    /// Finished programs and their references: half of the answers are right.
    pub(super) fn answers(&mut self, rows: usize) -> Answers {
        let reference: Vec<u64> = self.column(rows, 1_000);
        let answer = |reference: &u64, miss: u64| format!("The answer is {}.", reference + miss);
        Answers {
            answer: reference
                .iter()
                .map(|reference| answer(reference, self.below(2)))
                .collect(),
            reference: reference.iter().map(u64::to_string).collect(),
            output_tokens: self.column(rows, 40_000),
            steps: self.counts(rows, 50),
            extra: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_draw_gives_the_same_rows_and_all_of_them() {
        let queue = Draw::new().queue(100);
        assert_eq!(queue.tokens, Draw::new().queue(100).tokens);
        assert!(queue.columns().check(0).is_ok());
        let unknown = queue.remaining_tokens.iter().filter(|t| **t < 0.0).count();
        assert!((1..50).contains(&unknown), "{unknown}");
        let mut draw = Draw::new();
        let workers = draw.workers(100);
        let assign = draw.assign(100);
        assert!(assign.columns_with(&workers).check(0).is_ok());
        assert!(assign.last_worker.contains(&NOWHERE));
    }
}
