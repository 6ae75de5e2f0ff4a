//! How much an engine really keeps: its KV memory, and host memory that it offloads to by itself.
//!
//! Engines evict the least recently used cache. So a cache is found again if it fits, together with
//! everything used since, into what the engine keeps, whatever that consists of; and each step
//! shows whether its cache was found. The border between the two is learnt here. Until a cache is
//! lost before the border, and again after a long time without losses, the border moves out by
//! itself while programs wait: an engine with ample host memory is recognised before anybody has
//! waited long. An engine without it finds nothing beyond its KV memory, and the border stays
//! there. An engine that reports that it offloads is expected to keep everything, until it loses a
//! cache.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use treadle_model::ProgramId;

/// Maximum number of caches tracked per worker; the least recently used are dropped.
const CACHES_MAX: usize = 1_024;
/// The most that an engine is assumed to keep, as a multiple of its KV memory.
const REACH_MAX: u64 = 64;
/// The border moves this part of the way to a cache that was found beyond it.
const FOUND_PART: u64 = 2;
/// A cache that was lost before the border moves it back there, but at most by this part of it.
const LOST_PART: u64 = 8;
/// Caches found in this outer part of the border move it out.
const OUTER_PART: u64 = 8;
/// The border moves out by this part, until a cache is lost before it.
const FIRST_PROBE_PART: u64 = 8;
/// The border moves out by this part after a long time without losses.
const PROBE_PART: u64 = 256;
/// What an engine that offloads is assumed to keep before it has lost a cache.
const UNBOUNDED: u64 = 1 << 40;
/// Number of caches that must be found after a loss until the border is probed again.
const CALM_FOUND: u32 = 600;

/// A cache.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
struct Cache {
    /// The number of its last use.
    used: u64,
    tokens: u64,
    /// Tokens used since its previous use, itself included.
    distance: u64,
    /// A step of the program is there whose answer comes in one piece: the cache is in use,
    /// whenever it was last used.
    #[serde(default)]
    at_work: bool,
}

/// The observations at the end of a step.
#[derive(Clone, Copy, Debug)]
pub struct Observation {
    /// Whether the engine still had the cache of the previous step, if known.
    pub found: Option<bool>,
    /// Whether programs wait for memory: more would be used if it were there.
    pub wanted: bool,
}

/// The caches used at one worker, and how much the engine keeps of them.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub(super) struct Reuse {
    caches: BTreeMap<ProgramId, Cache>,
    /// The caches by last use.
    by_use: BTreeMap<u64, (ProgramId, u64)>,
    uses: u64,
    /// Tokens of all caches.
    tokens: u64,
    /// Tokens that the engine keeps beyond its KV memory.
    beyond_tokens: u64,
    /// Number of caches still to be found until the border is probed; `None` before the first loss.
    #[serde(default)]
    calm: Option<u32>,
}

impl Reuse {
    /// The initial state for an engine, by whether it reports that it offloads.
    pub(super) fn of_engine(offloads: bool) -> Self {
        Self {
            beyond_tokens: if offloads { UNBOUNDED } else { 0 },
            ..Self::default()
        }
    }

    /// True if nothing is known; an engine that reports that it offloads is known to.
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// True for an engine that offloads and has lost no cache yet.
    pub(super) fn is_unbounded(&self) -> bool {
        self.beyond_tokens >= UNBOUNDED
    }

    /// Tokens of caches that the engine keeps beyond its KV memory.
    pub(super) fn beyond_tokens(&self) -> u64 {
        self.beyond_tokens
    }

    /// The same number, limited to what was observed.
    pub(super) fn seen_beyond_tokens(&self, capacity_tokens: u64) -> u64 {
        if self.is_unbounded() {
            self.tokens.saturating_sub(capacity_tokens)
        } else {
            self.beyond_tokens
        }
    }

    /// Records that a step of the program is sent to the worker. What the worker uses before the
    /// step's turn counts too, but is unknown if answers come in one piece: then `whole` is the
    /// number of the prompt's own tokens there.
    pub(super) fn sent(&mut self, program: ProgramId, whole: Option<u64>, capacity_tokens: u64) {
        let distance = self.distance(program, capacity_tokens);
        if let Some(tokens) = whole.filter(|_| !self.caches.contains_key(&program)) {
            self.touch(program, tokens, 0, capacity_tokens);
        }
        if let Some(cache) = self.caches.get_mut(&program) {
            cache.distance = distance;
            cache.at_work = whole.is_some();
        }
    }

