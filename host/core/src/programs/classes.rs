//! Engines of one class: the same software, model, GPUs and memory. What is known of one stands in for
//! what is not known of another yet.

use crate::programs::State;
use crate::programs::pace::{DecodePace, DecodeTime};
use crate::programs::speed::PrefillSpeed;
use crate::programs::worker::Worker;
use treadle_model::EngineKind;

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
    /// How long a worker takes for a token: as is known of it, else of others of its class.
    pub fn decode_time_of(&self, worker: &Worker) -> Option<DecodeTime> {
        worker.pace.time().or_else(|| {
            let mut all = DecodePace::default();
            for w in self.workers.values().filter(|w| w.is_like(worker)) {
                all.add(&w.pace);
            }
            all.time()
        })
    }

    /// Prompt tokens that a worker computes in a second, alike: the median of others.
    pub fn prefill_speed_of(&self, worker: &Worker) -> Option<u64> {
        worker.prefill_speed.tokens_per_s().or_else(|| {
            let others = self.workers.values().filter(|w| w.is_like(worker));
            let known = others.filter_map(|w| w.prefill_speed.tokens_per_s());
            lower_median(known.collect())
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
