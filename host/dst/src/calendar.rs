//! What is going to happen, in order of time; at one time, in the order in
//! which it was put down.

use super::actions::ActionHappening;
use super::gateway::{Order, Report};
use std::collections::BTreeMap;
use treadle_core::Event;
use treadle_model::GatewayId;

/// What an engine does to a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Progress {
    /// It refuses the connection or answers 503.
    Refuse,
    /// It answers that the request is wrong.
    Reject,
    /// It has generated so many tokens, the last ones included if it is done.
    Tokens(u64),
    /// The connection breaks.
    Break,
}

/// Something that is going to happen.
#[derive(Clone, Debug)]
pub(crate) enum Happening {
    /// An agent's turn, or its next attempt.
    AgentDue(usize),
    /// A client goes away, if this attempt of it still runs.
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
    /// An engine gets on with a request.
    Engine { request: u64, progress: Progress },
    /// A gateway's request has been silent for long.
    Stalled { request: u64, seen: u64 },
    /// A gateway in a process of its own connects to the daemon.
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
    /// A transfer of a cache comes to its end.
    TransferEnds { session: u32, transfer_id: u64 },
    /// A cancelled one has stopped.
    TransferStops { session: u32, transfer_id: u64 },
    /// The result of a transfer reaches the daemon.
    TransferReported {
        session: u32,
        transfer_id: u64,
        event: Box<Event>,
    },
    /// Something about an action.
    Action(ActionHappening),
    /// The daemon looks after an engine.
    Probe { session: u32, engine: usize },
    /// The database answers a transaction.
    Commit { session: u32 },
    /// The publisher reads the journal.
    Publish { session: u32 },
    /// A fault of the schedule begins.
    FaultBegins(usize),
    /// It ends.
    FaultEnds(usize),
    /// The daemon is killed, soon after something that it promised.
    DaemonDies,
    /// A killed daemon is started again.
    DaemonStarts,
}

/// The calendar.
#[derive(Debug, Default)]
pub(crate) struct Calendar {
    entries: BTreeMap<(u64, u64), Happening>,
    next: u64,
}

impl Calendar {
    /// Puts something down.
    pub(crate) fn put(&mut self, at_us: u64, happening: Happening) {
        self.entries.insert((at_us, self.next), happening);
        self.next += 1;
    }

    /// When the next one is due.
    pub(crate) fn next_at(&self) -> Option<u64> {
        self.entries.keys().next().map(|(at, _)| *at)
    }

    /// Takes the next one out.
    pub(crate) fn pop(&mut self) -> Option<Happening> {
        self.entries.pop_first().map(|(_, happening)| happening)
    }
}
