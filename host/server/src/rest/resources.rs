//! Resources and services for actions.

use super::Endpoint;
use super::actions::{failed, running};
use super::stopped;
use crate::app::App;
use axum::extract::State;
use axum::response::Json;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use treadle_actions::{ISOLATION, ServiceSpec};
use treadle_auth::Caller;
use treadle_auth::permissions::{RUN, VIEW};
use treadle_auth::{Principal, PrincipalKind, Scope};
use treadle_config::MEMORY;
use treadle_core::actions::{Pool, Supply};
use treadle_endpoints::arguments::{Body, InPath};
use treadle_endpoints::signature::Answer;
use treadle_endpoints::{get, put};
use treadle_http::error_response;
use treadle_model::tenant::split;
use treadle_model::{Span, Timestamp};
use treadle_runs::nodes::own_name;
use treadle_wire::{ErrorBody, ErrorCode};
use utoipa::ToSchema;

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        get("/api/v1/resources", VIEW, show)
            .summary("Resources of actions: capacity, free amount and number of waiting actions")
            .fails(&[ErrorCode::Overloaded]),
        put("/api/v1/services/{service}", RUN, declare)
            .summary("Declares or replaces a service that is loaded onto devices for actions")
            .details(
                "The service is loaded onto the devices of an action that requests it, and stays \
                 until another service needs them. If commands may only run in sandboxes, \
                 declaring a service with commands needs an operator's token.",
            )
            .fails(&[
                ErrorCode::Overloaded,
                ErrorCode::ActionsDisabled,
                ErrorCode::Forbidden,
                ErrorCode::TenantLimit,
            ]),
    ]
}

/// Resources for actions, over all tenants.
#[derive(Serialize, ToSchema)]
#[expect(clippy::struct_field_names, reason = "the field is named as its path")]
struct Resources {
    /// Whether this daemon runs actions.
    enabled: bool,
    /// How actions are isolated from one another and from the daemon.
    isolation: &'static str,
    /// Waiting actions.
    waiting: usize,
    /// Actions that have been started and have not ended.
    started: usize,
    /// The resources.
    resources: Vec<ResourceView>,
    /// The services.
    services: Vec<ServiceView>,
}

/// A resource.
#[derive(Serialize, ToSchema)]
struct ResourceView {
    /// Its name in `cost`.
    name: String,
    /// units, devices or quota.
    kind: &'static str,
    /// Its capacity, in the units of `cost`; absent if concurrent requests have no limit.
    total: Option<u64>,
    /// Amount in use by started actions.
    used: u64,
    /// Free amount; absent if there is no limit.
    free: Option<u64>,
}

/// A service.
#[derive(Serialize, ToSchema)]
struct ServiceView {
    /// Its name.
    name: String,
    /// Declared time to load it onto devices, in milliseconds.
    load_ms: u64,
    /// Measured load time by number of devices: a moving average in milliseconds.
    #[schema(value_type = Object)]
    loads_ms: Value,
}

async fn show(State(app): State<App>, caller: Caller) -> Answer<Resources> {
    let overview = app.driver.actions_overview().await.map_err(|_| stopped())?;
    let pools = overview.pools.iter();
    let principal = &caller.principal;
    let services = overview.services.iter().filter_map(|(inside, service)| {
        let name = if principal.global {
            split(inside).1
        } else {
            principal.tenant.tenant.outside(inside)?
        };
        let loads = service.loads.iter();
        let loads = loads.map(|(devices, took)| (devices.to_string(), took.millis().into()));
        Some(ServiceView {
            name: name.to_owned(),
            load_ms: service.load.millis(),
            loads_ms: Value::Object(loads.collect()),
        })
    });
    Ok(Json(Resources {
        enabled: app.actions.is_some(),
        isolation: isolation(&app),
        waiting: overview.waiting,
        started: overview.started,
        resources: pools.map(|pool| resource(pool, overview.now)).collect(),
        services: services.collect(),
    }))
}

fn isolation(app: &App) -> &'static str {
    match (&app.sandboxes, &app.actions) {
        (Some(_), Some(actions)) if actions.runs_sandboxes_only() => "sandboxes",
        (Some(_), _) => {
            "sandboxes where actions name one; other processes are of the daemon's user, bounded in \
             time, memory and cores"
        }
        _ => ISOLATION,
    }
}

