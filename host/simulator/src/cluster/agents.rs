//! Agents in a closed loop: so many seats, and the next run takes the seat of
//! one that ended.

use crate::workload::{AgentRun, ContextChain};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

struct Agent<'a> {
    run: &'a AgentRun,
    chain: ContextChain,
    blocks: Vec<u64>,
    next_step: usize,
    sent_at: u64,
}

pub(super) struct Agents<'a> {
    waiting: std::slice::Iter<'a, AgentRun>,
    live: Vec<Agent<'a>>,
    due: BinaryHeap<Reverse<(u64, usize)>>,
    unfinished: usize,
    seed: u64,
    block_tokens: u32,
}

impl<'a> Agents<'a> {
    pub(super) fn new(
        runs: &'a [AgentRun],
        concurrency: usize,
        seed: u64,
        block_tokens: u32,
    ) -> Self {
        let mut agents = Self {
            waiting: runs.iter(),
            live: Vec::new(),
            due: BinaryHeap::new(),
            unfinished: 0,
            seed,
            block_tokens,
        };
        for _ in 0..concurrency {
            agents.seat(0);
        }
        agents
    }

    fn seat(&mut self, at: u64) {
        let Some(run) = self.waiting.find(|run| !run.steps.is_empty()) else {
            return;
        };
        let agent = self.live.len();
        self.live.push(Agent {
            run,
            chain: ContextChain::new(self.seed, run, self.block_tokens),
            blocks: Vec::new(),
            next_step: 0,
            sent_at: at,
        });
        self.unfinished += 1;
        self.due.push(Reverse((at, agent)));
    }

    pub(super) fn any_live(&self) -> bool {
        self.unfinished > 0
    }

    pub(super) fn next_at(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    pub(super) fn pop_due(&mut self, now: u64) -> Option<usize> {
        if self.next_at()? > now {
            return None;
        }
        self.due.pop().map(|Reverse((_, agent))| agent)
    }

    /// The agent's next call.
    pub(super) fn begin_step(&mut self, agent: usize, now: u64) -> (&'a AgentRun, usize) {
        let agent = &mut self.live[agent];
        let index = agent.next_step;
        agent.next_step += 1;
        agent.sent_at = now;
        agent.blocks = agent.chain.step_blocks(agent.run, index).to_vec();
        (agent.run, index)
    }

    pub(super) fn blocks(&self, agent: usize) -> Vec<u64> {
        self.live[agent].blocks.clone()
    }

    pub(super) fn sent_at(&self, agent: usize) -> u64 {
        self.live[agent].sent_at
    }

    /// The tool starts; or the run is over, and its key is given.
    pub(super) fn step_ended(&mut self, agent: usize, now: u64) -> Option<Box<str>> {
        let ended = &self.live[agent];
        if ended.next_step < ended.run.steps.len() {
            let tool_us = ended.run.steps[ended.next_step - 1].tool_us;
            self.due.push(Reverse((now + tool_us, agent)));
            return None;
        }
        self.unfinished -= 1;
        let key = ended.run.id.as_str().into();
        self.seat(now);
        Some(key)
    }
}
