//! Bindings: which policy answers for which scope, the canaries and the shadows.

use super::names::name;
use super::plugins::{failed, visible};
use super::{object, ok, refuse};
use crate::app::App;
use axum::extract::{Query, State};
use axum::response::Response;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use treadle_auth::{Caller, Change};
use treadle_model::World;
use treadle_policy::evaluator::{BindingView, Changed, EVERYONE, Role, Scope};
use treadle_registry::{BindRequest, RegistryError};
use treadle_wire::ErrorCode;

/// `GET /v1/bindings`: what answers each world at present, with the canaries and
/// shadows beside it. Callers see the bindings of their tenant and, by name alone,
/// those that hold for all tenants.
pub(super) async fn list(State(app): State<App>, caller: Caller) -> Response {
    let (bindings, statistics) = match (app.policies.bindings().await, app.policies.totals().await)
    {
        (Ok(bindings), Ok(statistics)) => (bindings, statistics),
        (Err(error), _) | (_, Err(error)) => return failed(&error),
    };
    let alone = is_alone(&app, &caller);
    let shown = bindings
        .iter()
        .filter_map(|view| shown(&caller, view, alone));
    let mut body = json!({"bindings": shown.collect::<Vec<_>>()});
    if alone {
        body["statistics"] = json!(statistics);
    }
    ok(body)
}

fn shown(caller: &Caller, view: &BindingView, alone: bool) -> Option<Value> {
    if view.job == Scope::Everyone {
        let name = json!({"world": view.world, "job": EVERYONE, "policy": view.policy});
        return Some(if alone { json!(view) } else { name });
    }
    let mut shown = json!(view);
    match caller.principal.outside(view.job.as_str()) {
        Some(job) => shown["job"] = job.into(),
        // Callers who see all tenants see the internal name.
        None if alone => {}
        None => return None,
    }
    Some(shown)
}

/// `PUT /v1/bindings {"world", "policy", "config"?, "job"?, "role"?, "share"?}`:
/// from the next decision on the policy has this role. `policy` is a name,
/// name@version, digest or `native`; `role` is `active`, `canary` (with the
/// `share` of programs that it decides for, above 0 and below 1) or `shadow`.
/// Without `job` it holds for all jobs of the tenant; with a token of the whole
/// daemon, or where there is one tenant, for all jobs.
pub(super) async fn bind(State(app): State<App>, caller: Caller, body: Bytes) -> Response {
    let request = match object(&body).and_then(|body| bind_request(&app, &caller, &body)) {
        Ok(request) => request,
        Err(response) => return response,
    };
    let visible = match visible(&app, &caller).await {
        Ok(visible) => visible,
        Err(response) => return response,
    };
    let changed = app.policies.bind(&request, |head| visible.sees(head)).await;
    let (world, role) = (request.world, request.role);
    let details = json!({"config": request.config, "share_ppm": request.share_ppm,
        "named": request.policy});
    answer(&app, &caller, changed, (world, &request.job, role), details).await
}

/// `POST /v1/bindings/rollback {"world", "job"?}`: ends a canary if there is one,
/// else lets the policy before the present one answer again.
pub(super) async fn roll_back(State(app): State<App>, caller: Caller, body: Bytes) -> Response {
    let target = match object(&body).and_then(|body| target(&app, &caller, &body)) {
        Ok(target) => target,
        Err(response) => return response,
    };
    let (world, job) = target;
    let changed = app.policies.roll_back(world, &job).await;
    let details = json!({"rolled_back": true});
    answer(&app, &caller, changed, (world, &job, Role::Active), details).await
}

/// Which role of which binding.
#[derive(Deserialize)]
pub(super) struct RoleQuery {
    world: String,
    job: Option<String>,
    role: Option<String>,
}

/// `DELETE /v1/bindings?world=&job=&role=`: takes a policy out of its role.
pub(super) async fn withdraw(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<RoleQuery>,
) -> Response {
    let parsed = world_of(&query.world).and_then(|world| {
        let role = role_of(query.role.as_deref().unwrap_or("active"))?;
        let job = job_of(&app, &caller, query.job.as_deref())?;
        Ok((world, job, role))
    });
    let (world, job, role) = match parsed {
        Ok(parsed) => parsed,
        Err(response) => return response,
    };
    let changed = app.policies.withdraw(world, &job, role).await;
    let details = json!({"withdrawn": true});
    answer(&app, &caller, changed, (world, &job, role), details).await
}

/// Answers, and writes down who changed what.
async fn answer(
    app: &App,
    caller: &Caller,
    changed: Result<Changed, RegistryError>,
    (world, job, role): (World, &str, Role),
    details: Value,
) -> Response {
    let changed = match changed {
        Ok(changed) => changed,
        Err(error) => return failed(&error),
    };
    let job = caller.principal.outside(job).unwrap_or(job);
    let change = Change {
        action: "binding.changed",
        target: &format!("{world}/{job}/{}", role.as_str()),
        before: json!({"policy": changed.before}),
        after: json!({"policy": changed.after, "subject": changed.subject, "details": details}),
    };
    if app.auth.audit.record(caller, change).await.is_err() {
        return super::not_audited();
    }
    ok(json!({
        "world": world, "job": job, "role": role, "policy": changed.subject,
        "active": changed.after, "before": changed.before, "held_up_us": changed.held_up_us,
    }))
}

fn is_alone(app: &App, caller: &Caller) -> bool {
    caller.principal.root || app.auth.has_one_tenant()
}

/// A job as it is called inside the daemon.
fn job_of(app: &App, caller: &Caller, job: Option<&str>) -> Result<String, Response> {
    let job = name("job", job.unwrap_or(EVERYONE))?;
    let inside = caller.principal.inside(&job);
    if inside == EVERYONE && !is_alone(app, caller) {
        let message =
            "this binding holds for the jobs of all tenants; it takes a token of the whole daemon";
        return Err(refuse(ErrorCode::Forbidden, message));
    }
    Ok(inside)
}

fn bind_request(
    app: &App,
    caller: &Caller,
    body: &Map<String, Value>,
) -> Result<BindRequest, Response> {
    let (world, job) = target(app, caller, body)?;
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

fn target(
    app: &App,
    caller: &Caller,
    body: &Map<String, Value>,
) -> Result<(World, String), Response> {
    let text = |field: &str| body.get(field).and_then(Value::as_str);
    let world = world_of(text("world").unwrap_or(World::Eviction.as_str()))?;
    Ok((world, job_of(app, caller, text("job"))?))
}

fn world_of(word: &str) -> Result<World, Response> {
    World::from_name(word).ok_or_else(|| {
        let words: Vec<&str> = World::ALL.iter().map(|world| world.as_str()).collect();
        let message = format!("`world` is `{word}`; give one of {}", words.join(", "));
        refuse(ErrorCode::InvalidField, message)
    })
}

fn role_of(word: &str) -> Result<Role, Response> {
    let role = Role::from_name(word).filter(|role| *role != Role::Previous);
    role.ok_or_else(|| {
        let message = format!("`role` is `{word}`; give active, canary or shadow");
        refuse(ErrorCode::InvalidField, message)
    })
}
