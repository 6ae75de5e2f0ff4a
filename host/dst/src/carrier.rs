//! Those who move caches: each transfer takes its time, some fail, and what came
//! of them reaches the daemon in order. Copies in host memory outlive the daemon;
//! whoever moves them does not.

use super::Scene;
use super::calendar::Happening;
use super::outcome::{Checked, broken};
use super::sabotage::Sabotage;
use super::schedule::FaultKind;
use std::collections::BTreeMap;
use treadle_core::{Command, Event};
use treadle_model::{ProgramId, WorkerId};

/// What to do with a program's cache.
#[derive(Clone, Debug)]
enum Work {
    Offload { from: WorkerId },
    Load { to: WorkerId, copy: Box<str> },
    Migrate { from: WorkerId, to: WorkerId },
}

/// A transfer under way.
#[derive(Clone, Debug)]
struct Errand {
    program: ProgramId,
    work: Work,
    tokens: u64,
    /// The program's context when it began, as its agent knows it.
    context: u64,
    fails: bool,
}

impl Errand {
    fn touches(&self, engine: WorkerId) -> bool {
        match self.work {
            Work::Offload { from } => from == engine,
            Work::Load { to, .. } => to == engine,
            Work::Migrate { from, to } => from == engine || to == engine,
        }
    }

    fn failed(&self, cause: &str) -> Event {
        let (program, cause) = (self.program, cause.into());
        match self.work {
            Work::Offload { .. } => Event::OffloadFailed { program, cause },
            Work::Load { .. } => Event::LoadFailed { program, cause },
            Work::Migrate { .. } => Event::MigrationFailed { program, cause },
        }
    }
}

/// A copy in host memory.
#[derive(Clone, Copy, Debug)]
struct Stored {
    program: ProgramId,
    /// What its agent's context was when it was made, and under which daemon.
    context: u64,
    session: u32,
    damaged: bool,
}

/// Host memory, and what a daemon has under way.
#[derive(Debug, Default)]
pub(crate) struct Carrier {
    stored: BTreeMap<Box<str>, Stored>,
    copies: u64,
    /// Transfers by their tickets.
    errands: BTreeMap<u64, Errand>,
    tickets: u64,
    /// The daemon's end: of each program the transfer whose end it waits for.
    open: BTreeMap<ProgramId, u64>,
    /// What is told arrives in order.
    told_until_us: u64,
}

impl Carrier {
    /// Nothing is held and nothing moves.
    pub(crate) fn is_idle(&self) -> bool {
        self.stored.is_empty() && self.errands.is_empty() && self.open.is_empty()
    }

    /// What there is, for people.
    pub(crate) fn what_is_left(&self) -> String {
        format!("copies {:?}, transfers {:?}", self.stored, self.errands)
    }
}

impl Scene {
    /// Carries out what the core wants done with caches.
    pub(crate) fn move_cache(&mut self, command: Command) -> Checked {
        match command {
            Command::OffloadProgram {
                program,
                from,
                tokens,
                ..
            } => self.begin_errand(program, Work::Offload { from }, tokens),
            Command::LoadProgram {
                program,
                to,
                tokens,
                copy,
                ..
            } => {
                self.check_copy(program, &copy)?;
                self.begin_errand(program, Work::Load { to, copy }, tokens);
            }
            Command::MigrateProgram {
                program,
                from,
                to,
                tokens,
                ..
            } => self.begin_errand(program, Work::Migrate { from, to }, tokens),
            Command::CancelTransfer { program } => {
                let ticket = self.carrier.open.remove(&program);
                let goes_on = self.sabotage == Some(Sabotage::StaleTransfers);
                if let Some(ticket) = ticket.filter(|_| !goes_on) {
                    let at = self.now_us + self.streams.carrier.below(self.told_us_max());
                    let session = self.session;
                    let stops = Happening::TransferStops { session, ticket };
                    self.calendar.put(at, stops);
                }
            }
            Command::DropCopy { copy, .. } => {
                self.carrier.stored.remove(&copy);
            }
            _ => {}
        }
        Ok(())
    }

    fn told_us_max(&self) -> u64 {
        self.plan.habits.carrier.told_us_max
    }

    /// What an agent's context is by its own account.
    fn context_of(&self, program: ProgramId) -> u64 {
        let key = self.daemon.as_ref().and_then(|daemon| {
            let programs = &daemon.observed.core.state().programs;
            programs.get(&program).map(|p| p.key.clone())
        });
        let index = self
            .plan
            .agents
            .iter()
            .position(|a| Some(&a.key) == key.as_ref());
        index.map_or(0, |index| self.agents[index].context())
    }

