//! The core's settings. Spans are in the scheduler's own time.

use serde::{Deserialize, Serialize};
use treadle_model::Span;

/// How steps find their worker.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Programs are placed within memory; others wait in one global queue. Where a priority policy
    /// is bound, it ranks their steps too (`Heddle` §3).
    #[default]
    #[serde(alias = "rollout")]
    ProgramAware,
    /// A program stays on the worker of its first step; nothing waits.
    Sticky,
    /// Each step goes to the worker with the fewest running; nothing waits.
    LeastLoad,
}

/// How programs are scheduled whose job has a priority policy (`Heddle` §3).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RolloutConfig {
    /// How long new programs are gathered, so that those that arrive together are placed together
    /// (`Heddle` §5.2 places a whole batch).
    pub gather: Span,
    /// Programs in one question to a placement policy.
    pub programs_max: usize,
    /// Period of the question which programs should be on another worker (§5.3), if caches can be
    /// moved; 0 for never.
    pub migration_interval: Span,
    /// Share of an engine's KV cache, in millionths, that placed programs may need by their
    /// predicted growth; further programs wait. With 0 only their present use counts.
    pub memory_ppm: u32,
    /// Maximum number of steps at one engine at once; more wait here in order of their priority. 0
    /// if engines order their steps themselves.
    pub engine_steps_max: u32,
}

impl Default for RolloutConfig {
    fn default() -> Self {
        Self {
            gather: Span::from_millis(20),
            programs_max: 10_000,
            migration_interval: Span::from_secs(5),
            memory_ppm: 950_000,
            engine_steps_max: 0,
        }
    }
}

/// What may be done with the KV caches of acting programs, in [`Mode::ProgramAware`]. Without a
/// host tier and without migrations, a program that loses its placement loses its cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KvConfig {
    /// Ask the eviction policy about each cache (`Purpose::Retain`); otherwise a program
    /// that must leave takes the cheapest way out.
    pub retention: bool,
    /// Context that host memory holds, in tokens; 0 without a host tier.
    pub host_tokens_max: u64,
    /// Transfer rate between an engine and host memory in one direction, in tokens of context per
    /// second.
    pub host_tokens_per_s: u64,
    /// Share of that rate, in millionths, that offloads may use, so that loads find the link free.
    pub offload_link_ppm: u32,
    /// Transfer rate between two engines, in tokens of context per second; 0 disables migration.
    pub migration_tokens_per_s: u64,
    /// Prompt tokens that an engine computes per second, assumed until the speed is measured.
    pub prefill_tokens_per_s: u64,
    /// Limit on the prompts that wait inside an engine, as the time to compute them: a worker above
    /// it admits no further program. Doubled without host memory. Only used with `retention`; 0 for
    /// no limit.
    pub backlog_max: Span,
    /// Time after which a transfer counts as failed.
    pub transfer_max: Span,
}

impl Default for KvConfig {
    fn default() -> Self {
        Self {
            retention: false,
            host_tokens_max: 0,
            host_tokens_per_s: 100_000,
            offload_link_ppm: 500_000,
            migration_tokens_per_s: 0,
            prefill_tokens_per_s: 10_000,
            backlog_max: Span::from_secs(2),
            transfer_max: Span::from_secs(60),
        }
    }
}

/// How actions that treadle runs are admitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ActionsConfig {
    /// Serve actions first whose programs hold KV memory that others need; otherwise serve them in
    /// order of arrival.
    pub joint_order: bool,
    /// Retain the caches of programs by how long their actions are expected to wait and run.
    pub joint_retention: bool,
    /// Wait after which an action is served in order of arrival, whatever its class.
    pub starvation: Span,
    /// Maximum number of waiting actions.
    pub waiting_max: u64,
    /// Maximum number of waiting actions of one tenant.
    pub tenant_waiting_max: u64,
    /// Maximum number of waiting actions of one job.
    pub job_waiting_max: u64,
    /// Maximum number of actions that have started and not ended.
    pub started_max: u64,
    /// Ended actions that are remembered with their idempotency keys; the oldest are dropped first.
    pub ended_max: u64,
    /// Maximum number of candidates in one question to the allocation policy.
    pub candidates_max: usize,
    /// Maximum number of further waiting actions in that question.
    pub followers_max: usize,
    /// Maximum number of attempts for an action that may be run again.
    pub attempts_max: u32,
    /// Maximum number of quota refusals per action.
    pub refusals_max: u32,
    /// Maximum time between the start of an action and the report that it runs.
    pub begin_max: Span,
    /// Maximum time until a stopped action ends.
    pub stop_max: Span,
    /// Maximum number of services that one device holds at once.
    pub device_services_max: u32,
    /// Time limit for the allocation policy's answer.
    pub ask_deadline: Span,
}

