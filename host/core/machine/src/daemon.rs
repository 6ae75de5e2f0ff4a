//! Events of the daemon, which every machine handles, and the names of events.

use crate::CoreConfig;
use serde::{Deserialize, Serialize};
use treadle_model::GatewayId;

/// Gives the events of a machine their names in the journal.
#[macro_export]
macro_rules! kinds {
    ($event:ident { $($variant:ident = $kind:literal,)* }) => {
        impl $event {
            /// The names of all events of this machine.
            pub const KINDS: &[&str] = &[$($kind),*];

            /// The event's name, as it is in the journal.
            pub const fn kind(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $kind,)*
                }
            }
        }
    };
}

/// Something that happened to the daemon. Every machine handles it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum DaemonEvent {
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
}

kinds! {
    DaemonEvent {
        GatewayLost = "gateway_lost",
        TimerFired = "timer_fired",
        Configured = "configured",
        DaemonRestarted = "daemon_restarted",
        RecordRefused = "record_refused",
    }
}
