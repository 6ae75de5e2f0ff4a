//! Whether the tokens of a job can be captured by any engine that is known when it is declared.

use crate::app::TrainingApp;
use axum::response::Response;
use std::fmt::Write as _;
use treadle_core::programs::{self, Health, Worker};
use treadle_core::training::JobSettings;
use treadle_http::refuse;
use treadle_model::EngineKind;
use treadle_wire::ErrorCode;

/// Engines that a refusal names.
const NAMED_MAX: usize = 3;

/// Checks that an engine which serves the model of a job can have its tokens captured, if they are
/// to be and if any such engine answers.
///
/// # Errors
/// None can.
pub(crate) async fn check_engines(
    app: &TrainingApp,
    settings: &JobSettings,
) -> Result<(), Response> {
    if !settings.captured() {
        return Ok(());
    }
    let model = settings.model.clone();
    let read = app.read_both(move |_, programs| obstacle(model.as_deref(), programs));
    let Some(engines) = read.await? else {
        return Ok(());
    };
    let message = format!(
        "`capture` is tokens, and no engine that serves the model reports token ids: {engines}; \
         serve it with vLLM, SGLang or llama.cpp, register the engine as what it is (`kind`), or \
         set `capture` to none and report samples"
    );
    Err(refuse(ErrorCode::InvalidField, message))
}

/// The engines that serve a model, if they answer and none of them reports tokens.
fn obstacle(model: Option<&str>, programs: &programs::State) -> Option<String> {
    let serves = |worker: &&Worker| {
        worker.health == Health::Healthy && !worker.leaving && may_serve(worker, model)
    };
    let (mut text, mut count) = (String::new(), 0);
    for worker in programs.workers.values().filter(serves) {
        if worker.engine != EngineKind::Openai {
            return None;
        }
        if count < NAMED_MAX {
            let comma = if count == 0 { "" } else { ", " };
            let _ = write!(text, "{comma}{} is of kind {}", worker.url, worker.engine);
        }
        count += 1;
    }
    if count > NAMED_MAX {
        let _ = write!(text, ", and {} more", count - NAMED_MAX);
    }
    (count > 0).then_some(text)
}

/// Whether an engine serves a model, as far as it says what it serves.
fn may_serve(worker: &Worker, model: Option<&str>) -> bool {
    let Some(model) = model else { return true };
    let is_silent = worker.model.is_none() && worker.other_models.is_empty();
    is_silent || worker.model.as_deref() == Some(model) || worker.other_models.contains(model)
}