impl Default for ActionsConfig {
    fn default() -> Self {
        Self {
            joint_order: true,
            joint_retention: true,
            starvation: Span::from_secs(30),
            waiting_max: 20_000,
            tenant_waiting_max: 15_000,
            job_waiting_max: 10_000,
            started_max: 10_000,
            ended_max: 20_000,
            candidates_max: 64,
            followers_max: 64,
            attempts_max: 3,
            refusals_max: 32,
            begin_max: Span::from_secs(600),
            stop_max: Span::from_secs(30),
            device_services_max: 1,
            ask_deadline: Span::from_secs(5),
        }
    }
}

/// The core's settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CoreConfig {
    /// How steps find their worker.
    pub mode: Mode,
    /// How programs are scheduled whose job has a priority policy.
    pub rollout: RolloutConfig,
    /// What may be done with KV caches.
    pub kv: KvConfig,
    /// How actions are admitted.
    pub actions: ActionsConfig,
    /// Period of the thrashing check (delta-t in `ThunderAgent` §4.3.1).
    pub tick: Span,
    /// Share of capacity, in millionths, above which programs are paused.
    pub high_watermark_ppm: u32,
    /// Share of capacity, in millionths, up to which programs are restored. The rest is room into
    /// which they grow before any must be paused. With `kv.retention` each worker starts at this
    /// share and learns its own.
    pub low_watermark_ppm: u32,
    /// Longest wait of a step for placement.
    pub queue_wait_max: Span,
    /// Upper limit of the starvation bound: the wait after which a program goes first, and room is
    /// made for it by pausing programs that have been placed for their quantum.
    pub deferral_max: Span,
    /// Lower limit of the starvation bound. Between the limits it is three times the mean wait if
    /// caches can be offloaded, otherwise twice the time to compute the contexts of all live
    /// programs.
    pub deferral_min: Span,
    /// Weight, in millionths, below which an acting program is paused while others wait: memory
    /// that hardly counts should not be held.
    pub pause_weight_ppm: u32,
    /// Share of the starvation bound, in millionths, for which a program stays placed before its
    /// memory may be taken for a starved one.
    pub quantum_ppm: u32,
    /// Longest tool call before a program is considered over.
    pub program_idle_max: Span,
    /// The same limit for a program that no client named and that has not come back yet.
    pub inferred_idle_max: Span,
    /// Maximum number of live programs.
    pub programs_max: u64,
    /// Maximum number of waiting steps.
    pub queue_steps_max: u64,
    /// Maximum number of programs in one question to a policy.
    pub candidates_max: usize,
    /// Time limit for a policy's answer.
    pub ask_deadline: Span,
    /// Maximum number of attempts to send a step to an engine before it is refused.
    pub attempts_max: u32,
    /// Expected output tokens of a step without data about its job.
    pub output_tokens_guess: u64,
    /// Record a `Decision` for each decision.
    pub explain: bool,
}

impl Default for CoreConfig {
    fn default() -> Self {
        Self {
            mode: Mode::ProgramAware,
            rollout: RolloutConfig::default(),
            kv: KvConfig::default(),
            actions: ActionsConfig::default(),
            tick: Span::from_secs(1),
            high_watermark_ppm: 1_000_000,
            low_watermark_ppm: 900_000,
            queue_wait_max: Span::from_secs(1_800),
            deferral_max: Span::from_secs(300),
            deferral_min: Span::from_secs(10),
            pause_weight_ppm: 100_000,
            quantum_ppm: 250_000,
            program_idle_max: Span::from_secs(3_600),
            inferred_idle_max: Span::from_secs(120),
            programs_max: 100_000,
            queue_steps_max: 100_000,
            candidates_max: 64,
            ask_deadline: Span::from_secs(5),
            attempts_max: 3,
            output_tokens_guess: 256,
            explain: true,
        }
    }
}
