//! The transfer executor: each transfer takes time, some fail, and the results reach the daemon in
//! order. Copies in host memory outlive the daemon; the executor does not.

use super::Simulation;
use super::calendar::ScheduledEvent;
use super::injected_bug::InjectedBug;
use super::schedule::FaultKind;
use std::collections::BTreeMap;
use treadle_core::Event;
use treadle_core::programs::ProgramEvent;
use treadle_dst_outcome::{Checked, broken};
use treadle_model::{ProgramId, StepId, WorkerId};
use treadle_scheduler::orders::{Order, Transferred, Work};
use treadle_scheduler::scheduler::Input;

/// A transfer in progress.
#[derive(Clone, Debug)]
struct PendingTransfer {
    program: ProgramId,
    work: Work,
    /// The program's context when it began, according to its agent.
    context: u64,
    fails: bool,
}

impl PendingTransfer {
    fn touches(&self, engine: WorkerId) -> bool {
        match &self.work {
            Work::Offload { from: end, .. } | Work::Load { to: end, .. } => end.worker == engine,
            Work::Migrate { from, to, .. } => from.worker == engine || to.worker == engine,
        }
    }

    fn tokens(&self) -> u64 {
        match self.work {
            Work::Offload { tokens, .. }
            | Work::Load { tokens, .. }
            | Work::Migrate { tokens, .. } => tokens,
        }
    }

    fn failed(&self, cause: &str) -> Event {
        self.work.failed(self.program, cause.into())
    }
}

/// A copy in host memory.
#[derive(Clone, Copy, Debug)]
struct Stored {
    program: ProgramId,
    /// Its agent's context when it was made, and the daemon session.
    context: u64,
    session: u32,
    damaged: bool,
}

/// Host memory, and a daemon's transfers in progress.
#[derive(Debug, Default)]
pub(crate) struct TransferExecutor {
    stored: BTreeMap<Box<str>, Stored>,
    copies: u64,
    /// Transfers by their ids.
    pending: BTreeMap<u64, PendingTransfer>,
    /// Reports arrive in order.
    reported_until_us: u64,
}

impl TransferExecutor {
    /// Whether there are no copies and no transfers.
    pub(crate) fn is_idle(&self) -> bool {
        self.stored.is_empty() && self.pending.is_empty()
    }

    /// Copies and transfers, as text.
    pub(crate) fn what_is_left(&self) -> String {
        format!("copies {:?}, transfers {:?}", self.stored, self.pending)
    }
}

impl Simulation {
    /// Carries out a command of the scheduler.
    pub(crate) fn order_transfer(&mut self, order: Order) -> Checked {
        match order {
            Order::Begin {
                transfer_id,
                program,
                key,
                work,
            } => {
                if let Work::Load { copy, .. } = &work {
                    self.check_copy(program, &key, copy)?;
                }
                let transfer = PendingTransfer {
                    program,
                    work,
                    context: self.context_of(&key),
                    fails: false,
                };
                self.begin_transfer(transfer_id, transfer);
            }
            Order::Cancel { transfer_id } => {
                let goes_on = self.injected_bug == Some(InjectedBug::StaleTransfers);
                if !goes_on {
                    let at = self.now_us + self.streams.transfers.below(self.report_delay_us_max());
                    let session = self.session;
                    let stops = ScheduledEvent::TransferStops {
                        session,
                        transfer_id,
                    };
                    self.calendar.put(at, stops);
                }
            }
            Order::Drop { copy } => {
                self.transfers.stored.remove(&copy);
            }
            Order::ForgetEngine { .. } | Order::ForgetProgram { .. } => {}
        }
        Ok(())
    }

    fn report_delay_us_max(&self) -> u64 {
        self.plan.behaviour.transfers.report_delay_us_max
    }

    /// The context according to an agent.
    fn context_of(&self, key: &str) -> u64 {
        let index = self.plan.agents.iter().position(|a| *a.key == *key);
        index.map_or(0, |index| self.agents[index].context())
    }

    /// Whether a step of the program has ended at its gateway without the daemon knowing.
    fn is_behind(&self, program: ProgramId) -> bool {
        let daemon = self.daemon.as_ref();
        let core = daemon.map(|daemon| daemon.scheduler.core().programs());
        let p = core.and_then(|core| core.live.get(&program));
        let is_open = |step: &StepId| {
            let mut gateways = self.gateways.iter();
            gateways.any(|gateway| gateway.exchanges.contains_key(step))
        };
        p.is_some_and(|p| {
            p.waiting
                .iter()
                .chain(&p.running)
                .any(|step| !is_open(step))
        })
    }

