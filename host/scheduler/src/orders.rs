//! What the driver wants done, and what came of it.

use std::collections::BTreeMap;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use treadle_core::Event;
use treadle_model::{EngineKind, ProgramId, WorkerId};

/// An engine at one end of a transfer.
#[derive(Clone, Debug)]
pub struct End {
    /// The worker.
    pub worker: WorkerId,
    /// Its base URL.
    pub url: Box<str>,
    /// Its software.
    pub kind: EngineKind,
    /// The program's seat there.
    pub slot: Option<u32>,
}

/// What to do with a program's cache.
#[derive(Clone, Debug)]
pub enum Work {
    /// Bring it to host memory.
    Offload {
        /// The engine that has it.
        from: End,
        /// Context, in tokens.
        tokens: u64,
    },
    /// Bring it back.
    Load {
        /// The engine that gets it.
        to: End,

        /// What its holder calls the copy.
        copy: Box<str>,

        /// Context, in tokens.
        tokens: u64,
    },
    /// Bring it to another engine.
    Migrate {
        /// The engine that has it.
        from: End,
        /// The engine that gets it.
        to: End,
        /// Context, in tokens.
        tokens: u64,
    },
}

impl Work {
    /// A word for metrics and logs.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Offload { .. } => Kind::Offload,
            Self::Load { .. } => Kind::Load,
            Self::Migrate { .. } => Kind::Migrate,
        }
    }

    /// The engine that it depends on.
    pub fn subject(&self) -> &str {
        match self {
            Self::Offload { from: end, .. }
            | Self::Load { to: end, .. }
            | Self::Migrate { from: end, .. } => &end.url,
        }
    }

    /// What says that nothing came of it.
    pub fn failed(&self, program: ProgramId, cause: Box<str>) -> Event {
        match self {
            Self::Offload { .. } => Event::OffloadFailed { program, cause },
            Self::Load { .. } => Event::LoadFailed { program, cause },
            Self::Migrate { .. } => Event::MigrationFailed { program, cause },
        }
    }
}

/// The kind of a transfer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Into host memory.
    Offload,
    /// Out of host memory.
    Load,
    /// From engine to engine.
    Migrate,
}

/// Something that the driver wants.
#[derive(Debug)]
pub enum Order {
    /// A transfer.
    Begin {
        /// Which transfer.
        ticket: u64,

        /// The program.
        program: ProgramId,
        /// The program's name, by which its last request is remembered.
        key: Box<str>,

        /// What to do.
        work: Work,
    },
    /// Give it up.
    Cancel {
        /// Which transfer.
        ticket: u64,
    },
    /// Free a copy.
    Drop {
        /// What its holder calls the copy.
        copy: Box<str>,
    },
    /// An engine may be another process than before.
    ForgetEngine {
        /// Its base URL.
        url: Box<str>,
    },
    /// A program is over.
    ForgetProgram {
        /// The program's name.
        key: Box<str>,
    },
}

/// What came of a transfer.
#[derive(Debug)]
pub struct Transferred {
    /// Of which transfer.
    pub ticket: u64,
    /// Whose cache it was.
    pub program: ProgramId,
    /// What the core is told.
    pub event: Event,
}

/// The driver's end. Of each program one transfer is open at most; what comes of
/// an earlier one is not taken for what comes of a later one.
pub struct TransferFeed {
    orders: UnboundedSender<Order>,
    open: BTreeMap<ProgramId, u64>,
    last: u64,
}

impl TransferFeed {
    /// A feed and its other end. What waits between them is bounded by the core, which opens one
    /// transfer per program, and ends it before the next.
    pub fn new() -> (Self, UnboundedReceiver<Order>) {
        let (orders, received) = unbounded_channel();
        let feed = Self {
            orders,
            open: BTreeMap::new(),
            last: 0,
        };
        (feed, received)
    }

    /// Begins a transfer; gives it back if nobody carries any out.
    pub fn begin(&mut self, program: ProgramId, key: Box<str>, work: Work) -> Result<(), Work> {
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
    pub fn cancel(&mut self, program: ProgramId) {
        if let Some(ticket) = self.open.remove(&program) {
            self.order(Order::Cancel { ticket });
        }
    }

    /// Orders something of which nothing is reported.
    pub fn order(&self, order: Order) {
        let _ = self.orders.send(order);
    }

    /// Takes what came of a transfer: the event, unless the transfer was given up.
    pub fn take(&mut self, done: Transferred) -> Option<Event> {
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
