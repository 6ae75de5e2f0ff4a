//! Bindings of policies to worlds and jobs, with canaries and shadows.

use super::Endpoint;
use super::plugins::{failed, visible};
use super::{refuse, stopped};
use crate::app::App;
use axum::extract::State;
use axum::response::{Json, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use treadle_auth::permissions::{PLUGINS, VIEW};
use treadle_auth::{Caller, Change};
use treadle_core::bindings::{self, BoundPolicy, Roles};
use treadle_endpoints::arguments::{Body, Query, name};
use treadle_endpoints::signature::Answer;
use treadle_endpoints::{delete, get, post, put};
use treadle_model::{PolicyRef, World};
use treadle_policy::evaluator::{
    BindingView, CanaryView, Changed, EVERYONE, PolicyStatistics, Role, Scope, ShadowReport,
};
use treadle_registry::{BindRequest, RegistryError};
use treadle_wire::ErrorCode;
use utoipa::{IntoParams, ToSchema};

pub(super) fn endpoints() -> Vec<Endpoint> {
    let path = "/api/v1/bindings";
    vec![
        get(path, VIEW, list).summary("Policies by role").details(
            "Callers see the bindings of their tenant and the names of policies that are bound \
                 for all tenants.",
        ),
        put(path, PLUGINS, bind)
            .summary("Binds a policy to a role, from the next decision on")
            .details(
                "Without `job` the binding applies to all jobs of the tenant; with a token of the \
                 whole daemon, or if there is only one tenant, to all jobs.",
            )
            .fails(&[
                ErrorCode::PluginUnknown,
                ErrorCode::PluginInvalid,
                ErrorCode::BindingConflict,
            ]),
        delete(path, PLUGINS, withdraw)
            .summary("Removes a policy from its role")
            .fails(&[ErrorCode::MissingField, ErrorCode::BindingConflict]),
        post("/api/v1/bindings/rollback", PLUGINS, roll_back)
            .summary("Ends the canary if there is one, else restores the previous policy")
            .fails(&[ErrorCode::BindingConflict]),
    ]
}

/// The current bindings.
#[derive(Serialize, ToSchema)]
struct Bindings {
    /// One binding per world and scope.
    bindings: Vec<BindingShown>,
    /// Outcomes of all questions; only for callers who see all tenants.
    #[serde(skip_serializing_if = "Option::is_none")]
    statistics: Option<PolicyStatistics>,
}

/// The state of one binding.
#[derive(Serialize, ToSchema)]
struct BindingShown {
    /// The world.
    #[schema(value_type = String)]
    world: World,
    /// The job; `*` for all jobs without a binding of their own.
    job: String,
    /// The policy that answers.
    #[schema(value_type = String)]
    policy: PolicyRef,
    #[serde(flatten)]
    roles: Option<OtherRoles>,
}

/// The other roles of a binding; only for callers who may change it.
#[derive(Serialize, ToSchema)]
struct OtherRoles {
    /// The policy that answered before, if known.
    #[schema(value_type = Option<String>)]
    previous: Option<PolicyRef>,
    /// The policy on trial.
    canary: Option<CanaryView>,
    /// The shadow policy and its agreement with the active one.
    shadow: Option<ShadowReport>,
    /// The stored configuration of each role in use: active, canary, shadow, previous.
    on_record: BTreeMap<&'static str, OnRecord>,
}

/// A policy's role as stored.
#[derive(Serialize, ToSchema)]
struct OnRecord {
    /// The policy's configuration.
    #[schema(value_type = Object)]
    config: Value,
    /// When it got the role, in microseconds since 1970.
    since_us: u64,
}

impl OnRecord {
    fn of(bound: &BoundPolicy) -> Self {
        Self {
            // It was valid JSON when it was stored.
            config: serde_json::from_str(&bound.config).unwrap_or_default(),
            since_us: bound.since.0,
        }
    }

    /// The roles of a binding.
    fn all(roles: Option<&Roles>) -> BTreeMap<&'static str, Self> {
        let roles = roles.into_iter().flatten();
        roles
            .map(|(role, bound)| (role.as_str(), Self::of(bound)))
            .collect()
    }
}

