//! The configuration of the policy.

use std::ops::RangeInclusive;

use heddle_partition::{Interference, Iteration, check_measured};
use serde::Deserialize;
use serde_json::{Value, json};
use treadle_plugin::ConfigValue;

/// Maximum number of `classes`.
const CLASSES_MAX: u64 = 64;

treadle_plugin::choice! {
    /// Model of when a worker ends.
    pub enum Objective {
        /// Formula 2 of the paper.
        Paper = "paper",
        /// The batch shrinks as programs finish.
        Drained = "drained",
        /// As `Drained`, and contexts grow, and memory limits the batch.
        Fluid = "fluid",
        /// As `Fluid`, unless there is more work than the longest programs take: then all lengths
        /// are mixed.
        Mixed = "mixed",
    }
}

impl Objective {
    /// Whether the model includes contexts.
    pub(crate) fn is_fluid(self) -> bool {
        matches!(self, Self::Fluid | Self::Mixed)
    }
}

treadle_plugin::choice! {
    /// Which worker gets the longest group.
    pub enum Order {
        /// The fastest worker.
        Speed = "speed",
        /// The one for which the latest end is earliest.
        Any = "any",
    }
}

treadle_plugin::choice! {
    /// How moves are chosen.
    pub enum Migrate {
        /// Moves that make the worker that ends last end sooner.
        Makespan = "makespan",
        /// By rank in the plan's scaled group sizes (§5.3).
        Scaled = "scaled",
        /// No moves.
        Never = "never",
    }
}

/// A kind of worker.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// KV cache in tokens, by which workers are recognised.
    pub capacity_tokens: u64,
    /// Time per token of one program by itself, in microseconds.
    pub token_us: f64,
    /// Points of batch size and factor; `None` for the default profile.
    #[serde(default)]
    pub interference: Option<Vec<(u32, f64)>>,
    /// What an iteration takes, for `"fluid"`; derived from the default profile where
    /// it is `None`.
    #[serde(default)]
    pub pace: Option<Iteration>,
}

impl ConfigValue for Class {
    type Bound = u32;

    fn of(value: &Value) -> Result<Self, String> {
        let class = Self::deserialize(value).map_err(|error| format!("a class ({error})"))?;
        let points = class.interference.as_deref();
        check_measured(class.token_us, points, class.pace.as_ref())?;
        Ok(class)
    }

    fn json(&self) -> Value {
        Value::Null
    }

    fn schema(_bounds: Option<&RangeInclusive<u32>>) -> Value {
        json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["capacity_tokens", "token_us"],
            "properties": {
                "capacity_tokens": {"type": "integer", "minimum": 0},
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
        /// shrinks as programs finish; `fluid`, contexts also grow, and memory limits the batch;
        /// `mixed`, as `fluid`, unless there is more work than the longest programs take: then all
        /// lengths are mixed.
        objective: Objective = Objective::Paper;
        /// Which worker gets the longest group: the fastest (`speed`), or the one for which the
        /// latest end is earliest (`any`).
        order: Order = Order::Speed;
        /// Length of a program without a prediction, in tokens.
        default_tokens: f64 = 4_096.0, 1.0..=1e9;
        /// How moves are chosen: `makespan`, so that the worker that ends last ends sooner;
        /// `scaled`, by rank in the plan's scaled group sizes (§5.3); `never`.
        migrate: Migrate = Migrate::Makespan;
        /// Minimum gain of a move, as a share.
        gain: f64 = 0.1, 0.001..=1.0;
        /// Maximum number of programs that one answer moves.
        moves_max: u32 = 8;
        /// Whether reasoning programs may be chosen too: they move in their next tool call.
        ahead: bool = true;
        /// Growth of a context in tokens per generated token, including tool results; null for the
        /// jobs' measured growth.
        growth: Option<f64> = None, 0.0..=1e3;
        /// Time in tools per generated token, in microseconds, for `fluid`; null for the jobs'
        /// measured time.
        tool_us: Option<f64> = None, 0.0..=1e9;
        /// Upper limit on the tokens that a program generates, for `mixed`; null if unknown.
        longest_tokens: Option<f64> = None, 1.0..=1e9;
        /// Kinds of workers. Without any, the measured speeds of workers are used.
        classes: Vec<Class> = Vec::new(), 0..=CLASSES_MAX;
        /// Limit on concurrent programs, as a multiple of those that the KV cache holds; null for
        /// no limit.
        kv_bound: Option<f64> = None, 0.01..=1e6;
    }
}

#[cfg(test)]
mod tests {
    use treadle_plugin::Config as _;

    use super::*;

    #[test]
    fn refusals_name_the_key() {
        let class = |rest: &str| {
            format!("{{\"classes\": [{{\"capacity_tokens\": 1, \"token_us\": 1, {rest}}}]}}")
        };
        for (json, key) in [
            (r#"{"migrate": "often"}"#.to_owned(), "often"),
            (r#"{"gain": 0}"#.to_owned(), "gain"),
            (r#"{"longest_tokens": 0}"#.to_owned(), "longest_tokens"),
            (r#"{"kv_bound": -1}"#.to_owned(), "kv_bound"),
            (r#"{"default_tokens": 0}"#.to_owned(), "default_tokens"),
            (class("\"interference\": [[4, 2], [8, 1]]"), "interference"),
            (class("\"colour\": 1"), "colour"),
            (r#"{"colour": 1}"#.to_owned(), "colour"),
        ] {
            let error = Config::parse(&json).unwrap_err();
            assert!(error.message.contains(key), "{json}: {error}");
        }
    }
}
