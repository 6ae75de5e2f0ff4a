//! Tools that compete for cores: actions of the scheduler, each on one core.

use super::Cluster;
use std::collections::{BTreeMap, BTreeSet};
use treadle_core::actions::{
    ActionCommand, ActionEvent, ActionSpec, Demand, Outcome, Resource, Supply,
};
use treadle_model::{ActionId, PolicyRef, Span};

/// The resource of all tools.
const CORES: &str = "cpu";
/// The kind of all tools, so that all have the same expected time.
const KIND: &str = "tool";
/// Maximum run time, which no tool of a workload approaches.
const RUN_MAX: Span = Span::from_secs(86_400);

/// Tools that are waiting or running.
#[derive(Clone, Debug, Default)]
pub(super) struct Tools {
    submitted: u64,
    /// The agent and the run time of each.
    live: BTreeMap<ActionId, (usize, u64)>,
    /// When running ones end.
    ends: BTreeSet<(u64, ActionId)>,
}

impl Tools {
    pub(super) fn next_event_at(&self) -> Option<u64> {
        self.ends.first().map(|(at, _)| *at)
    }
}

impl Cluster<'_> {
    /// Registers the cores with the scheduler, if tools compete for them.
    pub(super) fn set_cores(&mut self) {
        if let Some(total) = self.environment.tool_cores {
            let name = CORES.into();
            let supply = Supply::Units { total };
            let resources = vec![Resource { name, supply }];
            self.handle(&ActionEvent::ResourcesSet { resources }.into());
        }
    }

    /// Starts an agent's tool, or lets it wait for a core.
    pub(super) fn begin_tool(&mut self, agent: usize, tool_us: u64) {
        if self.environment.tool_cores.is_none() || tool_us == 0 {
            self.agents.resume(agent, self.now + tool_us);
            return;
        }
        self.tools.submitted += 1;
        let action = ActionId(self.tools.submitted);
        self.tools.live.insert(action, (agent, tool_us));
        let run = self.agents.run_index(agent);
        let spec = Box::new(ActionSpec {
            program: Some(self.agents.key(agent).into()),
            job: self.environment.job_of(run).into(),
            kind: KIND.into(),
            demands: vec![Demand {
                resource: CORES.into(),
                options: vec![1],
            }],
            durations: Vec::new(),
            service: None,
            run_max: RUN_MAX,
            start_by: None,
            idempotent: false,
            idempotency_key: None,
            body: format!("{:x}", action.0).into(),
        });
        self.handle(&ActionEvent::ActionSubmitted { action, spec }.into());
    }

    pub(super) fn carry_out_action(&mut self, command: ActionCommand) {
        match command {
            ActionCommand::StartAction {
                action, attempt, ..
            } => {
                if let Some((_, tool_us)) = self.tools.live.get(&action) {
                    self.tools.ends.insert((self.now + tool_us, action));
                }
                self.tell(&ActionEvent::ActionBegan { action, attempt }.into());
            }
            ActionCommand::AskElastic { ask, question, .. } => {
                let (policy, answer) = (PolicyRef("native".into()), question.least());
                let answered = ActionEvent::ElasticAnswered {
                    ask,
                    policy,
                    answer,
                };
                self.tell(&answered.into());
            }
            ActionCommand::AnswerAction { action } => {
                if let Some((agent, _)) = self.tools.live.remove(&action) {
                    self.agents.resume(agent, self.now);
                }
            }
            ActionCommand::StopAction { .. } => {}
        }
    }

    /// Ends the tools that are due.
    pub(super) fn end_tools(&mut self) {
        while let Some((at, action)) = self.tools.ends.first().copied() {
            if at > self.now {
                return;
            }
            self.tools.ends.pop_first();
            let ended = ActionEvent::ActionEnded {
                action,
                attempt: 1,
                outcome: Outcome::Exited { code: 0 },
                output: None,
            };
            self.handle(&ended.into());
        }
    }
}
