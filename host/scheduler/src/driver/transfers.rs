//! The core's commands about KV caches, as orders to those who carry them out.

use crate::orders::{End, Order, TransferFeed, Transferred, Work};
use treadle_core::program::Program;
use treadle_core::{Command, Core, Event};
use treadle_model::{ProgramId, WorkerId};

/// What a wish to move a program's cache comes to where nobody moves any.
const NO_TRANSFERS: &str = "no executor for KV transfers";

/// The same where an end of it is gone.
const NO_WORKER: &str = "the worker is gone";

/// The way to those who move caches, if there are any.
pub(super) struct Transfers(Option<TransferFeed>);

impl Transfers {
    pub(super) fn new(feed: Option<TransferFeed>) -> Self {
        Self(feed)
    }

    /// Passes a command on; gives the event that it comes to at once, if it does.
    pub(super) fn order(&mut self, core: &Core, command: Command) -> Option<Event> {
        match command {
            Command::OffloadProgram {
                program,
                from,
                slot,
                tokens,
            } => {
                let Some(from) = end(core, from, slot) else {
                    let cause = NO_WORKER.into();
                    return Some(Event::OffloadFailed { program, cause });
                };
                self.begin(core, program, Work::Offload { from, tokens })
            }
            Command::LoadProgram {
                program,
                to,
                slot,
                tokens,
                copy,
            } => {
                let Some(to) = end(core, to, slot) else {
                    let cause = NO_WORKER.into();
                    return Some(Event::LoadFailed { program, cause });
                };
                self.begin(core, program, Work::Load { to, copy, tokens })
            }
            Command::MigrateProgram {
                program,
                from,
                to,
                from_slot,
                to_slot,
                tokens,
            } => {
                let ends = end(core, from, from_slot).zip(end(core, to, to_slot));
                let Some((from, to)) = ends else {
                    let cause = NO_WORKER.into();
                    return Some(Event::MigrationFailed { program, cause });
                };
                self.begin(core, program, Work::Migrate { from, to, tokens })
            }
            Command::CancelTransfer { program } => {
                self.0.as_mut()?.cancel(program);
                None
            }
            Command::DropCopy { copy, .. } => {
                self.tell(Order::Drop { copy });
                None
            }
            _ => None,
        }
    }

    fn begin(&mut self, core: &Core, program: ProgramId, work: Work) -> Option<Event> {
        let key = core.state().programs.get(&program).map(|p| p.key.clone());
        let refused = match &mut self.0 {
            Some(feed) => feed.begin(program, key.unwrap_or_default(), work).err()?,
            None => work,
        };
        Some(refused.failed(program, NO_TRANSFERS.into()))
    }

    /// Takes what came of a transfer.
    pub(super) fn take(&mut self, done: Transferred) -> Option<Event> {
        self.0.as_mut()?.take(done)
    }

    /// Tells of an engine that may not be the process any more that it was.
    pub(super) fn observe(&self, core: &Core, event: &Event) {
        let (Event::WorkerLost { worker, .. }
        | Event::WorkerRecovered { worker }
        | Event::WorkerCapacityRead { worker, .. }
        | Event::WorkerRemoved { worker }) = event
        else {
            return;
        };
        if let Some(worker) = core.state().workers.get(worker) {
            let url = worker.url.clone();
            self.tell(Order::ForgetEngine { url });
        }
    }

    /// A program is over.
    pub(super) fn forget(&self, program: &Program) {
        let key = program.key.clone();
        self.tell(Order::ForgetProgram { key });
    }

    fn tell(&self, order: Order) {
        if let Some(feed) = &self.0 {
            feed.order(order);
        }
    }
}

fn end(core: &Core, worker: WorkerId, slot: Option<u32>) -> Option<End> {
    let w = core.state().workers.get(&worker)?;
    Some(End {
        worker,
        url: w.url.clone(),
        kind: w.engine,
        slot,
    })
}
