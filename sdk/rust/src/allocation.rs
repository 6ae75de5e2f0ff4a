//! The world `allocation`: how much of a resource each consumer gets.

use std::ops::Range;

use crate::columns::{check_length, columns};
use crate::{Policy, PolicyError};

columns! {
    /// Waiting actions in the order in which they are served, one row each, and what there is
    /// for them.
    ActionColumns
    rows {
        /// The row in `pools` of its key resource: the one whose amount is variable.
        pool: u32,
        /// 1 for a candidate. Candidates are the first rows that fit together in every resource,
        /// each with its smallest option.
        candidate: u8,
        /// Time in the queue, in microseconds.
        waited_us: u64,
    }
    beside {
        /// Index of each row's first option in the three lists below; one entry more than rows.
        /// [`ActionColumns::options`] returns the range of a row.
        option_start: &'a [u32],
        /// Units of the key resource, ascending within a row.
        option_units: &'a [u32],
        /// Expected run time with these units, in microseconds; -1 if unknown.
        option_us: &'a [f64],
        /// Time to load its service onto the devices first, in microseconds.
        option_load_us: &'a [f64],
        /// The resources that actions use.
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
    /// The range of a row's options in `option_units`, `option_us` and `option_load_us`.
    pub fn options(&self, row: usize) -> Range<usize> {
        self.option_start[row] as usize..self.option_start[row + 1] as usize
    }

    /// Whether a row is a candidate.
    pub fn is_candidate(&self, row: usize) -> bool {
        self.candidate[row] != 0
    }

    /// Total time of an option, to load the service and to run, in microseconds. `None` if unknown.
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

/// Resources of actions, one row each.
#[derive(Debug, Clone, Copy, Default)]
pub struct PoolColumns<'a> {
    /// Free units; for chunked pools the sum of the free chunks.
    pub free_units: &'a [u32],
    /// 1 if units are devices in chunks of 1, 2, 4 and 8. An action then gets one chunk, of the
    /// smallest size with its units; larger chunks are split, smaller ones are never merged.
    pub chunked: &'a [u8],
    /// Free chunks of 1, 2, 4 and 8 devices: four entries per pool, 0 if it is not chunked.
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

    /// Free chunks of 1, 2, 4 and 8 devices; `None` if the pool is not chunked.
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
    /// The row of its pool.
    pub pool: &'a [u32],
    /// Units that it holds.
    pub units: &'a [u32],
    /// Expected remaining run time, in microseconds.
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

/// Degrees of tensor parallelism, one row each, and the expected programs. Has no extra columns.
#[derive(Debug, Clone, Copy, Default)]
pub struct ParallelismColumns<'a> {
    /// Devices to distribute.
    pub gpus: u32,
    /// Available degrees, ascending.
    pub degree: &'a [u32],
    /// Time per output token of one program by itself, in microseconds.
    pub token_us: &'a [f64],
    /// Time that each further program adds to this, in microseconds; -1 if unknown.
    pub step_us: &'a [f64],
    /// Time per prompt token, in microseconds; -1 if unknown.
    pub prefill_us: &'a [f64],
    /// KV cache of one worker of that degree, in tokens.
    pub capacity_tokens: &'a [u64],
    /// Expected length of each program, in tokens; one entry per program.
    pub expected_tokens: &'a [u64],
    /// Context of a program in addition to generated tokens and tool results.
    pub prompt_tokens: u64,
    /// Growth of contexts in tokens per generated token, including tool results; -1 if unknown.
    pub growth: f64,
    /// Time in tools per generated token, in microseconds; -1 if unknown.
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
    /// Functions of the contract that the policy implements.
    const FUNCTIONS: &'static [&'static str] = &["arrange"];

    /// For each row the option with which it starts now, as an index within the row's options; -1
    /// to let it wait. Actions that start must fit into the free units of their pool, which
    /// [`Arrangement`](crate::Arrangement) ensures. Scheduling waits for the answer.
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
