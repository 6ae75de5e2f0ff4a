//! KV caches that are not, or not only, at an engine: copies in host memory, and
//! what is on its way. Of a program's cache one valid copy is known at most; every
//! transfer ends, and every copy that is given up is dropped.

use super::Model;
use super::facts::At;
use std::collections::{BTreeMap, BTreeSet};
use treadle_core::memory::Direction;
use treadle_core::programs::ProgramEvent;
use treadle_core::{Core, CoreConfig, DaemonEvent, Event};
use treadle_dst_outcome::{Checked, broken};
use treadle_model::{ProgramId, Span, Timestamp, WorkerId};

/// Which way a cache goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Way {
    Out(WorkerId),
    Back(WorkerId),
    Move(WorkerId, WorkerId),
}

impl Way {
    pub(super) fn touches(self, worker: WorkerId) -> bool {
        match self {
            Self::Out(at) | Self::Back(at) => at == worker,
            Self::Move(from, to) => from == worker || to == worker,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct UnderWay {
    pub(super) way: Way,
    pub(super) tokens: u64,
    pub(super) since: Timestamp,
    pub(super) deadline: Timestamp,
    /// Steps of the program that had been sent by then.
    pub(super) sent: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Copy {
    pub(super) handle: Box<str>,
    pub(super) tokens: u64,
    /// Steps of the program that had been sent when it was made.
    pub(super) sent: u64,
}

/// What is known of caches.
#[derive(Clone, Debug, Default)]
pub(super) struct Caches {
    pub(super) under_way: BTreeMap<ProgramId, UnderWay>,
    pub(super) held: BTreeMap<ProgramId, Copy>,
    /// Copies that were reported and neither dropped nor lost since.
    pub(super) existing: BTreeSet<Box<str>>,
    /// To leave once their link is free.
    pub(super) wanted: BTreeSet<ProgramId>,
    pub(super) link_free_at: BTreeMap<WorkerId, Timestamp>,
    /// Since when, in settled time, a link is free for which a program waits.
    idle_links: BTreeMap<WorkerId, u64>,
    /// Transfers that the present event ended, and that must be cancelled.
    pub(super) stopping: BTreeSet<ProgramId>,
    /// The same, if the transfer executor is gone: none need be cancelled.
    pub(super) gone: BTreeSet<ProgramId>,
    /// Programs that the present event placed before their tools return.
    pub(super) early: BTreeSet<ProgramId>,
    /// The copy that the present event reported lost.
    pub(super) lost: Option<Box<str>>,
}

impl Caches {
    pub(super) fn next_event(&mut self) {
        self.stopping.clear();
        self.gone.clear();
        self.early.clear();
        self.lost = None;
    }

    /// Nothing happens to the program's cache.
    pub(super) fn is_settled(&self, program: ProgramId) -> bool {
        !self.wanted.contains(&program) && !self.under_way.contains_key(&program)
    }

    /// The program is about to leave its worker.
    pub(super) fn is_leaving(&self, program: ProgramId) -> bool {
        let out = |u: &UnderWay| matches!(u.way, Way::Out(_));
        self.wanted.contains(&program) || self.under_way.get(&program).is_some_and(out)
    }

    pub(super) fn host_tokens(&self) -> u64 {
        let out = |u: &&UnderWay| matches!(u.way, Way::Out(_));
        let leaving = self.under_way.values().filter(out).map(|u| u.tokens);
        let held = self.held.values().map(|copy| copy.tokens);
        held.sum::<u64>() + leaving.sum::<u64>()
    }
}

impl Model {
    /// The effects of an event on caches by itself.
    pub(super) fn learn_of_caches(&mut self, core: &Core, event: &Event) {
        let Event::Program(event) = event else {
            return;
        };
        match event {
            ProgramEvent::ProgramOffloaded {
                program,
                copy,
                tokens,
                ..
            } => self.offloaded(*program, copy, *tokens),
            ProgramEvent::OffloadFailed { program, .. } => {
                self.ends(*program, |way| matches!(way, Way::Out(_)));
            }
            ProgramEvent::ProgramLoaded { program, to } => {
                self.ends(*program, |way| way == Way::Back(*to));
            }
            ProgramEvent::LoadFailed { program, .. } => {
                self.ends(*program, |way| matches!(way, Way::Back(_)));
            }
            ProgramEvent::ProgramMigrated { program, to } => {
                let there = |way| matches!(way, Way::Move(_, at) if at == *to);
                // The core may place the program elsewhere in the same event.
                if self.ends(*program, there).is_some() {
                    self.place(core, *program, *to);
                }
            }
            ProgramEvent::MigrationFailed { program, .. } => {
                self.ends(*program, |way| matches!(way, Way::Move(..)));
            }
            ProgramEvent::CopyLost { program, copy } => self.copy_lost(*program, copy),
            _ => {}
        }
    }

    /// Forgets a transfer if it goes that way.
    pub(super) fn ends(
        &mut self,
        program: ProgramId,
        is_it: impl Fn(Way) -> bool,
    ) -> Option<UnderWay> {
        let known = self.caches.under_way.get(&program);
        known.filter(|known| is_it(known.way))?;
        let ended = self.caches.under_way.remove(&program)?;
        if let Way::Out(from) = ended.way {
            let share = u64::from(self.config.kv.offload_link_ppm);
            let took = self.now.since(ended.since).micros();
            let rest = Span(took * (1_000_000 - share) / share);
            self.caches.link_free_at.insert(from, self.now + rest);
        }
        if let Some(p) = self.programs.get_mut(&program) {
            p.idle_since_us = self.settled_us;
        }
        Some(ended)
    }

    fn offloaded(&mut self, program: ProgramId, copy: &str, tokens: u64) {
        self.caches.existing.insert(copy.into());
        let ended = self.ends(program, |way| matches!(way, Way::Out(_)));
        let Some(ended) = ended else {
            return;
        };
        let copy = Copy {
            handle: copy.into(),
            tokens,
            sent: ended.sent,
        };
        if self.caches.host_tokens() + tokens <= self.config.kv.host_tokens_max {
            self.caches.held.insert(program, copy);
        }
    }

    fn copy_lost(&mut self, program: ProgramId, handle: &str) {
        self.caches.existing.remove(handle);
        self.caches.lost = Some(handle.into());
        let held = self.caches.held.get(&program);
        if held.is_some_and(|held| *held.handle == *handle) {
            self.caches.held.remove(&program);
            if self
                .ends(program, |way| matches!(way, Way::Back(_)))
                .is_some()
            {
                self.caches.stopping.insert(program);
            }
        }
    }

    /// A worker is gone, and what was going from or to it with it.
    pub(super) fn worker_ends_transfers(&mut self, worker: WorkerId) {
        let here = self.caches.under_way.iter();
        let here: Vec<ProgramId> = here
            .filter(|(_, u)| u.way.touches(worker))
            .map(|(program, _)| *program)
            .collect();
        for program in here {
            self.ends(program, |_| true);
            self.caches.stopping.insert(program);
        }
        self.caches.link_free_at.remove(&worker);
    }

    /// The transfer executor is gone.
    pub(super) fn restart_ends_transfers(&mut self) {
        let ended = self.all_transfers_end();
        self.caches.gone.extend(ended);
    }

    /// Other settings. Without host memory all copies are dropped.
    pub(super) fn configured(&mut self, config: &CoreConfig) {
        if config.kv.host_tokens_max == 0 {
            let ended = self.all_transfers_end();
            self.caches.stopping.extend(ended);
            self.caches.held.clear();
        }
        self.config = config.clone();
    }

    fn all_transfers_end(&mut self) -> Vec<ProgramId> {
        let all: Vec<ProgramId> = self.caches.under_way.keys().copied().collect();
        for program in &all {
            self.ends(*program, |_| true);
        }
        all
    }
}

impl Model {
    /// What must be true after each event.
    pub(super) fn check_caches(&mut self, core: &Core, event: &Event) -> Checked {
        if let Some(program) = self.caches.stopping.first() {
            return broken(
                "transfers",
                format!("the transfer of {program} ended and was not cancelled"),
            );
        }
        let early = self.caches.early.iter();
        let mut empty = early.filter(|program| !self.caches.under_way.contains_key(program));
        if let Some(program) = empty.next() {
            return broken(
                "transfers",
                format!("{program} is placed before its tool returns, without a cache"),
            );
        }
        self.check_copies()?;
        let now = self.now;
        let mut open = self.caches.under_way.iter();
        let late = open.find(|(_, u)| u.deadline <= now);
        if let Some((program, under_way)) =
            late.filter(|_| matches!(event, Event::Daemon(DaemonEvent::TimerFired)))
        {
            return broken(
                "transfers",
                format!("{program} goes on after its deadline: {under_way:?}"),
            );
        }
        self.check_waiting(core)?;
        self.check_links()
    }

    fn check_copies(&self) -> Checked {
        let held = self.caches.held.values().map(|copy| &copy.handle);
        let held: BTreeSet<&Box<str>> = held.collect();
        if let Some(leaked) = self.caches.existing.iter().find(|c| !held.contains(c)) {
            return broken(
                "copies",
                format!("{leaked} is an orphan and was not dropped"),
            );
        }
        for (program, copy) in &self.caches.held {
            let place = self.programs.get(program).map(|p| p.place);
            let back = self.caches.under_way.contains_key(program);
            let elsewhere = match place {
                None => return broken("copies", format!("{copy:?} is of {program}, who is gone")),
                Some(place) => place.is_none() || back,
            };
            if !elsewhere || self.runs_anything(*program) {
                return broken(
                    "copies",
                    format!("{program} is at {place:?}, and {copy:?} is kept"),
                );
            }
        }
        self.check_host()
    }

    /// A step of a placed program waits for nothing but its cache, or to learn whether it runs
    /// already, as another one of its program does; or to leave a draining worker with its program.
    fn check_waiting(&self, core: &Core) -> Checked {
        if !self.is_aware() {
            return Ok(());
        }
        for (id, s) in &self.steps {
            let placed = self.programs[&s.program].place;
            if s.at == At::Queue
                && placed.is_some()
                && !placed.is_some_and(|worker| self.is_draining(worker))
                && !self.waits_in_line(s.program)
                && !self.caches.under_way.contains_key(&s.program)
                && !core.programs().adopted.contains(&s.program)
            {
                return broken(
                    "transfers",
                    format!("{id} of {} waits at {placed:?} for nothing", s.program),
                );
            }
        }
        Ok(())
    }

    /// A program that is to leave does so once the link is free.
    fn check_links(&mut self) -> Checked {
        let mut waits = BTreeMap::new();
        for program in &self.caches.wanted {
            if let Some(worker) = self.programs.get(program).and_then(|p| p.place) {
                waits.entry(worker).or_insert(*program);
            }
        }
        let (now, caches) = (self.now, &self.caches);
        let busy = |worker: &WorkerId| {
            let spent = caches.link_free_at.get(worker).is_some_and(|at| *at > now);
            spent
                || caches
                    .under_way
                    .values()
                    .any(|u| u.way != Way::Back(*worker) && u.way.touches(*worker))
        };
        waits.retain(|worker, _| !busy(worker));
        self.caches
            .idle_links
            .retain(|worker, _| waits.contains_key(worker));
        let bound = self.response_us_max();
        for (worker, program) in waits {
            let since = self.caches.idle_links.entry(worker);
            let waited = self.settled_us - *since.or_insert(self.settled_us);
            if waited > bound {
                return broken(
                    "endpoints",
                    format!(
                        "{program} is to leave {worker} and has waited {waited} us for a link that is free"
                    ),
                );
            }
        }
        Ok(())
    }

    /// What was to leave may stay after all: then it may be paused from now on.
    fn settle_wanted(&mut self, core: &Core) -> Checked {
        let wanted = core.programs().memory.offloads().wanted();
        if let Some(program) = wanted.difference(&self.caches.wanted).next() {
            return broken("transfers", format!("{program} is to leave undecided"));
        }
        let stay = self.caches.wanted.difference(wanted).copied();
        for program in stay.collect::<Vec<ProgramId>>() {
            self.caches.wanted.remove(&program);
            if let Some(p) = self.programs.get_mut(&program) {
                p.idle_since_us = self.settled_us;
            }
        }
        Ok(())
    }

    /// The core knows the same copies and transfers.
    pub(super) fn compare_caches(&mut self, core: &Core) -> Checked {
        self.settle_wanted(core)?;
        let offloads = core.programs().memory.offloads();
        let held = self.caches.held.iter();
        let held = held.map(|(program, copy)| (program, &*copy.handle, copy.tokens));
        let known = offloads.held().iter();
        let known = known.map(|(program, held)| (program, &*held.copy, held.tokens));
        if !held.eq(known) {
            return broken(
                "copies",
                format!(
                    "held are {:?}, the core has {:?}",
                    self.caches.held,
                    offloads.held()
                ),
            );
        }
        let moved = core.programs().memory.migrations().moving().iter();
        let moved = moved.map(|(program, m)| (*program, Way::Move(m.from, m.to)));
        let known = offloads
            .moving()
            .iter()
            .map(|(program, t)| match t.direction {
                Direction::Out => (*program, Way::Out(t.worker)),
                Direction::Back => (*program, Way::Back(t.worker)),
            });
        let known: BTreeMap<ProgramId, Way> = moved.chain(known).collect();
        let under_way = self.caches.under_way.iter();
        if !under_way
            .map(|(program, u)| (*program, u.way))
            .eq(known.clone())
        {
            return broken(
                "transfers",
                format!(
                    "on their way are {:?}, the core says {known:?}",
                    self.caches.under_way
                ),
            );
        }
        Ok(())
    }
}
