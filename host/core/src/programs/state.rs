//! What the machine of programs knows.

use crate::config::CoreConfig;
use crate::distribution::Distribution;
use crate::programs::accounts::JobAccounts;
use crate::programs::action::Tools;
use crate::programs::classes::EngineClasses;
use crate::programs::jobs::Jobs;
use crate::programs::migration::Migrations;
use crate::programs::offload::Offloads;
use crate::programs::program::Program;
use crate::programs::question::Purpose;
use crate::programs::queue::Queue;
use crate::programs::speed::TransferSpeeds;
use crate::programs::step::Step;
use crate::programs::timers::Timers;
use crate::programs::tokens::TokenModels;
use crate::programs::worker::Worker;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use treadle_model::{AskId, ProgramId, Span, StepId, Timestamp, WorkerId};

/// A question that waits for its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    /// What was asked.
    pub purpose: Purpose,
    /// The programs asked about, in the core's own order of preference.
    pub candidates: Vec<ProgramId>,
    /// When the core answers itself.
    pub deadline: Timestamp,
}

/// What a job's steps look like, learnt as they finish.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobStatistics {
    /// Moving average of output tokens per step, times 16.
    pub output_tokens_x16: u64,
    /// Moving average of the tokens by which a program's context grows from one step's end to the
    /// next one's, times 16.
    #[serde(default)]
    pub growth_tokens_x16: u64,
    /// Moving average of tool seconds, in microseconds.
    pub tool_us: u64,
    /// Steps finished.
    pub steps_finished: u64,
    /// Times from one step's end to the next one's arrival, in milliseconds.
    #[serde(default, skip_serializing_if = "Distribution::is_empty")]
    pub gaps: Distribution,
    /// The last step's answer came in one piece: nothing was reported of it before its end.
    #[serde(default)]
    pub whole_answers: bool,
    /// Live programs.
    #[serde(default)]
    pub programs: u64,
    /// When its last program ended, if none is live.
    #[serde(default)]
    pub idle_since: Timestamp,
}

/// What programs of a job do beside generating, for each token that they generate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Habits {
    /// Tokens by which the context grows, that one included.
    pub growth: f64,
    /// Microseconds in tools.
    pub tool_us: f64,
}

/// Steps of a job until its habits are known.
const HABIT_STEPS: u64 = 8;
/// Tokens by which a context grows with each generated one, in millionths, where nothing is known.
pub(crate) const GROWTH_PPM: u64 = 1_200_000;
/// The most that is believed.
const GROWTH_PPM_MAX: u64 = 100_000_000;

impl JobStatistics {
    /// Tokens by which a context grows with each generated one, that one included, in millionths.
    pub(crate) fn growth_ppm(&self) -> u64 {
        if self.steps_finished < HABIT_STEPS || self.output_tokens_x16 == 0 {
            return GROWTH_PPM;
        }
        let ppm =
            u128::from(self.growth_tokens_x16) * 1_000_000 / u128::from(self.output_tokens_x16);
        let ppm = u64::try_from(ppm).unwrap_or(u64::MAX);
        ppm.clamp(1_000_000, GROWTH_PPM_MAX)
    }

    /// Its habits, once enough was seen of it.
    pub fn habits(&self) -> Option<Habits> {
        let known = self.steps_finished >= HABIT_STEPS
            && self.output_tokens_x16 > 0
            && self.growth_tokens_x16 > 0;
        let tokens = self.output_tokens_x16 as f64;
        known.then(|| Habits {
            growth: self.growth_tokens_x16 as f64 / tokens,
            tool_us: self.tool_us as f64 * 16.0 / tokens,
        })
    }
}

