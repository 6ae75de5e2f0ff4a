//! The configuration and its JSON form.

use heddle_partition::{Interference, Iteration};
use serde::Deserialize;
use treadle_plugin::PolicyError;

/// Most plans that are looked at one by one.
pub(crate) const PLANS_MAX: usize = 1_000_000;
/// Most entries of `classes`.
const CLASSES_MAX: usize = 64;
/// Largest time per token, in microseconds.
const TOKEN_US_MAX: f64 = 1e9;
const PROMPT_TOKENS_MAX: f64 = 1e9;

/// When a worker ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Goal {
    /// Formula 2 of the paper.
    Paper,
    /// The batch shrinks as programs finish.
    Drained,
    /// That, and contexts grow, and memory bounds the batch.
    Fluid,
}

/// How plans are searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Search {
    /// One by one where there are few, else by annealing.
    Auto,
    /// Algorithm 2.
    Annealing,
    /// One by one.
    Exhaustive,
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

/// What the policy does; the crate's first page has the table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// When a worker ends.
    pub objective: Goal,
    /// How plans are searched.
    pub search: Search,
    /// Most plans that `auto` looks at one by one.
    pub plans_max: usize,
    /// Temperature after a step, as a share of that before.
    pub cooling: f64,
    /// Temperature at the end, as a share of the first.
    pub epsilon: f64,
    /// Of the annealing; `None` for the host's random stream.
    pub seed: Option<u64>,
    /// KV memory of a program beside its expected tokens.
    pub prompt_tokens: f64,
    /// Tokens by which a context grows with each generated one, for `"fluid"`.
    pub growth: f64,
    /// Time in tools for each generated token, in microseconds, for `"fluid"`.
    pub tool_us: f64,
    /// What was measured.
    pub classes: Vec<Class>,
    /// Names of the extra columns; they are not used.
    pub extra: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            objective: Goal::Paper,
            search: Search::Auto,
            plans_max: 4_096,
            cooling: 0.997,
            epsilon: 0.001,
            seed: None,
            prompt_tokens: 0.0,
            growth: 1.0,
            tool_us: 0.0,
            classes: Vec::new(),
            extra: Vec::new(),
        }
    }
}

impl Config {
    /// Reads the JSON form.
    ///
    /// # Errors
    /// `invalid-config`, naming the key: an unknown key or a value out of range.
    pub fn parse(json: &str) -> Result<Self, PolicyError> {
        let config: Self = serde_json::from_str(json)
            .map_err(|error| PolicyError::invalid_config(error.to_string()))?;
        within("plans_max", config.plans_max as f64, 0.0, PLANS_MAX as f64)?;
        // A hundred thousand steps at most.
        within("cooling", config.cooling, 0.0, 0.9999)?;
        within("epsilon", config.epsilon, 1e-4, 1.0)?;
        within(
            "prompt_tokens",
            config.prompt_tokens,
            0.0,
            PROMPT_TOKENS_MAX,
        )?;
        within("growth", config.growth, 0.0, 1e3)?;
        within("tool_us", config.tool_us, 0.0, 1e9)?;
        within(
            "classes",
            config.classes.len() as f64,
            0.0,
            CLASSES_MAX as f64,
        )?;
        for class in &config.classes {
            let token_us = class.token_us.unwrap_or(1.0);
            within("classes.token_us", token_us, 1e-3, TOKEN_US_MAX)?;
            for (key, value, least, most) in class.pace.iter().flat_map(Iteration::bounds) {
                within(&format!("classes.pace.{key}"), value, least, most)?;
            }
            class.profile().map_err(|wrong| {
                PolicyError::invalid_config(format!("classes.interference {wrong}"))
            })?;
        }
        Ok(config)
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
}

fn within(key: &str, value: f64, min: f64, max: f64) -> Result<(), PolicyError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(PolicyError::invalid_config(format!(
        "{key} is {value}; give a number from {min} to {max}"
    )))
}

#[cfg(test)]
mod tests {
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
