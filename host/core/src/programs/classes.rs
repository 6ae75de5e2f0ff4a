//! Engines of one class: the same software, model, GPUs and memory. What is known of one stands in for
//! what is not known of another yet.

use crate::programs::pace::{DecodePace, DecodeTime};
use crate::programs::speed::PrefillSpeed;
use crate::programs::worker::Worker;
use crate::programs::{Programs, State};
use serde::{Deserialize, Serialize};
use treadle_model::{EngineKind, Timestamp, WorkerId};

/// Classes of engines that are remembered; the one that was not seen for longest makes room.
pub const CLASSES_MAX: usize = 64;

/// What was last known of engines that are there no more, by software, model and number of GPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineClass {
    /// Their software.
    pub engine: EngineKind,
    /// Their model, where they told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Box<str>>,
    /// GPUs that each ran on, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// What one held, in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_tokens: Option<u64>,
    /// How long it took for a token.
    pub time: DecodeTime,
    /// Prompt tokens that it computed in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefill_tokens_per_s: Option<u64>,
    /// When it was last there.
    pub at: Timestamp,
}

impl EngineClass {
    fn is_of(&self, worker: &Worker) -> bool {
        let class = (self.engine, self.gpus);
        class == (worker.engine, worker.capacity.gpus) && self.model == worker.model
    }
}

/// The classes that are remembered, the one that was seen last at the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EngineClasses(Vec<EngineClass>);

impl EngineClasses {
    /// True if none is.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, the one that was seen last first.
    pub fn iter(&self) -> impl Iterator<Item = &EngineClass> {
        self.0.iter().rev()
    }

    fn of(&self, worker: &Worker) -> Option<&EngineClass> {
        // Without a model nobody knows whether they are alike.
        let told = worker.model.is_some();
        self.iter().find(|class| told && class.is_of(worker))
    }

    /// A worker goes. What is only said of it replaces nothing that was seen.
    fn see(&mut self, worker: &Worker, now: Timestamp) {
        let Some(time) = worker.pace.time() else {
            return;
        };
        let known = self.0.iter().position(|class| class.is_of(worker));
        if known.is_some() && !worker.pace.is_learnt() {
            return;
        }
        let before = known.map(|place| self.0.remove(place));
        let before = before.and_then(|class| class.prefill_tokens_per_s);
        if self.0.len() >= CLASSES_MAX {
            self.0.remove(0);
        }
        self.0.push(EngineClass {
            engine: worker.engine,
            model: worker.model.clone(),
            gpus: worker.capacity.gpus,
            capacity_tokens: worker.capacity.tokens,
            time,
            prefill_tokens_per_s: worker.prefill_speed.tokens_per_s().or(before),
            at: now,
        });
    }
}

impl Programs {
    /// A worker goes, or another engine is there: what is known of it is kept for its like.
    pub(crate) fn remember_class(&mut self, worker: WorkerId) {
        if let Some(w) = self.state.workers.get(&worker) {
            self.state.classes.see(w, self.state.now);
        }
    }
}

impl Worker {
    /// Whether they are of one class.
    fn is_like(&self, other: &Self) -> bool {
        let class = |w: &Self| (w.engine, w.capacity.gpus, w.capacity.tokens);
        class(self) == class(other) && self.model == other.model
    }

    /// Whether it would be another engine at the same address. One of which nothing was known is not.
    pub(crate) fn is_another(&self, engine: EngineKind, gpus: Option<u32>) -> bool {
        let is_other = self.engine != EngineKind::Openai && self.engine != engine;
        let others = self.capacity.gpus.zip(gpus);
        is_other || others.is_some_and(|(known, gpus)| known != gpus)
    }

    /// It may be slower or faster when it comes back: what is known of it holds until its own steps
    /// tell.
    pub(crate) fn remember_speeds(&mut self) {
        self.pace = self.pace.remembered();
        self.prefill_speed = self.prefill_speed.remembered();
    }

    /// Another engine is there.
    pub(crate) fn forget_speeds(&mut self) {
        self.pace = DecodePace::default();
        self.prefill_speed = PrefillSpeed::default();
    }
}

impl State {
    /// How long a worker takes for a token: as is known of it, else of others of its class, else of
    /// the last that were there.
    pub fn decode_time_of(&self, worker: &Worker) -> Option<DecodeTime> {
        worker.pace.time().or_else(|| {
            let mut all = DecodePace::default();
            for w in self.workers.values().filter(|w| w.is_like(worker)) {
                all.add(&w.pace);
            }
            let gone = || self.classes.of(worker).map(|class| class.time);
            all.time().or_else(gone)
        })
    }

    /// Prompt tokens that a worker computes in a second, alike: the median of others.
    pub fn prefill_speed_of(&self, worker: &Worker) -> Option<u64> {
        worker.prefill_speed.tokens_per_s().or_else(|| {
            let others = self.workers.values().filter(|w| w.is_like(worker));
            let known = others.filter_map(|w| w.prefill_speed.tokens_per_s());
            let gone = || self.classes.of(worker)?.prefill_tokens_per_s;
            lower_median(known.collect()).or_else(gone)
        })
    }
}

/// An engine that counts as computed what it found looks faster than any is: one of two is not
/// believed.
pub(crate) fn lower_median(mut speeds: Vec<u64>) -> Option<u64> {
    let middle = speeds.len().checked_sub(1)? / 2;
    Some(*speeds.select_nth_unstable(middle).1)
}

#[cfg(test)]
mod tests {
    use super::lower_median;

    #[test]
    fn one_of_two_that_looks_fast_is_not_believed() {
        assert_eq!(lower_median(Vec::new()), None);
        assert_eq!(lower_median(vec![15_000]), Some(15_000));
        assert_eq!(lower_median(vec![900_000, 15_000]), Some(15_000));
        assert_eq!(lower_median(vec![14_000, 900_000, 15_000]), Some(15_000));
    }
}
