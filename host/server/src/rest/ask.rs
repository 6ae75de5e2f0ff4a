//! `POST /api/v1/ask`: clients' questions to policies.

mod parallelism;

use super::Endpoint;
use super::refuse;
use crate::app::App;
use axum::extract::State;
use axum::response::{Json, Response};
use parallelism::{Filled, fill};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use treadle_auth::Caller;
use treadle_auth::permissions::RUN;
use treadle_endpoints::arguments::{Body, optional};
use treadle_endpoints::post;
use treadle_endpoints::signature::Answer;
use treadle_model::PolicyRef;
use treadle_policy::calls::RecordedCall;
use treadle_registry::AskError;
use treadle_wire::ErrorCode;
use utoipa::ToSchema;

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        post("/api/v1/ask", RUN, ask)
            .summary("Asks a policy of prediction, allocation or reward")
            .details(
                "The policy that is bound for the job answers, or the built-in default. Send many \
                 rows as one question. For `parallelism`, if `degree`, `token_us`, `step_us`, \
                 `prefill_us` and `capacity_tokens` are all absent, they and `gpus` are filled in \
                 from engines with a known number of GPUs and a measured speed, present or past; \
                 if `expected_tokens` is absent, it, `prompt_tokens`, `growth` and `tool_us` are \
                 filled in from the last rollout of the job.",
            )
            .fails(&[ErrorCode::AskFull, ErrorCode::Internal]),
    ]
}

/// A question.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Question {
    /// prediction, allocation or reward.
    world: String,
    /// A function of the world, such as `remaining-tokens`.
    function: String,
    /// The columns by their names in the contract, with underscores.
    columns: BTreeMap<String, Value>,
    /// The job whose policy answers; without it, the policy for all jobs of the tenant.
    #[serde(default)]
    job: Option<String>,
    /// The configuration that the policy sees.
    #[serde(default)]
    #[schema(value_type = Object)]
    config: Map<String, Value>,
    /// The time of the decision, in milliseconds.
    #[serde(default)]
    now_ms: u64,
    /// Picks the random stream.
    #[serde(default)]
    seed: u64,
}

/// An answer and the policy that gave it.
#[derive(Serialize, ToSchema)]
struct Answered {
    /// The policy that answered.
    #[schema(value_type = String)]
    policy: PolicyRef,
    /// The answer, in the shape of the contract.
    answer: Value,
    /// Columns of `parallelism` that were filled in.
    #[serde(skip_serializing_if = "Option::is_none")]
    filled: Option<Filled>,
}

async fn ask(
    State(app): State<App>,
    caller: Caller,
    Body(mut question): Body<Question>,
) -> Answer<Answered> {
    let principal = &caller.principal;
    let has_job = question.job.is_some();
    let job = match optional("job", question.job)? {
        // Without a job, the policy that is bound for all jobs of the tenant answers.
        None => principal.tenant.tenant.prefix().to_owned(),
        Some(job) => principal.inside(&job),
    };
    let is_plan = (question.world.as_str(), question.function.as_str());
    let filled = if is_plan == ("allocation", "parallelism") {
        let job = has_job.then_some(job.as_ref());
        Some(fill(&app, job, &mut question.columns).await?)
    } else {
        None
    };
    let call = RecordedCall {
        world: question.world,
        function: question.function,
        config: Value::Object(question.config),
        now_ms: question.now_ms,
        seed: question.seed,
        columns: question.columns,
        expect: None,
    };
    let asked = app
        .policies
        .ask(job, call)
        .await
        .map_err(|error| failed(&error))?;
    Ok(Json(Answered {
        policy: asked.policy,
        answer: asked.answer,
        filled,
    }))
}

fn failed(error: &AskError) -> Response {
    let code = match error {
        AskError::BadCall(_) | AskError::InPlace(_) | AskError::NoAnswer(_) => {
            ErrorCode::InvalidField
        }
        AskError::QueueFull => ErrorCode::AskFull,
        AskError::EndedEarly | AskError::NotBound => ErrorCode::Internal,
    };
    refuse(code, error.to_string())
}
