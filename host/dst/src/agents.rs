//! Agents: programs that generate, call tools, give up, come back and release themselves.

use super::Simulation;
use super::calendar::ScheduledEvent;
use super::daemon::AckTo;
use super::gateway::{Answer, Exchange};
use super::plan::{AgentPlan, Turn};
use super::schedule::FaultKind;
use treadle_core::Event;
use treadle_core::programs::{ProgramEvent, PromptText, StepArrival};
use treadle_model::StepId;

/// Maximum pause before a retry.
const PAUSE_US_MAX: u64 = 60_000_000;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Branch {
    /// About to be sent, for the first time or again.
    Ready,
    Sent(StepId),
    Answered,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    /// Sends its steps.
    Working,
    /// Releases the program, and continues afterwards if planned.
    Releasing {
        goes_on: bool,
    },
    Done,
}

/// An agent.
#[derive(Debug)]
pub(crate) struct Agent {
    turn: usize,
    stage: Stage,
    branches: Vec<Branch>,
    context: u64,
    attempts: u64,
    hopeless: bool,
    /// Number of scheduled retries.
    retries: usize,
}

impl Agent {
    pub(crate) fn new() -> Self {
        Self {
            turn: 0,
            stage: Stage::Working,
            branches: Vec::new(),
            context: 0,
            attempts: 0,
            hopeless: false,
            retries: 0,
        }
    }

    /// Tokens of its steps so far.
    pub(crate) fn context(&self) -> u64 {
        self.context
    }

    pub(crate) fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Tokens of its current step: prompt and output.
    pub(crate) fn demand(&self, plan: &AgentPlan) -> (u64, u64) {
        let turn = &plan.turns[self.turn];
        (self.context + turn.grows, turn.output)
    }

    pub(crate) fn open_attempt(&self, branch: usize, attempt: u64) -> Option<StepId> {
        match self.branches.get(branch) {
            Some(Branch::Sent(step)) if self.attempts == attempt => Some(*step),
            _ => None,
        }
    }
}

impl Simulation {
    /// An agent is due.
    pub(crate) fn agent_due(&mut self, index: usize) {
        let agent = &mut self.agents[index];
        agent.retries = agent.retries.saturating_sub(1);
        match self.agents[index].stage {
            Stage::Done => {}
            Stage::Releasing { .. } => self.release(index),
            Stage::Working => self.take_turn(index),
        }
    }

    /// Whether no process can accept its requests.
    fn is_shut(&self, index: usize) -> bool {
        let gateway = &self.gateways[index % self.gateways.len()];
        self.daemon.is_none() && gateway.remote.is_none()
    }

    fn release(&mut self, index: usize) {
        if self.is_shut(index) {
            return self.pause(index);
        }
        let program = self.plan.agents[index].key.clone();
        let gateway = index % self.gateways.len();
        if index.is_multiple_of(3) {
            let rewarded = ProgramEvent::ProgramRewarded {
                program: program.clone(),
                reward_millionths: i64::from(index as u32) * 1_000 - 20_000,
            };
            self.send_report(gateway, Event::Program(rewarded), None);
        }
        self.send_report(
            gateway,
            Event::Program(ProgramEvent::ProgramReleased {
                program,
                aborted: false,
            }),
            Some(AckTo::Agent(index)),
        );
    }

    /// The daemon has acknowledged the release.
    pub(crate) fn goodbye_acknowledged(&mut self, index: usize) {
        let Stage::Releasing { goes_on } = self.agents[index].stage else {
            return;
        };
        self.agents[index].stage = if goes_on { Stage::Working } else { Stage::Done };
        self.calendar
            .put(self.now_us, ScheduledEvent::AgentDue(index));
    }

    fn take_turn(&mut self, index: usize) {
        if self.is_shut(index) {
            return self.pause(index);
        }
        let turn = self.plan.agents[index].turns[self.agents[index].turn];
        let agent = &mut self.agents[index];
        if agent.branches.is_empty() {
            agent.branches = vec![Branch::Ready; turn.branches];
        }
        for branch in 0..self.agents[index].branches.len() {
            if self.agents[index].branches[branch] == Branch::Ready {
                self.send_step(index, branch, &turn);
            }
        }
    }

