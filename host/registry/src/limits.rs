//! Limits of policies from the configuration.

use treadle_config::PluginsConfig;
use treadle_policy::evaluator::{EvaluatorLimits, TrialLimits};

/// The limits beyond which a policy is rolled back.
pub fn evaluator_limits(plugins: &PluginsConfig) -> EvaluatorLimits {
    EvaluatorLimits {
        breaker: plugins.breaker(),
        trial: TrialLimits {
            steps_min: plugins.canary_steps_min,
            regret_max: plugins.canary_regret_max_percent as f64 / 100.0,
        },
        is_repeatable: false,
    }
}
