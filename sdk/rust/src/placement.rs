//! The world `placement`: which worker a program goes to. Workers are named by their
//! row in the [`WorkerColumns`] of the same call.

use crate::columns::{check_length, columns};
use crate::{Phase, Policy, PolicyError};

/// Represents no worker in a column of workers.
pub const NOWHERE: u32 = u32::MAX;

/// Represents no class of hardware in a column of classes.
pub const NO_CLASS: u32 = u32::MAX;

/// Represents a worker that steps by itself in a column of groups that step together.
pub const NO_GROUP: u32 = u32::MAX;

/// Workers, one row each.
#[derive(Debug, Clone, Copy, Default)]
pub struct WorkerColumns<'a> {
    /// KV cache in tokens, 0 if unknown.
    pub capacity_tokens: &'a [u64],
    /// Tokens that each worker is charged for.
    pub used_tokens: &'a [u64],
    /// Number of steps that each worker runs.
    pub running: &'a [u32],
    /// Time per token while a worker runs one step, in microseconds; -1 until there are enough
    /// samples.
    pub token_us: &'a [f64],
    /// Time that each further step adds to this, in microseconds; -1 if unknown.
    pub step_us: &'a [f64],
    /// Time per prompt token, in microseconds; -1 if unknown.
    pub prefill_us: &'a [f64],
    /// Number of a worker's class of hardware in this call, or [`NO_CLASS`].
    pub hardware_class: &'a [u32],
    /// Number, in this call, of the workers with which a worker steps together, or [`NO_GROUP`]:
    /// ranks of one endpoint, whose steps all take as long as at the one with most to do.
    pub lockstep_group: &'a [u32],
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
        check_length("worker_prefill_us", self.prefill_us.len(), self.len())?;
        check_length(
            "worker_hardware_class",
            self.hardware_class.len(),
            self.len(),
        )?;
        check_length(
            "worker_lockstep_group",
            self.lockstep_group.len(),
            self.len(),
        )
    }
}

columns! {
    /// Programs that are about to be placed, one row each.
    AssignColumns
    rows {
        /// An opaque number, the same for programs of one group: samples of one task.
        group: u64,
        /// Context that must fit, in tokens.
        tokens: u64,
        /// Predicted tokens still to be generated, -1 without a prediction.
        remaining_tokens: f64,
        /// The worker of its last placement, or [`NOWHERE`].
        last_worker: u32,
        /// Growth of its job's contexts in tokens per generated token, including tool results; -1
        /// if unknown.
        growth: f64,
        /// Time in tools of its job per generated token, in microseconds; -1 if unknown.
        tool_us: f64,
        /// Number of the class of hardware that it prefers, or [`NO_CLASS`]. [`crate::affinity`]
        /// helps.
        preferred_class: u32,
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
        /// Tokens of the step's context that each worker is believed to have cached.
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
        /// Its current worker.
        at_worker: u32,
        /// Context length in tokens.
        tokens: u64,
        /// Predicted tokens still to be generated, -1 without a prediction.
        remaining_tokens: f64,
        /// Its phase; a move during an action delays no step.
        phase: Phase,
        /// Growth of its job's contexts in tokens per generated token, including tool results; -1
        /// if unknown.
        growth: f64,
        /// Time in tools of its job per generated token, in microseconds; -1 if unknown.
        tool_us: f64,
        /// Number of the class of hardware that it prefers, or [`NO_CLASS`]. [`crate::affinity`]
        /// helps.
        preferred_class: u32,
    }
    beside {
        /// The workers to choose from.
        workers: WorkerColumns<'a>,
    }
    check |columns| columns.workers.check();
}

/// A policy of the world `placement`.
pub trait PlacementPolicy: Policy {
    /// Functions of the contract that the policy implements.
    const FUNCTIONS: &'static [&'static str] = &["assign"];

    /// A worker for each program that is about to be placed. The host chooses another if the
    /// program does not fit.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the host then decides by its built-in default.
    fn assign(&mut self, programs: &AssignColumns<'_>) -> Result<Vec<u32>, PolicyError>;

    /// A finite score for each worker for one step; the highest with room is chosen, on equal
    /// scores the first. The default leaves the decision to the host.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the host then decides by its built-in default.
    fn route(&mut self, workers: &RouteColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        let _ = workers;
        Err(PolicyError::not_supported())
    }

    /// The worker on which each placed program should be; its current one to stay. The default
    /// leaves the decision to the host.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the host then decides by its built-in default.
    fn migrate(&mut self, programs: &MigrateColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        let _ = programs;
        Err(PolicyError::not_supported())
    }
}
