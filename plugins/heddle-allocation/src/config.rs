//! The configuration.

use std::ops::RangeInclusive;

use heddle_partition::{Interference, Iteration};
use serde::Deserialize;
use serde_json::{Value, json};
use treadle_plugin::ConfigValue;

/// Most plans that are looked at one by one.
pub(crate) const PLANS_MAX: u64 = 1_000_000;
/// Most entries of `classes`.
const CLASSES_MAX: u64 = 64;
/// Most context of a program beside its expected tokens.
pub(crate) const PROMPT_TOKENS_MAX: f64 = 1e9;

treadle_plugin::choice! {
    /// When a worker ends.
    pub enum Goal {
        /// Formula 2 of the paper.
        Paper = "paper",
        /// The batch shrinks as programs finish.
        Drained = "drained",
        /// That, and contexts grow, and memory bounds the batch.
        Fluid = "fluid",
    }
}

treadle_plugin::choice! {
    /// How plans are searched.
    pub enum Search {
        /// One by one where there are few, else by annealing.
        Auto = "auto",
        /// Algorithm 2.
        Annealing = "annealing",
        /// One by one.
        Exhaustive = "exhaustive",
    }
}

/// What was measured for a degree of parallelism.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// The degree.
    pub degree: u32,
    /// Time per token of one program alone, in microseconds; `None` for the call's own figure.
    #[serde(default)]
    pub token_us: Option<f64>,
    /// Points of batch size and factor; `None` for the default profile.
    #[serde(default)]
    pub interference: Option<Vec<(u32, f64)>>,
    /// What an iteration takes, for `"fluid"`.
    #[serde(default)]
    pub pace: Option<Iteration>,
}

impl ConfigValue for Class {
    type Bound = u32;

    fn of(value: &Value) -> Result<Self, String> {
        let class = Self::deserialize(value).map_err(|error| format!("a class ({error})"))?;
        class.check()?;
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
    /// The profile; the default one where none was given.
    ///
    /// # Errors
    /// What is wrong with the points.
    pub fn profile(&self) -> Result<Interference, String> {
        let given = self.interference.as_ref();
        given.map_or_else(
            || Ok(Interference::default()),
            |points| Interference::new(points),
        )
    }

    /// Says what is wrong with the numbers.
    fn check(&self) -> Result<(), String> {
        let paces = self.pace.iter().flat_map(Iteration::bounds);
        let pace =
            paces.map(|(key, value, least, most)| (format!("pace.{key}"), value, least, most));
        let token_us = (
            "token_us".to_owned(),
            self.token_us.unwrap_or(1.0),
            1e-3,
            1e9,
        );
        for (key, value, least, most) in std::iter::once(token_us).chain(pace) {
            if !(least..=most).contains(&value) {
                return Err(format!("{key} from {least} to {most}, not {value}"));
            }
        }
        self.profile()
            .map(drop)
            .map_err(|wrong| format!("interference that is right: it {wrong}"))
    }
}

treadle_plugin::config! {
    /// What the policy does.
    pub struct Config {
        /// When a worker ends: `paper`, formula 2 of the paper; `drained`, the batch shrinks as
        /// programs finish; `fluid`, that, and contexts grow, and memory bounds the batch.
        objective: Goal = Goal::Paper;
        /// How plans are searched: `auto`, one by one where there are few, else by annealing;
        /// `annealing`, Algorithm 2; `exhaustive`, one by one.
        search: Search = Search::Auto;
        /// Most plans that `auto` looks at one by one.
        plans_max: u64 = 4_096, 0..=PLANS_MAX;
        /// Temperature after a step, as a share of that before.
        cooling: f64 = 0.997, 0.0..=0.9999;
        /// Temperature at the end, as a share of the first.
        epsilon: f64 = 0.001, 1e-4..=1.0;
        /// Of the annealing; null for the host's random stream.
        seed: Option<u64> = None;
        /// KV memory of a program beside its expected tokens; null for what the host knows.
        prompt_tokens: Option<f64> = None, 0.0..=PROMPT_TOKENS_MAX;
        /// Tokens by which a context grows with each generated one, for `fluid`; null alike.
        growth: Option<f64> = None, 0.0..=1e3;
        /// Time in tools for each generated token, in microseconds, for `fluid`; null alike.
        tool_us: Option<f64> = None, 0.0..=1e9;
        /// What was measured for degrees of parallelism; what the host has seen without it.
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
