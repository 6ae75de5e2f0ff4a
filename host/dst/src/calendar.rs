//! Scheduled events, ordered by time, and at equal times by insertion.

use super::actions::ScheduledActionEvent;
use super::gateway::{Order, Report};
use std::collections::BTreeMap;
use treadle_core::Event;
use treadle_model::GatewayId;

/// An engine's progress on a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Progress {
    /// The connection is refused, or the response is 503.
    Refuse,
    /// The request is rejected as invalid.
    Reject,
    /// Tokens generated so far; includes the last ones if the request is done.
    Tokens(u64),
    /// The connection breaks.
    Break,
}

/// A scheduled event.
#[derive(Clone, Debug)]
pub(crate) enum ScheduledEvent {
    /// An agent's next step or retry.
    AgentDue(usize),
    /// A client disconnects, if this attempt of it still runs.
    ClientLeaves {
        agent: usize,
        branch: usize,
        attempt: u64,
    },
    /// A message reaches the daemon.
    Report {
        gateway: usize,
        link: u64,
        number: u64,
        report: Box<Report>,
    },
    /// A message reaches a gateway.
    Order {
        gateway: usize,
        link: u64,
        number: u64,
        order: Order,
    },
    /// An engine makes progress on a request.
    Engine { request: u64, progress: Progress },
    /// A gateway's request has made no progress for long.
    Stalled { request: u64, seen: u64 },
    /// A gateway in its own process connects to the daemon.
    GatewayConnects { gateway: usize, session: u32 },
    /// The daemon notices that a gateway's connection has ended.
    GatewayLeft {
        session: u32,
        id: GatewayId,
        link: u64,
    },
    /// The daemon stops waiting for a gateway that may be gone.
    GatewayMissed { session: u32, id: GatewayId },
    /// A policy answers.
    Answer { session: u32, event: Box<Event> },
    /// A transfer of a cache ends.
    TransferEnds { session: u32, transfer_id: u64 },
    /// A cancelled transfer has stopped.
    TransferStops { session: u32, transfer_id: u64 },
    /// The result of a transfer reaches the daemon.
    TransferReported {
        session: u32,
        transfer_id: u64,
        event: Box<Event>,
    },
    /// An event of actions.
    Action(ScheduledActionEvent),
    /// The daemon probes an engine.
    Probe { session: u32, engine: usize },
    /// The database answers a transaction.
    Commit { session: u32 },
    /// The publisher reads the journal.
    Publish { session: u32 },
    /// A scheduled fault begins.
    FaultBegins(usize),
    /// A scheduled fault ends.
    FaultEnds(usize),
    /// The daemon is killed, soon after an acknowledgement.
    DaemonDies,
    /// A killed daemon is started again.
    DaemonStarts,
}

/// The queue of scheduled events.
#[derive(Debug, Default)]
pub(crate) struct Calendar {
    entries: BTreeMap<(u64, u64), ScheduledEvent>,
    next: u64,
}

impl Calendar {
    /// Schedules an event.
    pub(crate) fn put(&mut self, at_us: u64, happening: ScheduledEvent) {
        self.entries.insert((at_us, self.next), happening);
        self.next += 1;
    }

    /// Time of the next event.
    pub(crate) fn next_at(&self) -> Option<u64> {
        self.entries.keys().next().map(|(at, _)| *at)
    }

    /// Removes the next event.
    pub(crate) fn pop(&mut self) -> Option<ScheduledEvent> {
        self.entries.pop_first().map(|(_, happening)| happening)
    }
}
