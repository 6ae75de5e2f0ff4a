//! Estimates the size of a save from earlier saves of the same model, to reserve room before the
//! engine begins.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::KvCopy;

/// Maximum number of models with an estimate.
const MODELS_MAX: usize = 64;

/// A planned save.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The engine's model.
    pub(crate) model: Box<str>,
    /// Tokens, as the scheduler counts them; 0 if unknown.
    pub(crate) tokens: u64,
}

/// Bytes and tokens of the last save, by model.
#[derive(Default)]
pub(super) struct Estimates {
    last: Mutex<BTreeMap<Box<str>, (u64, u64)>>,
}

impl Estimates {
    /// Records the size of a save.
    pub(super) fn learn(&self, model: &str, bytes: u64, tokens: u64) {
        if tokens == 0 {
            return;
        }
        let mut last = self.last();
        if last.len() >= MODELS_MAX && !last.contains_key(model) {
            last.clear();
        }
        last.insert(model.into(), (bytes, tokens));
    }

    /// Records the size of an existing copy.
    pub(super) fn learn_of(&self, copy: &KvCopy) {
        self.learn(&copy.tags.model, copy.bytes, copy.prefix.tokens);
    }

    /// Estimated bytes of a save; 0 if unknown.
    pub(super) fn of(&self, plan: &Plan) -> u64 {
        let Some((bytes, tokens)) = self.last().get(&plan.model).copied() else {
            return 0;
        };
        let all = u128::from(plan.tokens) * u128::from(bytes);
        u64::try_from(all.div_ceil(u128::from(tokens))).unwrap_or(u64::MAX)
    }

    fn last(&self) -> MutexGuard<'_, BTreeMap<Box<str>, (u64, u64)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_save_of_a_model_counts() {
        let estimates = Estimates::default();
        let plan = |model: &str, tokens| Plan {
            model: model.into(),
            tokens,
        };
        assert_eq!(estimates.of(&plan("a", 100)), 0);
        estimates.learn("a", 50, 10);
        estimates.learn("a", 0, 0);
        estimates.learn("b", 10, 3);
        assert_eq!(estimates.of(&plan("a", 100)), 500);
        assert_eq!(estimates.of(&plan("b", 1)), 4, "rounded up");
        assert_eq!(estimates.of(&plan("b", 0)), 0);
        assert_eq!(estimates.of(&plan("a", u64::MAX)), u64::MAX);
        for model in 0..2 * MODELS_MAX {
            estimates.learn(&model.to_string(), 1, 1);
        }
        assert!(estimates.last().len() <= MODELS_MAX);
    }
}
