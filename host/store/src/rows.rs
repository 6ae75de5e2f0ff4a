//! The rows of the store, as others see them.
//!
//! Times are microseconds (`_us`), on whichever clock the caller chose. Fields that hold JSON are
//! text that the store keeps byte for byte.

/// Something that happened, as the core saw it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EventRow {
    /// Position in the journal: 1 for the first event, one more for each further.
    pub seq: u64,
    /// When the core handled it.
    pub at_us: u64,
    /// Kind of event, in past tense.
    pub kind: String,
    /// Job that it belongs to.
    pub job: String,
    /// Program that it belongs to, if any.
    pub program: Option<String>,
    /// The event itself, as JSON.
    pub body: String,
}

/// A program as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProgramRow {
    /// Its id.
    pub program: String,
    /// Job that it belongs to.
    pub job: String,
    /// The program that started it.
    pub parent: Option<String>,
    /// Queued, active, paused, finished, aborted.
    pub status: String,
    /// Reasoning or acting.
    pub phase: String,
    /// Worker that it is placed on.
    pub worker: Option<String>,
    /// Length of its context, in tokens.
    pub context_tokens: u64,
    /// Steps so far.
    pub steps: u64,
    /// Tokens of prompt and output of all its steps.
    pub tokens_total: u64,
    /// When it was first seen.
    pub created_at_us: u64,
    /// When it last changed.
    pub updated_at_us: u64,
    /// How it ended, if it did.
    pub ended: Option<String>,
}

/// What a daemon's metrics showed at one time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SampleRow {
    /// When.
    pub at_us: u64,
    /// Values by name, as JSON.
    pub values: String,
}

/// How long a program was that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LengthRow {
    /// When it was first seen.
    pub created_at_us: u64,
    /// When its last step ended: it may have been released, or given up, long after.
    pub ended_at_us: u64,
    /// Tokens of its first prompt; 0 where no engine counted one.
    pub prompt_tokens: u64,
    /// Tokens of its context in the end.
    pub context_tokens: u64,
    /// Tokens that it generated.
    pub output_tokens: u64,
    /// Time of its steps.
    pub steps_us: u64,
}

/// One call of a program to an engine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StepRow {
    /// Its number; together with the program its key.
    pub step: u64,
    /// Program that it belongs to.
    pub program: String,
    /// Worker that served it.
    pub worker: Option<String>,
    /// When the request came in.
    pub arrived_at_us: u64,
    /// When it went to the worker.
    pub dispatched_at_us: Option<u64>,
    /// When the first token came back.
    pub first_token_at_us: Option<u64>,
    /// When the last token came back, or the failure.
    pub finished_at_us: Option<u64>,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens that were generated.
    pub output_tokens: u64,
    /// Tokens of the prompt that the engine had in its cache, where it reports them.
    pub cached_tokens: Option<u64>,
    /// How it went.
    pub outcome: String,
    /// How long it was held back before it went to the worker.
    pub waited_us: u64,
    /// Why it was held back or failed.
    pub cause: Option<String>,
}

/// An inference engine as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorkerRow {
    /// Its name.
    pub worker: String,
    /// Where it listens.
    pub url: String,
    /// Kind of engine.
    pub kind: String,
    /// How it is doing.
    pub status: String,
    /// Tokens that fit in its cache, where known.
    pub capacity_tokens: Option<u64>,
    /// Tokens of the programs that are placed on it.
    pub used_tokens: u64,
    /// When it joined.
    pub added_at_us: u64,
    /// When it last changed.
    pub updated_at_us: u64,
}

/// A decision and its reasons.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DecisionRow {
    /// Event that led to it.
    pub seq: u64,
    /// When it was taken.
    pub at_us: u64,
    /// Kind of decision.
    pub kind: String,
    /// Program that it is about, if any.
    pub program: Option<String>,
    /// Worker that it is about, if any.
    pub worker: Option<String>,
    /// Policy that took it, with its version.
    pub policy: String,
    /// Inputs, scores and alternatives, as JSON.
    pub why: String,
}

/// A plugin without its component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginHead {
    /// Digest of the component.
    pub digest: String,
    /// World that it implements.
    pub world: String,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it does, in a line.
    pub summary: String,
    /// Size of the component, in bytes.
    pub size_bytes: u64,
    /// When it came.
    pub uploaded_at_us: u64,
    /// Whose signature it bore.
    pub signed_by: Option<String>,
}

/// A plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginRow {
    /// Everything but the component.
    pub head: PluginHead,
    /// The WebAssembly component.
    pub component: Vec<u8>,
}

/// Which policy a job uses for a world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BindingRow {
    /// The job.
    pub job: String,
    /// The world.
    pub world: String,
    /// What the policy does there: `active`, `previous`, `canary`, `shadow`.
    pub role: String,
    /// Digest of the plugin, or the name of a policy that is built in.
    pub digest: String,
    /// Configuration of the policy, as JSON.
    pub config: String,
    /// A canary's share of the programs, in millionths.
    pub share_ppm: u32,
    /// Since when.
    pub since_us: u64,
}

/// Which policies a job uses for a world, replacing all that it used before.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BindingSet {
    /// The job.
    pub job: String,
    /// The world.
    pub world: String,
    /// One row a role. Without any row, what its policy had stored is removed too.
    pub roles: Vec<BindingRow>,
}

/// What the policy of a binding has stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyStateRow {
    /// The job.
    pub job: String,
    /// The world.
    pub world: String,
    /// Its keys and values, in the plugin runtime's form.
    pub entries: Vec<u8>,
    /// What it has learnt, in the policy's own form.
    pub snapshot: Vec<u8>,
    /// When it was saved.
    pub saved_at_us: u64,
}

/// The state of the core after an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Last event that the state includes.
    pub seq: u64,
    /// When it was saved.
    pub saved_at_us: u64,
    /// The state, in the core's own form.
    pub state: Vec<u8>,
}

/// Rows that become durable together.
///
/// `programs`, `steps` and `workers` replace the row with the same key, and of two with the same
/// key in one batch the later one stays. `events` and `decisions` are only ever added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Batch {
    /// Events that continue the journal.
    pub events: Vec<EventRow>,
    /// Programs that changed.
    pub programs: Vec<ProgramRow>,
    /// Steps that changed; their programs are stored or in this batch.
    pub steps: Vec<StepRow>,
    /// Workers that changed.
    pub workers: Vec<WorkerRow>,
    /// Decisions that were taken.
    pub decisions: Vec<DecisionRow>,
    /// Bindings that changed.
    pub bindings: Vec<BindingSet>,
}

impl Batch {
    /// Rows of all kinds together.
    pub fn len(&self) -> usize {
        self.events.len()
            + self.programs.len()
            + self.steps.len()
            + self.workers.len()
            + self.decisions.len()
            + self.bindings.len()
    }

    /// Adds the rows of a later batch.
    pub fn append(&mut self, later: Self) {
        // Each kind by name, so that none is forgotten.
        let Self {
            events,
            programs,
            steps,
            workers,
            decisions,
            bindings,
        } = later;
        self.events.extend(events);
        self.programs.extend(programs);
        self.steps.extend(steps);
        self.workers.extend(workers);
        self.decisions.extend(decisions);
        self.bindings.extend(bindings);
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A row that the store can't hold, however often it is tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRow {
    /// Its table.
    pub table: &'static str,
    /// What it is called there, cut to [`RefusedRow::KEY_BYTES_MAX`] bytes.
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
