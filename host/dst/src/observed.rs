//! A core under observation: the model follows it, and both must agree.

use super::database::Row;
use super::injected_bug::{Did, InjectedBug};
use super::model::Model;
use std::collections::VecDeque;
use treadle_core::programs::Decision;
use treadle_core::{Command, Core, CoreConfig, Event};
use treadle_dst_outcome::{Checked, Violation, broken};
use treadle_model::Timestamp;
use treadle_scheduler::record;
use treadle_scheduler::scheduler::{Handled, Observer};

/// Number of events between the core's own checks of all sums.
const OWN_CHECK_EVENTS: u64 = 4;

/// Observes the core of a scheduler.
pub(crate) struct Watcher {
    pub(crate) model: Model,
    /// The simulation's time.
    pub(crate) sim_us: u64,
    /// The first broken rule.
    pub(crate) violation: Option<Violation>,
    /// The commands of each event, in order.
    pub(crate) commands: VecDeque<Vec<Command>>,
    events: u64,
    injected_bug: Option<InjectedBug>,
}

impl Watcher {
    pub(crate) fn new(model: Model, injected_bug: Option<InjectedBug>) -> Self {
        Self {
            model,
            sim_us: 0,
            violation: None,
            commands: VecDeque::new(),
            events: 0,
            injected_bug,
        }
    }
}

impl Observer for Watcher {
    fn handled(&mut self, core: &mut Core, handled: &Handled<'_>, commands: &mut Vec<Command>) {
        self.events += 1;
        if self.events.is_multiple_of(OWN_CHECK_EVENTS) {
            core.assert_invariants();
        }
        let mut did = Did {
            commands: std::mem::take(commands),
            decisions: handled.decisions.to_vec(),
        };
        if let Some(injected_bug) = self.injected_bug {
            injected_bug.tamper(core, &mut did, handled.event, self.events);
        }
        commands.clone_from(&did.commands);
        self.commands.push_back(did.commands);
        if self.violation.is_none() {
            let at = (handled.at, self.sim_us);
            let done = (&commands[..], &did.decisions[..]);
            let followed = follow(&mut self.model, core, at, handled.event, done);
            self.violation = followed.err();
        }
    }
}

/// A core that replays what is on record, with its model.
#[derive(Clone, Debug)]
pub(crate) struct Auditor {
    pub(crate) core: Core,
    pub(crate) model: Model,
}

impl Auditor {
    pub(crate) fn new(
        config: &CoreConfig,
        honest: bool,
        injected_bug: Option<InjectedBug>,
    ) -> Self {
        Self {
            core: Core::new(InjectedBug::config(injected_bug, config)),
            model: Model::new(config.clone(), honest),
        }
    }

    /// Replays an event; only checks that it can be replayed.
    pub(crate) fn repeat(&mut self, row: &Row) -> Checked {
        let decoded = record::decode(&row.event.body);
        let (event, origin) = decoded.or_else(|error| {
            let seq = row.seq;
            broken("journal", format!("event {seq} cannot be read: {error}"))
        })?;
        let at = Timestamp(row.event.at_us);
        match origin {
            Some(origin) => {
                self.core.handle_relayed(at, origin, &event);
            }
            None => self.core.handle(at, &event),
        }
        self.follow((at, row.sim_us), &event).map(|_| ())
    }

    /// Applies an event that the core has handled to the model.
    pub(crate) fn follow(&mut self, at: (Timestamp, u64), event: &Event) -> Checked<Vec<Command>> {
        let commands: Vec<Command> = std::iter::from_fn(|| self.core.poll_command()).collect();
        let decisions: Vec<_> = std::iter::from_fn(|| self.core.poll_decision()).collect();
        let done = (&commands[..], &decisions[..]);
        follow(&mut self.model, &self.core, at, event, done)?;
        Ok(commands)
    }
}

fn follow(
    model: &mut Model,
    core: &Core,
    (at, sim_us): (Timestamp, u64),
    event: &Event,
    (commands, decisions): (&[Command], &[Decision]),
) -> Checked {
    model.follow(core, at, sim_us, event, commands, decisions)?;
    model.check(core, event)
}

/// A state in the form of a snapshot.
pub(crate) fn bytes_of(core: &Core) -> Checked<Vec<u8>> {
    treadle_core_json::write_state(&core.state())
        .or_else(|error| broken("snapshot", error.to_string()))
}