async fn list(State(app): State<App>, caller: Caller) -> Answer<Bindings> {
    let bindings = app.policies.bindings().await;
    let bindings = bindings.map_err(|error| failed(&error))?;
    let statistics = app.policies.totals().await;
    let statistics = statistics.map_err(|error| failed(&error))?;
    let alone = is_alone(&app, &caller);
    let records = app.driver.bindings().await.map_err(|_| stopped())?;
    let shown = bindings
        .into_iter()
        .filter_map(|view| shown(&caller, view, &records, alone));
    Ok(Json(Bindings {
        bindings: shown.collect(),
        statistics: alone.then_some(statistics),
    }))
}

fn shown(
    caller: &Caller,
    view: BindingView,
    records: &bindings::Bindings,
    alone: bool,
) -> Option<BindingShown> {
    let is_everyones = view.job == Scope::Everyone;
    let job = match caller.principal.outside(view.job.as_str()) {
        _ if is_everyones => EVERYONE,
        Some(job) => job,
        // Callers who see all tenants see the internal name.
        None if alone => view.job.as_str(),
        None => return None,
    };
    Some(BindingShown {
        world: view.world,
        job: job.to_owned(),
        policy: view.policy,
        roles: (alone || !is_everyones).then_some(OtherRoles {
            previous: view.previous,
            canary: view.canary,
            shadow: view.shadow,
            on_record: OnRecord::all(records.roles(view.world, view.job.as_str())),
        }),
    })
}

/// A policy and the role that it gets.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Bind {
    /// The world; defaults to the policy's own, and to eviction for `native`.
    #[serde(default)]
    world: Option<String>,
    /// A plugin's name, name@version or digest, or `native`.
    policy: String,
    /// The policy's configuration.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    config: Option<Map<String, Value>>,
    /// The job.
    #[serde(default)]
    job: Option<String>,
    /// active, canary or shadow; default active.
    #[serde(default)]
    role: Option<String>,
    /// The share of programs that a canary decides for, above 0 and below 1.
    #[serde(default)]
    share: Option<f64>,
}

/// The result of a change.
#[derive(Serialize, ToSchema)]
struct Rebound {
    /// The world.
    #[schema(value_type = String)]
    world: World,
    /// The job.
    job: String,
    /// The changed role.
    role: &'static str,
    /// The policy that got the role, or else the one that answers now.
    #[schema(value_type = String)]
    policy: PolicyRef,
    /// The policy that answers now.
    #[schema(value_type = String)]
    active: PolicyRef,
    /// The policy that answered before.
    #[schema(value_type = String)]
    before: PolicyRef,
    /// How long decisions were delayed, in microseconds.
    held_up_us: u64,
}

async fn bind(State(app): State<App>, caller: Caller, Body(body): Body<Bind>) -> Answer<Rebound> {
    let visible = visible(&app, &caller).await?;
    let world = if body.world.is_some() {
        world_of(body.world.as_deref())?
    } else {
        let own = app
            .policies
            .world_of(&body.policy, |head| visible.sees(head));
        let own = own.await.map_err(|error| failed(&error))?;
        own.unwrap_or(World::Eviction)
    };
    let request = bind_request(&app, &caller, world, body)?;
    let changed = app.policies.bind(&request, |head| visible.sees(head)).await;
    let details = json!({"config": request.config, "share_ppm": request.share_ppm,
        "named": request.policy});
    let target = Target {
        world: request.world,
        job: &request.job,
        role: request.role,
    };
    answer(&app, &caller, changed, target, details).await
}

/// The binding that is rolled back.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RollBack {
    /// The world; default eviction.
    #[serde(default)]
    world: Option<String>,
    /// The job.
    #[serde(default)]
    job: Option<String>,
}

async fn roll_back(
    State(app): State<App>,
    caller: Caller,
    Body(body): Body<RollBack>,
) -> Answer<Rebound> {
    let world = world_of(body.world.as_deref())?;
    let job = job_of(&app, &caller, body.job.as_deref())?;
    let changed = app.policies.roll_back(world, &job).await;
    let details = json!({"rolled_back": true});
    let target = Target {
        world,
        job: &job,
        role: Role::Active,
    };
    answer(&app, &caller, changed, target, details).await
}

