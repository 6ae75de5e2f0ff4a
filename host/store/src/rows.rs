//! Rows that are no table's own: groups of rows, and the results of queries.

use crate::{ActionRow, BindingRow, DecisionRow, EventRow, ProgramRow, StepRow, WorkerRow};

/// The reward of an ended program; ignored if no ended program has its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RewardRow {
    /// The program.
    pub program: String,
    /// Its reward, in millionths.
    pub reward_millionths: i64,
}

/// The length of an ended program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LengthRow {
    /// When it was first seen.
    pub created_at_us: u64,
    /// When its last step ended; it may have been released or considered ended long after.
    pub ended_at_us: u64,
    /// Tokens of its first prompt; 0 if no engine counted them.
    pub prompt_tokens: u64,
    /// Tokens of its context at its end.
    pub context_tokens: u64,
    /// Tokens that it generated.
    pub output_tokens: u64,
    /// Total duration of its steps.
    pub steps_us: u64,
}

/// A step with data of its program and job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedStep {
    /// The step.
    pub step: StepRow,
    /// Job of its program.
    pub job: String,
    /// Tokens that its program has generated so far.
    pub program_output_tokens: Option<u64>,
}

/// The policies that a job uses for a world, replacing all previous ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BindingSet {
    /// The job.
    pub job: String,
    /// The world.
    pub world: String,
    /// One row per role. An empty list also removes the state that its policy has stored.
    pub roles: Vec<BindingRow>,
}

/// Rows that become durable together.
///
/// Rows of `programs`, `steps`, `workers` and `actions` replace the row with the same key; of rows
/// with the same key in one batch, the last is kept. `events` and `decisions` are only appended. Of
/// equal `weights` the first is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Batch {
    /// Events that continue the journal.
    pub events: Vec<EventRow>,
    /// Programs that changed.
    pub programs: Vec<ProgramRow>,
    /// Steps that changed; their programs must be stored or in this batch.
    pub steps: Vec<StepRow>,
    /// Workers that changed.
    pub workers: Vec<WorkerRow>,
    /// Decisions that were taken.
    pub decisions: Vec<DecisionRow>,
    /// Bindings that changed.
    pub bindings: Vec<BindingSet>,
    /// Actions that changed.
    pub actions: Vec<ActionRow>,
    /// Rewards of ended programs; they are written after `programs`.
    pub rewards: Vec<RewardRow>,
}

impl Batch {
    /// Number of rows of all kinds.
    pub fn len(&self) -> usize {
        self.events.len()
            + self.programs.len()
            + self.steps.len()
            + self.workers.len()
            + self.decisions.len()
            + self.bindings.len()
            + self.actions.len()
            + self.rewards.len()
    }

    /// Adds the rows of a later batch.
    pub fn append(&mut self, later: Self) {
        // Destructured, so that no kind is forgotten.
        let Self {
            events,
            programs,
            steps,
            workers,
            decisions,
            bindings,
            actions,
            rewards,
        } = later;
        self.events.extend(events);
        self.programs.extend(programs);
        self.steps.extend(steps);
        self.workers.extend(workers);
        self.decisions.extend(decisions);
        self.bindings.extend(bindings);
        self.actions.extend(actions);
        self.rewards.extend(rewards);
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A row that the store can't hold; retrying does not help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRow {
    /// Its table.
    pub table: &'static str,
    /// The row's key, cut to [`RefusedRow::KEY_BYTES_MAX`] bytes.
    pub key: String,
    /// The sequence number, if it is an event.
    pub event: Option<u64>,
    /// The store's error.
    pub cause: String,
}

impl RefusedRow {
    /// Longest key, in bytes.
    pub const KEY_BYTES_MAX: usize = 128;
}

/// Makes the placeholder for an event that the store can't hold, from the event and the cause: a
/// row with the same number that every store can hold.
pub type Placeholder = fn(&EventRow, &str) -> EventRow;
