//! The configuration and its JSON form.

use heddle_partition::{Interference, Iteration};
use serde::Deserialize;
use treadle_plugin::PolicyError;

/// Most entries of `classes`.
const CLASSES_MAX: usize = 64;

/// When a worker ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Objective {
    /// Formula 2 of the paper.
    Paper,
    /// The batch shrinks as programs finish.
    Drained,
    /// That, and contexts grow, and memory bounds the batch.
    Fluid,
    /// That, unless there is more work than the longest programs take: then all lengths are
    /// mixed.
    Mixed,
}

impl Objective {
    /// Whether contexts are reckoned with.
    pub(crate) fn is_fluid(self) -> bool {
        matches!(self, Self::Fluid | Self::Mixed)
    }
}

/// Which worker takes the longest group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// The fastest worker.
    Speed,
    /// The one that makes the latest end the earliest.
    Any,
}

/// How moves are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Migrate {
    /// What makes the worker that ends last end sooner.
    Makespan,
    /// By rank in the plan's scaled group sizes (§5.3).
    Scaled,
    /// Not at all.
    Never,
}

/// A kind of worker.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// KV cache in tokens, by which workers are recognised.
    pub capacity_tokens: u64,
    /// Time per token of one program alone, in microseconds.
    pub token_us: f64,
    /// Points of batch size and factor; `None` for the default profile.
    #[serde(default)]
    pub interference: Option<Vec<(u32, f64)>>,
    /// What an iteration takes, for `"fluid"`; derived from the default profile where
    /// it is `None`.
    #[serde(default)]
    pub pace: Option<Iteration>,
}

/// What the policy does; the crate's first page has the table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// When a worker ends.
    pub objective: Objective,
    /// Which worker takes the longest group.
    pub order: Order,
    /// Length of a program without a prediction.
    pub default_tokens: f64,
    /// How moves are chosen.
    pub migrate: Migrate,
    /// What a move must be worth, as a share.
    pub gain: f64,
    /// Most programs that one answer moves.
    pub moves_max: u32,
    /// Whether programs that reason may be named too: they move in their next tool call.
    pub ahead: bool,
    /// Tokens by which a context grows with each generated one, tools included.
    pub growth: f64,
    /// Time in tools for each generated token, in microseconds, for `"fluid"`.
    pub tool_us: f64,
    /// Tokens that no program generates more than, for `"mixed"`; `None` where that is not
    /// known.
    pub longest_tokens: Option<f64>,
    /// Kinds of workers.
    pub classes: Vec<Class>,
    /// Programs at once, as a multiple of those that the KV cache holds; `None` for no
    /// bound.
    pub kv_bound: Option<f64>,
    /// Names of the extra columns; they are not used.
    pub extra: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            objective: Objective::Paper,
            order: Order::Speed,
            default_tokens: 4_096.0,
            migrate: Migrate::Makespan,
            gain: 0.1,
            moves_max: 8,
            ahead: true,
            growth: 1.0,
            tool_us: 0.0,
            longest_tokens: None,
            classes: Vec::new(),
            kv_bound: None,
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
        within("default_tokens", config.default_tokens, 1.0, 1e9)?;
        within("gain", config.gain, 0.001, 1.0)?;
        within("growth", config.growth, 0.0, 1e3)?;
        within("tool_us", config.tool_us, 0.0, 1e9)?;
        let longest_tokens = config.longest_tokens.unwrap_or(1.0);
        within("longest_tokens", longest_tokens, 1.0, 1e9)?;
        within("kv_bound", config.kv_bound.unwrap_or(1.0), 0.01, 1e6)?;
        within(
            "classes",
            config.classes.len() as f64,
            0.0,
            CLASSES_MAX as f64,
        )?;
        for class in &config.classes {
            within("classes.token_us", class.token_us, 1e-3, 1e9)?;
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
        self.interference.as_ref().map_or_else(
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
