//! Clients that submit actions until they get the outcomes, and the executor that runs them: in
//! processes that may outlive the daemon.

use super::Simulation;
use super::action_plans::{ActionsPlan, SEARCH, SERVICES};
use super::calendar::ScheduledEvent;
use super::injected_bug::InjectedBug;
use std::collections::{BTreeMap, VecDeque};
use treadle_core::Event;
use treadle_core::actions::{ActionCommand, ActionError, ActionEvent, Admission, Outcome, Shares};
use treadle_dst_outcome::{Checked, broken};
use treadle_model::{ActionId, Span};

const SECOND_US: u64 = 1_000_000;
/// Number of refusals for a program that is not live after which a client gives up.
const REFUSALS_MAX: u32 = 8;

/// A scheduled event of actions.
#[derive(Clone, Debug)]
pub(crate) enum ScheduledActionEvent {
    /// A client checks on its action.
    Due(usize),
    /// A client withdraws its action.
    Withdrawn(usize),
    /// The daemon's commands up to an event are on record.
    Recorded { session: u32, through: u64 },
    /// A process begins, or its request is refused.
    Begins {
        action: ActionId,
        attempt: u32,
        refused: bool,
    },
    /// A process ends.
    Ends {
        action: ActionId,
        attempt: u32,
        outcome: Outcome,
    },
}

/// A process that runs an attempt.
#[derive(Clone, Debug)]
struct Process {
    attempt: u32,
    client: usize,
    begun: bool,
    ended: Option<Outcome>,
}

/// Clients and processes.
#[derive(Debug, Default)]
pub(crate) struct ActionExecutor {
    processes: BTreeMap<ActionId, Process>,
    /// Clients that have their outcome.
    answered: Vec<bool>,
    /// Number of times that each client's program was not live.
    refused: Vec<u32>,
    /// Number of times that the action of each client began.
    begun: Vec<u32>,
    /// The daemon's commands that are not on record yet.
    held: VecDeque<(u64, ActionCommand)>,
}

impl ActionExecutor {
    pub(crate) fn new(plan: &ActionsPlan) -> Self {
        Self {
            answered: vec![false; plan.actions.len()],
            refused: vec![0; plan.actions.len()],
            begun: vec![0; plan.actions.len()],
            ..Self::default()
        }
    }

    /// Whether every client has its outcome.
    pub(crate) fn is_done(&self) -> bool {
        self.answered.iter().all(|answered| *answered)
    }

    /// Clients without an outcome, as text.
    pub(crate) fn what_is_left(&self) -> String {
        let open = self.answered.iter().enumerate().filter(|(_, done)| !**done);
        let open: Vec<usize> = open.map(|(client, _)| client).collect();
        format!("clients {open:?}, processes {:?}", self.processes)
    }
}

impl Simulation {
    pub(crate) fn action_happens(&mut self, happening: ScheduledActionEvent) -> Checked {
        match happening {
            ScheduledActionEvent::Due(client) => self.action_due(client),
            ScheduledActionEvent::Withdrawn(client) => self.action_withdrawn(client),
            ScheduledActionEvent::Recorded { session, through } => {
                if self.session_is_over(session) {
                    return Ok(());
                }
                self.carry_out_actions(through)
            }
            ScheduledActionEvent::Begins {
                action,
                attempt,
                refused,
            } => self.action_begins(action, attempt, refused),
            ScheduledActionEvent::Ends {
                action,
                attempt,
                outcome,
            } => self.action_ends(action, attempt, outcome),
        }
    }

    /// A client checks whether its action has ended; it submits an action that the daemon does not
    /// know, for the first time or again.
    fn action_due(&mut self, client: usize) -> Checked {
        if self.executor.answered[client] {
            return Ok(());
        }
        let again = self.now_us + self.streams.actions.between(1, 15 * SECOND_US);
        let due = ScheduledActionEvent::Due(client);
        self.calendar.put(again, ScheduledEvent::Action(due));
        let Some(daemon) = &self.daemon else {
            return Ok(());
        };
        let spec = &self.plan.actions.actions[client].spec;
        let core = daemon.scheduler.core();
        let admission = core.check_action(spec);
        let is_refused = matches!(admission, Err(ActionError::UnknownProgram { .. }));
        let is_new = matches!(admission, Ok(Admission::New(_)));
        let model = &daemon.scheduler.observer().model;
        let program = spec.program.as_ref().filter(|_| is_refused || is_new);
        if program.is_some_and(|program| model.is_live(program) == is_refused) {
            return broken("action-programs", format!("{spec:?}: {admission:?}"));
        }
        match admission {
            Ok(Admission::New(action)) => self.submit(client, action),
            Ok(Admission::Known(action)) => {
                let known = core.actions().action(action);
                let is_over = known.is_some_and(|known| known.ended().is_some());
                let is_on_record = daemon.unwritten.is_empty() && daemon.transaction.is_none();
                self.executor.answered[client] = is_over && is_on_record;
                Ok(())
            }
            Err(ActionError::UnknownProgram { .. }) => {
                let next = ActionId(core.actions().last_action + 1);
                if self.plan.actions.actions[client].late {
                    return self.submit(client, next);
                }
                self.executor.refused[client] += 1;
                let is_hopeless = self.executor.refused[client] == REFUSALS_MAX;
                self.executor.answered[client] = is_hopeless;
                Ok(())
            }
            Err(ActionError::BeyondShare { .. }) => {
                self.executor.answered[client] = true;
                Ok(())
            }
            Err(error) => broken("action-once", error.to_string()),
        }
    }