    /// Records that the step has left the worker, for whatever reason.
    pub(super) fn left(&mut self, program: ProgramId) {
        if let Some(cache) = self.caches.get_mut(&program) {
            cache.at_work = false;
        }
    }

    /// Records that the worker has computed the step's prompt, with `tokens` of the program's own.
    pub(super) fn computed(&mut self, program: ProgramId, tokens: u64, capacity_tokens: u64) {
        let distance = self.distance(program, capacity_tokens);
        self.touch(program, tokens, distance, capacity_tokens);
    }

    /// Records that the step has ended with a context of `tokens` of its own.
    pub(super) fn end(
        &mut self,
        program: ProgramId,
        tokens: u64,
        seen: Observation,
        capacity: u64,
    ) {
        let distance = self.caches.get(&program).map_or(0, |cache| cache.distance);
        if let Some(found) = seen.found.filter(|_| distance > 0) {
            let reach = capacity.saturating_add(self.beyond_tokens);
            let reach = if found {
                self.reach_of_found(reach, distance, seen.wanted)
            } else {
                self.reach_of_lost(reach, distance)
            };
            let most = capacity.saturating_mul(REACH_MAX - 1);
            let beyond = reach.saturating_sub(capacity);
            if beyond < UNBOUNDED {
                self.beyond_tokens = beyond.min(most);
            }
        }
        self.touch(program, tokens, 0, capacity);
    }

    fn reach_of_found(&mut self, reach: u64, distance: u64, wanted: bool) -> u64 {
        if self.is_unbounded() {
            return reach;
        }
        self.calm = self.calm.map(|found| found.saturating_sub(1));
        let part = match self.calm {
            None => FIRST_PROBE_PART,
            Some(0) => PROBE_PART,
            Some(_) => u64::MAX,
        };
        let further = if wanted && distance > reach - reach / OUTER_PART {
            reach / part
        } else {
            0
        };
        reach + distance.saturating_sub(reach) / FOUND_PART + further
    }

    fn reach_of_lost(&mut self, reach: u64, distance: u64) -> u64 {
        // More than was ever used cannot have been kept.
        let reach = reach.min(self.tokens.max(distance));
        if distance < reach {
            self.calm = Some(CALM_FOUND);
        }
        reach - reach.saturating_sub(distance).min(reach / LOST_PART)
    }

    /// Tokens used since the program's last use, its own included; 0 if it was never used, or if
    /// everything fits into the engine's KV memory.
    fn distance(&self, program: ProgramId, capacity_tokens: u64) -> u64 {
        let Some(cache) = self.caches.get(&program) else {
            return 0;
        };
        if self.tokens <= capacity_tokens {
            return 0;
        }
        let since = self.by_use.range(cache.used..);
        let since: u64 = since.map(|(_, (_, tokens))| *tokens).sum();
        let is_in_use = |other: &&Cache| other.at_work && other.used < cache.used;
        let in_use = self.caches.values().filter(is_in_use);
        since + in_use.map(|other| other.tokens).sum::<u64>()
    }

    fn touch(&mut self, program: ProgramId, tokens: u64, distance: u64, capacity_tokens: u64) {
        self.forget(program);
        self.uses += 1;
        let used = self.uses;
        let cache = Cache {
            used,
            tokens,
            distance,
            at_work: false,
        };
        self.caches.insert(program, cache);
        self.by_use.insert(used, (program, tokens));
        self.tokens = self.tokens.saturating_add(tokens);
        let most = capacity_tokens.saturating_mul(REACH_MAX);
        while self.tokens > most || self.caches.len() > CACHES_MAX {
            let Some((_, (oldest, _))) = self.by_use.first_key_value() else {
                return;
            };
            self.forget(*oldest);
        }
    }

    fn forget(&mut self, program: ProgramId) {
        if let Some(cache) = self.caches.remove(&program) {
            self.by_use.remove(&cache.used);
            self.tokens = self.tokens.saturating_sub(cache.tokens);
        }
    }

