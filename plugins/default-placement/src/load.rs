//! The load of workers, and the effect of placements on it.

use treadle_plugin::WorkerColumns;

/// Predictions are cut to this many tokens.
const REMAINING_TOKENS_MAX: f64 = 1e6;

/// Used and total KV cache of each worker, in tokens.
pub(crate) struct Load {
    used: Vec<f64>,
    capacity: Vec<f64>,
}

impl Load {
    /// Workers of unknown capacity count as the largest known one.
    pub(crate) fn of(workers: &WorkerColumns<'_>) -> Self {
        let largest = workers.capacity_tokens.iter().copied().max().unwrap_or(0);
        let known = |&tokens: &u64| if tokens == 0 { largest } else { tokens };
        Self {
            used: workers
                .used_tokens
                .iter()
                .map(|&used| used as f64)
                .collect(),
            capacity: workers
                .capacity_tokens
                .iter()
                .map(|tokens| known(tokens).max(1) as f64)
                .collect(),
        }
    }

    pub(crate) fn workers(&self) -> usize {
        self.used.len()
    }

    /// Share of a worker's KV cache that is used.
    pub(crate) fn share(&self, worker: usize) -> f64 {
        self.used[worker] / self.capacity[worker]
    }

    /// Share that is used after adding tokens.
    pub(crate) fn share_with(&self, worker: usize, tokens: f64) -> f64 {
        (self.used[worker] + tokens) / self.capacity[worker]
    }

    /// Whether additional tokens fit.
    pub(crate) fn fits(&self, worker: usize, tokens: f64) -> bool {
        self.used[worker] + tokens <= self.capacity[worker]
    }

    /// Share of all KV cache that is used.
    pub(crate) fn mean(&self) -> f64 {
        self.used.iter().sum::<f64>() / self.capacity.iter().sum::<f64>()
    }

    pub(crate) fn add(&mut self, worker: usize, tokens: f64) {
        self.used[worker] += tokens;
    }

    pub(crate) fn remove(&mut self, worker: usize, tokens: f64) {
        self.used[worker] = (self.used[worker] - tokens).max(0.0);
    }
}

/// Tokens that a program's placement will need: its context and its predicted tokens.
pub(crate) fn need(tokens: u64, remaining_tokens: f64) -> f64 {
    // Also 0 without a prediction.
    tokens as f64 + remaining_tokens.clamp(0.0, REMAINING_TOKENS_MAX)
}
