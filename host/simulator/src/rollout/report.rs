//! The result of a simulated rollout.

use super::programs::TimeSpent;
use super::simulation::Simulation;
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
    /// Moves begun and cancelled.
    pub migrations_cancelled: u64,
    /// Steps that went to another worker than the last without their cache.
    pub moves: u64,
    /// Share of the makespan in which engines computed, mean of all.
    pub busy: f64,
    /// Iterations of engines.
    pub iterations: u64,
    /// Everything that happened: events of the core, iterations of engines and their reports,
    /// transfers and tool calls.
    pub events: u64,
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

impl Simulation<'_> {
    pub(super) fn report(&self) -> RolloutReport {
        let ended = self.programs.iter().filter_map(|p| p.ended_at);
        let makespan_us = ended.max().unwrap_or(0).max(1);
        let last = self.programs.iter().max_by_key(|p| p.ended_at);
        let longest = self.programs.iter().max_by_key(|p| p.run.output_tokens());
        let engines = self.engines.iter().map(|engine| engine.snapshot().counters);
        let output_tokens: u64 = self.programs.iter().map(|p| p.run.output_tokens()).sum();
        let seconds = makespan_us as f64 / 1e6;
        let busy_us: u64 = engines.clone().map(|c| c.busy_us).sum();
        let counters = self.core.programs().counters;
        RolloutReport {
            makespan_s: seconds,
            tokens_per_s: output_tokens as f64 / seconds,
            output_tokens,
            programs: self.programs.len() as u64,
            steps: self.next_step,
            refused: self.refused,
            last: last.map(|p| p.spent).unwrap_or_default(),
            mean: TimeSpent::mean_of(self.programs.iter().map(|p| &p.spent)),
            longest_waited_s: longest.map_or(0.0, |p| p.spent.queue_and_prefill_us as f64 / 1e6),
            hit_rate: self.cached_tokens as f64 / self.prompt_tokens.max(1) as f64,
            prefilled_tokens: engines.clone().map(|c| c.prefilled_tokens).sum(),
            preemptions: engines.clone().map(|c| c.preemptions).sum(),
            priority_preemptions: engines.clone().map(|c| c.priority_preemptions).sum(),
            migrations: counters.migrations,
            migrations_cancelled: counters.migrations_cancelled,
            moves: counters.moves,
            busy: busy_us as f64 / (makespan_us * self.engines.len().max(1) as u64) as f64,
            iterations: engines.clone().map(|c| c.iterations).sum(),
            events: self.events + engines.map(|c| c.iterations).sum::<u64>(),
        }
    }
}