    /// A copy that is brought back is its program's, and as long as its context: a daemon that died
    /// may have known less of it, and one that a gateway is telling of a step may not know its end.
    fn check_copy(&self, program: ProgramId, key: &str, copy: &str) -> Checked {
        let Some(stored) = self.transfers.stored.get(copy) else {
            // It was lost, and the core is about to be notified.
            return Ok(());
        };
        let (has, is) = (stored.context, self.context_of(key));
        let outdated = stored.session == self.session && has != is && !self.is_behind(program);
        if stored.program != program || outdated {
            return broken(
                "copies",
                format!("{program} has a context of {is} tokens and gets {copy}: {stored:?}"),
            );
        }
        Ok(())
    }

    fn begin_transfer(&mut self, transfer_id: u64, mut transfer: PendingTransfer) {
        let tokens = transfer.tokens();
        let habits = self.plan.behaviour.transfers;
        let stream = &mut self.streams.transfers;
        let whole_us = 500 + tokens * 1_000_000 / habits.tokens_per_s;
        let mut takes_us = stream.between(whole_us / 2, whole_us * 3 / 2);
        let fails = self.active_faults.strength(FaultKind::TransferFails);
        if fails.is_some_and(|strength| stream.percent(strength)) {
            self.counts.count(FaultKind::TransferFails.name());
            transfer.fails = true;
            takes_us = stream.below(takes_us);
        }
        let hangs = self.active_faults.strength(FaultKind::TransferHangs);
        if hangs.is_some_and(|strength| stream.percent(strength)) {
            self.counts.count(FaultKind::TransferHangs.name());
            // The executor cancels it too, at about the same time, or never.
            let most = self.plan.config.kv.transfer_max.0;
            transfer.fails = true;
            takes_us = if stream.percent(50) {
                stream.between(most * 9 / 10, most * 11 / 10)
            } else {
                u64::MAX
            };
        }
        let down = |engine: &super::engines::Engine| !engine.up;
        let dead = (0..).zip(&self.engines).filter(|(_, engine)| down(engine));
        if dead
            .map(|(id, _)| WorkerId(id))
            .any(|id| transfer.touches(id))
        {
            transfer.fails = true;
            takes_us = takes_us.min(100_000);
        }
        self.transfers.pending.insert(transfer_id, transfer);
        if takes_us < u64::MAX {
            let session = self.session;
            let ends = ScheduledEvent::TransferEnds {
                session,
                transfer_id,
            };
            self.calendar.put(self.now_us + takes_us, ends);
        }
    }

    /// A cancelled transfer has stopped.
    pub(crate) fn transfer_stops(&mut self, session: u32, transfer_id: u64) {
        if !self.session_is_over(session) {
            self.transfers.pending.remove(&transfer_id);
        }
    }

    /// A transfer ends and is reported.
    pub(crate) fn transfer_ends(&mut self, session: u32, transfer_id: u64) {
        if self.session_is_over(session) {
            return;
        }
        let Some(transfer) = self.transfers.pending.remove(&transfer_id) else {
            return;
        };
        let event = if transfer.fails {
            transfer.failed("the link broke")
        } else {
            self.moved(&transfer)
        };
        self.report_transfer(transfer_id, event);
    }

    fn moved(&mut self, transfer: &PendingTransfer) -> Event {
        let program = transfer.program;
        match &transfer.work {
            Work::Offload { .. } => {
                let tokens = self.tokens_kept(transfer.tokens());
                let copy = self.store(transfer);
                Event::Program(ProgramEvent::ProgramOffloaded {
                    program,
                    copy,
                    tokens,
                    bytes: tokens * 1_000,
                })
            }
            Work::Load { to, copy, .. } => match self.transfers.stored.get(copy) {
                Some(stored) if !stored.damaged => Event::Program(ProgramEvent::ProgramLoaded {
                    program,
                    to: to.worker,
                }),
                _ => transfer.failed("there is no such copy"),
            },
            Work::Migrate { to, .. } => Event::Program(ProgramEvent::ProgramMigrated {
                program,
                to: to.worker,
            }),
        }
    }

    fn tokens_kept(&mut self, tokens: u64) -> u64 {
        let stream = &mut self.streams.transfers;
        let differs = self.active_faults.strength(FaultKind::CopyDiffers);
        if differs.is_some_and(|strength| stream.percent(strength)) {
            self.counts.count(FaultKind::CopyDiffers.name());
            return stream.between(tokens / 2, tokens * 3 / 2);
        }
        tokens
    }

    fn store(&mut self, transfer: &PendingTransfer) -> Box<str> {
        self.transfers.copies += 1;
        let copy: Box<str> = format!("copy-{}", self.transfers.copies).into();
        let stored = Stored {
            program: transfer.program,
            context: transfer.context,
            session: self.session,
            damaged: false,
        };
        self.transfers.stored.insert(copy.clone(), stored);
        copy
    }