    fn submit(&mut self, client: usize, action: ActionId) -> Checked {
        let plan = &self.plan.actions.actions[client];
        let mut spec = Box::new(plan.spec.clone());
        spec.start_by = plan.patience.map(|patience| self.clock() + patience);
        self.handle(ActionEvent::ActionSubmitted { action, spec }.into(), None)
    }

    /// A client withdraws its action.
    fn action_withdrawn(&mut self, client: usize) -> Checked {
        let spec = &self.plan.actions.actions[client].spec;
        let core = self.daemon.as_ref().map(|d| d.scheduler.core());
        match core.map(|core| core.check_action(spec)) {
            Some(Ok(Admission::Known(action))) => {
                self.handle(ActionEvent::ActionCancelled { action }.into(), None)
            }
            _ => Ok(()),
        }
    }

    /// A daemon begins: reports resources, running processes and lost ones.
    pub(crate) fn report_actions(&mut self) -> Checked {
        if self.plan.actions.actions.is_empty() {
            return Ok(());
        }
        let resources = self.plan.actions.resources.clone();
        self.handle(ActionEvent::ResourcesSet { resources }.into(), None)?;
        if let Some(parts) = self.plan.actions.parts {
            let percent = BTreeMap::new();
            let shares = Some(Shares { parts, percent });
            self.handle(ActionEvent::SharesSet { shares }.into(), None)?;
        }
        for service in SERVICES {
            let load = Span(SECOND_US);
            let service = service.into();
            self.handle(ActionEvent::ServiceDeclared { service, load }.into(), None)?;
        }
        for action in self.executor.processes.keys() {
            self.check_is_known(*action)?;
        }
        self.executor.processes.retain(|_, process| process.begun);
        for (action, process) in self.executor.processes.clone() {
            let attempt = process.attempt;
            let event = match process.ended {
                Some(outcome) => ended(action, attempt, outcome),
                None => ActionEvent::ActionBegan { action, attempt }.into(),
            };
            self.handle(event, None)?;
        }
        self.handle(ActionEvent::ActionsRecovered.into(), None)
    }

    /// Checks that everything that runs is on record.
    fn check_is_known(&self, action: ActionId) -> Checked {
        let daemon = self.daemon.as_ref();
        let process = &self.executor.processes[&action];
        let known = daemon.and_then(|d| d.scheduler.core().actions().action(action));
        if known.is_some_and(|known| known.attempt >= process.attempt) {
            return Ok(());
        }
        broken(
            "action-commits",
            format!("{action} runs, and the journal has {known:?}"),
        )
    }

    /// The daemon died, perhaps with its processes.
    pub(crate) fn daemon_of_actions_died(&mut self) {
        self.executor.held.clear();
        if !self.plan.actions.actions.is_empty() && self.streams.actions.percent(30) {
            self.executor.processes.clear();
        }
    }

    /// Holds a command back until its event is on record.
    pub(crate) fn hold_action(&mut self, command: ActionCommand) -> Checked {
        let Some(daemon) = &self.daemon else {
            return Ok(());
        };
        let held = (daemon.scheduler.seq(), command);
        self.executor.held.push_back(held);
        if self.injected_bug == Some(InjectedBug::StartBeforeCommit) {
            return self.carry_out_actions(u64::MAX);
        }
        Ok(())
    }

    /// Events up to a number are on record.
    pub(crate) fn actions_recorded(&mut self, through: u64) {
        let Some(daemon) = &self.daemon else {
            return;
        };
        let through = through.min(daemon.scheduler.seq());
        let first = self.executor.held.front();
        if first.is_some_and(|(seq, _)| *seq <= through) {
            let session = self.session;
            let recorded = ScheduledActionEvent::Recorded { session, through };
            self.calendar
                .put(self.now_us, ScheduledEvent::Action(recorded));
        }
    }

