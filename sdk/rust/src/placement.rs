//! The world `placement`: which worker a program goes to. Workers are named by their
//! row in the [`WorkerColumns`] of the same call.

use crate::columns::{check_length, columns};
use crate::{Phase, Policy, PolicyError};

/// In a column of workers: none.
pub const NOWHERE: u32 = u32::MAX;

/// Workers, one row each.
#[derive(Debug, Clone, Copy, Default)]
pub struct WorkerColumns<'a> {
    /// KV cache in tokens, 0 where it is not known.
    pub capacity_tokens: &'a [u64],
    /// Tokens that each is charged for.
    pub used_tokens: &'a [u64],
    /// Steps that each runs.
    pub running: &'a [u32],
    /// Time that each takes for a token while it runs one step, in microseconds; -1 until
    /// enough steps were seen.
    pub token_us: &'a [f64],
    /// What each further step adds to that for all of them, in microseconds; -1 alike.
    pub step_us: &'a [f64],
    /// Time that each takes for a token of a prompt, in microseconds; -1 alike.
    pub prefill_us: &'a [f64],
}

impl WorkerColumns<'_> {
    /// Number of workers.
    pub fn len(&self) -> usize {
        self.capacity_tokens.len()
    }

    /// Whether there are no workers.
    pub fn is_empty(&self) -> bool {
        self.capacity_tokens.is_empty()
    }

    /// Checks that all columns are of one length.
    ///
    /// # Errors
    /// [`PolicyError::invalid_input`], naming the column.
    pub fn check(&self) -> Result<(), PolicyError> {
        check_length("worker_used_tokens", self.used_tokens.len(), self.len())?;
        check_length("worker_running", self.running.len(), self.len())?;
        check_length("worker_token_us", self.token_us.len(), self.len())?;
        check_length("worker_step_us", self.step_us.len(), self.len())?;
        check_length("worker_prefill_us", self.prefill_us.len(), self.len())
    }
}

columns! {
    /// Programs that are about to get a place, one row each.
    AssignColumns
    rows {
        /// An opaque number, the same for programs of one group: samples of one task.
        group: u64,
        /// Context that the place must hold, in tokens.
        tokens: u64,
        /// Predicted tokens still to be generated, -1 where nothing was predicted.
        remaining_tokens: f64,
        /// Where the program was placed last, [`NOWHERE`] for nowhere.
        last_worker: u32,
        /// Tokens by which contexts of its job grow with each generated one, what tools
        /// return included; -1 before that was seen.
        growth: f64,
        /// Time that its job spends in tools for each generated token, in microseconds; -1
        /// alike.
        tool_us: f64,
    }
    beside {
        /// The workers to choose from.
        workers: WorkerColumns<'a>,
    }
    check |columns| columns.workers.check();
}

columns! {
    /// Workers that could take one step, one row each.
    RouteColumns
    rows {
        /// How much of the step's context each is believed to hold, in tokens.
        cached_tokens: u64,
    }
    beside {
        /// Context length of the step's program, in tokens.
        tokens: u64,
        /// The same workers, one entry per row.
        workers: WorkerColumns<'a>,
    }
    check |columns| {
        columns.workers.check()?;
        check_length("worker_capacity_tokens", columns.workers.len(), columns.len())
    };
}

columns! {
    /// Placed programs, one row each.
    MigrateColumns
    rows {
        /// Where the program is.
        at_worker: u32,
        /// Context length in tokens.
        tokens: u64,
        /// Predicted tokens still to be generated, -1 where nothing was predicted.
        remaining_tokens: f64,
        /// While a program acts, a move is hidden.
        phase: Phase,
        /// Tokens by which contexts of its job grow with each generated one, what tools
        /// return included; -1 before that was seen.
        growth: f64,
        /// Time that its job spends in tools for each generated token, in microseconds; -1
        /// alike.
        tool_us: f64,
    }
    beside {
        /// The workers to choose from.
        workers: WorkerColumns<'a>,
    }
    check |columns| columns.workers.check();
}

/// A policy of the world `placement`.
pub trait PlacementPolicy: Policy {
    /// Functions of the contract that it answers: what is implemented here.
    const FUNCTIONS: &'static [&'static str] = &["assign"];

    /// A worker for each program that is about to get a place. The host takes
    /// another where the program does not fit.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the host then decides by its built-in default.
    fn assign(&mut self, programs: &AssignColumns<'_>) -> Result<Vec<u32>, PolicyError>;

    /// A finite score for each worker for one step; the highest that has room takes
    /// it, on equal scores the first. The default leaves it to the host.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the host then decides by its built-in default.
    fn route(&mut self, workers: &RouteColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        let _ = workers;
        Err(PolicyError::not_supported())
    }

    /// The worker on which each placed program should be; its own for staying. The
    /// default leaves it to the host.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the host then decides by its built-in default.
    fn migrate(&mut self, programs: &MigrateColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        let _ = programs;
        Err(PolicyError::not_supported())
    }
}
