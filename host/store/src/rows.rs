//! The rows of the store.
//!
//! Times are in microseconds (`_us`), by whichever clock the caller uses. Fields with JSON are text
//! that the store keeps unchanged.

/// An event that the core has handled.
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

/// A program in its last known state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ProgramRow {
    /// Its id.
    pub program: String,
    /// Job that it belongs to.
    pub job: String,
    /// The program that started it.
    pub parent: Option<String>,
    /// `queued`, `active`, `paused`, `finished` or `aborted`.
    pub status: String,
    /// `reasoning` or `acting`.
    pub phase: String,
    /// Worker that it is placed on.
    pub worker: Option<String>,
    /// Length of its context, in tokens.
    pub context_tokens: u64,
    /// Steps so far.
    pub steps: u64,
    /// Tokens of prompt and output of all its steps.
    pub tokens_total: u64,
    /// Tokens that it has generated; unknown for programs that ended before this column existed.
    pub output_tokens: Option<u64>,
    /// When it was first seen.
    pub created_at_us: u64,
    /// When it last changed.
    pub updated_at_us: u64,
    /// How it ended, if it did.
    pub ended: Option<String>,
    /// Its reward in millionths, if one was reported.
    pub reward_millionths: Option<i64>,
    /// Time that it waited for programs that it had started; unknown for programs that ended before
    /// this column existed.
    pub blocked_us: Option<u64>,
}

/// The reward of an ended program; ignored if no ended program has its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RewardRow {
    /// The program.
    pub program: String,
    /// Its reward, in millionths.
    pub reward_millionths: i64,
}

/// The values of a daemon's metrics at one time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SampleRow {
    /// Time of the sample.
    pub at_us: u64,
    /// Values by name, as JSON.
    pub values: String,
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

/// One call of a program to an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StepRow {
    /// Its number; together with the program its key.
    pub step: u64,
    /// Program that it belongs to.
    pub program: String,
    /// Worker that served it.
    pub worker: Option<String>,
    /// When the request arrived.
    pub arrived_at_us: u64,
    /// When it was sent to the worker.
    pub dispatched_at_us: Option<u64>,
    /// When the first token arrived.
    pub first_token_at_us: Option<u64>,
    /// When the last token arrived or the step failed.
    pub finished_at_us: Option<u64>,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens that were generated.
    pub output_tokens: u64,
    /// Tokens of the prompt that were in the engine's cache, if the engine reports them.
    pub cached_tokens: Option<u64>,
    /// Its outcome, such as `failed` or `cancelled`.
    pub outcome: String,
    /// How long it waited before it was sent to the worker.
    pub waited_us: u64,
    /// Why it waited or failed.
    pub cause: Option<String>,
    /// Tokens that its program had generated up to the end of this step.
    pub output_tokens_total: Option<u64>,
    /// Mean prediction, at the end of this step, of the tokens that its program would still
    /// generate.
    pub predicted_tokens: Option<u64>,
    /// 90th percentile of that prediction.
    pub predicted_tokens_p90: Option<u64>,
    /// Version of the weights at its end, as reported by the engine.
    pub weight_version: Option<String>,
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
    /// Number of weight versions that its job first saw after the step's own.
    pub staleness: Option<u64>,
}

/// A version of the weights that an engine reported in an answer to a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WeightRow {
    /// The job.
    pub job: String,
    /// The version.
    pub version: String,
    /// When it was first seen.
    pub seen_at_us: u64,
}

/// An action that treadle runs, in its last known state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ActionRow {
    /// Its number.
    pub action: u64,
    /// Job that it belongs to.
    pub job: String,
    /// Program that it belongs to, if any.
    pub program: Option<String>,
    /// The tool or the reward: actions of the same kind are expected to last equally long.
    pub kind: String,
    /// `waiting`, `starting`, `running` or `ended`.
    pub status: String,
    /// How often it was started.
    pub attempts: u64,
    /// Its description as submitted, as JSON.
    pub spec: String,
    /// The resources of its last grant, as JSON.
    pub grants: Option<String>,
    /// How it ended, as JSON.
    pub outcome: Option<String>,
    /// Digest of its output, if it has any.
    pub output: Option<String>,
    /// When it was submitted.
    pub submitted_at_us: u64,
    /// When its resources were granted.
    pub granted_at_us: Option<u64>,
    /// When its process or request began.
    pub began_at_us: Option<u64>,
    /// When it ended.
    pub ended_at_us: Option<u64>,
}

/// A service that actions may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServiceRow {
    /// Its name.
    pub service: String,
    /// The tenant that declared it.
    pub tenant: String,
    /// How it is started and stopped, as JSON.
    pub spec: String,
    /// Declared time until it is ready.
    pub load_us: u64,
    /// When it was declared.
    pub declared_at_us: u64,
}

/// An inference engine in its last known state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorkerRow {
    /// Its name.
    pub worker: String,
    /// Where it listens.
    pub url: String,
    /// Kind of engine.
    pub kind: String,
    /// Its health.
    pub status: String,
    /// Tokens that fit in its cache, if known.
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
    /// The event that led to it.
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
    /// One-line description.
    pub summary: String,
    /// Size of the component, in bytes.
    pub size_bytes: u64,
    /// When it was uploaded.
    pub uploaded_at_us: u64,
    /// Key that signed it.
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

/// The policy that a job uses for a world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BindingRow {
    /// The job.
    pub job: String,
    /// The world.
    pub world: String,
    /// The role of the policy: `active`, `previous`, `canary` or `shadow`.
    pub role: String,
    /// Digest of the plugin, or the name of a built-in policy.
    pub digest: String,
    /// Configuration of the policy, as JSON.
    pub config: String,
    /// A canary's share of the programs, in millionths.
    pub share_ppm: u32,
    /// When it was bound.
    pub since_us: u64,
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

/// The state stored by the policy of a binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyStateRow {
    /// The job.
    pub job: String,
    /// The world.
    pub world: String,
    /// Its keys and values, in the plugin runtime's form.
    pub entries: Vec<u8>,
    /// The policy's snapshot, in its own format.
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
    /// The state, in the core's own format.
    pub state: Vec<u8>,
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
    /// Versions of weights that may be new to jobs.
    pub weights: Vec<WeightRow>,
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
            + self.weights.len()
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
            weights,
            actions,
            rewards,
        } = later;
        self.events.extend(events);
        self.programs.extend(programs);
        self.steps.extend(steps);
        self.workers.extend(workers);
        self.decisions.extend(decisions);
        self.bindings.extend(bindings);
        self.weights.extend(weights);
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
