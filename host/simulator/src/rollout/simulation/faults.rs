//! Events that programs don't cause: workers fail, and caches arrive.

use super::{Due, Simulation};
use std::cmp::Reverse;
use treadle_core::Event;
use treadle_core::programs::{ProgramEvent, StepFailure};
use treadle_engine_model::links::CompletedTransfer;
use treadle_model::{ProgramId, StepId, WorkerId};

impl Simulation<'_> {
    pub(super) fn fail(&mut self, worker: u32, lasts: u64) {
        let index = worker as usize;
        self.advance(index);
        let ended = self.engines[index].fail(self.now);
        self.handle(&Event::Program(ProgramEvent::WorkerLost {
            worker: WorkerId(worker),
            cause: "failed".into(),
        }));
        for finished in ended {
            let failure = StepFailure {
                cause: "the worker failed".into(),
                retryable: true,
                rejected: false,
                busy: None,
            };
            let step = StepId(finished.id);
            if self.steps.contains_key(&step) {
                self.handle(&Event::Program(ProgramEvent::StepFailed { step, failure }));
            }
        }
        self.due
            .push(Reverse((self.now + lasts, Due::Recover(worker))));
    }

    pub(super) fn end_transfers(&mut self) {
        if self.links.next_event_at().is_none_or(|at| at > self.now) {
            return;
        }
        let mut done: Vec<CompletedTransfer> = Vec::new();
        self.links.advance(self.now, &mut done);
        for ended in done {
            self.events += 1;
            let program = ProgramId(ended.id);
            let moving = self.core.programs().memory.move_of(program).copied();
            if let (Some(moving), Some(index)) = (moving, self.places.get(&program)) {
                let to = moving.to.0 as usize;
                let blocks = self.programs[*index].blocks.clone();
                self.advance(to);
                self.engines[to].import(self.now, &blocks);
                self.wake(to);
                let to = moving.to;
                self.handle(&Event::Program(ProgramEvent::ProgramMigrated {
                    program,
                    to,
                }));
            }
        }
    }
}
