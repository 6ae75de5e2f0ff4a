//! A profile as a JSON document: what `treadle calibrate` writes and what reads it.
//!
//! ```json
//! {
//!   "version": 1,
//!   "profile": { "name": "…", "prefill_tokens_per_s": 9000, … },
//!   "calibration": { … }
//! }
//! ```
//!
//! `profile` has the fields of [`EngineProfile`]; those that no preset needs may be missing.
//! `calibration` records how they were measured, for people: it may be missing, and its content is
//! not parsed.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{EngineProfile, TokensTime};

/// The version of the document format.
const VERSION: u32 = 1;
/// Larger speeds, times and sizes are mistakes; up to this no sum of the model overflows.
const VALUE_MAX: u64 = 1_000_000_000;
/// Limit on picoseconds, and on nanoseconds of points.
const FINE_VALUE_MAX: u64 = 1_000_000_000_000;
/// Maximum number of points of a table.
const POINTS_MAX: usize = 4_096;

/// Why a document is not a profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The document is not a profile's JSON.
    #[error("this is not a profile: {error}; write one with `treadle calibrate`")]
    Json {
        /// The invalid field, as a path; empty for the document itself.
        field: String,
        /// The parser's error.
        error: serde_json::Error,
    },
    /// An unsupported version.
    #[error("version is {0}, but this treadle reads {VERSION}: calibrate again")]
    Version(u32),
    /// A field is out of bounds.
    #[error("profile.{field} is {value}; it must be between {min} and {max}")]
    Bounds {
        /// The field's name.
        field: &'static str,
        /// Its value.
        value: u64,
        /// Minimum.
        min: u64,
        /// Maximum.
        max: u64,
    },
    /// A table that does not map tokens to times.
    #[error(
        "profile.{0} must have ascending tokens, times that do not fall, at most {POINTS_MAX} \
         points, and numbers of at most {VALUE_MAX} tokens and {FINE_VALUE_MAX} ns"
    )]
    Points(&'static str),
}

impl ProfileError {
    /// The path of the invalid field; `None` for the document itself.
    pub fn field(&self) -> Option<String> {
        match self {
            Self::Json { field, .. } => (!field.is_empty()).then(|| field.clone()),
            Self::Version(_) => Some("version".to_owned()),
            Self::Bounds { field, .. } | Self::Points(field) => Some(format!("profile.{field}")),
        }
    }
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    profile: EngineProfile,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    calibration: Value,
}

impl EngineProfile {
    /// Parses a document.
    pub fn from_json(text: &str) -> Result<Self, ProfileError> {
        let mut reader = serde_json::Deserializer::from_str(text);
        let document: Document =
            serde_path_to_error::deserialize(&mut reader).map_err(|error| {
                let path = error.path().to_string();
                ProfileError::Json {
                    field: if path == "." { String::new() } else { path },
                    error: error.into_inner(),
                }
            })?;
        reader.end().map_err(|error| ProfileError::Json {
            field: String::new(),
            error,
        })?;
        if document.version != VERSION {
            return Err(ProfileError::Version(document.version));
        }
        document.profile.check()?;
        Ok(document.profile)
    }

    /// The document of this profile; `calibration` records how it was measured, or is null.
    pub fn to_json(&self, calibration: Value) -> Value {
        let document = Document {
            version: VERSION,
            profile: self.clone(),
            calibration,
        };
        // Serialising fields, strings and integers can't fail.
        serde_json::to_value(document).unwrap_or(Value::Null)
    }

