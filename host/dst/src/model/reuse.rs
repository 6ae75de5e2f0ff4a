//! What an engine keeps beyond its KV memory, from the order in which caches were used there and
//! whether they were found ([memory pressure] has the rules).
//!
//! [memory pressure]: ../../../../docs/internals/eviction.md

use super::Model;
use super::facts::At;
use super::prefill::is_missing;
use treadle_core::StepTokens;
use treadle_model::{ProgramId, StepId, WorkerId};

/// Caches that are followed at a worker, and how many times its KV memory they are at most.
const FOLLOWED_MAX: usize = 4_096;
const TIMES_MAX: u64 = 64;
/// A context of its own of fewer tokens tells nothing.
const TELLING_TOKENS: u64 = 1_024;

/// A use of a cache.
#[derive(Clone, Debug)]
struct Use {
    program: ProgramId,
    tokens: u64,
    /// What was used since the use before, this one included.
    distance: u64,
}

/// All of one worker, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Uses {
    order: Vec<Use>,
    beyond: u64,
}

impl Uses {
    /// What it keeps beyond so many tokens of KV memory; little is as good as nothing.
    pub(super) fn beyond(&self, capacity: u64) -> u64 {
        if self.beyond > capacity / 8 {
            self.beyond
        } else {
            0
        }
    }

    fn tokens_from(&self, at: usize) -> u64 {
        self.order[at..].iter().map(|used| used.tokens).sum()
    }

    fn position(&self, program: ProgramId) -> Option<usize> {
        self.order.iter().position(|used| used.program == program)
    }

    fn distance(&self, program: ProgramId, capacity: u64) -> u64 {
        let at = self
            .position(program)
            .filter(|_| self.tokens_from(0) > capacity);
        at.map_or(0, |at| self.tokens_from(at))
    }

    fn used(&mut self, program: ProgramId, tokens: u64, distance: u64, capacity: u64) {
        self.order.retain(|used| used.program != program);
        self.order.push(Use {
            program,
            tokens,
            distance,
        });
        while self.order.len() > FOLLOWED_MAX || self.tokens_from(0) > capacity * TIMES_MAX {
            self.order.remove(0);
        }
    }

    fn compare(&mut self, distance: u64, found: bool, capacity: u64) {
        let keeps = capacity + self.beyond;
        let shows = self.beyond > 0 || distance >= capacity + capacity / 3;
        let keeps = match found {
            true if distance > keeps && shows => keeps + (distance - keeps) / 2,
            false if distance < keeps => keeps - (keeps - distance) / 4,
            _ => keeps,
        };
        self.beyond = keeps
            .saturating_sub(capacity)
            .min(capacity * (TIMES_MAX - 1));
    }
}

impl Model {
    /// A step of the program goes to the worker.
    pub(super) fn cache_is_wanted(&mut self, step: StepId, worker: WorkerId) {
        let Some(program) = self.steps.get(&step).map(|s| s.program) else {
            return;
        };
        if let Some((uses, capacity)) = self.uses_at(worker) {
            let distance = uses.distance(program, capacity);
            if let Some(at) = uses.position(program) {
                uses.order[at].distance = distance;
            }
        }
    }

    /// Its prompt is computed there.
    pub(super) fn cache_is_used(&mut self, step: StepId) {
        let Some(s) = self.steps.get(&step) else {
            return;
        };
        let (At::Worker(worker, _), program) = (s.at, s.program) else {
            return;
        };
        let prefix = self.programs[&program].prefix_tokens();
        let own = s.prompt_tokens.saturating_sub(prefix);
        if let Some((uses, capacity)) = self.uses_at(worker) {
            let distance = uses.distance(program, capacity);
            uses.used(program, own, distance, capacity);
        }
    }

    /// It has ended there.
    pub(super) fn cache_is_compared(&mut self, step: StepId, tokens: StepTokens) {
        let Some(s) = self.steps.get(&step) else {
            return;
        };
        let (At::Worker(worker, _), program) = (s.at, s.program) else {
            return;
        };
        let p = &self.programs[&program];
        let before = p.context_tokens.saturating_sub(p.last_output_tokens);
        let own_before = before.saturating_sub(p.prefix_tokens());
        let tells = own_before >= TELLING_TOKENS && tokens.prompt >= before;
        let missing = |cached: u64| before.saturating_sub(cached.min(tokens.prompt));
        let cached = tokens.cached.filter(|_| tells);
        let found = cached.map(|cached| {
            let own = own_before.saturating_sub(missing(cached));
            !is_missing(own, own_before)
        });
        let own = (tokens.prompt + tokens.output).saturating_sub(p.prefix_tokens());
        if let Some((uses, capacity)) = self.uses_at(worker) {
            let at = uses.position(program);
            let distance = at.map_or(0, |at| uses.order[at].distance);
            if let Some(found) = found.filter(|_| distance > 0) {
                uses.compare(distance, found, capacity);
            }
            uses.used(program, own, 0, capacity);
        }
    }

    /// Where treadle offloads caches itself, and on engines with slots, nothing is learnt.
    fn uses_at(&mut self, worker: WorkerId) -> Option<(&mut Uses, u64)> {
        let learns = self.config.kv.retention && self.config.kv.host_tokens_max == 0;
        let w = self.workers.get_mut(&worker).filter(|_| learns)?;
        let capacity = w.capacity.tokens.filter(|_| w.capacity.slots.is_none())?;
        Some((&mut w.uses, capacity))
    }
}
