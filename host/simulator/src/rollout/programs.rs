//! The programs of a rollout: all begin at once, each goes through its steps and tools, and its
//! time is broken down.

use crate::workload::{AgentRun, AgentStep, ContextChain, ToolResult};
use std::sync::Arc;

/// Breakdown of a program's time, in microseconds; the parts add up to the time from the start of
/// the rollout to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TimeSpent {
    /// Until a step's worker was decided: batching of decisions, moves of caches.
    pub placing_us: u64,
    /// At an engine, before the first token: queue and prefill.
    pub queue_and_prefill_us: u64,
    /// Decoding, as if no other program were at its engine.
    pub decode_us: u64,
    /// Additional decoding time because of other programs at the engine.
    pub interference_us: u64,
    /// In tools.
    pub tool_us: u64,
}

/// A live program.
pub(super) struct Live<'a> {
    pub(super) run: &'a AgentRun,
    chain: ContextChain,
    /// The whole context so far.
    pub(super) blocks: Arc<[u64]>,
    /// Number of steps sent.
    pub(super) sent: usize,
    pub(super) sent_at: u64,
    pub(super) dispatched_at: u64,
    pub(super) first_token_at: u64,
    pub(super) worker: usize,
    pub(super) tool_ms: u64,
    pub(super) ended_at: Option<u64>,
    pub(super) spent: TimeSpent,
}

impl<'a> Live<'a> {
    pub(super) fn new(run: &'a AgentRun, seed: u64, block_tokens: u32) -> Self {
        Self {
            run,
            chain: ContextChain::new(seed, run, block_tokens),
            blocks: Arc::from([]),
            sent: 0,
            sent_at: 0,
            dispatched_at: 0,
            first_token_at: 0,
            worker: 0,
            tool_ms: 0,
            ended_at: None,
            spent: TimeSpent::default(),
        }
    }

    /// Sends the next step.
    pub(super) fn send(&mut self, now: u64) -> AgentStep {
        let index = self.sent;
        self.sent += 1;
        self.sent_at = now;
        self.blocks = self.chain.step_blocks(self.run, index).into();
        self.run.steps[index]
    }

    /// The step that was sent last.
    pub(super) fn step(&self) -> AgentStep {
        self.run.steps[self.sent - 1]
    }

    /// Records an answer. Returns the tool call that follows; `None` if the program has ended.
    pub(super) fn answered(&mut self, now: u64, lone_us: u64) -> Option<(u64, ToolResult)> {
        let spent = &mut self.spent;
        spent.placing_us += self.dispatched_at - self.sent_at;
        spent.queue_and_prefill_us += self.first_token_at - self.dispatched_at;
        let decoding_us = now - self.first_token_at;
        let alone_us = lone_us.min(decoding_us);
        spent.decode_us += alone_us;
        spent.interference_us += decoding_us - alone_us;
        if self.sent == self.run.steps.len() {
            self.ended_at = Some(now);
            return None;
        }
        let step = self.step();
        self.spent.tool_us += step.tool_us;
        self.tool_ms += step.tool_us / 1_000;
        Some((step.tool_us, step.tool_result))
    }
}