    /// Recomputes its sums; for tests.
    pub(super) fn assert_sums(&self) {
        let sum: u64 = self.caches.values().map(|cache| cache.tokens).sum();
        assert_eq!(sum, self.tokens, "tokens of caches that were used");
        assert_eq!(self.caches.len(), self.by_use.len(), "caches by their use");
    }
}

#[cfg(test)]
mod tests {
    use super::{Observation, Reuse, UNBOUNDED};
    use std::collections::VecDeque;
    use treadle_model::ProgramId;

    /// What is learnt of an engine that keeps `keeps` tokens of caches, while `programs` take turns
    /// on it.
    fn learnt(keeps: u64, capacity: u64, programs: u64, wanted: bool) -> u64 {
        learnt_of(Reuse::default(), keeps, capacity, programs, wanted)
    }

    fn learnt_of(mut reuse: Reuse, keeps: u64, capacity: u64, programs: u64, wanted: bool) -> u64 {
        let mut engine: VecDeque<(u64, u64)> = VecDeque::new();
        for turn in 0..4_000_u64 {
            let (program, tokens) = (turn * turn % 97 % programs, 50 + turn % 7);
            let has = engine.iter().position(|(each, _)| *each == program);
            reuse.sent(ProgramId(program), None, capacity);
            reuse.computed(ProgramId(program), tokens, capacity);
            if let Some(index) = has {
                engine.remove(index);
            }
            engine.push_back((program, tokens));
            while engine.iter().map(|(_, tokens)| tokens).sum::<u64>() > keeps {
                engine.pop_front();
            }
            let found = Some(has.is_some());
            reuse.end(
                ProgramId(program),
                tokens,
                Observation { found, wanted },
                capacity,
            );
            reuse.assert_sums();
        }
        reuse.beyond_tokens()
    }

    #[test]
    fn an_engine_without_host_memory_keeps_its_kv_memory() {
        for wanted in [false, true] {
            let beyond = learnt(500, 500, 40, wanted);
            assert!(beyond < 50, "{beyond}");
        }
    }

    #[test]
    fn host_memory_is_found_by_what_is_found_there() {
        for wanted in [false, true] {
            let beyond = learnt(1_200, 500, 40, wanted);
            assert!((500..900).contains(&beyond), "{beyond}");
        }
    }

    #[test]
    fn ample_host_memory_is_found_while_programs_wait_for_it() {
        // Twelve programs of some fifty tokens, 620 in all, use more than is known to be there.
        let (known, probed) = (learnt(5_000, 500, 12, false), learnt(5_000, 500, 12, true));
        assert!(known < 200, "{known}");
        assert!((200..350).contains(&probed), "{probed}");
    }

    #[test]
    fn an_engine_that_offloads_keeps_everything_until_it_loses_a_cache() {
        let of = |keeps, programs| learnt_of(Reuse::of_engine(true), keeps, 500, programs, true);
        assert_eq!(of(5_000, 40), UNBOUNDED);
        let beyond = of(1_200, 40);
        assert!((500..900).contains(&beyond), "{beyond}");
        let beyond = of(500, 40);
        assert!(beyond < 50, "{beyond}");
    }

    #[test]
    fn nothing_is_learnt_while_everything_fits() {
        assert_eq!(learnt(5_000, 5_000, 40, true), 0);
    }

    #[test]
    fn what_is_at_work_is_in_use_where_answers_come_in_one_piece() {
        let capacity = 250;
        let mut reuse = Reuse::default();
        for program in 0..3 {
            reuse.sent(ProgramId(program), Some(100), capacity);
        }
        let seen = Observation {
            found: Some(true),
            wanted: false,
        };
        // Each was sent before the others ended, and each is tracked from then on.
        for program in [2, 1] {
            reuse.end(ProgramId(program), 100, seen, capacity);
        }
        assert_eq!(
            reuse.distance(ProgramId(2), capacity),
            300,
            "with the one at work"
        );
        reuse.left(ProgramId(0));
        assert_eq!(reuse.distance(ProgramId(2), capacity), 200);
        assert_eq!(reuse.beyond_tokens(), 0, "of first steps nothing is learnt");
    }

    #[test]
    fn what_is_followed_is_bounded() {
        let mut reuse = Reuse::default();
        for program in 0..10_000 {
            reuse.computed(ProgramId(program), 100, 1_000);
        }
        assert_eq!(reuse.tokens, 64_000);
        reuse.assert_sums();
    }
}
