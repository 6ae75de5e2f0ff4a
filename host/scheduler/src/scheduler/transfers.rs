//! The core's commands about KV caches, as orders to the transfer executor.

use super::Output;
use crate::orders::{End, Order, Transferred, Work};
use std::collections::{BTreeMap, VecDeque};
use treadle_core::programs::Program;
use treadle_core::programs::{ProgramCommand, ProgramEvent};
use treadle_core::{Core, Event};
use treadle_model::{ProgramId, WorkerId};

/// The cause of failed transfers without an executor.
const NO_TRANSFERS: &str = "no executor for KV transfers";

/// The cause of failed transfers if a worker is gone.
const NO_WORKER: &str = "the worker is gone";

/// Running transfers. Each program has at most one; ids keep the result of an earlier one from
/// being taken for that of a later one.
pub(super) struct Transfers {
    /// Whether there is a transfer executor.
    is_served: bool,
    open: BTreeMap<ProgramId, u64>,
    last: u64,
}

type Outputs = VecDeque<Output>;

impl Transfers {
    pub(super) fn new(is_served: bool) -> Self {
        Self {
            is_served,
            open: BTreeMap::new(),
            last: 0,
        }
    }

    /// Passes a command on; returns the event of an immediate failure.
    pub(super) fn order(
        &mut self,
        core: &Core,
        command: ProgramCommand,
        outputs: &mut Outputs,
    ) -> Option<Event> {
        match command {
            ProgramCommand::OffloadProgram {
                program,
                from,
                slot,
                tokens,
            } => {
                let Some(from) = end(core, from, slot) else {
                    let cause = NO_WORKER.into();
                    return Some(Event::Program(ProgramEvent::OffloadFailed {
                        program,
                        cause,
                    }));
                };
                self.begin(core, outputs, program, Work::Offload { from, tokens })
            }
            ProgramCommand::LoadProgram {
                program,
                to,
                slot,
                tokens,
                copy,
            } => {
                let Some(to) = end(core, to, slot) else {
                    let cause = NO_WORKER.into();
                    return Some(Event::Program(ProgramEvent::LoadFailed { program, cause }));
                };
                self.begin(core, outputs, program, Work::Load { to, copy, tokens })
            }
            ProgramCommand::MigrateProgram {
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
                    return Some(Event::Program(ProgramEvent::MigrationFailed {
                        program,
                        cause,
                    }));
                };
                self.begin(core, outputs, program, Work::Migrate { from, to, tokens })
            }
            ProgramCommand::CancelTransfer { program } => {
                if let Some(transfer_id) = self.open.remove(&program) {
                    self.send(outputs, Order::Cancel { transfer_id });
                }
                None
            }
            ProgramCommand::DropCopy { copy, .. } => {
                self.send(outputs, Order::Drop { copy });
                None
            }
            _ => None,
        }
    }

    fn begin(
        &mut self,
        core: &Core,
        outputs: &mut Outputs,
        program: ProgramId,
        work: Work,
    ) -> Option<Event> {
        if !self.is_served {
            return Some(work.failed(program, NO_TRANSFERS.into()));
        }
        let key = core.programs().live.get(&program).map(|p| p.key.clone());
        self.last += 1;
        self.open.insert(program, self.last);
        let order = Order::Begin {
            transfer_id: self.last,
            program,
            key: key.unwrap_or_default(),
            work,
        };
        self.send(outputs, order);
        None
    }

    /// Handles the result of a transfer: gives its event, unless it was cancelled.
    pub(super) fn take(&mut self, done: Transferred, outputs: &mut Outputs) -> Option<Event> {
        if self.open.get(&done.program) == Some(&done.transfer_id) {
            self.open.remove(&done.program);
            return Some(done.event);
        }
        if let Event::Program(ProgramEvent::ProgramOffloaded { copy, .. }) = done.event {
            self.send(outputs, Order::Drop { copy });
        }
        None
    }

    /// Reports an engine whose process may have changed.
    pub(super) fn observe(&self, core: &Core, event: &Event, outputs: &mut Outputs) {
        let Event::Program(
            ProgramEvent::WorkerLost { worker, .. }
            | ProgramEvent::WorkerRecovered { worker }
            | ProgramEvent::WorkerCapacityRead { worker, .. }
            | ProgramEvent::WorkerRemoved { worker },
        ) = event
        else {
            return;
        };
        if let Some(worker) = core.programs().workers.get(worker) {
            let url = worker.url.clone();
            self.send(outputs, Order::ForgetEngine { url });
        }
    }

    /// Reports that a program is over.
    pub(super) fn forget(&self, program: &Program, outputs: &mut Outputs) {
        let key = program.key.clone();
        self.send(outputs, Order::ForgetProgram { key });
    }

    fn send(&self, outputs: &mut Outputs, order: Order) {
        if self.is_served {
            outputs.push_back(Output::Transfer(order));
        }
    }
}

fn end(core: &Core, worker: WorkerId, slot: Option<u32>) -> Option<End> {
    let w = core.programs().workers.get(&worker)?;
    Some(End {
        worker,
        url: w.url.clone(),
        kind: w.engine,
        slot,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offloaded(transfer_id: u64) -> Transferred {
        let program = ProgramId(1);
        let event = Event::Program(ProgramEvent::ProgramOffloaded {
            program,
            copy: "c".into(),
            tokens: 5,
            bytes: 10,
        });
        Transferred {
            transfer_id,
            program,
            event,
        }
    }

    #[test]
    fn what_was_given_up_is_not_taken_for_what_came_later() {
        let core = Core::new(treadle_core::CoreConfig::default());
        let (mut transfers, mut outputs) = (Transfers::new(true), Outputs::new());
        let program = ProgramId(1);
        let work = || Work::Offload {
            from: End {
                worker: WorkerId(0),
                url: "http://a".into(),
                kind: treadle_model::EngineKind::Llamacpp,
                slot: Some(0),
            },
            tokens: 5,
        };
        transfers.begin(&core, &mut outputs, program, work());
        let cancel = ProgramCommand::CancelTransfer { program };
        transfers.order(&core, cancel, &mut outputs);
        transfers.begin(&core, &mut outputs, program, work());
        let mut take = |done| transfers.take(done, &mut outputs);
        assert!(take(offloaded(1)).is_none(), "of the first");
        assert!(take(offloaded(2)).is_some());
        assert!(take(offloaded(2)).is_none(), "once");
        let outputs: Vec<Output> = outputs.into();
        assert!(
            matches!(
                &outputs[..],
                [
                    Output::Transfer(Order::Begin { transfer_id: 1, .. }),
                    Output::Transfer(Order::Cancel { transfer_id: 1 }),
                    Output::Transfer(Order::Begin { transfer_id: 2, .. }),
                    Output::Transfer(Order::Drop { .. }),
                    Output::Transfer(Order::Drop { .. }),
                ]
            ),
            "{outputs:?}"
        );
    }
}
