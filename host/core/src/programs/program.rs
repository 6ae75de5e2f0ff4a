//! Programs: one agent trajectory with its placement, its context and its steps.

mod lineage;

pub use lineage::Lineage;

use crate::estimates::CountedPrompt;
use crate::memory::{Meter, PrefixSegment};
use crate::programs::action::Action;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use treadle_model::{End, Phase, ProgramId, Span, Status, StepId, Timestamp, WorkerId};

/// Weight of a program whose tokens count in full, in millionths.
pub const FULL_WEIGHT_PPM: u32 = 1_000_000;

/// A program's placement on a worker.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct KvPlacement {
    /// The worker.
    pub worker: WorkerId,
    /// Its slot, on engines that have slots.
    pub slot: Option<u32>,
    /// Private tokens charged to the worker for it.
    pub charged_tokens: u64,
    /// When it was placed.
    pub since: Timestamp,
}

/// The last prompt of a program that a prefill worker computed: its cache may linger there.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Prefilled {
    /// The prefill worker.
    pub worker: WorkerId,
    /// Tokens of the prompt.
    pub tokens: u64,
    /// [`crate::programs::Worker::prefilled_tokens`] by then.
    pub by: u64,
}

/// The sort keys of a program in the queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct QueueEntry {
    /// When its longest waiting step began to wait, without time at engines.
    pub since: Timestamp,
    /// Private tokens that it needs.
    pub need_tokens: u64,
}

/// Programs that another one started and waits for.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Awaited {
    /// When the first of them began.
    pub since: Timestamp,
    /// Those that have not ended.
    pub programs: BTreeSet<ProgramId>,
    /// When one of them, or of those that they wait for, last finished a step.
    pub last_step_at: Timestamp,
    /// Since when at least one of them has been live, while one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_since: Option<Timestamp>,
}

/// The outcome of a program's latest step, and of the program.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Its latest step waits or runs, or failed or was cancelled.
    #[default]
    Open,
    /// Its latest step finished.
    Whole,
    /// It was released with a step under way, or with its whole job.
    Aborted,
}

/// One live program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// Its id.
    pub id: ProgramId,
    /// Its client's name for it.
    pub key: Box<str>,
    /// The RL run it belongs to.
    pub job: Box<str>,
    /// The model of its steps, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Box<str>>,
    /// Its scheduling status.
    pub status: Status,
    /// Its phase: reasoning or acting.
    pub phase: Phase,
    /// Since when it is in that phase.
    pub phase_since: Timestamp,
    /// When its first step arrived.
    pub opened_at: Timestamp,
    /// Tokens of its history as last counted: prompt and output.
    pub context_tokens: u64,
    /// Tokens that its placement must hold: the context and what running steps are expected to add.
    pub demand_tokens: u64,
    /// Leading parts of its prompt that others may share.
    pub prefix: Vec<PrefixSegment>,
    /// The origin of that prefix.
    #[serde(default, skip_serializing_if = "Lineage::is_default")]
    pub lineage: Lineage,
    /// Its placement, if it has one.
    pub placement: Option<KvPlacement>,
    /// Its last placement; its cache may linger there.
    pub last_worker: Option<WorkerId>,
    /// Its slot there, on engines that have slots.
    pub last_slot: Option<u32>,
    /// Its last prompt that a prefill worker computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefilled: Option<Prefilled>,
    /// The worker that failed its step, which is avoided while others are healthy.
    pub avoid: Option<WorkerId>,
    /// Share of its private tokens that counts, in millionths; full unless acting.
    pub weight_ppm: u32,
    /// Steps at an engine.
    pub running: Vec<StepId>,
    /// Steps in the queue, in order of arrival.
    pub waiting: Vec<StepId>,
    /// Its priority by the latest answer about its placement, if a policy ranks its job's programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub urgency: Option<i32>,
    /// Its entry in the queue, if it waits for placement.
    pub queued: Option<QueueEntry>,
    /// It ends with its last step.
    pub closing: bool,
    /// No client named it: it was inferred from a prompt. It holds no memory between steps until it
    /// has come back once, as most such requests never do.
    pub inferred: bool,
    /// Steps finished.
    pub steps_finished: u32,
    /// Prompt tokens of all finished steps.
    pub prompt_tokens_total: u64,
    /// Output tokens of all finished steps.
    pub output_tokens_total: u64,
    /// Prompt tokens that engines found in their caches.
    pub cached_tokens_total: u64,
    /// Number of pauses.
    pub pauses: u32,
    /// The last of its text prompts that an engine counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<CountedPrompt>,
    /// Its idle deadline, while one is pending.
    pub idle_check_at: Option<Timestamp>,
    /// Waiting time for placement, summed over steps.
    pub waited_total: Span,
    /// Running actions by id.
    #[serde(default)]
    pub actions: BTreeMap<Box<str>, Action>,
    /// The key of the program that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Box<str>>,
    /// The programs it started and waits for, since its last step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaited: Option<Awaited>,
    /// Predicted number of tokens still to generate, as of its last step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_tokens: Option<u64>,
    /// Whether its last ended action succeeded, if one was reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_action_ok: Option<bool>,
    /// Number of failed actions.
    #[serde(default)]
    pub actions_failed: u32,
    /// Tokens of its first prompt.
    #[serde(default)]
    pub first_prompt_tokens: u64,
    /// Tokens that its last finished step generated.
    #[serde(default)]
    pub last_output_tokens: u64,
    /// Whether an engine has reported cached tokens for one of its prompts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_told_cached: bool,
    /// The domain of the group that it is a member of, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<Box<str>>,
    /// The class of hardware that it prefers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Box<str>>,
    /// A number shared by the programs of its group: from the group's name, otherwise from the
    /// whole first prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u64>,
    /// Time from the ends of its steps to the arrivals of the next ones.
    #[serde(default)]
    pub acted_total: Span,
    /// Time in which it waited for programs that it had started, without the current wait.
    #[serde(default)]
    pub blocked_total: Span,
    /// The outcome of its latest step, and its own.
    #[serde(default)]
    pub outcome: Outcome,
    /// Its reward in millionths, if its client reported one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward_millionths: Option<i64>,
    /// Its entry in the accounts.
    #[serde(default, skip_serializing_if = "Meter::is_default")]
    pub meter: Meter,
}

