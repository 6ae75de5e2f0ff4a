//! What came of a simulated rollout.

use super::programs::TimeSpent;
use serde::Serialize;

/// Figures of a simulated rollout. Times are virtual.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RolloutReport {
    /// From the start to the end of the last program, in seconds.
    pub makespan_s: f64,
    /// Tokens generated a second over the makespan.
    pub tokens_per_s: f64,
    /// Tokens generated.
    pub output_tokens: u64,
    /// Programs.
    pub programs: u64,
    /// Steps.
    pub steps: u64,
    /// Steps that no engine took.
    pub refused: u64,
    /// What became of the time of the program that ended last.
    pub last: TimeSpent,
    /// The same of the mean program.
    pub mean: TimeSpent,
    /// Waiting at engines for the first token, all steps of the program with
    /// most tokens together, in seconds.
    pub longest_waited_s: f64,
    /// Share of prompt tokens found in caches.
    pub hit_rate: f64,
    /// Tokens computed other than by decoding.
    pub prefilled_tokens: u64,
    /// Requests that engines preempted for lack of memory.
    pub preemptions: u64,
    /// Requests that engines preempted for more urgent ones.
    pub priority_preemptions: u64,
    /// Caches moved.
    pub migrations: u64,
    /// Moves begun and given up.
    pub migrations_cancelled: u64,
    /// Steps that went to another worker than the last without their cache.
    pub moves: u64,
    /// Share of the makespan in which engines computed, mean of all.
    pub busy: f64,
    /// Events: those of the core, and those of engines, links and tools.
    pub events: u64,
    /// The course of it, if it was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<Moment>,
}

/// The cluster at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Moment {
    /// When, in seconds.
    pub at_s: f64,
    /// Programs that have not ended.
    pub active: u32,
    /// Share of KV memory in use by running steps, worker by worker.
    pub kv_used: Vec<f32>,
}

impl TimeSpent {
    pub(super) fn mean_of<'a>(all: impl ExactSizeIterator<Item = &'a Self>) -> Self {
        let count = (all.len() as u64).max(1);
        let mut sum = Self::default();
        for one in all {
            sum.placing_us += one.placing_us;
            sum.queue_and_prefill_us += one.queue_and_prefill_us;
            sum.decode_us += one.decode_us;
            sum.interference_us += one.interference_us;
            sum.tool_us += one.tool_us;
        }
        Self {
            placing_us: sum.placing_us / count,
            queue_and_prefill_us: sum.queue_and_prefill_us / count,
            decode_us: sum.decode_us / count,
            interference_us: sum.interference_us / count,
            tool_us: sum.tool_us / count,
        }
    }
}
