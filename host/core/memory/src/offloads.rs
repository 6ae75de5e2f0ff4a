//! KV caches in host memory, and those in transfer between it and an engine. At most one valid copy
//! of a program's cache is known: the engine's while the program is placed, otherwise the one
//! stored here.

use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use treadle_model::{ProgramId, Span, Timestamp, WorkerId};

/// Maximum number of loads to one worker at once; the transfer executor takes them one by one, and
/// each has a deadline.
const LOADS_MAX: usize = 16;

/// A cache in host memory.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct HeldCopy {
    /// Its name in the tier that holds it; opaque to the core.
    pub copy: Box<str>,
    /// Context that it holds, in tokens.
    pub tokens: u64,
    /// Its size.
    pub bytes: u64,
    /// When it was stored.
    pub since: Timestamp,
    /// What it was computed with; absent if that is what its engine came with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<Box<str>>,
}

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the engine to host memory.
    Out,
    /// From host memory to the engine.
    Back,
}

/// A transfer between an engine and host memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Transfer {
    /// Its direction.
    pub direction: Direction,
    /// The engine.
    pub worker: WorkerId,
    /// Context, in tokens.
    pub tokens: u64,
    /// When it began.
    pub since: Timestamp,
    /// When it counts as failed.
    pub deadline: Timestamp,
}

/// A program whose cache may leave its engine.
#[derive(Clone, Copy, Debug)]
pub struct Leaving {
    /// The engine.
    pub worker: WorkerId,
    /// Its context, in tokens.
    pub tokens: u64,
}

/// All caches in host memory or in transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Offloads {
    /// Copies in host memory.
    held: BTreeMap<ProgramId, HeldCopy>,
    /// Tokens of those copies.
    held_tokens: u64,
    /// Tokens of transfers to host memory.
    leaving_tokens: u64,
    /// Caches to be offloaded once their link is free.
    wanted: BTreeSet<ProgramId>,
    /// Running transfers.
    moving: BTreeMap<ProgramId, Transfer>,
    /// Until when offloads from a worker have used up their share of its link.
    link_free_at: BTreeMap<WorkerId, Timestamp>,
    /// When the next link is free, while a program waits for that.
    link_timer_at: Option<Timestamp>,
}

/// What is there.
impl Offloads {
    /// Copies in host memory.
    pub fn held(&self) -> &BTreeMap<ProgramId, HeldCopy> {
        &self.held
    }

    /// Tokens of those copies.
    pub fn held_tokens(&self) -> u64 {
        self.held_tokens
    }

    /// Running transfers.
    pub fn moving(&self) -> &BTreeMap<ProgramId, Transfer> {
        &self.moving
    }

    /// Caches to be offloaded once their link is free.
    pub fn wanted(&self) -> &BTreeSet<ProgramId> {
        &self.wanted
    }

    /// Tokens of host memory in use, by copies and by transfers on their way there.
    pub fn taken_tokens(&self) -> u64 {
        self.held_tokens + self.leaving_tokens
    }

    /// True without copies and transfers.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.wanted.is_empty() && self.moving.is_empty()
    }

    /// True if there is nothing to report.
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// True if the program's cache is to be offloaded, or in transfer.
    pub(super) fn concerns(&self, program: ProgramId) -> bool {
        self.wanted.contains(&program) || self.moving.contains_key(&program)
    }

    /// True if the program's cache is about to leave its engine.
    pub fn is_leaving(&self, program: ProgramId) -> bool {
        let out = |transfer: &Transfer| transfer.direction == Direction::Out;
        self.wanted.contains(&program) || self.moving.get(&program).is_some_and(out)
    }

    /// True if the program's cache is being loaded to an engine.
    pub fn is_returning(&self, program: ProgramId) -> bool {
        let back = |transfer: &Transfer| transfer.direction == Direction::Back;
        self.moving.get(&program).is_some_and(back)
    }

    /// Programs whose caches are about to leave their engines.
    pub fn leaving(&self) -> impl Iterator<Item = ProgramId> {
        let all = self.wanted.iter().chain(self.moving.keys());
        all.copied().filter(|program| self.is_leaving(*program))
    }

    /// Workers with a running transfer in this direction.
    pub fn busy(&self, direction: Direction) -> BTreeSet<WorkerId> {
        let same = self.moving.values().filter(|t| t.direction == direction);
        same.map(|transfer| transfer.worker).collect()
    }

    /// Workers with the maximum number of loads.
    pub fn loading(&self) -> BTreeSet<WorkerId> {
        let mut loads: BTreeMap<WorkerId, usize> = BTreeMap::new();
        let back = |t: &&Transfer| t.direction == Direction::Back;
        for transfer in self.moving.values().filter(back) {
            *loads.entry(transfer.worker).or_default() += 1;
        }
        loads.retain(|_, loads| *loads >= LOADS_MAX);
        loads.into_keys().collect()
    }

    /// The copies to evict so that `tokens` more fit into `tokens_max` of host memory, of those in
    /// `later`, the last first; `None` if that is not enough.
    pub fn plan_room(
        &self,
        tokens: u64,
        tokens_max: u64,
        later: &[ProgramId],
    ) -> Option<Vec<ProgramId>> {
        let mut taken = self.taken_tokens() + tokens;
        let size = |held: &ProgramId| self.held.get(held).map_or(0, |copy| copy.tokens);
        let droppable: u64 = later.iter().map(size).sum();
        if taken.saturating_sub(droppable) > tokens_max {
            return None;
        }
        let mut evicted = Vec::new();
        for held in later.iter().rev() {
            if taken <= tokens_max {
                break;
            }
            taken -= size(held);
            evicted.push(*held);
        }
        Some(evicted)
    }

    /// Wanted offloads with their workers, the largest first, by what `leaving` says of them; and
    /// workers whose links offloads may not use now.
    pub fn plan(
        &self,
        now: Timestamp,
        leaving: impl Fn(ProgramId) -> Option<Leaving>,
    ) -> (Vec<(ProgramId, WorkerId)>, BTreeSet<WorkerId>) {
        let mut busy = self.busy(Direction::Out);
        let spent = self.link_free_at.iter().filter(|(_, at)| **at > now);
        busy.extend(spent.map(|(worker, _)| *worker));
        let wanted = self.wanted.iter().filter_map(|program| {
            let leaving = leaving(*program)?;
            Some((Reverse(leaving.tokens), *program, leaving.worker))
        });
        let mut wanted: Vec<_> = wanted.collect();
        wanted.sort_unstable();
        let order = wanted.into_iter().map(|(_, program, at)| (program, at));
        (order.collect(), busy)
    }
}