impl Program {
    /// Tokens of its prefix that others may share.
    pub fn prefix_tokens(&self) -> u64 {
        self.prefix.iter().map(|s| s.tokens).sum()
    }

    /// Demand without the prefix.
    pub fn private_tokens(&self) -> u64 {
        self.demand_tokens.saturating_sub(self.prefix_tokens())
    }

    /// Private tokens by their present weight.
    pub fn weighted_tokens(&self) -> u64 {
        let scaled = u128::from(self.private_tokens()) * u128::from(self.weight_ppm);
        (scaled / u128::from(FULL_WEIGHT_PPM)) as u64
    }

    /// Since when it waits for programs that it started, if it does.
    pub fn waits_for_others(&self) -> Option<Timestamp> {
        let awaited = self.awaited.as_ref()?;
        (!awaited.programs.is_empty()).then_some(awaited.since)
    }

    /// Time in which it waited for programs that it had started.
    pub fn blocked(&self, now: Timestamp) -> Span {
        let since = self.awaited.as_ref().and_then(|all| all.blocked_since);
        let runs = since.map_or(0, |since| now.since(since).micros());
        Span::from_micros(self.blocked_total.micros().saturating_add(runs))
    }

    /// When it last showed activity: in its own last step, or in those of programs that it waits
    /// for.
    pub fn silent_since(&self) -> Timestamp {
        let of_others = self.awaited.as_ref().map(|awaited| awaited.last_step_at);
        self.phase_since.max(of_others.unwrap_or_default())
    }

    /// Records the outcome of a step; `Aborted` is final.
    pub(crate) fn has_come_to(&mut self, outcome: Outcome) {
        if self.outcome != Outcome::Aborted {
            self.outcome = outcome;
        }
    }

    /// Whether it ran to completion, as its client reported: then its observed lengths are exact.
    /// For one that expired or was aborted they are lower limits.
    pub fn has_ended(&self) -> bool {
        self.closing && self.outcome == Outcome::Whole
    }

    /// Whether it was ended while a step of it may run.
    pub(crate) fn is_cut(&self) -> bool {
        self.closing && self.outcome == Outcome::Aborted
    }

    /// How it ends, if it ends now.
    pub fn end(&self) -> End {
        match (self.outcome, self.closing) {
            (Outcome::Aborted, _) => End::Aborted,
            (_, true) => End::Released,
            (_, false) => End::Expired,
        }
    }

    /// Time in tools so far, including the current call.
    pub fn acted(&self, now: Timestamp) -> Span {
        let acts = self.phase == Phase::Acting && self.steps_finished > 0;
        let runs = if acts {
            now.since(self.phase_since).micros()
        } else {
            0
        };
        Span::from_micros(self.acted_total.micros().saturating_add(runs))
    }

    /// True if none of its steps waits or runs.
    pub fn is_between_steps(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }
}
