//! What the driver wants done, and what came of it.

use std::collections::BTreeMap;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use treadle_core::Event;
use treadle_model::{EngineKind, ProgramId, WorkerId};

/// An engine at one end of a transfer.
#[derive(Clone, Debug)]
pub(crate) struct End {
    /// The worker.
    pub(crate) worker: WorkerId,
    /// Its base URL.
    pub(crate) url: Box<str>,
    /// Its software.
    pub(crate) kind: EngineKind,
    /// The program's seat there.
    pub(crate) slot: Option<u32>,
}

/// What to do with a program's cache.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// Bring it to host memory.
    Offload { from: End, tokens: u64 },
    /// Bring it back.
    Load {
        to: End,
        copy: Box<str>,
        tokens: u64,
    },
    /// Bring it to another engine.
    Migrate { from: End, to: End, tokens: u64 },
}

impl Work {
    /// A word for metrics and logs.
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Offload { .. } => Kind::Offload,
            Self::Load { .. } => Kind::Load,
            Self::Migrate { .. } => Kind::Migrate,
        }
    }

    /// The engine that it depends on.
    pub(super) fn subject(&self) -> &str {
        match self {
            Self::Offload { from: end, .. }
            | Self::Load { to: end, .. }
            | Self::Migrate { from: end, .. } => &end.url,
        }
    }

    /// What says that nothing came of it.
    pub(crate) fn failed(&self, program: ProgramId, cause: Box<str>) -> Event {
        match self {
            Self::Offload { .. } => Event::OffloadFailed { program, cause },
            Self::Load { .. } => Event::LoadFailed { program, cause },
            Self::Migrate { .. } => Event::MigrationFailed { program, cause },
        }
    }
}

/// The kind of a transfer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Offload,
    Load,
    Migrate,
}

/// Something that the driver wants.
#[derive(Debug)]
pub(crate) enum Order {
    /// A transfer.
    Begin {
        ticket: u64,
        program: ProgramId,
        /// The program's name, by which its last request is remembered.
        key: Box<str>,
        work: Work,
    },
    /// Give it up.
    Cancel { ticket: u64 },
    /// Free a copy.
    Drop { copy: Box<str> },
    /// An engine may be another process than before.
    ForgetEngine { url: Box<str> },
    /// A program is over.
    ForgetProgram { key: Box<str> },
}

/// What came of a transfer.
#[derive(Debug)]
pub(crate) struct Transferred {
    pub(crate) ticket: u64,
    pub(crate) program: ProgramId,
    pub(crate) event: Event,
}

/// The driver's end. Of each program one transfer is open at most; what comes of
/// an earlier one is not taken for what comes of a later one.
pub(crate) struct TransferFeed {
    orders: UnboundedSender<Order>,
    open: BTreeMap<ProgramId, u64>,
    last: u64,
}

impl TransferFeed {
    /// A feed and its other end. What waits between them is bounded by the core, which opens one
    /// transfer per program, and ends it before the next.
    pub(crate) fn new() -> (Self, UnboundedReceiver<Order>) {
        let (orders, received) = unbounded_channel();
        let feed = Self {
            orders,
            open: BTreeMap::new(),
            last: 0,
        };
        (feed, received)
    }

    /// Begins a transfer; gives it back if nobody carries any out.
    pub(crate) fn begin(
        &mut self,
        program: ProgramId,
        key: Box<str>,
        work: Work,
    ) -> Result<(), Work> {
        self.last += 1;
        let ticket = self.last;
        let order = Order::Begin {
            ticket,
            program,
            key,
            work,
        };
        match self.orders.send(order) {
            Ok(()) => {
                self.open.insert(program, ticket);
                Ok(())
            }
            Err(refused) => match refused.0 {
                Order::Begin { work, .. } => Err(work),
                // It is what was sent.
                _ => Ok(()),
            },
        }
    }

    /// Gives a program's transfer up.
    pub(crate) fn cancel(&mut self, program: ProgramId) {
        if let Some(ticket) = self.open.remove(&program) {
            self.order(Order::Cancel { ticket });
        }
    }

    /// Orders something of which nothing is reported.
    pub(crate) fn order(&self, order: Order) {
        let _ = self.orders.send(order);
    }

    /// Takes what came of a transfer: the event, unless the transfer was given up.
    pub(crate) fn take(&mut self, done: Transferred) -> Option<Event> {
        if self.open.get(&done.program) == Some(&done.ticket) {
            self.open.remove(&done.program);
            return Some(done.event);
        }
        if let Event::ProgramOffloaded { copy, .. } = done.event {
            self.order(Order::Drop { copy });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work() -> Work {
        let from = End {
            worker: WorkerId(0),
            url: "http://a".into(),
            kind: EngineKind::Llamacpp,
            slot: Some(0),
        };
        Work::Offload { from, tokens: 5 }
    }

    fn offloaded(ticket: u64) -> Transferred {
        let program = ProgramId(1);
        let event = Event::ProgramOffloaded {
            program,
            copy: "c".into(),
            tokens: 5,
            bytes: 10,
        };
        Transferred {
            ticket,
            program,
            event,
        }
    }

    #[test]
    fn what_was_given_up_is_not_taken_for_what_came_later() {
        let (mut feed, mut orders) = TransferFeed::new();
        let program = ProgramId(1);
        feed.begin(program, "p".into(), work()).unwrap();
        feed.cancel(program);
        feed.begin(program, "p".into(), work()).unwrap();
        assert!(feed.take(offloaded(1)).is_none(), "of the first");
        assert!(feed.take(offloaded(2)).is_some());
        assert!(feed.take(offloaded(2)).is_none(), "once");
        let mut said = Vec::new();
        while let Ok(order) = orders.try_recv() {
            said.push(order);
        }
        assert!(
            matches!(
                &said[..],
                [
                    Order::Begin { ticket: 1, .. },
                    Order::Cancel { ticket: 1 },
                    Order::Begin { ticket: 2, .. },
                    Order::Drop { .. },
                    Order::Drop { .. },
                ]
            ),
            "{said:?}"
        );
    }

    #[test]
    fn without_a_carrier_the_work_comes_back() {
        let (mut feed, orders) = TransferFeed::new();
        drop(orders);
        assert!(feed.begin(ProgramId(1), "p".into(), work()).is_err());
        assert!(feed.open.is_empty());
    }
}
