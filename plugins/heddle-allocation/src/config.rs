//! The configuration of the policy.

use std::ops::RangeInclusive;

use heddle_partition::{Interference, Iteration, check_measured};
use serde::Deserialize;
use serde_json::{Value, json};
use treadle_plugin::ConfigValue;

/// Largest allowed `plans_max`.
pub(crate) const PLANS_MAX: u64 = 1_000_000;
/// Maximum number of `classes`.
const CLASSES_MAX: u64 = 64;
/// Largest allowed `prompt_tokens`.
pub(crate) const PROMPT_TOKENS_MAX: f64 = 1e9;

treadle_plugin::choice! {
    /// Model of when a worker ends.
    pub enum Goal {
        /// Formula 2 of the paper.
        Paper = "paper",
        /// The batch shrinks as programs finish.
        Drained = "drained",
        /// As `Drained`, and contexts grow, and memory limits the batch.
        Fluid = "fluid",
    }
}

treadle_plugin::choice! {
    /// Search method for plans.
    pub enum Search {
        /// Exhaustive if there are few plans, else annealing.
        Auto = "auto",
        /// Algorithm 2.
        Annealing = "annealing",
        /// Exhaustive.
        Exhaustive = "exhaustive",
    }
}

/// Measurements of a degree of parallelism.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// The degree.
    pub degree: u32,
    /// Time per token of one program by itself, in microseconds; `None` for the call's figure.
    #[serde(default)]
    pub token_us: Option<f64>,
    /// Points of batch size and factor; `None` for the default profile.
    #[serde(default)]
    pub interference: Option<Vec<(u32, f64)>>,
    /// Duration of an iteration, for `"fluid"`.
    #[serde(default)]
    pub pace: Option<Iteration>,
}

impl ConfigValue for Class {
    type Bound = u32;

    fn of(value: &Value) -> Result<Self, String> {
        let class = Self::deserialize(value).map_err(|error| format!("a class ({error})"))?;
        let points = class.interference.as_deref();
        check_measured(class.token_us.unwrap_or(1.0), points, class.pace.as_ref())?;
        Ok(class)
    }

    fn json(&self) -> Value {
        Value::Null
    }

    fn schema(_bounds: Option<&RangeInclusive<u32>>) -> Value {
        json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["degree"],
            "properties": {
                "degree": {"type": "integer", "minimum": 1},
                "token_us": {"type": "number", "minimum": 1e-3, "maximum": 1e9},
                "interference": {"type": ["array", "null"]},
                "pace": {"type": ["object", "null"]},
            },
        })
    }
}

impl Class {
    /// The interference profile; the default one if none is configured.
    ///
    /// # Errors
    /// What is wrong with the points.
    pub fn profile(&self) -> Result<Interference, String> {
        Interference::of(self.interference.as_deref())
    }
}

treadle_plugin::config! {
    /// Configuration of the policy.
    pub struct Config {
        /// Model of when a worker ends: `paper`, formula 2 of the paper; `drained`, the batch
        /// shrinks as programs finish; `fluid`, contexts also grow, and memory limits the batch.
        objective: Goal = Goal::Paper;
        /// Search method for plans: `auto`, exhaustive if there are few, else annealing;
        /// `annealing`, Algorithm 2; `exhaustive`.
        search: Search = Search::Auto;
        /// Maximum number of plans for which `auto` is exhaustive.
        plans_max: u64 = 4_096, 0..=PLANS_MAX;
        /// Temperature after a step, as a share of the one before.
        cooling: f64 = 0.997, 0.0..=0.9999;
        /// Final temperature, as a share of the first.
        epsilon: f64 = 0.001, 1e-4..=1.0;
        /// Seed of the annealing; null for the host's random stream.
        seed: Option<u64> = None;
        /// Context of a program in addition to its expected tokens; null for the host's figure.
        prompt_tokens: Option<f64> = None, 0.0..=PROMPT_TOKENS_MAX;
        /// Growth of a context in tokens per generated token, for `fluid`; null for the host's
        /// figure.
        growth: Option<f64> = None, 0.0..=1e3;
        /// Time in tools per generated token, in microseconds, for `fluid`; null for the host's
        /// figure.
        tool_us: Option<f64> = None, 0.0..=1e9;
        /// Measurements of degrees of parallelism; without them the host's figures are used.
        classes: Vec<Class> = Vec::new(), 0..=CLASSES_MAX;
    }
}

#[cfg(test)]
mod tests {
    use treadle_plugin::Config as _;

    use super::*;

    #[test]
    fn refusals_name_the_key() {
        for (json, key) in [
            (r#"{"objective": "best"}"#, "best"),
            (r#"{"cooling": 1}"#, "cooling"),
            (r#"{"epsilon": 0}"#, "epsilon"),
            (r#"{"classes": [{"degree": 1, "token_us": 0}]}"#, "token_us"),
            (
                r#"{"classes": [{"degree": 1, "interference": [[2, 1], [1, 1]]}]}"#,
                "interference",
            ),
            (r#"{"classes": [{"colour": 1}]}"#, "colour"),
            (r#"{"colour": 1}"#, "colour"),
        ] {
            let error = Config::parse(json).unwrap_err();
            assert!(error.message.contains(key), "{json}: {error}");
        }
    }
}
