//! Waiting actions, drawn at random, for the tests of policies.

use super::draw;
use crate::random::SplitMix64;
use crate::{ActionColumns, FreeUnits, PoolColumns, RunningColumns};

/// Most options of a row.
const OPTIONS_MAX: u64 = 6;

/// Waiting actions, their resources, and running actions.
#[derive(Debug, Clone, Default)]
pub struct Actions {
    /// The pool of each row.
    pub pool: Vec<u32>,
    /// 1 for the first rows that all fit together.
    pub candidate: Vec<u8>,
    /// Time in the queue, in microseconds.
    pub waited_us: Vec<u64>,
    /// Index of each row's first option, and the number of options.
    pub option_start: Vec<u32>,
    /// Units of each option.
    pub option_units: Vec<u32>,
    /// Run time with each option, in microseconds.
    pub option_us: Vec<f64>,
    /// Time to load the service first, in microseconds.
    pub option_load_us: Vec<f64>,
    /// Free units of each pool.
    pub free_units: Vec<u32>,
    /// Whether each pool is chunked.
    pub chunked: Vec<u8>,
    /// Free chunks of each pool.
    pub free_chunks: Vec<u32>,
    /// The pool of each running action.
    pub running_pool: Vec<u32>,
    /// Units that each holds.
    pub running_units: Vec<u32>,
    /// Remaining run time of each, in microseconds.
    pub running_left_us: Vec<u64>,
    /// Extra columns, one after the other.
    pub extra: Vec<f32>,
}

impl Actions {
    /// Draws actions on `pools` pools, at least one, half of them chunked.
    pub fn draw(random: &mut SplitMix64, rows: usize, extra_columns: usize, pools: usize) -> Self {
        let mut table = Self::default();
        for _ in 0..pools {
            table.draw_pool(random);
        }
        table.option_start.push(0);
        for _ in 0..rows {
            table.pool.push(draw::below(random, pools as u64) as u32);
            table.waited_us.push(draw::amount(random));
            table.draw_options(random);
        }
        table
            .waited_us
            .sort_by_key(|waited| std::cmp::Reverse(*waited));
        for _ in 0..draw::below(random, 24) {
            let pool = draw::below(random, pools as u64) as u32;
            table.running_pool.push(pool);
            table.running_units.push(draw::count(random));
            table.running_left_us.push(draw::amount(random));
        }
        table.extra = (0..rows * extra_columns)
            .map(|_| draw::extra(random))
            .collect();
        // Occasionally another resource limits them sooner.
        let most = match draw::below(random, 4) {
            0 => draw::below(random, rows as u64 + 1) as usize,
            _ => rows,
        };
        table.mark_candidates(most);
        table
    }

    /// Marks the first rows that fit together as candidates, at most `rows_max`.
    pub fn mark_candidates(&mut self, rows_max: usize) {
        self.candidate = vec![0; self.pool.len()];
        let columns = self.columns();
        let mut free: Vec<FreeUnits> = (0..self.free_units.len())
            .map(|pool| FreeUnits::of(&columns.pools, pool))
            .collect();
        let mut fits = |row: usize| {
            let least = columns.options(row).next();
            let pool = columns.pool[row] as usize;
            least.is_some_and(|least| free[pool].take(columns.option_units[least]))
        };
        let rows = 0..self.pool.len().min(rows_max);
        let candidates = rows.take_while(|&row| fits(row)).count();
        self.candidate[..candidates].fill(1);
    }

    /// The columns for a policy.
    pub fn columns(&self) -> ActionColumns<'_> {
        ActionColumns {
            pool: &self.pool,
            candidate: &self.candidate,
            waited_us: &self.waited_us,
            option_start: &self.option_start,
            option_units: &self.option_units,
            option_us: &self.option_us,
            option_load_us: &self.option_load_us,
            pools: PoolColumns {
                free_units: &self.free_units,
                chunked: &self.chunked,
                free_chunks: &self.free_chunks,
            },
            running: RunningColumns {
                pool: &self.running_pool,
                units: &self.running_units,
                left_us: &self.running_left_us,
            },
            extra: &self.extra,
        }
    }

    fn draw_pool(&mut self, random: &mut SplitMix64) {
        let chunked = draw::below(random, 2) == 1;
        self.chunked.push(chunked.into());
        if !chunked {
            self.free_units.push(draw::count(random));
            self.free_chunks.extend([0; 4]);
            return;
        }
        let chunks: [u32; 4] = std::array::from_fn(|_| draw::below(random, 6) as u32);
        let units = (0..4).map(|size| chunks[size] << size);
        self.free_units.push(units.sum());
        self.free_chunks.extend(chunks);
    }

    fn draw_options(&mut self, random: &mut SplitMix64) {
        let mut units = draw::below(random, 3) as u32;
        for _ in 0..draw::below(random, OPTIONS_MAX + 1) {
            self.option_units.push(units);
            self.option_us.push(draw::predicted(random));
            let load_us = draw::predicted(random).max(0.0);
            self.option_load_us.push(load_us);
            // Mostly powers of two, as the host offers them.
            let more = match draw::below(random, 4) {
                0 => draw::count(random).max(1),
                _ => units.max(1),
            };
            let Some(next) = units.checked_add(more) else {
                break;
            };
            units = next;
        }
        self.option_start.push(self.option_units.len() as u32);
    }
}
