//! KV caches that are not, or not only, at an engine: copies in host memory, and
//! what is on its way. Of a program's cache one valid copy is known at most; every
//! transfer ends, and every copy that is given up is dropped.

use super::super::outcome::{Checked, broken};
use super::Model;
use super::facts::At;
use std::collections::{BTreeMap, BTreeSet};
use treadle_core::memory::Direction;
use treadle_core::{Core, CoreConfig, DaemonEvent, Event, ProgramEvent};
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
    /// Workers whose offload the present event gave up, as no answer came: no other program leaves
    /// them for host memory either.
    pub(super) silent: BTreeSet<WorkerId>,
    /// The most that host memory held, or was to hold, since before the present event.
    host_tokens_most: u64,
    /// The copy that the present event reported lost.
    pub(super) lost: Option<Box<str>>,
}

impl Caches {
    pub(super) fn next_event(&mut self) {
        self.stopping.clear();
        self.gone.clear();
        self.early.clear();
        self.silent.clear();
        self.host_tokens_most = self.host_tokens();
        self.lost = None;
    }

    /// Host memory may be about to hold less: others may have been refused room in it by then.
    pub(super) fn note_host_tokens(&mut self) {
        self.host_tokens_most = self.host_tokens_most.max(self.host_tokens());
    }

    /// True without copies and transfers.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.wanted.is_empty() && self.under_way.is_empty()
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

    /// It is not wanted elsewhere any more.
    pub(super) fn stays(&mut self, program: ProgramId) {
        self.wanted.remove(&program);
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
    pub(super) fn learn_of_caches(&mut self, event: &Event) {
        match event {
            Event::Program(ProgramEvent::ProgramOffloaded {
                program,
                copy,
                tokens,
                ..
            }) => self.offloaded(*program, copy, *tokens),
            Event::Program(ProgramEvent::OffloadFailed { program, .. }) => {
                let left = self.ends(*program, |way| matches!(way, Way::Out(_)));
                if left.is_some() {
                    self.take_placement(*program);
                }
            }
            Event::Program(ProgramEvent::ProgramLoaded { program, to }) => {
                let there = self.ends(*program, |way| way == Way::Back(*to));
                self.is_warm(*program, there.is_some());
            }
            Event::Program(ProgramEvent::LoadFailed { program, .. }) => {
                self.ends(*program, |way| matches!(way, Way::Back(_)));
            }
            Event::Program(ProgramEvent::ProgramMigrated { program, to }) => {
                let there = |way| matches!(way, Way::Move(_, at) if at == *to);
                if self.ends(*program, there).is_some() {
                    self.take_placement(*program);
                    if self.takes_waiting(*program, *to) {
                        self.place(*program, *to);
                        self.is_warm(*program, true);
                    }
                }
            }
            Event::Program(ProgramEvent::MigrationFailed { program, .. }) => {
                self.ends(*program, |way| matches!(way, Way::Move(..)));
            }
            Event::Program(ProgramEvent::CopyLost { program, copy }) => {
                self.copy_lost(*program, copy);
            }
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
        if let Way::Move(_, to) = ended.way
            && let Some(w) = self.workers.get_mut(&to)
        {
            w.kept.remove(&program);
        }
        if let Some(p) = self.programs.get_mut(&program) {
            p.idle_since_us = self.settled_us;
        }
        Some(ended)
    }

    /// A program's cache has reached its worker.
    fn is_warm(&mut self, program: ProgramId, is_there: bool) {
        if let Some(p) = self.programs.get_mut(&program) {
            p.is_warm |= is_there && p.place.is_some();
        }
    }

    fn offloaded(&mut self, program: ProgramId, copy: &str, tokens: u64) {
        self.caches.existing.insert(copy.into());
        let ended = self.ends(program, |way| matches!(way, Way::Out(_)));
        let Some(ended) = ended else {
            return;
        };
        self.take_placement(program);
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
        if config.kv != self.config.kv {
            for w in self.workers.values_mut() {
                w.free_ppm = None;
                w.prompts.clear();
            }
        }
        self.config = config.clone();
    }

    /// What was on its way back is nowhere, so that its program is not placed either.
    fn all_transfers_end(&mut self) -> Vec<ProgramId> {
        let all: Vec<ProgramId> = self.caches.under_way.keys().copied().collect();
        for program in &all {
            let ended = self.ends(*program, |_| true);
            if ended.is_some_and(|ended| matches!(ended.way, Way::Back(_))) {
                self.take_placement(*program);
            }
        }
        // What was to leave, and waited for its link, can be paused from now on.
        for program in std::mem::take(&mut self.caches.wanted) {
            if let Some(p) = self.programs.get_mut(&program) {
                p.idle_since_us = self.settled_us;
            }
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

    /// The core knows the same copies and transfers. A program that was to leave for host memory
    /// that is full by then is no longer placed.
    pub(super) fn compare_caches(&mut self, core: &Core) -> Checked {
        self.caches.note_host_tokens();
        let offloads = core.programs().memory.offloads();
        let wanted: Vec<ProgramId> = self.caches.wanted.iter().copied().collect();
        for program in wanted {
            let p = core.programs().live.get(&program);
            if p.is_some_and(|p| p.placement.is_none()) && !offloads.wanted().contains(&program) {
                // Others may have made room since for what they need sooner.
                let held = self.caches.host_tokens_most;
                let tokens = held + self.programs[&program].context_tokens;
                let place = self.programs[&program].place;
                let silent = place.is_some_and(|at| self.caches.silent.contains(&at));
                if tokens <= self.config.kv.host_tokens_max && !silent {
                    return broken(
                        "host",
                        format!("{program} lost its placement, though host memory has room for it"),
                    );
                }
                self.take_placement(program);
            }
        }
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
        if self.caches.wanted != offloads.wanted {
            return broken(
                "transfers",
                format!(
                    "to leave are {:?}, the core says {:?}",
                    self.caches.wanted, offloads.wanted
                ),
            );
        }
        Ok(())
    }
}
