//! The configuration of the policy.

use crate::choose::EarlyStop;

treadle_plugin::choice! {
    /// Which running members of a pruned group end; see [`EarlyStop`].
    pub enum Stop {
        /// Those that are not among the shortest.
        Exact = "exact",
        /// All others, once enough have ended.
        First = "first",
    }
}

impl Stop {
    pub(crate) fn rule(self) -> EarlyStop {
        match self {
            Self::Exact => EarlyStop::Exact,
            Self::First => EarlyStop::First,
        }
    }
}

treadle_plugin::config! {
    /// Configuration of the policy.
    pub struct Config {
        /// Members that are sampled for each one that is trained, as long as lengths spread as much
        /// as at first.
        ratio: f64 = 1.5, 1.0..=2.0;
        /// Trained members of a group that are its longest, not its shortest.
        long: u32 = 1, 0..=1_024;
        /// Which running members of a group that samples as many as it may end early: `exact` those
        /// that are not among the shortest, `first` all, once enough have ended.
        early_stop: Stop = Stop::Exact;
        /// Weight of the newest lengths of a prompt in its average.
        prompt_weight: f64 = 0.5, 0.01..=1.0;
        /// Weight of the newest lengths of all prompts in their average.
        batch_weight: f64 = 0.1, 0.01..=1.0;
        /// Prompts that are remembered.
        prompts_max: u32 = 65_536, 1_024..=131_072;
    }
}
