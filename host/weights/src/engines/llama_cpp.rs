//! llama.cpp, which has the weights that it was started with. A version is a restart: it is loaded
//! once the server runs with the version's name as its `--alias`.

use super::{Engine, failed, name_in, refused, unanswered, words};
use http::StatusCode;
use serde_json::Value;
use treadle_core::weights::{Answer, Call, Weights};

pub(super) async fn call(engine: Engine<'_>, call: Call, weights: &Weights) -> Answer {
    match call {
        Call::Prepare => match alias(engine).await {
            Ok(Some(alias)) if alias == weights.name => Answer::Done,
            Ok(alias) => refused(&format!(
                "llama.cpp can't load weights while it runs, and has `{}`; restart it with the \
                 model of this version and `--alias {}`, then publish again",
                alias.unwrap_or_default(),
                weights.name
            )),
            Err(answer) => answer,
        },
        Call::Verify => match alias(engine).await {
            Ok(name) => Answer::Reports {
                whole: name.is_some(),
                name,
                checksum: None,
            },
            Err(answer) => answer,
        },
        // It began with these weights and has no caches of others.
        Call::Pause | Call::Apply | Call::Clear | Call::Resume => Answer::Done,
    }
}

async fn alias(engine: Engine<'_>) -> Result<Option<Box<str>>, Answer> {
    match engine.get("/v1/models").await {
        Ok((StatusCode::OK, body)) => {
            let page: Value = serde_json::from_slice(&body).unwrap_or_default();
            Ok(name_in(&page["data"][0]["id"]))
        }
        Ok((status, body)) => Err(failed(&words("/v1/models", status, &body))),
        Err(cause) => Err(unanswered(cause)),
    }
}
