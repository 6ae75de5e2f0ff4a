//! What an engine does with its memory beyond the ledger: how much must stay free for caches to
//! survive until they are copied, which lingering caches are evicted before kept ones, how much it
//! keeps, and how much prompt waits inside it.

use super::backlog::Backlog;
use super::capacity::Capacity;
use super::lingering::Lingering;
use super::reuse::{Observation, Reuse};
use serde::{Deserialize, Serialize};
use treadle_model::{ProgramId, StepId, Timestamp};

/// Maximum headroom, in millionths of the capacity.
const HEADROOM_PPM_MAX: u32 = 200_000;
/// Increase of the headroom for a lost cache. A hundred found ones undo it, so that about one in a
/// hundred is lost.
const LOST_PPM: u32 = 4_000;
/// Decrease of the headroom for a cache that was found.
const FOUND_PPM: u32 = 40;
/// A cache that lacks less than this part counts as found: its last block is never full, and
/// templates change a prompt's end.
const LOST_SHARE: u64 = 10;
/// The same tolerance in tokens.
const LOST_TOKENS: u64 = 64;

/// What is observed of one engine's memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineCache {
    /// Share of its capacity, in millionths, that must stay free, as learnt; `None` before the
    /// first step has ended, when the low watermark is used instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    headroom_ppm: Option<u32>,
    /// Caches of programs that have left, while a cache that was used before them is to be kept.
    #[serde(skip_serializing_if = "Lingering::is_empty")]
    lingering: Lingering,
    /// How much it really keeps.
    #[serde(skip_serializing_if = "Reuse::is_default")]
    reuse: Reuse,
    /// Prompts that it has yet to compute.
    #[serde(skip_serializing_if = "Backlog::is_empty")]
    backlog: Backlog,
}

impl EngineCache {
    /// Share of its capacity, in millionths, that must stay free, as learnt.
    pub fn headroom_ppm(&self) -> Option<u32> {
        self.headroom_ppm
    }

    /// Tokens of caches that it keeps beyond its KV memory.
    pub fn beyond_tokens(&self) -> u64 {
        self.reuse.beyond_tokens()
    }

    /// True for an engine that offloads by itself and has lost no cache yet.
    pub fn is_unbounded(&self) -> bool {
        self.reuse.is_unbounded()
    }

    /// True if it has prompts to compute.
    pub fn has_prompts(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Tokens of prompts that it has yet to compute.
    pub fn prompt_tokens(&self) -> u64 {
        self.backlog.tokens()
    }

    /// Host memory that it is observed to offload caches to by itself, in tokens.
    pub(super) fn host_tokens(&self, capacity: &Capacity) -> u64 {
        let beyond = self
            .reuse
            .seen_beyond_tokens(capacity.tokens.unwrap_or_default());
        // Less than this may be a probe.
        let least = capacity.tokens.map(|tokens| tokens / 7 * 2);
        least.filter(|least| beyond > *least).map_or(0, |_| beyond)
    }

    /// Learns from a cache that was used again; `start_ppm` is the headroom before the first.
    pub fn learn_headroom(&mut self, is_lost: bool, start_ppm: u32) {
        let known = self.headroom_ppm.unwrap_or(start_ppm);
        self.headroom_ppm = Some(if is_lost {
            known
                .saturating_add(LOST_PPM)
                .min(HEADROOM_PPM_MAX.max(start_ppm))
        } else {
            known.saturating_sub(FOUND_PPM)
        });
    }

    /// What is learnt of how much it keeps, with the tokens that its KV memory holds; `None` on
    /// engines with slots, which give each program its own memory.
    pub fn reuse_of(&mut self, capacity: &Capacity) -> Option<ReuseAt<'_>> {
        let paged = capacity.slots.is_none();
        let capacity_tokens = capacity.tokens.filter(|_| paged)?;
        Some(ReuseAt {
            reuse: &mut self.reuse,
            capacity_tokens,
        })
    }

    /// Records that a step of a program has left the engine, for whatever reason.
    pub fn step_left(&mut self, program: ProgramId) {
        self.reuse.left(program);
    }

