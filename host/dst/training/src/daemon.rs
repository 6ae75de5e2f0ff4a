//! The daemon of a training run's simulation: the real core, its journal and its snapshots.

use super::bug::TrainingBug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use treadle_core::training::{self, TrainingError, TrainingEvent};
use treadle_core::{Command, Core, CoreConfig, DaemonEvent, Event, State};
use treadle_dst_outcome::{Checked, broken};
use treadle_model::Timestamp;

/// The daemon.
pub(super) struct Daemon {
    core: Core,
    config: CoreConfig,
    bug: Option<TrainingBug>,
    /// Events since the snapshot, as JSON, with their times.
    tail: Vec<(Timestamp, String)>,
    snapshot: Vec<u8>,
    snapshot_events: u64,
    /// A bug may break invariants: the rules have to find it.
    is_sound: bool,
    /// Events that were handled.
    pub(super) events: u64,
}

impl Daemon {
    pub(super) fn new(config: CoreConfig, bug: Option<TrainingBug>, snapshot_events: u64) -> Self {
        let core = Core::new(config.clone());
        let mut daemon = Self {
            core,
            config,
            bug,
            tail: Vec::new(),
            snapshot: Vec::new(),
            snapshot_events,
            is_sound: bug.is_none(),
            events: 0,
        };
        daemon.take_snapshot();
        daemon
    }

    /// The same among other bugs than those of training runs.
    pub(super) fn unsound(self) -> Self {
        Self {
            is_sound: false,
            ..self
        }
    }

    pub(super) fn core(&self) -> &Core {
        &self.core
    }

    /// Jobs, as clients read them.
    pub(super) fn jobs(&self) -> &training::State {
        self.core.training()
    }

    /// When the core wants to be woken.
    pub(super) fn wakes_at(&self) -> Option<Timestamp> {
        let at = self.core.next_deadline();
        let of_training = self.jobs().deadlines.first().map(|(at, _)| *at);
        let is_forgotten = self.bug == Some(TrainingBug::NoTimer) && at == of_training;
        let open = self.jobs().jobs.values();
        let open = open.filter_map(|job| job.shaping.ask.as_ref());
        let mut late = open.map(|open| open.deadline);
        let asks_for_ever = self.bug == Some(TrainingBug::AskForEver);
        let is_late = asks_for_ever && late.any(|late| Some(late) == at);
        at.filter(|_| !is_forgotten && !is_late)
    }

    /// The group that a program gets which names none.
    pub(super) fn place(&self, job: &str, program: &str) -> Option<Box<str>> {
        let is_silent = self.bug == Some(TrainingBug::NameNoGroup) && self.events > 100;
        let found = self.jobs().place(job, program).ok().flatten();
        found.filter(|_| !is_silent)
    }

    pub(super) fn check(&self, event: &TrainingEvent) -> Result<(), TrainingError> {
        let mut event = event.clone();
        if self.bug == Some(TrainingBug::AnyLineage)
            && let TrainingEvent::VersionTold { job, lineage, .. }
            | TrainingEvent::BatchTrained { job, lineage, .. } = &mut event
        {
            *lineage = self.jobs().jobs.get(job).map_or(0, |job| job.lineage);
        }
        self.core.check_training(&event)
    }

    /// Handles an event: what it leads to.
    pub(super) fn handle(&mut self, now_us: u64, event: Event) -> Checked<Vec<Command>> {
        self.events += 1;
        let tampered = match self.bug {
            Some(bug) => bug.event(event, self.events),
            None => Some(event),
        };
        let Some(event) = tampered else {
            return Ok(Vec::new());
        };
        let now = Timestamp(now_us);
        let written = treadle_core_json::write_event(&event);
        self.tail.push((now, written));
        let mut hidden = None;
        let mut changed = self.tamper(&event, |bug, job, event, _| {
            bug.before(job, event, &mut hidden)
        });
        let core = &mut self.core;
        let is_sound = self.is_sound;
        let handled = catch_unwind(AssertUnwindSafe(|| {
            core.handle(now, &event);
            if is_sound {
                core.assert_invariants();
            }
        }));
        if handled.is_err() {
            return broken("core", format!("it panics at {event:?}"));
        }
        let mut commands = Vec::new();
        while let Some(command) = self.core.poll_command() {
            commands.push(command);
        }
        while self.core.poll_decision().is_some() {}
        changed |= self.tamper(&event, |bug, job, event, events| {
            bug.after(job, event, events, &mut hidden)
        });
        if let Some(bug) = self.bug {
            bug.commands(&mut commands, self.events);
        }
        if changed || self.tail.len() as u64 >= self.snapshot_events {
            self.take_snapshot();
        }
        Ok(commands)
    }

    /// Changes the job that an event is about, if a bug does. True if it did.
    fn tamper(
        &mut self,
        event: &Event,
        change: impl FnOnce(TrainingBug, &mut training::Job, &TrainingEvent, u64) -> bool,
    ) -> bool {
        let (Some(bug), Event::Training(event)) = (self.bug, event) else {
            return false;
        };
        let events = self.events;
        self.alter(|state| {
            let job = state.training.to_mut().jobs.get_mut(event.job());
            job.is_some_and(|job| change(bug, job, event, events))
        })
    }

    /// Changes the state, if the closure does. True if it did.
    fn alter(&mut self, change: impl FnOnce(&mut State<'_>) -> bool) -> bool {
        let mut state = self.core.state().into_owned();
        let changed = change(&mut state);
        if changed {
            self.core = Core::with_state(self.config.clone(), state);
        }
        changed
    }

    /// Has a bug change the state, which the next daemon reads.
    pub(super) fn spoil(&mut self, change: impl FnOnce(&mut State<'_>) -> bool) {
        if self.alter(change) {
            self.take_snapshot();
        }
    }

    fn take_snapshot(&mut self) {
        self.snapshot = self.written();
        self.tail.clear();
    }

    fn written(&self) -> Vec<u8> {
        treadle_core_json::write_state(&self.core.state()).unwrap_or_default()
    }

    /// The daemon is killed: the next one reads the snapshot and what follows it.
    pub(super) fn restart(&mut self) -> Checked<Event> {
        let state = match treadle_core_json::read_state(&self.snapshot) {
            Ok(state) => state,
            Err(error) => return broken("replay", format!("a snapshot: {error}")),
        };
        let mut core = Core::with_state(self.config.clone(), state);
        let drops = self.bug == Some(TrainingBug::ReplayDropsEvent);
        let rows = self.tail.len() - usize::from(drops && !self.tail.is_empty());
        for (at, event) in &self.tail[..rows] {
            match treadle_core_json::read_event(event) {
                Ok(event) => core.handle(*at, &event),
                Err(error) => return broken("replay", format!("{event}: {error}")),
            }
            while core.poll_command().is_some() {}
            while core.poll_decision().is_some() {}
        }
        let live = self.written();
        self.core = core;
        if self.written() != live {
            return broken("replay", "another state than the one that was lost");
        }
        Ok(DaemonEvent::DaemonRestarted.into())
    }
}
