//! Events of programs, their steps and the workers that serve them, in the past tense.

mod about;

pub use about::About;

use super::question::{Attribution, PolicyAnswer};
use super::worker::{Rest, WorkerRole, WorkerState};
use crate::estimates::TextSize;
use crate::memory::{Capacity, PrefixSegment};
use serde::{Deserialize, Serialize};
use treadle_machine::kinds;
use treadle_model::{
    AskId, EngineKind, FinishReason, PolicyRef, ProgramId, Span, StepId, WorkerId,
};

/// A prompt that came as text, from which its tokens are estimated.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PromptText {
    /// The model, as the client names it.
    pub model: Box<str>,
    /// Number of messages; 0 for plain text.
    pub messages: u32,
    /// Bytes of each segment of the prefix.
    pub prefix_bytes: Vec<u64>,
}

/// A step as it arrived.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepArrival {
    /// The step's id, chosen by the gateway.
    pub step: StepId,
    /// The program's key as its client knows it.
    pub program: Box<str>,
    /// The RL run it belongs to.
    pub job: Box<str>,
    /// Prompt tokens, exact if token ids were sent. For text, the core makes its own estimate.
    pub prompt_tokens: u64,
    /// Whether `prompt_tokens` was counted.
    pub exact: bool,
    /// Size of the prompt in bytes.
    pub prompt_bytes: u64,
    /// Details of a prompt that came as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<PromptText>,
    /// The client's limit on output tokens.
    pub output_tokens_max: Option<u64>,
    /// Leading parts of the prompt that other programs may share.
    pub prefix: Vec<PrefixSegment>,
    /// The program ends with this step: its request carried no identity and
    /// continues nothing.
    pub one_shot: bool,
    /// The program was recognised by its prompt, not named by its client.
    #[serde(default)]
    pub inferred: bool,
    /// The program that started this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// A number shared by the steps of one group of programs: from the group's name or the whole
    /// prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u64>,
    /// The requested model, if its client names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Box<str>>,
}

/// The program that started another one: the agent of a subagent.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Parent {
    /// Its key as its client knows it.
    pub program: Box<str>,
    /// Whether it waits until the subagent is done.
    pub waits: bool,
}

impl StepArrival {
    /// The model and the size of a prompt that came as text.
    pub fn text_size(&self) -> Option<(&str, TextSize)> {
        let text = self.text.as_ref()?;
        let size = TextSize {
            bytes: self.prompt_bytes,
            messages: text.messages,
        };
        Some((&text.model, size))
    }
}

/// Why a step failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepFailure {
    /// A short cause, in words.
    pub cause: Box<str>,
    /// Whether nothing reached the client, so that it may be retried.
    pub retryable: bool,
    /// Whether the engine refused the request itself, as any other would: the engine is not at
    /// fault.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rejected: bool,
    /// For how long the engine reported, or is assumed, to have no room for it: the engine is
    /// healthy, and gets no further step before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<Span>,
}

/// Tokens of a finished step, from the engine's own count if it gave one.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct StepTokens {
    /// Tokens of the whole prompt; 0 if the engine did not count them.
    pub prompt: u64,
    /// Tokens generated.
    pub output: u64,
    /// Prompt tokens found in the engine's cache, if it reported them.
    pub cached: Option<u64>,
}

