//! The profile of a replay's engines.

use super::WhatIfError;
use crate::recorded::RecordedWorker;
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use std::time::Duration;
use treadle_engine_model::engine::EngineProfile;
use treadle_http::Upstream;

/// Timeout of an engine's response.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum size of an engine's response.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Maximum size of a profile in a request.
const PROFILE_BYTES_MAX: usize = 512 << 10;
/// Maximum number of engines that are queried.
const ENGINES_ASKED_MAX: usize = 8;

/// The profile with a name, or in a document of `treadle calibrate`.
pub fn of_value(value: &Value) -> Result<EngineProfile, WhatIfError> {
    match value {
        Value::String(name) => named(name),
        document => of_document(&document.to_string()),
    }
}

fn of_document(text: &str) -> Result<EngineProfile, WhatIfError> {
    if text.len() > PROFILE_BYTES_MAX {
        let problem = format!(
            "has {} bytes; a profile of `treadle calibrate` has at most {PROFILE_BYTES_MAX}",
            text.len()
        );
        return Err(WhatIfError::field("profile", problem));
    }
    EngineProfile::from_json(text).map_err(|error| {
        let field = error.field().map(|field| format!("profile.{field}"));
        let field = field.unwrap_or_else(|| "profile".to_owned());
        WhatIfError::field(field, error.to_string())
    })
}

/// The preset with a name.
pub fn named(name: &str) -> Result<EngineProfile, WhatIfError> {
    EngineProfile::named(name).ok_or_else(|| {
        let known = EngineProfile::NAMES.join(", ");
        let problem = format!(
            "`{name}` is not a profile; there are {known}, and documents that `treadle calibrate` writes"
        );
        WhatIfError::field("profile", problem)
    })
}

/// The profile that one of the engines reports, as simulated ones do.
pub async fn ask(
    upstream: &Upstream,
    workers: &[RecordedWorker],
) -> Result<EngineProfile, WhatIfError> {
    for worker in workers.iter().take(ENGINES_ASKED_MAX) {
        let told = tokio::time::timeout(TIMEOUT, reported_by(upstream, &worker.url)).await;
        if let Ok(Some(profile)) = told {
            return Ok(profile);
        }
    }
    Err(WhatIfError::Profile(
        "no engine of the window reports its profile, as real engines never do; measure one with \
         `treadle calibrate` and give its file as `profile`, or name a preset"
            .to_owned(),
    ))
}

async fn reported_by(upstream: &Upstream, url: &str) -> Option<EngineProfile> {
    let base = url.trim_end_matches('/');
    let response = upstream.get(base, "/server_info").await.ok()?;
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
    let body = body.collect().await.ok()?.to_bytes();
    let info: Value = serde_json::from_slice(&body).ok()?;
    EngineProfile::from_json(&info.get("engine_profile")?.to_string()).ok()
}