    /// A copy that is brought back is its program's, and as long as its context:
    /// a daemon that died may have known less of it.
    fn check_copy(&self, program: ProgramId, copy: &str) -> Checked {
        let Some(stored) = self.carrier.stored.get(copy) else {
            // It was lost, and the core is about to hear of it.
            return Ok(());
        };
        let (has, is) = (stored.context, self.context_of(program));
        let outdated = stored.session == self.session && has != is;
        if stored.program != program || outdated {
            return broken(
                "copies",
                format!("{program} has a context of {is} tokens and gets {copy}: {stored:?}"),
            );
        }
        Ok(())
    }

    fn begin_errand(&mut self, program: ProgramId, work: Work, tokens: u64) {
        let carrier = &mut self.carrier;
        carrier.tickets += 1;
        let ticket = carrier.tickets;
        carrier.open.insert(program, ticket);
        let mut errand = Errand {
            program,
            work,
            tokens,
            context: 0,
            fails: false,
        };
        errand.context = self.context_of(program);
        let habits = self.plan.habits.carrier;
        let stream = &mut self.streams.carrier;
        let whole_us = 500 + tokens * 1_000_000 / habits.tokens_per_s;
        let mut takes_us = stream.between(whole_us / 2, whole_us * 3 / 2);
        let fails = self.weather.strength(FaultKind::TransferFails);
        if fails.is_some_and(|strength| stream.percent(strength)) {
            self.tally.count(FaultKind::TransferFails.name());
            errand.fails = true;
            takes_us = stream.below(takes_us);
        }
        let hangs = self.weather.strength(FaultKind::TransferHangs);
        if hangs.is_some_and(|strength| stream.percent(strength)) {
            self.tally.count(FaultKind::TransferHangs.name());
            // Whoever moves it gives it up too, at about the same time, or never.
            let most = self.plan.config.kv.transfer_max.0;
            errand.fails = true;
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
            .any(|id| errand.touches(id))
        {
            errand.fails = true;
            takes_us = takes_us.min(100_000);
        }
        self.carrier.errands.insert(ticket, errand);
        if takes_us < u64::MAX {
            let session = self.session;
            let ends = Happening::TransferEnds { session, ticket };
            self.calendar.put(self.now_us + takes_us, ends);
        }
    }

    /// A transfer that was given up has stopped.
    pub(crate) fn transfer_stops(&mut self, session: u32, ticket: u64) {
        if !self.session_is_over(session) {
            self.carrier.errands.remove(&ticket);
        }
    }

    /// A transfer has come to its end, and is told.
    pub(crate) fn transfer_ends(&mut self, session: u32, ticket: u64) {
        if self.session_is_over(session) {
            return;
        }
        let Some(errand) = self.carrier.errands.remove(&ticket) else {
            return;
        };
        let event = if errand.fails {
            errand.failed("the link broke")
        } else {
            self.moved(&errand)
        };
        self.tell_of_transfer(ticket, event);
    }

    fn moved(&mut self, errand: &Errand) -> Event {
        let program = errand.program;
        match &errand.work {
            Work::Offload { .. } => {
                let tokens = self.tokens_kept(errand.tokens);
                let copy = self.store(errand);
                Event::ProgramOffloaded {
                    program,
                    copy,
                    tokens,
                    bytes: tokens * 1_000,
                }
            }
            Work::Load { to, copy } => match self.carrier.stored.get(copy) {
                Some(stored) if !stored.damaged => Event::ProgramLoaded { program, to: *to },
                _ => errand.failed("there is no such copy"),
            },
            Work::Migrate { to, .. } => Event::ProgramMigrated { program, to: *to },
        }
    }

    fn tokens_kept(&mut self, tokens: u64) -> u64 {
        let stream = &mut self.streams.carrier;
        let differs = self.weather.strength(FaultKind::CopyDiffers);
        if differs.is_some_and(|strength| stream.percent(strength)) {
            self.tally.count(FaultKind::CopyDiffers.name());
            return stream.between(tokens / 2, tokens * 3 / 2);
        }
        tokens
    }

    fn store(&mut self, errand: &Errand) -> Box<str> {
        self.carrier.copies += 1;
        let copy: Box<str> = format!("copy-{}", self.carrier.copies).into();
        let stored = Stored {
            program: errand.program,
            context: errand.context,
            session: self.session,
            damaged: false,
        };
        self.carrier.stored.insert(copy.clone(), stored);
        copy
    }

    /// Puts a word to the daemon on its way, behind those before it.
    fn tell_of_transfer(&mut self, ticket: u64, event: Event) {
        let stream = &mut self.streams.carrier;
        let mut delay = stream.below(self.plan.habits.carrier.told_us_max);
        let late = self.weather.strength(FaultKind::TransferToldLate);
        if late.is_some_and(|strength| stream.percent(strength)) {
            self.tally.count(FaultKind::TransferToldLate.name());
            delay += stream.below(2 * self.plan.config.kv.transfer_max.0);
        }
        let twice = self.weather.strength(FaultKind::TransferToldTwice);
        let twice = twice.is_some_and(|strength| stream.percent(strength));
        let at = (self.now_us + delay).max(self.carrier.told_until_us);
        self.carrier.told_until_us = at;
        let session = self.session;
        let told = Happening::TransferTold {
            session,
            ticket,
            event: Box::new(event),
        };
        if twice {
            self.tally.count(FaultKind::TransferToldTwice.name());
            self.calendar.put(at, told.clone());
        }
        self.calendar.put(at, told);
    }

    /// The daemon hears what came of a transfer, and takes it unless it was given
    /// up; a copy that was made for nothing is dropped.
    pub(crate) fn transfer_told(&mut self, session: u32, ticket: u64, event: Event) -> Checked {
        if self.session_is_over(session) {
            return Ok(());
        }
        let program = match &event {
            Event::ProgramOffloaded { program, .. }
            | Event::OffloadFailed { program, .. }
            | Event::ProgramLoaded { program, .. }
            | Event::LoadFailed { program, .. }
            | Event::ProgramMigrated { program, .. }
            | Event::MigrationFailed { program, .. } => *program,
            // Of copies there is no doubt.
            _ => return self.handle(event, None),
        };
        let open = self.carrier.open.get(&program).copied();
        let believes = self.sabotage == Some(Sabotage::StaleTransfers);
        if open == Some(ticket) || believes {
            self.carrier.open.remove(&program);
            return self.handle(event, None);
        }
        if let Event::ProgramOffloaded { copy, .. } = &event {
            self.carrier.stored.remove(copy);
        }
        Ok(())
    }

    /// An engine is another process than before: what was going to it or from it
    /// fails.
    pub(crate) fn break_transfers(&mut self, engine: usize) {
        let engine = WorkerId(engine as u32);
        let here = self.carrier.errands.iter();
        let here: Vec<u64> = here
            .filter(|(_, errand)| errand.touches(engine))
            .map(|(ticket, _)| *ticket)
            .collect();
        for ticket in here {
            if let Some(errand) = self.carrier.errands.remove(&ticket) {
                self.tally.count("transfers broken by engines");
                self.tell_of_transfer(ticket, errand.failed("connection reset"));
            }
        }
    }

    /// A copy makes room for others, or is damaged without a word.
    pub(crate) fn lose_copy(&mut self, strength: u64) {
        let stored = &mut self.carrier.stored;
        if stored.is_empty() {
            return;
        }
        self.tally.count(FaultKind::CopyLost.name());
        let stream = &mut self.streams.carrier;
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
            self.tell_of_transfer(0, Event::CopyLost { program, copy });
        }
    }

    /// The daemon is gone, and all transfers with it.
    pub(crate) fn end_transfers(&mut self) {
        self.carrier.errands.clear();
        self.carrier.open.clear();
        self.carrier.told_until_us = 0;
    }

    /// The machine that the daemon ran on restarts.
    pub(crate) fn lose_host(&mut self) -> Checked {
        self.tally.count(FaultKind::HostLost.name());
        self.kill_daemon()?;
        self.carrier.stored.clear();
        Ok(())
    }

    /// A daemon starts: copies that the core takes to be there and that are gone
    /// are reported, and those that nobody knows are dropped.
    pub(crate) fn compare_copies(&mut self) {
        let Some(daemon) = &self.daemon else {
            return;
        };
        let held = daemon.observed.core.state().offloads.held.iter();
        let held: BTreeMap<Box<str>, ProgramId> = held
            .map(|(program, held)| (held.copy.clone(), *program))
            .collect();
        self.carrier
            .stored
            .retain(|copy, _| held.contains_key(copy));
        for (copy, program) in held {
            if !self.carrier.stored.contains_key(&copy) {
                self.tally.count("copies gone at a start");
                self.tell_of_transfer(0, Event::CopyLost { program, copy });
            }
        }
    }
}