    /// Carries out commands that are on record.
    fn carry_out_actions(&mut self, through: u64) -> Checked {
        let is_due = |(seq, _): &mut (u64, ActionCommand)| *seq <= through;
        while let Some((_, command)) = self.executor.held.pop_front_if(is_due) {
            match command {
                ActionCommand::StartAction {
                    action,
                    attempt,
                    grants,
                    ..
                } => {
                    let asks = grants.iter().any(|grant| &*grant.resource == SEARCH);
                    self.start_process(action, attempt, asks)?;
                }
                ActionCommand::StopAction { action, attempt } => self.stop_process(action, attempt),
                ActionCommand::AnswerAction { action } => {
                    if let Some(client) = self.client_of(action) {
                        self.executor.answered[client] = true;
                    }
                    self.executor.processes.remove(&action);
                }
                // The scheduler handles this itself.
                ActionCommand::AskElastic { .. } => {}
            }
        }
        Ok(())
    }

    fn client_of(&self, action: ActionId) -> Option<usize> {
        let core = self.daemon.as_ref()?.scheduler.core();
        let spec = &core.actions().action(action)?.spec;
        let mut plans = self.plan.actions.actions.iter();
        plans.position(|plan| plan.spec.idempotency_key == spec.idempotency_key)
    }

    fn start_process(&mut self, action: ActionId, attempt: u32, asks: bool) -> Checked {
        let Some(client) = self.client_of(action) else {
            return broken("action-once", format!("{action} is started, and nobody's"));
        };
        let process = Process {
            attempt,
            client,
            begun: false,
            ended: None,
        };
        let before = self.executor.processes.insert(action, process);
        if before.is_some_and(|before| before.attempt >= attempt) {
            return broken("action-once", format!("{action} is started twice"));
        }
        let plan = &self.plan.actions.actions[client];
        let at = self.now_us + plan.begins_us;
        let refused = asks && attempt <= plan.refusals;
        let begins = ScheduledActionEvent::Begins {
            action,
            attempt,
            refused,
        };
        self.calendar.put(at, ScheduledEvent::Action(begins));
        Ok(())
    }

    fn stop_process(&mut self, action: ActionId, attempt: u32) {
        let process = self.executor.processes.get(&action);
        let Some(process) = process.filter(|p| p.attempt == attempt && p.ended.is_none()) else {
            return;
        };
        if !self.plan.actions.actions[process.client].hangs {
            let at = self.now_us + self.streams.actions.below(2 * SECOND_US);
            let outcome = Outcome::Killed { signal: 15 };
            let ends = ScheduledActionEvent::Ends {
                action,
                attempt,
                outcome,
            };
            self.calendar.put(at, ScheduledEvent::Action(ends));
        }
    }

    /// A process begins, or its request is refused.
    fn action_begins(&mut self, action: ActionId, attempt: u32, refused: bool) -> Checked {
        let processes = &mut self.executor.processes;
        let process = processes.get_mut(&action).filter(|p| p.attempt == attempt);
        let Some(process) = process.filter(|p| !p.begun && p.ended.is_none()) else {
            return Ok(());
        };
        if refused {
            processes.remove(&action);
            let after = self.streams.actions.below(5 * SECOND_US);
            let event = ActionEvent::QuotaRefused {
                resource: SEARCH.into(),
                retry_after: Span(after),
                action: Some((action, attempt)),
            };
            return self.report_action(event.into());
        }
        process.begun = true;
        let client = process.client;
        self.executor.begun[client] += 1;
        let plan = &self.plan.actions.actions[client];
        if self.executor.begun[client] > 1 && !plan.spec.idempotent {
            return broken("action-once", format!("{action} ran before"));
        }
        let ends = ScheduledActionEvent::Ends {
            action,
            attempt,
            outcome: plan.outcome.clone(),
        };
        let at = self.now_us + plan.runs_us;
        self.calendar.put(at, ScheduledEvent::Action(ends));
        self.report_action(ActionEvent::ActionBegan { action, attempt }.into())
    }

    /// A process ends.
    fn action_ends(&mut self, action: ActionId, attempt: u32, outcome: Outcome) -> Checked {
        let process = self.executor.processes.get_mut(&action);
        let Some(process) = process.filter(|p| p.attempt == attempt && p.ended.is_none()) else {
            return Ok(());
        };
        process.ended = Some(outcome.clone());
        self.report_action(ended(action, attempt, outcome))
    }

    /// Reports an event; without a daemon the next one reports it.
    fn report_action(&mut self, event: Event) -> Checked {
        if self.daemon.is_some() {
            return self.handle(event, None);
        }
        Ok(())
    }

    /// Checks that no action is left.
    pub(crate) fn check_actions_at_end(&self) -> Checked {
        let Some(daemon) = &self.daemon else {
            return Ok(());
        };
        let state = daemon.scheduler.core().actions();
        let in_use = state.pools.iter().find(|pool| pool.used > 0);
        match in_use {
            Some(pool) => broken("action-sums", format!("{pool:?} is in use")),
            None => Ok(()),
        }
    }
}

fn ended(action: ActionId, attempt: u32, outcome: Outcome) -> Event {
    ActionEvent::ActionEnded {
        action,
        attempt,
        outcome,
        output: None,
    }
    .into()
}
