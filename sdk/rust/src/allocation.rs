//! The world `allocation`: how much of a resource each consumer gets.

use crate::columns::{check_length, columns};
use crate::{Policy, PolicyError};

columns! {
    /// Queued actions, one row each.
    GrantColumns
    rows {
        /// The row of `free_units` that the action draws from.
        pool: u32,
        /// The least that it can run with.
        units_min: u32,
        /// The most that it can use.
        units_max: u32,
        /// Time in the queue, in milliseconds.
        waited_ms: u64,
        /// Expected run time with `units_min`, in milliseconds, -1 where it is not
        /// known.
        expected_ms: f64,
    }
    beside {
        /// What each pool has left; one entry per pool.
        free_units: &'a [u32],
    }
    check |columns| check_pools(columns);
}

fn check_pools(columns: &GrantColumns<'_>) -> Result<(), PolicyError> {
    let pools = columns.free_units.len();
    match columns.pool.iter().find(|pool| **pool as usize >= pools) {
        None => Ok(()),
        Some(pool) => Err(PolicyError::invalid_input(format!(
            "column pool names pool {pool} of {pools}; pass rows of free_units"
        ))),
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
    const FUNCTIONS: &'static [&'static str] = &["grant"];

    /// Units for each queued action: 0 to let it wait, else between `units_min` and
    /// `units_max`. The grants from one pool add up to at most its free units.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the host then decides by its built-in default.
    fn grant(&mut self, actions: &GrantColumns<'_>) -> Result<Vec<u32>, PolicyError>;

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