/// Changes.
impl Offloads {
    pub(super) fn want(&mut self, program: ProgramId) {
        self.wanted.insert(program);
    }

    /// Withdraws the wish to offload a program's cache; true if there was one.
    pub fn withdraw(&mut self, program: ProgramId) -> bool {
        self.wanted.remove(&program)
    }

    /// Withdraws all wishes.
    pub fn withdraw_all(&mut self) -> BTreeSet<ProgramId> {
        std::mem::take(&mut self.wanted)
    }

    /// Stores a copy.
    pub fn hold(&mut self, program: ProgramId, copy: HeldCopy) {
        self.held_tokens += copy.tokens;
        self.held.insert(program, copy);
    }

    /// Frees a copy.
    pub fn release(&mut self, program: ProgramId) -> Option<HeldCopy> {
        let copy = self.held.remove(&program)?;
        self.held_tokens -= copy.tokens;
        Some(copy)
    }

    /// Begins a transfer.
    pub fn begin(&mut self, program: ProgramId, transfer: Transfer) {
        if transfer.direction == Direction::Out {
            self.leaving_tokens += transfer.tokens;
        }
        self.moving.insert(program, transfer);
    }

    /// Ends a transfer. Offloads keep off the link for a while after one that used all of it, so
    /// that they get their share on average, in millionths.
    pub fn end(&mut self, program: ProgramId, now: Timestamp, link_ppm: u32) -> Option<Transfer> {
        let transfer = self.moving.remove(&program)?;
        if transfer.direction == Direction::Out {
            self.leaving_tokens -= transfer.tokens;
            let share = u64::from(link_ppm.clamp(1, 1_000_000));
            let took = now.since(transfer.since).micros();
            let rest = took.saturating_mul(1_000_000 - share) / share;
            self.link_free_at.insert(transfer.worker, now + Span(rest));
        }
        Some(transfer)
    }

    /// When the next of these workers' links may be used, if a timer has to be armed for that.
    pub fn watch_links(
        &mut self,
        now: Timestamp,
        workers: &BTreeSet<WorkerId>,
    ) -> Option<Timestamp> {
        let free_at = self.link_free_at.iter();
        let waited_for = free_at.filter(|(worker, at)| **at > now && workers.contains(worker));
        let next = waited_for.map(|(_, at)| *at).min()?;
        let is_sooner = self.link_timer_at.is_none_or(|at| next < at);
        is_sooner.then(|| *self.link_timer_at.insert(next))
    }

    /// Records that the timer for links has fired.
    pub fn link_timer_fired(&mut self) {
        self.link_timer_at = None;
    }

    /// Forgets the link of a worker that is gone.
    pub fn forget_link(&mut self, worker: WorkerId) {
        self.link_free_at.remove(&worker);
    }

    /// Recomputes its sums; for tests.
    pub fn assert_sums(&self) {
        let held: u64 = self.held.values().map(|copy| copy.tokens).sum();
        assert_eq!(held, self.held_tokens, "tokens of copies");
        let leaving = self.moving.values();
        let leaving = leaving.filter(|t| t.direction == Direction::Out);
        let leaving: u64 = leaving.map(|transfer| transfer.tokens).sum();
        assert_eq!(leaving, self.leaving_tokens, "tokens on their way out");
    }
}
