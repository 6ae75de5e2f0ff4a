//! Bindings: which policy answers for whom, who is on trial, who is compared.

use super::plugins::failed;
use super::{object, ok, refuse};
use crate::app::App;
use crate::driver::{BindingView, EVERYONE, Role};
use crate::policies::BindRequest;
use axum::extract::{Query, State};
use axum::response::Response;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use treadle_model::World;
use treadle_wire::ErrorCode;

/// `GET /v1/bindings`: what answers each world at present, with the canaries and
/// shadows beside it.
pub(super) async fn list(State(app): State<App>) -> Response {
    let (bindings, statistics) = match (app.policies.bindings().await, app.policies.totals().await)
    {
        (Ok(bindings), Ok(statistics)) => (bindings, statistics),
        (Err(error), _) | (_, Err(error)) => return failed(&error),
    };
    let views: Vec<&BindingView> = bindings.iter().collect();
    ok(json!({"bindings": views, "statistics": statistics}))
}

/// `PUT /v1/bindings {"world", "policy", "config"?, "job"?, "role"?, "share"?}`:
/// from the next decision on the policy has this role. `policy` is a name,
/// name@version, digest or `native`; `role` is `active`, `canary` (with the
/// `share` of programs that it decides for, above 0 and below 1) or `shadow`.
pub(super) async fn bind(State(app): State<App>, body: Bytes) -> Response {
    let request = match object(&body).and_then(|body| bind_request(&body)) {
        Ok(request) => request,
        Err(response) => return response,
    };
    match app.policies.bind(&request, |_| true).await {
        Ok(changed) => ok(json!({
            "world": request.world,
            "job": request.job,
            "role": request.role,
            "policy": changed.after,
            "before": changed.before,
            "held_up_us": changed.held_up_us,
        })),
        Err(error) => failed(&error),
    }
}

/// `POST /v1/bindings/rollback {"world", "job"?}`: ends a canary if there is one,
/// else lets the policy before the present one answer again.
pub(super) async fn roll_back(State(app): State<App>, body: Bytes) -> Response {
    let target = match object(&body).and_then(|body| target(&body)) {
        Ok(target) => target,
        Err(response) => return response,
    };
    let (world, job) = target;
    match app.policies.roll_back(world, &job).await {
        Ok(changed) => ok(json!({
            "world": world, "job": job, "policy": changed.after, "before": changed.before,
        })),
        Err(error) => failed(&error),
    }
}

/// Which role of which binding.
#[derive(Deserialize)]
pub(super) struct RoleQuery {
    world: String,
    job: Option<String>,
    role: Option<String>,
}

/// `DELETE /v1/bindings?world=&job=&role=`: takes a policy out of its role.
pub(super) async fn withdraw(State(app): State<App>, Query(query): Query<RoleQuery>) -> Response {
    let parsed = world_of(&query.world).and_then(|world| {
        let role = role_of(query.role.as_deref().unwrap_or("active"))?;
        Ok((world, role))
    });
    let (world, role) = match parsed {
        Ok(parsed) => parsed,
        Err(response) => return response,
    };
    let job = query.job.unwrap_or_else(|| EVERYONE.into());
    match app.policies.withdraw(world, &job, role).await {
        Ok(changed) => ok(json!({
            "world": world, "job": job, "role": role, "policy": changed.after,
        })),
        Err(error) => failed(&error),
    }
}

fn bind_request(body: &Map<String, Value>) -> Result<BindRequest, Response> {
    let (world, job) = target(body)?;
    let Some(policy) = body.get("policy").and_then(Value::as_str) else {
        let message =
            "`policy` is missing; send a plugin's name, name@version, digest, or `native`";
        return Err(refuse(ErrorCode::MissingField, message));
    };
    let config = match body.get("config") {
        None | Some(Value::Null) => "{}".to_owned(),
        Some(config @ Value::Object(_)) => config.to_string(),
        Some(_) => {
            let message = "`config` must be a JSON object";
            return Err(refuse(ErrorCode::InvalidField, message));
        }
    };
    let role = match body.get("role") {
        None | Some(Value::Null) => Role::Active,
        Some(role) => role_of(role.as_str().unwrap_or_default())?,
    };
    let share_ppm = match (role, body.get("share").and_then(Value::as_f64)) {
        (Role::Canary, Some(share)) if share > 0.0 && share < 1.0 => (share * 1e6).round() as u32,
        (Role::Canary, _) => {
            let message = "`share` is missing or out of range; a canary decides for a share of \
                           the programs above 0 and below 1";
            return Err(refuse(ErrorCode::InvalidField, message));
        }
        _ => 0,
    };
    Ok(BindRequest {
        world,
        job,
        policy: policy.into(),
        config,
        role,
        share_ppm,
    })
}

fn target(body: &Map<String, Value>) -> Result<(World, String), Response> {
    let word = |field: &str| body.get(field).and_then(Value::as_str);
    let world = world_of(word("world").unwrap_or(World::Eviction.as_str()))?;
    Ok((world, word("job").unwrap_or(EVERYONE).to_owned()))
}

fn world_of(word: &str) -> Result<World, Response> {
    World::from_word(word).ok_or_else(|| {
        let words: Vec<&str> = World::ALL.iter().map(|world| world.as_str()).collect();
        let message = format!("`world` is `{word}`; give one of {}", words.join(", "));
        refuse(ErrorCode::InvalidField, message)
    })
}

fn role_of(word: &str) -> Result<Role, Response> {
    Role::from_word(word).ok_or_else(|| {
        let message = format!("`role` is `{word}`; give active, canary or shadow");
        refuse(ErrorCode::InvalidField, message)
    })
}
