//! The world `allocation`: how much of a resource each consumer gets.

use std::ops::Range;

use crate::columns::{check_length, columns};
use crate::{Policy, PolicyError};

columns! {
    /// Waiting actions in the order in which they are served, one row each, and what there is
    /// for them.
    ActionColumns
    rows {
        /// The row of `pools` that its key resource is: the one that it can use more or less of.
        pool: u32,
        /// 1 for a candidate: the first rows that all fit together, in every resource, with the
        /// least that each can do with.
        candidate: u8,
        /// Time in the queue, in microseconds.
        waited_us: u64,
    }
    beside {
        /// Where the options of each row begin in the three lists below; one entry more than
        /// rows. [`ActionColumns::options`] gives those of a row.
        option_start: &'a [u32],
        /// Units of the key resource, ascending within a row.
        option_units: &'a [u32],
        /// Expected run time with so many, in microseconds; -1 where it is not known.
        option_us: &'a [f64],
        /// Time to get its service onto the devices first, in microseconds.
        option_load_us: &'a [f64],
        /// What the actions draw from.
        pools: PoolColumns<'a>,
        /// Running actions.
        running: RunningColumns<'a>,
    }
    check |columns| columns
        .check_options()
        .and_then(|()| columns.pools.check())
        .and_then(|()| columns.check_pools("pool", columns.pool))
        .and_then(|()| columns.running.check())
        .and_then(|()| columns.check_pools("running_pool", columns.running.pool));
}

impl ActionColumns<'_> {
    /// Where the options of a row are in `option_units`, `option_us` and `option_load_us`.
    pub fn options(&self, row: usize) -> Range<usize> {
        self.option_start[row] as usize..self.option_start[row + 1] as usize
    }

    /// Whether a row is a candidate.
    pub fn is_candidate(&self, row: usize) -> bool {
        self.candidate[row] != 0
    }

    /// What an option takes from start to end: to get the service onto the devices and to run,
    /// in microseconds. `None` where it is not known.
    pub fn option_time_us(&self, option: usize) -> Option<f64> {
        let run_us = self.option_us[option];
        (run_us >= 0.0).then(|| run_us + self.option_load_us[option].max(0.0))
    }

    fn check_options(&self) -> Result<(), PolicyError> {
        let options = self.option_units.len();
        check_length("option_start", self.option_start.len(), self.len() + 1)?;
        check_length("option_us", self.option_us.len(), options)?;
        check_length("option_load_us", self.option_load_us.len(), options)?;
        let ends = (self.option_start.first(), self.option_start.last());
        let spanned = ends == (Some(&0), Some(&u32::try_from(options).unwrap_or(u32::MAX)));
        if !spanned || !self.option_start.is_sorted() {
            return Err(PolicyError::invalid_input(format!(
                "column option_start does not rise from 0 to {options}; pass where the options of \
                 each row begin, and their number"
            )));
        }
        let ascend = |row: &usize| self.option_units[self.options(*row)].is_sorted_by(|a, b| a < b);
        match (0..self.len()).find(|row| !ascend(row)) {
            None => Ok(()),
            Some(row) => Err(PolicyError::invalid_input(format!(
                "column option_units does not ascend within row {row}; pass the least first"
            ))),
        }
    }

    fn check_pools(&self, column: &str, rows: &[u32]) -> Result<(), PolicyError> {
        let pools = self.pools.len();
        match rows.iter().find(|pool| **pool as usize >= pools) {
            None => Ok(()),
            Some(pool) => Err(PolicyError::invalid_input(format!(
                "column {column} names pool {pool} of {pools}; pass rows of free_units"
            ))),
        }
    }
}

/// What actions draw from, one row each.
#[derive(Debug, Clone, Copy, Default)]
pub struct PoolColumns<'a> {
    /// Units that are free; where they come in chunks, what these add up to.
    pub free_units: &'a [u32],
    /// 1 where units are devices that come in chunks of 1, 2, 4 and 8. An action then gets one
    /// chunk, of the least of these sizes that has its units; a larger one is split, smaller
    /// ones are never put together.
    pub chunked: &'a [u8],
    /// Free chunks of 1, 2, 4 and 8 devices: four entries per pool, 0 where it is not chunked.
    pub free_chunks: &'a [u32],
}