/// Something that happened to a program, a step or a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ProgramEvent {
    /// An engine was registered.
    WorkerAdded {
        /// The worker's id, chosen by the driver.
        worker: WorkerId,
        /// Its base URL, as registered.
        url: Box<str>,
        /// Its software.
        engine: EngineKind,
        /// Its capacity, as far as known.
        capacity: Capacity,
        /// Its role from the start, if it is new: it gets no step that it can't serve before its
        /// role is set.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        role: Option<WorkerRole>,
    },
    /// An engine was found to use KV memory for requests that treadle did not send.
    WorkerUseRead {
        /// The engine.
        worker: WorkerId,
        /// Tokens of those requests.
        untracked_tokens: u64,
    },
    /// An engine's speed was measured with test prompts, or declared by whoever registered it.
    WorkerSpeedRead {
        /// The engine.
        worker: WorkerId,
        /// Prompt tokens that it computes per second; 0 if the measurement did not show it.
        prefill_tokens_per_s: u64,
        /// Time per token of a single answer, in microseconds; 0 if unknown.
        #[serde(default)]
        token_us: u64,
        /// Increase of that time per further concurrent answer, in microseconds; 0 if unknown.
        #[serde(default, skip_serializing_if = "treadle_model::is_default")]
        step_us: u64,
        /// Whether it was declared, and holds only until the engine's own steps show it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        declared: bool,
    },
    /// An engine reported which model it serves.
    WorkerModelRead {
        /// The engine.
        worker: WorkerId,
        /// The model's name.
        model: Box<str>,
    },
    /// An engine reported further names under which it serves models, such as those of adapters.
    WorkerOtherModelsRead {
        /// The engine.
        worker: WorkerId,
        /// The names.
        models: Vec<Box<str>>,
    },
    /// An engine counted a sample prompt.
    PromptCounted {
        /// The model.
        model: Box<str>,
        /// The prompt's size.
        size: TextSize,
        /// Its tokens.
        tokens: u64,
    },
    /// An engine reported its capacity.
    WorkerCapacityRead {
        /// The engine.
        worker: WorkerId,
        /// Its software, now known.
        engine: EngineKind,
        /// Its capacity.
        capacity: Capacity,
    },
    /// An engine stopped answering.
    WorkerLost {
        /// The engine.
        worker: WorkerId,
        /// The observed cause.
        cause: Box<str>,
    },
    /// A lost engine answers again. Its cache is assumed to be empty.
    WorkerRecovered {
        /// The engine.
        worker: WorkerId,
    },
    /// An engine was removed by its owner.
    WorkerRemoved {
        /// The engine.
        worker: WorkerId,
    },
    /// An operator took an engine out of service, or back into it.
    WorkerStateSet {
        /// The engine.
        worker: WorkerId,
        /// Its new state.
        state: WorkerState,
    },
    /// An operator named an engine's class of hardware, or took the name away.
    WorkerClassSet {
        /// The engine.
        worker: WorkerId,
        /// Its class; `None` if it has none.
        class: Option<Box<str>>,
    },
    /// An engine's role was declared, or read.
    WorkerRoleSet {
        /// The engine.
        worker: WorkerId,
        /// Its role.
        role: WorkerRole,
        /// The port at which decode workers meet it, for `SGLang`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bootstrap_port: Option<u16>,
    },
    /// A healthy engine stopped taking steps, or takes them again.
    WorkerRestRead {
        /// The engine.
        worker: WorkerId,
        /// Why it takes none; `None` if it takes them.
        rest: Option<Rest>,
    },
    /// A client sent a step.
    StepArrived(StepArrival),
    /// A prefill worker has computed a step's prompt.
    StepPrefilled {
        /// The step.
        step: StepId,
        /// Tokens of the prompt; 0 if the engine did not count them.
        prompt_tokens: u64,
        /// Those that it had in its cache, if it reported them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cached_tokens: Option<u64>,
    },
    /// A prefill worker has not computed a step's prompt: vLLM's decode worker does, and `SGLang`'s
    /// step is sent again.
    StepPrefillFailed {
        /// The step.
        step: StepId,
        /// A short cause, in words.
        cause: Box<str>,
    },
    /// The first output token reached the gateway.
    StepFirstToken {
        /// The step.
        step: StepId,
    },
    /// More output tokens were observed (coalesced).
    StepProgressed {
        /// The step.
        step: StepId,
        /// Output tokens so far.
        output_tokens: u64,
    },
    /// The engine finished the answer.
    StepFinished {
        /// The step.
        step: StepId,
        /// Its tokens.
        tokens: StepTokens,
        /// Why generation ended.
        finish: FinishReason,
        /// Version of the weights at the end, if the engine names it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        weights: Option<Box<str>>,
    },
    /// The engine failed the step.
    StepFailed {
        /// The step.
        step: StepId,
        /// Why, and whether it may be tried again.
        failure: StepFailure,
    },
    /// The client went away or withdrew the step.
    StepCancelled {
        /// The step.
        step: StepId,
    },
    /// A preempted step's gateway took it back from its engine: it waits for its turn, keeping the
    /// answer so far.
    StepInterrupted {
        /// The step.
        step: StepId,
    },
    /// A preemption failed because the answer could not be continued: the step runs to its end.
    StepRunsOn {
        /// The step.
        step: StepId,
    },
    /// A gateway reconnected to another scheduler and reported a step at an engine that the
    /// scheduler did not know of.
    StepAdopted {
        /// The step.
        step: StepId,
        /// Where it runs.
        worker: WorkerId,
    },
    /// A tool runner began an action of a program.
    ActionStarted {
        /// The program's key.
        program: Box<str>,
        /// The action's id, unique within the program.
        action: Box<str>,
        /// The tool.
        tool: Box<str>,
    },
    /// An action ended.
    ActionFinished {
        /// The program's key.
        program: Box<str>,
        /// The action's id.
        action: Box<str>,
        /// False if it failed.
        ok: bool,
    },
    /// The client reported the end of the program.
    ProgramReleased {
        /// The program's key.
        program: Box<str>,
        /// Whether it was aborted with its job, whatever its progress.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        aborted: bool,
    },
    /// The client reported a program's reward; a later report replaces an earlier one.
    ProgramRewarded {
        /// The program's key; it may have ended.
        program: Box<str>,
        /// The reward, in millionths.
        reward_millionths: i64,
    },
    /// A policy, or the built-in default in its place, answered a question.
    PolicyAnswered {
        /// The question.
        ask: AskId,
        /// Who answered.
        policy: PolicyRef,
        /// The answer.
        answer: PolicyAnswer,
        /// Which other policies contributed to it.
        #[serde(default, skip_serializing_if = "Attribution::is_empty")]
        attribution: Attribution,
    },
    /// A program's KV cache has reached its destination.
    ProgramMigrated {
        /// The program.
        program: ProgramId,
        /// The worker that has it now.
        to: WorkerId,
    },
    /// A program's KV cache could not be moved; it stays where it was.
    MigrationFailed {
        /// The program.
        program: ProgramId,
        /// A short cause, in words.
        cause: Box<str>,
    },
    /// A program's KV cache was moved to host memory and freed at its engine.
    ProgramOffloaded {
        /// The program.
        program: ProgramId,
        /// The name of the copy in the host tier that holds it.
        copy: Box<str>,
        /// Context that it holds, in tokens.
        tokens: u64,
        /// Its size.
        bytes: u64,
    },
    /// A program's KV cache could not be copied to host memory.
    OffloadFailed {
        /// The program.
        program: ProgramId,
        /// A short cause, in words.
        cause: Box<str>,
    },
    /// A program's KV cache was loaded to an engine; its copy may be dropped.
    ProgramLoaded {
        /// The program.
        program: ProgramId,
        /// The worker that has it now.
        to: WorkerId,
    },
    /// A program's KV cache could not be loaded; it is computed again.
    LoadFailed {
        /// The program.
        program: ProgramId,
        /// A short cause, in words.
        cause: Box<str>,
    },
    /// A copy in host memory was evicted for others, or was damaged.
    CopyLost {
        /// The program.
        program: ProgramId,
        /// The copy, as it was reported.
        copy: Box<str>,
    },
}

