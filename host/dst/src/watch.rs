//! Engines and their owners: the daemon probes those that are wanted.

use super::Simulation;
use super::calendar::ScheduledEvent;
use super::daemon::AckTo;
use super::schedule::FaultKind;
use treadle_core::Event;
use treadle_core::memory::Capacity;
use treadle_core::programs::ProgramEvent;
use treadle_core::programs::{Health, WorkerState};
use treadle_dst_outcome::Checked;
use treadle_model::WorkerId;

/// Number of unanswered probes after which an engine counts as lost.
const MISSES_MAX: u32 = 2;

impl Simulation {
    /// An owner requests registration or removal of its engine, until that is acknowledged.
    pub(crate) fn report_owner_wish(&mut self, engine: usize) -> Checked {
        let e = &self.engines[engine];
        if e.acknowledged || self.daemon.is_none() {
            return Ok(());
        }
        let (worker, wish) = (WorkerId(engine as u32), e.wish);
        let event = if e.wanted {
            Event::Program(ProgramEvent::WorkerAdded {
                worker,
                url: format!("http://engine-{engine}").into(),
                engine: e.plan.kind,
                capacity: if e.plan.reported_at_once {
                    e.capacity
                } else {
                    Capacity::default()
                },
                role: None,
            })
        } else {
            Event::Program(ProgramEvent::WorkerRemoved { worker })
        };
        self.handle(event, Some(AckTo::Owner(engine, wish)))
    }

    /// A fault of operators begins or ends: they order what is left of all that go on.
    pub(crate) fn operators_change(&mut self, engine: usize) -> Checked {
        let strikes = |kind| self.strikes_engine(kind, engine).is_some();
        let state = if strikes(FaultKind::WorkerDrained) {
            WorkerState::Draining
        } else if strikes(FaultKind::WorkerCordoned) {
            WorkerState::Cordoned
        } else {
            WorkerState::Active
        };
        self.engines[engine].state = state;
        self.engines[engine].orders += 1;
        self.report_order(engine)
    }

    /// Operators order an engine's state, until that is acknowledged.
    pub(crate) fn report_order(&mut self, engine: usize) -> Checked {
        let e = &self.engines[engine];
        if e.orders_acknowledged == e.orders || self.daemon.is_none() {
            return Ok(());
        }
        let (worker, state) = (WorkerId(engine as u32), e.state);
        let ordered = Event::Program(ProgramEvent::WorkerStateSet { worker, state });
        self.handle(ordered, Some(AckTo::Operator(engine, e.orders)))
    }

    /// Probes an engine: whether it answers, and its capacity.
    pub(crate) fn probe(&mut self, session: u32, engine: usize) -> Checked {
        if self.session_is_over(session) {
            return Ok(());
        }
        let again = self.now_us
            + self.streams.daemon.between(
                self.plan.behaviour.probe_us / 2,
                self.plan.behaviour.probe_us,
            );
        self.calendar
            .put(again, ScheduledEvent::Probe { session, engine });
        self.settle_means()?;
        let worker = WorkerId(engine as u32);
        let Some(daemon) = &mut self.daemon else {
            return Ok(());
        };
        let e = &self.engines[engine];
        let Some(known) = daemon
            .scheduler
            .core()
            .programs()
            .workers
            .get(&worker)
            .filter(|w| !w.leaving)
        else {
            return Ok(());
        };
        let (lost, told) = (known.health == Health::Lost, known.capacity);
        if !e.up {
            daemon.misses[engine] += 1;
            if daemon.misses[engine] >= MISSES_MAX && !lost {
                let cause = "no answer".into();
                self.handle(
                    Event::Program(ProgramEvent::WorkerLost { worker, cause }),
                    None,
                )?;
            }
            return Ok(());
        }
        daemon.misses[engine] = 0;
        let (capacity, kind) = (e.capacity, e.plan.kind);
        if lost {
            self.handle(
                Event::Program(ProgramEvent::WorkerRecovered { worker }),
                None,
            )?;
        }
        if told != capacity {
            self.handle(
                Event::Program(ProgramEvent::WorkerCapacityRead {
                    worker,
                    engine: kind,
                    capacity,
                }),
                None,
            )?;
        }
        Ok(())
    }
}
