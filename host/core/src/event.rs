//! What happened: every input of the core, in the past tense.
//!
//! Events are journaled as they are handled, in this order and with the time at which they were
//! handled; replaying them gives the same state.

use crate::actions::ActionEvent;
use crate::bindings::BindingEvent;
use crate::config::CoreConfig;
use crate::programs::ProgramEvent;
use serde::{Deserialize, Serialize};
use treadle_model::GatewayId;

/// Where an event came from, if from a gateway in another process.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// The gateway.
    pub gateway: GatewayId,
    /// Its number among the gateway's events, from 1 and without gaps.
    pub number: u64,
}

/// Something that happened to one machine, or to the daemon; every machine handles the latter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A gateway was lost, and with it the connections of its steps.
    GatewayLost {
        /// The gateway.
        gateway: GatewayId,
    },
    /// A deadline of the core passed.
    TimerFired,
    /// The daemon started with changed settings.
    Configured {
        /// The settings.
        config: Box<CoreConfig>,
    },
    /// The daemon restarted on this state: none of its own connections survived. Those of other
    /// gateways did.
    DaemonRestarted,
    /// The store rejected an event on every retry: this event replaces it, and changes nothing.
    RecordRefused {
        /// Kind of the rejected event.
        kind: Box<str>,
        /// The store's error.
        cause: Box<str>,
    },
    /// Something that happened to a program, a step or a worker.
    #[serde(untagged)]
    Program(ProgramEvent),
    /// A change of a binding.
    #[serde(untagged)]
    Binding(BindingEvent),
    /// Something that happened to an action that treadle runs.
    #[serde(untagged)]
    Action(ActionEvent),
}

impl Event {
    /// The event's name, as it is in the journal.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::GatewayLost { .. } => "gateway_lost",
            Self::TimerFired => "timer_fired",
            Self::Configured { .. } => "configured",
            Self::DaemonRestarted => "daemon_restarted",
            Self::RecordRefused { .. } => "record_refused",
            Self::Program(event) => event.kind(),
            Self::Binding(event) => event.kind(),
            Self::Action(event) => event.kind(),
        }
    }

    /// The event with each external number clamped to its bound. Callers that pass external events
    /// to the core do this first; replayed events were already clamped.
    #[must_use]
    pub fn within_bounds(self) -> Self {
        match self {
            Self::Program(event) => Self::Program(event.within_bounds()),
            Self::Action(event) => Self::Action(event.within_bounds()),
            other => other,
        }
    }
}

impl From<ProgramEvent> for Event {
    fn from(event: ProgramEvent) -> Self {
        Self::Program(event)
    }
}

impl From<BindingEvent> for Event {
    fn from(event: BindingEvent) -> Self {
        Self::Binding(event)
    }
}

impl From<ActionEvent> for Event {
    fn from(event: ActionEvent) -> Self {
        Self::Action(event)
    }
}
