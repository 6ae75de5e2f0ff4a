//! What happened: every input of the core, in the past tense.
//!
//! Events are journaled as they are handled, in this order and with the time at which they were
//! handled; replaying them gives the same state.

use crate::actions::ActionEvent;
use crate::bindings::BindingEvent;
use crate::programs::ProgramEvent;
use crate::training::TrainingEvent;
use crate::weights::WeightsEvent;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use treadle_machine::DaemonEvent;
use treadle_model::GatewayId;

/// Where an event came from, if from a gateway in another process.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// The gateway.
    pub gateway: GatewayId,
    /// Its number among the gateway's events, from 1 and without gaps.
    pub number: u64,
}

/// Something that happened, by the machine that handles it. Its JSON form is that machine's event,
/// whose `event` is its name: no two machines have one of the same name.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Something that happened to the daemon.
    Daemon(DaemonEvent),
    /// Something that happened to a program, a step or a worker.
    Program(ProgramEvent),
    /// A change of a binding.
    Binding(BindingEvent),
    /// Something that happened to an action that treadle runs.
    Action(ActionEvent),
    /// Something that happened to a training run.
    Training(TrainingEvent),
    /// Something that happened to the weights of engines.
    Weights(WeightsEvent),
}

impl Event {
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

/// Makes the events of each machine variants of [`Event`], in both directions of the JSON form.
macro_rules! machines {
    ($($variant:ident($event:ident)),* $(,)?) => {
        impl Event {
            /// The event's name, as it is in the journal.
            pub const fn kind(&self) -> &'static str {
                match self {
                    $(Self::$variant(event) => event.kind(),)*
                }
            }
        }

        $(
            impl From<$event> for Event {
                fn from(event: $event) -> Self {
                    Self::$variant(event)
                }
            }
        )*

        impl Serialize for Event {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$variant(event) => event.serialize(serializer),)*
                }
            }
        }

        impl<'de> Deserialize<'de> for Event {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let event = serde_json::Value::deserialize(deserializer)?;
                let kind = event.get("event").and_then(serde_json::Value::as_str);
                let kind = kind.ok_or_else(|| D::Error::missing_field("event"))?;
                $(
                    if $event::KINDS.contains(&kind) {
                        let event = $event::deserialize(event);
                        return event.map(Self::$variant).map_err(D::Error::custom);
                    }
                )*
                Err(D::Error::custom(format_args!("no event is called `{kind}`")))
            }
        }
    };
}

machines! {
    Program(ProgramEvent),
    Action(ActionEvent),
    Binding(BindingEvent),
    Daemon(DaemonEvent),
    Training(TrainingEvent),
    Weights(WeightsEvent),
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_machines_have_an_event_of_the_same_name() {
        let machines = [
            ProgramEvent::KINDS,
            ActionEvent::KINDS,
            BindingEvent::KINDS,
            DaemonEvent::KINDS,
            TrainingEvent::KINDS,
            WeightsEvent::KINDS,
        ];
        let all = machines.concat();
        let names: BTreeSet<_> = all.iter().collect();
        assert_eq!(names.len(), all.len());
    }

    #[test]
    fn an_event_that_no_machine_has_is_named() {
        let read = |text: &str| serde_json::from_str::<Event>(text).map_err(|e| e.to_string());
        assert_eq!(
            read(r#"{"event":"daemon_restarted"}"#),
            Ok(DaemonEvent::DaemonRestarted.into())
        );
        let unknown = read(r#"{"event":"moon_full"}"#).expect_err("no machine has it");
        assert!(unknown.contains("`moon_full`"), "{unknown}");
        let nameless = read("{}").expect_err("it has no name");
        assert!(nameless.contains("missing field `event`"), "{nameless}");
    }
}