    /// Fails for values that would stop or overflow the model.
    fn check(&self) -> Result<(), ProfileError> {
        let fields = [
            ("prefill_tokens_per_s", self.prefill_tokens_per_s, 1),
            ("decode_base_us", self.decode_base_us, 0),
            ("decode_per_sequence_us", self.decode_per_sequence_us, 0),
            (
                "decode_per_kilotoken_context_ns",
                self.decode_per_kilotoken_context_ns,
                0,
            ),
            ("pass_us", self.pass_us, 0),
            ("token_overhead_ns", self.token_overhead_ns, 0),
            ("iteration_overhead_us", self.iteration_overhead_us, 0),
            ("request_overhead_us", self.request_overhead_us, 0),
            ("batched_tokens_max", u64::from(self.batched_tokens_max), 1),
            ("running_max", u64::from(self.running_max), 1),
            ("kv_blocks", u64::from(self.kv_blocks), 1),
            ("host_blocks", u64::from(self.host_blocks), 0),
            (
                "host_tokens_per_s",
                self.host_tokens_per_s,
                u64::from(self.host_blocks > 0),
            ),
            ("block_tokens", u64::from(self.block_tokens), 1),
            (
                "context_limit_tokens",
                u64::from(self.context_limit_tokens),
                2,
            ),
            (
                "stream_interval_tokens",
                u64::from(self.stream_interval_tokens),
                1,
            ),
        ];
        for (field, value, min) in fields {
            check_bounds(field, value, min, VALUE_MAX)?;
        }
        check_bounds(
            "prefill_per_kilotoken_context_ps",
            self.prefill_per_kilotoken_context_ps,
            0,
            FINE_VALUE_MAX,
        )?;
        check_points("weights", &self.weights)?;
        check_points("communication", &self.communication)
    }
}

fn check_bounds(field: &'static str, value: u64, min: u64, max: u64) -> Result<(), ProfileError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(ProfileError::Bounds {
        field,
        value,
        min,
        max,
    })
}

fn check_points(field: &'static str, points: &[TokensTime]) -> Result<(), ProfileError> {
    let rises = |pair: &[TokensTime]| pair[0].tokens < pair[1].tokens && pair[0].ns <= pair[1].ns;
    let is_small = |point: &TokensTime| point.tokens <= VALUE_MAX && point.ns <= FINE_VALUE_MAX;
    let is_table =
        points.len() <= POINTS_MAX && points.windows(2).all(rises) && points.iter().all(is_small);
    if is_table {
        Ok(())
    } else {
        Err(ProfileError::Points(field))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_profile_comes_back_as_it_was_written() {
        let profile = EngineProfile {
            name: "mine".to_owned().into(),
            request_overhead_us: 700,
            weights: vec![
                TokensTime { tokens: 1, ns: 90 },
                TokensTime { tokens: 8, ns: 90 },
            ],
            preempt_by_priority: true,
            ..EngineProfile::qwen3_8b_h100()
        };
        for calibration in [Value::Null, json!({"engine": "llamacpp"})] {
            let text = profile.to_json(calibration).to_string();
            assert_eq!(EngineProfile::from_json(&text).unwrap(), profile);
        }
    }

    #[test]
    fn what_calibration_adds_may_be_left_out_and_nothing_else() {
        let mut document = EngineProfile::qwen3_8b_h100().to_json(Value::Null);
        let fields = document["profile"].as_object_mut().unwrap();
        for field in [
            "weights",
            "communication",
            "token_overhead_ns",
            "prefill_per_kilotoken_context_ps",
            "iteration_overhead_us",
            "pass_us",
            "request_overhead_us",
            "preempt_by_priority",
        ] {
            assert!(fields.remove(field).is_some(), "{field}");
        }
        let read = EngineProfile::from_json(&document.to_string()).unwrap();
        assert_eq!(read, EngineProfile::qwen3_8b_h100());
        let refused = |document: &Value| {
            let read = EngineProfile::from_json(&document.to_string());
            read.unwrap_err().to_string()
        };
        document["profile"]["speed"] = json!(1);
        assert!(refused(&document).contains("speed"));
        document = EngineProfile::qwen3_8b_h100().to_json(Value::Null);
        document["profile"]["kv_blocks"] = json!(0);
        assert!(refused(&document).contains("profile.kv_blocks is 0"));
        document = EngineProfile::qwen3_8b_h100().to_json(Value::Null);
        document["profile"]["weights"] = json!([{"tokens": 8, "ns": 5}, {"tokens": 8, "ns": 9}]);
        assert!(refused(&document).contains("profile.weights must have ascending tokens"));
        document = EngineProfile::qwen3_8b_h100().to_json(Value::Null);
        document["profile"]["pass_us"] = json!("long");
        let error = EngineProfile::from_json(&document.to_string()).unwrap_err();
        assert_eq!(error.field().as_deref(), Some("profile.pass_us"));
        assert!(
            error.to_string().contains("invalid type: string"),
            "{error}"
        );
        document["profile"]["pass_us"] = json!(1);
        document["version"] = json!(2);
        assert!(refused(&document).contains("version is 2"));
    }
}