    /// Records that a step has ended whose cached tokens the engine does not report: nothing can be
    /// learnt of what it keeps, and only its KV memory counts, whatever it reports of host memory.
    pub fn cached_untold(&mut self) {
        if self.reuse.is_unbounded() {
            self.reuse = Reuse::default();
        }
    }

    /// Drops what was learnt of how much it keeps; `learns` is whether more will be learnt.
    pub fn forget_reuse(&mut self, learns: bool, capacity: &Capacity) {
        let offloads = capacity.offloads && capacity.slots.is_none();
        self.reuse = Reuse::of_engine(learns && offloads);
        self.lingering.forget_older(None);
    }

    /// Drops everything that was learnt under other settings.
    pub fn forget(&mut self, learns: bool, capacity: &Capacity) {
        self.headroom_ppm = None;
        self.forget_reuse(learns, capacity);
        self.backlog = Backlog::default();
    }

    /// Records the cache of a program that leaves, with `tokens` of its own; the engine keeps it as
    /// long as it can. Engines with slots give each program its own memory.
    pub fn linger(
        &mut self,
        program: ProgramId,
        used_at: Timestamp,
        tokens: u64,
        capacity: &Capacity,
    ) {
        let paged = capacity.slots.is_none();
        if let (true, Some(capacity)) = (paged && tokens > 0, capacity.tokens) {
            let keeps = capacity.saturating_add(self.reuse.beyond_tokens());
            self.lingering.leave(program, used_at, tokens, keeps);
        }
    }

    /// The program is placed here again.
    pub(super) fn come_back(&mut self, program: ProgramId) {
        self.lingering.come_back(program);
    }

    /// True if caches of programs that have left linger here.
    pub fn has_lingering(&self) -> bool {
        !self.lingering.is_empty()
    }

    /// Tokens of lingering caches that were used after the least recently used kept cache, whose
    /// last use is `oldest`.
    pub fn exposed_tokens(&mut self, oldest: Option<Timestamp>) -> u64 {
        self.lingering.forget_older(oldest);
        self.lingering.tokens()
    }

    /// Adds a prompt that is sent or about to be sent; the engine computes it after the others.
    pub fn add_prompt(&mut self, step: StepId, tokens: u64, now: Timestamp, tokens_per_s: u64) {
        self.backlog.add(step, tokens, now, tokens_per_s);
    }

    /// Removes a prompt that is computed or no longer there; true if it was present.
    pub fn end_prompt(&mut self, step: StepId) -> bool {
        self.backlog.end(step)
    }

    /// Removes prompts that must be computed by now.
    pub fn expire_prompts(&mut self, now: Timestamp) {
        self.backlog.expire(now);
    }

    /// The steps whose prompts it has yet to compute.
    pub fn prompts(&self) -> impl Iterator<Item = StepId> + '_ {
        self.backlog.steps()
    }

    /// Recomputes its sums; for tests.
    pub fn assert_sums(&self) {
        self.lingering.assert_sums();
        self.reuse.assert_sums();
        self.backlog.assert_sums();
    }
}

/// What is learnt of how much an engine keeps, from the steps of a program.
pub struct ReuseAt<'a> {
    reuse: &'a mut Reuse,
    capacity_tokens: u64,
}

impl ReuseAt<'_> {
    /// Records that a step is sent there; `whole` is the number of the prompt's own tokens if
    /// answers come in one piece.
    pub fn sent(&mut self, program: ProgramId, whole: Option<u64>) {
        self.reuse.sent(program, whole, self.capacity_tokens);
    }

    /// Records that the step's prompt is computed, with `own` tokens of the program's own.
    pub fn computed(&mut self, program: ProgramId, own: u64) {
        self.reuse.computed(program, own, self.capacity_tokens);
    }

    /// Records that the step has ended with a context of `own` tokens of the program's own.
    pub fn ended(&mut self, program: ProgramId, own: u64, seen: Observation) {
        self.reuse.end(program, own, seen, self.capacity_tokens);
    }
}

/// Whether an engine had lost the cache of a prompt of `before` tokens.
pub fn is_lost(cached: u64, before: u64) -> bool {
    before.saturating_sub(cached) > before / LOST_SHARE + LOST_TOKENS
}
