//! Agents, in a closed loop of slots in which the next run takes the slot of one that ended, or by
//! a schedule.

use super::schedule::{Schedule, ScheduleCursor};
use crate::workload::{AgentRun, ContextChain};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

struct Agent<'a> {
    run: &'a AgentRun,
    /// Index among the runs.
    index: usize,
    /// The context; `None` once the run has ended.
    chain: Option<ContextChain>,
    blocks: Vec<u64>,
    next_step: usize,
    sent_at: u64,
}

/// What follows after an agent's step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// A tool call; [`Agents::resume`] is called when it has ended.
    Tool {
        /// Its time, in microseconds.
        tool_us: u64,
    },
    /// The run has ended.
    Over {
        /// Name of the run.
        program: Box<str>,
    },
}

/// How the next run is chosen.
enum Turns<'a> {
    Slots(std::iter::Enumerate<std::slice::Iter<'a, AgentRun>>),
    Scheduled(&'a [AgentRun], ScheduleCursor<'a>),
}

pub(super) struct Agents<'a> {
    turns: Turns<'a>,
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
        let turns = Turns::Slots(runs.iter().enumerate());
        let mut agents = Self::with(turns, seed, block_tokens);
        for _ in 0..concurrency {
            agents.slot(0);
        }
        agents
    }

    pub(super) fn scheduled(
        runs: &'a [AgentRun],
        schedule: &'a Schedule,
        seed: u64,
        block_tokens: u32,
    ) -> Self {
        assert_eq!(runs.len(), schedule.runs.len(), "one start for each run");
        let mut cursor = ScheduleCursor::new(schedule);
        let begins = cursor.open();
        let mut agents = Self::with(Turns::Scheduled(runs, cursor), seed, block_tokens);
        agents.begin(runs, begins);
        agents
    }

    fn with(turns: Turns<'a>, seed: u64, block_tokens: u32) -> Self {
        Self {
            turns,
            live: Vec::new(),
            due: BinaryHeap::new(),
            unfinished: 0,
            seed,
            block_tokens,
        }
    }

    /// Starts the next run in a free slot.
    fn slot(&mut self, at: u64) {
        let Turns::Slots(waiting) = &mut self.turns else {
            return;
        };
        if let Some((index, run)) = waiting.find(|(_, run)| !run.steps.is_empty()) {
            self.enter(index, run, at);
        }
    }

    /// Starts runs at the given times; a run without steps ends at once.
    fn begin(&mut self, runs: &'a [AgentRun], begins: Vec<(u64, usize)>) {
        let mut begins = VecDeque::from(begins);
        while let Some((at, index)) = begins.pop_front() {
            if !runs[index].steps.is_empty() {
                self.enter(index, &runs[index], at);
            } else if let Turns::Scheduled(_, cursor) = &mut self.turns {
                begins.extend(cursor.ended(index, at));
            }
        }
    }

    fn enter(&mut self, index: usize, run: &'a AgentRun, at: u64) {
        let agent = self.live.len();
        self.live.push(Agent {
            run,
            index,
            chain: Some(ContextChain::new(self.seed, run, self.block_tokens)),
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

    /// The agent's next LLM call.
    pub(super) fn begin_step(&mut self, agent: usize, now: u64) -> (&'a AgentRun, usize) {
        let agent = &mut self.live[agent];
        let index = agent.next_step;
        agent.next_step += 1;
        agent.sent_at = now;
        if let Some(chain) = &mut agent.chain {
            agent.blocks = chain.step_blocks(agent.run, index).to_vec();
        }
        (agent.run, index)
    }

    pub(super) fn blocks(&self, agent: usize) -> Vec<u64> {
        self.live[agent].blocks.clone()
    }

    /// The agent's index among the runs.
    pub(super) fn run_index(&self, agent: usize) -> usize {
        self.live[agent].index
    }

    /// The name of the agent's run.
    pub(super) fn key(&self, agent: usize) -> &str {
        &self.live[agent].run.id
    }

    /// Number of the agent's steps that were sent.
    pub(super) fn steps_sent(&self, agent: usize) -> usize {
        self.live[agent].next_step
    }

    pub(super) fn sent_at(&self, agent: usize) -> u64 {
        self.live[agent].sent_at
    }

    /// Schedules the agent's next step at a time.
    pub(super) fn resume(&mut self, agent: usize, at: u64) {
        self.due.push(Reverse((at, agent)));
    }

    /// Ends a step, and the run after its last step.
    pub(super) fn step_ended(&mut self, agent: usize, now: u64) -> After {
        let ended = &self.live[agent];
        if ended.next_step < ended.run.steps.len() {
            let tool_us = ended.run.steps[ended.next_step - 1].tool_us;
            return After::Tool { tool_us };
        }
        self.unfinished -= 1;
        let (program, index) = (ended.run.id.as_str().into(), ended.index);
        // Contexts are most of the agents' memory, and this one is not needed again.
        let ended = &mut self.live[agent];
        (ended.chain, ended.blocks) = (None, Vec::new());
        match &mut self.turns {
            Turns::Slots(_) => self.slot(now),
            Turns::Scheduled(runs, cursor) => {
                let (runs, begins) = (*runs, cursor.ended(index, now));
                self.begin(runs, begins);
            }
        }
        After::Over { program }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::AgentStep;

    #[test]
    fn a_finished_program_holds_no_context() {
        let step = AgentStep {
            input_tokens: 4_000,
            output_tokens: 10,
            ..AgentStep::default()
        };
        let run = |id: &str| AgentRun {
            id: id.into(),
            group: 0,
            system_tokens: 0,
            group_tokens: 0,
            steps: vec![step],
        };
        let runs = [run("a"), run("b")];
        let mut agents = Agents::new(&runs, 1, 1, 16);
        let first = agents.pop_due(0).unwrap();
        agents.begin_step(first, 0);
        assert_eq!(agents.blocks(first).len(), 250);
        let program = "a".into();
        assert_eq!(agents.step_ended(first, 5), After::Over { program });
        assert!(agents.blocks(first).is_empty() && agents.live[first].chain.is_none());
        assert!(agents.any_live(), "the next one has taken the slot");
    }
}