kinds! {
    ProgramEvent {
        WorkerAdded = "worker_added",
        WorkerCapacityRead = "worker_capacity_read",
        PromptCounted = "prompt_counted",
        WorkerUseRead = "worker_use_read",
        WorkerSpeedRead = "worker_speed_read",
        WorkerModelRead = "worker_model_read",
        WorkerOtherModelsRead = "worker_other_models_read",
        WorkerLost = "worker_lost",
        WorkerRecovered = "worker_recovered",
        WorkerRemoved = "worker_removed",
        WorkerStateSet = "worker_state_set",
        WorkerClassSet = "worker_class_set",
        WorkerRoleSet = "worker_role_set",
        WorkerRestRead = "worker_rest_read",
        StepArrived = "step_arrived",
        StepPrefilled = "step_prefilled",
        StepPrefillFailed = "step_prefill_failed",
        StepFirstToken = "step_first_token",
        StepProgressed = "step_progressed",
        StepFinished = "step_finished",
        StepFailed = "step_failed",
        StepCancelled = "step_cancelled",
        StepInterrupted = "step_interrupted",
        StepRunsOn = "step_runs_on",
        StepAdopted = "step_adopted",
        ActionStarted = "action_started",
        ActionFinished = "action_finished",
        ProgramReleased = "program_released",
        ProgramRewarded = "program_rewarded",
        PolicyAnswered = "policy_answered",
        ProgramMigrated = "program_migrated",
        MigrationFailed = "migration_failed",
        ProgramOffloaded = "program_offloaded",
        OffloadFailed = "offload_failed",
        ProgramLoaded = "program_loaded",
        LoadFailed = "load_failed",
        CopyLost = "copy_lost",
    }
}
