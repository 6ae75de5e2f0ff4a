//! Classes of engines: the same software, model, GPUs and memory. Data about one engine substitutes
//! for what is not yet known of another.

use crate::estimates::{DecodePace, DecodeTime, PrefillSpeed};
use crate::programs::worker::Worker;
use crate::programs::{Programs, State};
use serde::{Deserialize, Serialize};
use treadle_model::{EngineKind, Timestamp, WorkerId};

/// Maximum number of remembered classes; the one seen least recently is dropped.
pub const CLASSES_MAX: usize = 64;

/// The last data of engines that have left, by software, model and number of GPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineClass {
    /// Their software.
    pub engine: EngineKind,
    /// Their model, if they reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Box<str>>,
    /// GPUs of each, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// Capacity of one, in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_tokens: Option<u64>,
    /// Its time per token.
    pub time: DecodeTime,
    /// Prompt tokens that it computed per second.
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

/// The remembered classes, in the order in which they were last seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EngineClasses(Vec<EngineClass>);

impl EngineClasses {
    /// True if none is remembered.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All classes, the most recently seen first.
    pub fn iter(&self) -> impl Iterator<Item = &EngineClass> {
        self.0.iter().rev()
    }

    fn of(&self, worker: &Worker) -> Option<&EngineClass> {
        // Without a model it is unknown whether they are alike.
        let told = worker.model.is_some();
        self.iter().find(|class| told && class.is_of(worker))
    }

    /// Records a leaving worker. Declared speeds do not replace measured ones.
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
    /// Remembers the speeds of a worker that leaves or gets another engine, for its class.
    pub(crate) fn remember_class(&mut self, worker: WorkerId) {
        if let Some(w) = self.state.workers.get(&worker) {
            self.state.classes.see(w, self.state.now);
        }
    }
}

impl Worker {
    /// Whether both are of one class.
    fn is_like(&self, other: &Self) -> bool {
        let class = |w: &Self| (w.engine, w.capacity.gpus, w.capacity.tokens);
        class(self) == class(other) && self.model == other.model
    }

    /// Whether these reports mean another engine at the same address. Software or GPUs that were
    /// unknown so far do not.
    pub(crate) fn is_another(&self, engine: EngineKind, gpus: Option<u32>) -> bool {
        let is_other = self.engine != EngineKind::Openai && self.engine != engine;
        let others = self.capacity.gpus.zip(gpus);
        is_other || others.is_some_and(|(known, gpus)| known != gpus)
    }

    /// Keeps the known speeds as a starting point, until new steps measure them: the engine may be
    /// slower or faster when it comes back.
    pub(crate) fn remember_speeds(&mut self) {
        self.pace = self.pace.remembered();
        self.prefill_speed = self.prefill_speed.remembered();
    }

    /// Drops the speeds, as another engine is there.
    pub(crate) fn forget_speeds(&mut self) {
        self.pace = DecodePace::default();
        self.prefill_speed = PrefillSpeed::default();
    }
}

impl State {
    /// A worker's time per token: its own, otherwise that of others of its class, otherwise that of
    /// the last ones that left.
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

    /// Prompt tokens that a worker computes per second, chosen in the same order; of others the
    /// median.
    pub fn prefill_speed_of(&self, worker: &Worker) -> Option<u64> {
        worker.prefill_speed.tokens_per_s().or_else(|| {
            let others = self.workers.values().filter(|w| w.is_like(worker));
            let known = others.filter_map(|w| w.prefill_speed.tokens_per_s());
            let gone = || self.classes.of(worker)?.prefill_tokens_per_s;
            lower_median(known.collect()).or_else(gone)
        })
    }
}

/// The lower median: an engine that counts cached tokens as computed looks faster than any is, so
/// the faster of two is not used.
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
