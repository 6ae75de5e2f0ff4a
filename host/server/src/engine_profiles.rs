//! Profiles of engines, as `treadle calibrate` writes them: an engine's speed until its own steps
//! are measured.

use crate::start_error::StartError;
use serde_json::Value;
use std::path::Path;
use treadle_engines::DeclaredSpeeds;
use treadle_whatif::{WhatIfError, profile};
use treadle_wire::ErrorBody;

/// Context length at which the time of a token is read from a profile.
const CONTEXT_TOKENS: u64 = 4_096;
/// Concurrent steps up to which the added time per step is read.
const STEPS: u64 = 16;
/// Prompt length at which the speed of prefill is read.
const PROMPT_TOKENS: u64 = 8_192;

/// Speeds from a preset's name, or from a document.
///
/// # Errors
/// It is neither.
pub(crate) fn of_value(value: &Value) -> Result<DeclaredSpeeds, ErrorBody> {
    speeds(value).map_err(|error| error.body())
}

/// Speeds from the configured file or preset.
///
/// # Errors
/// It is neither.
pub(crate) async fn of_setting(setting: &str) -> Result<DeclaredSpeeds, StartError> {
    let failed = |why: String| StartError::Profile {
        profile: setting.to_owned(),
        why,
    };
    let value = if Path::new(setting).exists() {
        let text = tokio::fs::read(setting)
            .await
            .map_err(|error| failed(error.to_string()))?;
        serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))?
    } else {
        Value::String(setting.to_owned())
    };
    speeds(&value).map_err(|error| failed(error.to_string()))
}

fn speeds(value: &Value) -> Result<DeclaredSpeeds, WhatIfError> {
    let profile = profile::of_value(value)?;
    let (token_us, step_us) = profile.decode_line_us(CONTEXT_TOKENS, STEPS);
    Ok(DeclaredSpeeds {
        prefill_tokens_per_s: profile.prompt_tokens_per_s(PROMPT_TOKENS),
        token_us,
        step_us,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn a_preset_and_a_document_have_speeds_and_nothing_else_has() {
        let speeds = of_value(&json!("qwen3-32b-h100")).expect("a preset");
        assert!((25_000..27_000).contains(&speeds.token_us), "{speeds:?}");
        assert!((100..1_000).contains(&speeds.step_us), "{speeds:?}");
        let preset = profile::named("qwen3-32b-h100").expect("a preset");
        let document = preset.to_json(Value::Null);
        assert_eq!(of_value(&document), Ok(speeds));
        for wrong in [json!("gpt-9"), json!({}), json!(7)] {
            let error = of_value(&wrong).expect_err("no profile");
            assert!(
                error
                    .param
                    .is_some_and(|field| field.starts_with("profile"))
            );
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("profile.json");
        std::fs::write(&path, document.to_string()).expect("written");
        let path = path.to_string_lossy();
        assert_eq!(of_setting(&path).await.expect("a file"), speeds);
        assert!(of_setting("qwen3-32b-h100").await.is_ok());
        let error = of_setting("no-such-file").await.expect_err("no profile");
        assert!(error.to_string().contains("engines.endpoints"), "{error}");
    }
}