impl PoolColumns<'_> {
    /// Number of pools.
    pub fn len(&self) -> usize {
        self.free_units.len()
    }

    /// Whether there are no pools.
    pub fn is_empty(&self) -> bool {
        self.free_units.is_empty()
    }

    /// Free chunks of 1, 2, 4 and 8 devices; `None` where the pool's units come one by one.
    pub fn chunks(&self, pool: usize) -> Option<[u32; 4]> {
        let of_pool = |size: usize| self.free_chunks[pool * 4 + size];
        (self.chunked[pool] != 0).then(|| std::array::from_fn(of_pool))
    }

    /// Checks the lengths of the columns.
    ///
    /// # Errors
    /// [`PolicyError::invalid_input`], naming the column.
    pub fn check(&self) -> Result<(), PolicyError> {
        check_length("chunked", self.chunked.len(), self.len())?;
        check_length("free_chunks", self.free_chunks.len(), self.len() * 4)
    }
}

/// Running actions, one row each.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunningColumns<'a> {
    /// The row of the pools that it draws from.
    pub pool: &'a [u32],
    /// What it holds.
    pub units: &'a [u32],
    /// Time that it is expected to run yet, in microseconds.
    pub left_us: &'a [u64],
}

impl RunningColumns<'_> {
    /// Number of running actions.
    pub fn len(&self) -> usize {
        self.pool.len()
    }

    /// Whether nothing runs.
    pub fn is_empty(&self) -> bool {
        self.pool.is_empty()
    }

    /// Checks that all columns are of one length.
    ///
    /// # Errors
    /// [`PolicyError::invalid_input`], naming the column.
    pub fn check(&self) -> Result<(), PolicyError> {
        check_length("running_units", self.units.len(), self.len())?;
        check_length("running_left_us", self.left_us.len(), self.len())
    }
}

/// Degrees of tensor parallelism, one row each, and what is to run. Carries no extra
/// columns.
#[derive(Debug, Clone, Copy, Default)]
pub struct ParallelismColumns<'a> {
    /// Devices to share out.
    pub gpus: u32,
    /// Degrees that can be had, ascending.
    pub degree: &'a [u32],
    /// Time per output token of one program alone, in microseconds.
    pub token_us: &'a [f64],
    /// What each further program adds to that for all of them, in microseconds; -1 where it is not
    /// known.
    pub step_us: &'a [f64],
    /// Time for a token of a prompt, in microseconds; -1 alike.
    pub prefill_us: &'a [f64],
    /// KV cache of one worker of that degree, in tokens.
    pub capacity_tokens: &'a [u64],
    /// Expected length of each program that is to run, in tokens; one entry per
    /// program.
    pub expected_tokens: &'a [u64],
    /// Context that a program has beside what it generates and what tools return.
    pub prompt_tokens: u64,
    /// Tokens by which contexts grow with each generated one, what tools return included; -1 where
    /// it is not known.
    pub growth: f64,
    /// Time in tools for each generated token, in microseconds; -1 alike.
    pub tool_us: f64,
}

impl ParallelismColumns<'_> {
    /// Number of degrees.
    pub fn len(&self) -> usize {
        self.degree.len()
    }

    /// Whether there are no degrees.
    pub fn is_empty(&self) -> bool {
        self.degree.is_empty()
    }

    /// Checks that the columns of degrees are of one length.
    ///
    /// # Errors
    /// [`PolicyError::invalid_input`], naming the column.
    pub fn check(&self) -> Result<(), PolicyError> {
        check_length("token_us", self.token_us.len(), self.len())?;
        check_length("step_us", self.step_us.len(), self.len())?;
        check_length("prefill_us", self.prefill_us.len(), self.len())?;
        check_length("capacity_tokens", self.capacity_tokens.len(), self.len())
    }
}

/// A policy of the world `allocation`.
pub trait AllocationPolicy: Policy {
    /// Functions of the contract that it answers: what is implemented here.
    const FUNCTIONS: &'static [&'static str] = &["arrange"];

    /// For each row the option with which it starts now, as an index within the row's options;
    /// -1 to let it wait. What starts from one pool fits into what is free there, which
    /// [`Arrangement`](crate::Arrangement) sees to. Scheduling waits for the answer.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the host then decides by its built-in default.
    fn arrange(&mut self, actions: &ActionColumns<'_>) -> Result<Vec<i32>, PolicyError>;

    /// How many workers of each degree of tensor parallelism to run: one entry per
    /// degree. Degrees times counts add up to at most `gpus`. The default leaves it
    /// to the host.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the host then decides by its built-in default.
    fn parallelism(&mut self, degrees: &ParallelismColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        let _ = degrees;
        Err(PolicyError::not_supported())
    }
}