/// A role of a binding.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct RoleQuery {
    /// The world.
    world: String,
    /// The job.
    job: Option<String>,
    /// active, canary or shadow; default active.
    role: Option<String>,
}

async fn withdraw(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<RoleQuery>,
) -> Answer<Rebound> {
    let world = world_of(Some(&query.world))?;
    let role = role_of(query.role.as_deref())?;
    let job = job_of(&app, &caller, query.job.as_deref())?;
    let changed = app.policies.withdraw(world, &job, role).await;
    let details = json!({"withdrawn": true});
    let target = Target {
        world,
        job: &job,
        role,
    };
    answer(&app, &caller, changed, target, details).await
}

/// The role of a binding that was changed; the job by its internal name.
struct Target<'a> {
    world: World,
    job: &'a str,
    role: Role,
}

/// Records the change in the audit log and builds the response.
async fn answer(
    app: &App,
    caller: &Caller,
    changed: Result<Changed, RegistryError>,
    target: Target<'_>,
    details: Value,
) -> Answer<Rebound> {
    let changed = changed.map_err(|error| failed(&error))?;
    let world = target.world;
    let job = caller.principal.outside(target.job).unwrap_or(target.job);
    let role = target.role.as_str();
    let change = Change {
        action: "binding.changed",
        target: &format!("{world}/{job}/{role}"),
        before: json!({"policy": changed.before}),
        after: json!({"policy": changed.after, "subject": changed.subject, "details": details}),
    };
    let recorded = app.auth.audit.record(caller, change).await;
    recorded.map_err(|_| super::not_audited())?;
    Ok(Json(Rebound {
        world,
        job: job.to_owned(),
        role,
        policy: changed.subject,
        active: changed.after,
        before: changed.before,
        held_up_us: changed.held_up_us,
    }))
}

fn is_alone(app: &App, caller: &Caller) -> bool {
    caller.principal.root || app.auth.has_one_tenant()
}

/// The daemon's internal name of a job.
fn job_of(app: &App, caller: &Caller, job: Option<&str>) -> Result<String, Response> {
    let job = name("job", job.unwrap_or(EVERYONE))?;
    let inside = caller.principal.inside(&job);
    if inside == EVERYONE && !is_alone(app, caller) {
        let message = "this binding applies to the jobs of all tenants; it needs a token of the whole \
                       daemon";
        return Err(refuse(ErrorCode::Forbidden, message));
    }
    Ok(inside)
}

fn bind_request(
    app: &App,
    caller: &Caller,
    world: World,
    body: Bind,
) -> Result<BindRequest, Response> {
    let job = job_of(app, caller, body.job.as_deref())?;
    let role = role_of(body.role.as_deref())?;
    let share_ppm = match (role, body.share) {
        (Role::Canary, Some(share)) if share > 0.0 && share < 1.0 => (share * 1e6).round() as u32,
        (Role::Canary, _) => {
            let message = "`share` is missing or out of range; send a number above 0 and below 1";
            return Err(refuse(ErrorCode::InvalidField, message));
        }
        _ => 0,
    };
    Ok(BindRequest {
        world,
        job,
        policy: body.policy,
        config: Value::Object(body.config.unwrap_or_default()).to_string(),
        role,
        share_ppm,
    })
}

fn world_of(word: Option<&str>) -> Result<World, Response> {
    let word = word.unwrap_or(World::Eviction.as_str());
    World::from_name(word).ok_or_else(|| {
        let words: Vec<&str> = World::ALL.iter().map(|world| world.as_str()).collect();
        let message = format!("`world` is `{word}`; send one of {}", words.join(", "));
        refuse(ErrorCode::InvalidField, message)
    })
}

fn role_of(word: Option<&str>) -> Result<Role, Response> {
    let word = word.unwrap_or(Role::Active.as_str());
    let role = Role::from_name(word).filter(|role| *role != Role::Previous);
    role.ok_or_else(|| {
        let message = format!("`role` is `{word}`; send active, canary or shadow");
        refuse(ErrorCode::InvalidField, message)
    })
}