    /// Sends a report to the daemon, behind those before it.
    fn report_transfer(&mut self, transfer_id: u64, event: Event) {
        let stream = &mut self.streams.transfers;
        let mut delay = stream.below(self.plan.behaviour.transfers.report_delay_us_max);
        let late = self.active_faults.strength(FaultKind::TransferToldLate);
        if late.is_some_and(|strength| stream.percent(strength)) {
            self.counts.count(FaultKind::TransferToldLate.name());
            delay += stream.below(2 * self.plan.config.kv.transfer_max.0);
        }
        let twice = self.active_faults.strength(FaultKind::TransferToldTwice);
        let twice = twice.is_some_and(|strength| stream.percent(strength));
        let at = (self.now_us + delay).max(self.transfers.reported_until_us);
        self.transfers.reported_until_us = at;
        let session = self.session;
        let told = ScheduledEvent::TransferReported {
            session,
            transfer_id,
            event: Box::new(event),
        };
        if twice {
            self.counts.count(FaultKind::TransferToldTwice.name());
            self.calendar.put(at, told.clone());
        }
        self.calendar.put(at, told);
    }

    /// The daemon receives the result of a transfer, and takes it unless it was cancelled; a copy
    /// that was made for nothing is dropped.
    pub(crate) fn transfer_reported(
        &mut self,
        session: u32,
        transfer_id: u64,
        event: Event,
    ) -> Checked {
        if self.session_is_over(session) {
            return Ok(());
        }
        let program = match &event {
            Event::Program(
                ProgramEvent::ProgramOffloaded { program, .. }
                | ProgramEvent::OffloadFailed { program, .. }
                | ProgramEvent::ProgramLoaded { program, .. }
                | ProgramEvent::LoadFailed { program, .. }
                | ProgramEvent::ProgramMigrated { program, .. }
                | ProgramEvent::MigrationFailed { program, .. },
            ) => *program,
            // Reports about copies are reliable.
            _ => return self.handle(event, None),
        };
        if self.injected_bug == Some(InjectedBug::StaleTransfers) {
            return self.handle(event, None);
        }
        let done = Transferred {
            transfer_id,
            program,
            event,
        };
        self.give(Input::Transferred(done), None)
    }

    /// An engine is another process than before: what was going to it or from it
    /// fails.
    pub(crate) fn break_transfers(&mut self, engine: usize) {
        let engine = WorkerId(engine as u32);
        let here = self.transfers.pending.iter();
        let here: Vec<u64> = here
            .filter(|(_, transfer)| transfer.touches(engine))
            .map(|(transfer_id, _)| *transfer_id)
            .collect();
        for transfer_id in here {
            if let Some(transfer) = self.transfers.pending.remove(&transfer_id) {
                self.counts.count("transfers broken by engines");
                self.report_transfer(transfer_id, transfer.failed("connection reset"));
            }
        }
    }

    /// Evicts a copy, or damages it silently.
    pub(crate) fn lose_copy(&mut self, strength: u64) {
        let stored = &mut self.transfers.stored;
        if stored.is_empty() {
            return;
        }
        self.counts.count(FaultKind::CopyLost.name());
        let stream = &mut self.streams.transfers;
        let which = stream.below(stored.len() as u64) as usize;
        let Some(copy) = stored.keys().nth(which).cloned() else {
            return;
        };
        if strength < 40 {
            if let Some(stored) = stored.get_mut(&copy) {
                stored.damaged = true;
            }
        } else if let Some(lost) = stored.remove(&copy) {
            let program = lost.program;
            self.report_transfer(0, Event::Program(ProgramEvent::CopyLost { program, copy }));
        }
    }

    /// The daemon is gone with all its transfers.
    pub(crate) fn end_transfers(&mut self) {
        self.transfers.pending.clear();
        self.transfers.reported_until_us = 0;
    }

    /// The daemon's machine restarts.
    pub(crate) fn lose_host(&mut self) -> Checked {
        self.counts.count(FaultKind::HostLost.name());
        self.kill_daemon()?;
        self.transfers.stored.clear();
        Ok(())
    }

    /// A daemon starts: copies that the core expects but that are gone are reported, and unknown
    /// ones are dropped.
    pub(crate) fn compare_copies(&mut self) {
        let Some(daemon) = &self.daemon else {
            return;
        };
        let held = daemon
            .scheduler
            .core()
            .programs()
            .memory
            .offloads()
            .held()
            .iter();
        let held: BTreeMap<Box<str>, ProgramId> = held
            .map(|(program, held)| (held.copy.clone(), *program))
            .collect();
        self.transfers
            .stored
            .retain(|copy, _| held.contains_key(copy));
        for (copy, program) in held {
            if !self.transfers.stored.contains_key(&copy) {
                self.counts.count("copies gone at a start");
                self.report_transfer(0, Event::Program(ProgramEvent::CopyLost { program, copy }));
            }
        }
    }
}
