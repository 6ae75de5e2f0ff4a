//! The machine of bindings.

use crate::bindings::{BindingEvent, Bindings};
use std::convert::Infallible;
use treadle_machine::DaemonEvent;
use treadle_machine::{Machine, Notice, Notified};
use treadle_model::{Timestamp, World};

/// The machine: its state is [`Bindings`].
#[derive(Clone, Debug)]
pub(crate) struct BindingMachine {
    now: Timestamp,
    state: Bindings,
    notice: Option<Notice>,
}

impl BindingMachine {
    pub(crate) fn with_state(state: Bindings) -> Self {
        Self {
            now: Timestamp::default(),
            state,
            notice: None,
        }
    }

    pub(crate) fn state(&self) -> &Bindings {
        &self.state
    }
}

impl Machine for BindingMachine {
    type Event = BindingEvent;
    type Command = Infallible;
    type View = ();

    fn advance(&mut self, now: Timestamp) {
        self.now = now;
    }

    fn apply(&mut self, event: &BindingEvent, (): &()) {
        self.state.apply(self.now, event);
        self.notice = Some(Notice::PoliciesBound {
            ranked: self.state.jobs_of(World::Priority),
            placed: self.state.jobs_of(World::Placement),
            shaped: self.state.jobs_of(World::Shaping),
        });
    }

    fn daemon(&mut self, _: &DaemonEvent) {}

    fn settle(&mut self, (): &()) {}

    fn poll_command(&mut self) -> Option<Infallible> {
        None
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        None
    }

    fn assert_invariants(&self) {}
}

impl Notified for BindingMachine {
    fn poll_notice(&mut self) -> Option<Notice> {
        self.notice.take()
    }

    fn notice(&mut self, _: &Notice) {}
}