    fn send_step(&mut self, index: usize, branch: usize, turn: &Turn) {
        let gateway = index % self.gateways.len();
        let step = self.step_id(gateway);
        let plan = &self.plan.agents[index];
        let (prompt, _) = self.agents[index].demand(plan);
        let estimate = prompt * self.streams.agents.between(70, 140) / 100;
        let arrival = StepArrival {
            step,
            program: plan.key.clone(),
            job: plan.job.clone(),
            prompt_tokens: if turn.exact { prompt } else { 0 },
            exact: turn.exact,
            prompt_bytes: estimate * 4,
            text: (!turn.exact).then(|| PromptText {
                model: "model".into(),
                messages: (prompt % 7) as u32,
                prefix_bytes: plan.prefix.iter().map(|s| s.tokens * 4).collect(),
            }),
            output_tokens_max: turn.output_max,
            prefix: plan.prefix.clone(),
            one_shot: plan.one_shot,
            inferred: plan.inferred,
            parent: plan.parent.clone(),
            group: None,
            model: None,
        };
        let agent = &mut self.agents[index];
        agent.branches[branch] = Branch::Sent(step);
        let attempt = agent.attempts;
        let exchange = Exchange {
            agent: index,
            branch,
            request: None,
            generated: 0,
        };
        self.gateways[gateway].exchanges.insert(step, exchange);
        self.send_report(
            gateway,
            Event::Program(ProgramEvent::StepArrived(arrival.clone())),
            None,
        );
        let of = self.gateways.len();
        if self.gateways[gateway].remote.is_none()
            && self
                .active_faults
                .strikes(FaultKind::ArrivalRepeated, gateway, of)
                .is_some()
        {
            self.counts.count(FaultKind::ArrivalRepeated.name());
            self.send_report(
                gateway,
                Event::Program(ProgramEvent::StepArrived(arrival)),
                None,
            );
        }
        if let Some(after) = turn.leaves_us.filter(|_| attempt == 0) {
            let leaves = ScheduledEvent::ClientLeaves {
                agent: index,
                branch,
                attempt,
            };
            self.calendar.put(self.now_us + after, leaves);
        }
    }

    /// A client gets the answer to its request.
    pub(crate) fn answer(&mut self, index: usize, branch: usize, answer: Answer) {
        let agent = &mut self.agents[index];
        agent.branches[branch] = match answer {
            Answer::Failed if !agent.hopeless => Branch::Ready,
            Answer::Failed | Answer::Hopeless | Answer::Whole => Branch::Answered,
        };
        agent.hopeless |= answer == Answer::Hopeless;
        if answer == Answer::Failed {
            agent.attempts += 1;
        }
        if agent.hopeless {
            for branch in &mut agent.branches {
                if *branch == Branch::Ready {
                    *branch = Branch::Answered;
                }
            }
        }
        if agent.branches.contains(&Branch::Ready) {
            return self.pause(index);
        }
        if agent
            .branches
            .iter()
            .all(|branch| *branch == Branch::Answered)
        {
            self.turn_ends(index);
        }
    }

    fn turn_ends(&mut self, index: usize) {
        let plan = &self.plan.agents[index];
        let agent = &mut self.agents[index];
        let turn = plan.turns[agent.turn];
        if !agent.hopeless {
            agent.context += turn.grows + turn.output;
        }
        agent.turn += 1;
        agent.branches.clear();
        agent.attempts = 0;
        let over = agent.hopeless || agent.turn == plan.turns.len();
        if agent.hopeless {
            self.ends.count("programs given up");
        }
        agent.stage = match (over, plan.released || agent.hopeless, turn.released_after) {
            (true, true, _) => Stage::Releasing { goes_on: false },
            (true, false, _) => Stage::Done,
            (false, _, true) => Stage::Releasing { goes_on: true },
            (false, _, false) => Stage::Working,
        };
        let at = self.now_us + turn.tool_us;
        self.calendar.put(at, ScheduledEvent::AgentDue(index));
    }

    /// Retries later, as often as there are open requests: each retry sends all of them, so more
    /// retries would multiply.
    pub(crate) fn pause(&mut self, index: usize) {
        let agent = &mut self.agents[index];
        if agent.retries >= agent.branches.len().max(1) {
            return;
        }
        agent.retries += 1;
        let attempts = agent.attempts;
        let longest = (500_000 << attempts.min(7)).min(PAUSE_US_MAX);
        let at = self.now_us + self.streams.agents.between(longest / 4, longest);
        self.calendar.put(at, ScheduledEvent::AgentDue(index));
    }

    /// Sends releases again that a dead daemon has not acknowledged.
    pub(crate) fn goodbyes_lost(&mut self) {
        for index in 0..self.agents.len() {
            if matches!(self.agents[index].stage, Stage::Releasing { .. }) {
                self.pause(index);
            }
        }
    }
}