fn resource(pool: &Pool, now: Timestamp) -> ResourceView {
    let name = &pool.resource.name;
    let scale = if own_name(name) == MEMORY { 1 << 20 } else { 1 };
    let bounded = |units: u64| (units < u64::MAX).then(|| units.saturating_mul(scale));
    ResourceView {
        name: name.to_string(),
        kind: match pool.resource.supply {
            Supply::Units { .. } => "units",
            Supply::Devices { .. } => "devices",
            Supply::Quota { .. } => "quota",
        },
        total: bounded(pool.total()),
        used: pool.used.saturating_mul(scale),
        free: bounded(pool.free(now)),
    }
}

/// A service and its lifecycle.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ServiceRequest {
    /// Expected time to load it onto devices, in milliseconds; later replaced by measurements.
    #[serde(default)]
    load_ms: u64,
    /// `process` (`command`), `commands` (`start`, `stop`, `restore`) or `control` (`url`).
    #[schema(value_type = Object)]
    lifecycle: Value,
    /// Its address: scheme, host and port, which the tenant must be allowed to reach. Without it,
    /// the service runs on this machine at the port in `TREADLE_PORT`.
    #[serde(default)]
    url: Option<String>,
    /// The path that answers 2xx once it is ready.
    ready_path: String,
    /// Time limit to become ready or to stop, in seconds; default 600.
    #[serde(default = "ready_s_max")]
    ready_s_max: u64,
    /// Environment variables.
    #[serde(default)]
    #[schema(value_type = Object)]
    env: Value,
    /// Allowed numbers of devices out of 1, 2, 4 and 8, ascending; default any. An action without a
    /// number may get any of these.
    #[serde(default)]
    gpus: Vec<u64>,
    /// Memory that each device must have; checked if NVML reports device memory.
    #[serde(default)]
    gpu_memory_bytes: u64,
}

fn ready_s_max() -> u64 {
    600
}

/// The service is on record.
#[derive(Serialize, ToSchema)]
struct Declared {
    /// Its name.
    service: String,
}

async fn declare(
    State(app): State<App>,
    caller: Caller,
    InPath(service): InPath<String>,
    Body(request): Body<ServiceRequest>,
) -> Answer<Declared> {
    let actions = running(&app)?;
    let env = if request.env.is_null() {
        Value::Object(serde_json::Map::new())
    } else {
        request.env
    };
    let spec = serde_json::json!({
        "name": service, "lifecycle": request.lifecycle, "url": request.url,
        "ready_path": request.ready_path, "ready_s_max": request.ready_s_max, "env": env,
        "gpus": request.gpus, "gpu_memory_bytes": request.gpu_memory_bytes,
    });
    let mut spec = ServiceSpec::parse(spec.to_string().as_bytes()).map_err(|error| {
        let body = ErrorBody::new(ErrorCode::InvalidField, error.to_string());
        error_response(&body.with_param(error.field()))
    })?;
    spec.by_operator = operates(&app, &caller.principal);
    let tenant = &caller.principal.tenant.tenant;
    let has_commands = spec.has_commands() || actions.has_commands(tenant, &service);
    if actions.runs_sandboxes_only() && has_commands && !spec.by_operator {
        let message = "the service has commands or replaces one that has, and this daemon runs \
                       commands of jobs only in sandboxes; send `control`, or have an operator \
                       declare it with a token";
        let body = ErrorBody::new(ErrorCode::Forbidden, message);
        return Err(error_response(&body.with_param("lifecycle")));
    }
    let load = Span::from_millis(request.load_ms.min(3_600_000));
    actions.declare(tenant, spec, load).await.map_err(failed)?;
    Ok(Json(Declared { service }))
}

/// Whether a caller may run commands with the daemon's own permissions: with a token, unless the
/// configuration makes everyone an admin.
fn operates(app: &App, principal: &Principal) -> bool {
    let least = match principal.who {
        PrincipalKind::Anonymous => Scope::Admin,
        PrincipalKind::Token { .. } | PrincipalKind::Subject(_) | PrincipalKind::Broker => {
            Scope::Operator
        }
    };
    principal.scope >= Some(least) && (principal.global || app.auth.has_one_tenant())
}