/// Counters since the state began.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Programs opened.
    pub programs_opened: u64,
    /// Programs over.
    pub programs_closed: u64,
    /// Steps that arrived.
    pub steps_arrived: u64,
    /// Steps answered in full.
    pub steps_finished: u64,
    /// Steps refused.
    pub steps_refused: u64,
    /// Steps withdrawn by their clients.
    pub steps_cancelled: u64,
    /// Steps that engines failed permanently.
    pub steps_failed: u64,
    /// Steps whose requests engines refused as wrong.
    #[serde(default)]
    pub steps_rejected: u64,
    /// Pauses.
    pub pauses: u64,
    /// Restores, without first placements.
    pub restores: u64,
    /// Restores to another worker than the last.
    pub moves: u64,
    /// KV caches moved to another worker.
    #[serde(default)]
    pub migrations: u64,
    /// Moves of KV caches that were begun and cancelled.
    #[serde(default)]
    pub migrations_cancelled: u64,
    /// KV caches that went to host memory.
    #[serde(default)]
    pub offloads: u64,
    /// KV caches that came back from there.
    #[serde(default)]
    pub loads: u64,
    /// Of those, before their tool returned.
    #[serde(default)]
    pub prefetches: u64,
    /// Transfers to or from host memory that failed.
    #[serde(default)]
    pub transfers_failed: u64,
    /// Copies in host memory that made room for others or were lost.
    #[serde(default)]
    pub copies_lost: u64,
    /// Steps that were preempted for more urgent ones.
    #[serde(default)]
    pub preemptions: u64,
    /// Prompt tokens of finished steps.
    pub prompt_tokens: u64,
    /// Output tokens of finished steps.
    pub output_tokens: u64,
    /// Prompt tokens that engines found in their caches.
    pub cached_tokens: u64,
    /// Prompt tokens of finished steps whose engine said how many it found in its cache.
    #[serde(default)]
    pub cache_reported_tokens: u64,
}

/// What the machine of programs knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The latest time at which the core handled an event.
    pub now: Timestamp,
    /// Live programs.
    pub live: BTreeMap<ProgramId, Program>,
    /// Live programs by key.
    pub keys: BTreeMap<Box<str>, ProgramId>,
    /// Steps that have not ended.
    pub steps: BTreeMap<StepId, Step>,
    /// Registered workers.
    pub workers: BTreeMap<WorkerId, Worker>,
    /// Programs that wait for placement.
    pub queue: Queue,
    /// Steps that wait for placement.
    pub waiting_steps: u64,
    /// Pending deadlines.
    pub timers: Timers,
    /// Questions without an answer.
    pub asks: BTreeMap<AskId, Ask>,
    /// The highest step id of the scheduler's own gateway.
    pub last_step: u64,
    /// The next program's id.
    pub next_program: u64,
    /// The next question's id.
    pub next_ask: u64,
    /// The tick is armed for this time.
    pub tick_at: Option<Timestamp>,
    /// Something changed since the last restore question.
    pub restore_wanted: bool,
    /// Programs with an adopted step, of which more waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adopted: Vec<ProgramId>,
    /// Contexts of all live programs, in tokens.
    #[serde(default)]
    pub context_tokens: u64,
    /// Prompt tokens that a worker computes in a second, in the median of those that were measured;
    /// 0 before the first.
    #[serde(default)]
    pub prefill_tokens_per_s: u64,
    /// How fast caches go from place to place.
    #[serde(default, skip_serializing_if = "TransferSpeeds::is_unused")]
    pub transfer_speeds: TransferSpeeds,
    /// Recent mean wait of programs for placement.
    #[serde(default)]
    pub wait_mean: Span,
    /// Workers that admit no other program until this starved one fits.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reservations: BTreeMap<WorkerId, ProgramId>,
    /// What jobs' steps look like.
    pub jobs: Jobs,
    /// The settings, if an event carried them: a replay needs no others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<CoreConfig>,
    /// What jobs' tools take.
    #[serde(default)]
    pub tools: Tools,
    /// Programs that should be, or are being, moved to another worker.
    #[serde(default, skip_serializing_if = "Migrations::is_empty")]
    pub migrations: Migrations,
    /// KV caches that are not, or not only, at an engine.
    #[serde(default, skip_serializing_if = "Offloads::is_default")]
    pub offloads: Offloads,
    /// What jobs used KV memory for.
    #[serde(default, skip_serializing_if = "JobAccounts::is_empty")]
    pub job_accounts: JobAccounts,
    /// What models' prompts cost in tokens.
    #[serde(default, skip_serializing_if = "TokenModels::is_empty")]
    pub token_models: TokenModels,
    /// What was last known of engines that are there no more.
    #[serde(default, skip_serializing_if = "EngineClasses::is_empty")]
    pub classes: EngineClasses,
    /// Unplaced programs that no question was about yet, of jobs with a priority policy.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub newcomers: BTreeSet<ProgramId>,
    /// They have been gathered: the next question is about them too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub newcomers_due: bool,
    /// When gathered programs are asked about, while some are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gather_at: Option<Timestamp>,
    /// When it is asked next which programs should be elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migrate_at: Option<Timestamp>,
    /// Counters.
    pub counters: Counters,
}
