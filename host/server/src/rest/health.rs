//! Health of treadle and its engines, and metrics.

use super::Endpoint;
use super::caches::HostTotals;
use super::{stopped, wants_json};
use crate::app::App;
use crate::memory::MemoryUses;
use crate::metrics;
use crate::store_health::{self, StoreHealth};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::MethodRouter;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::timeout;
use treadle_auth::Caller;
use treadle_auth::permissions::{Needs, VIEW};
use treadle_core::Mode;
use treadle_core::programs::{Totals, WorkerTotals};
use treadle_endpoints::get;
use treadle_model::World;
use treadle_outbox::BrokerHealth;
use treadle_policy::evaluator::Scope;
use treadle_sandbox_apis::health_of_sandbox;
use treadle_wire::ErrorCode;
use utoipa::ToSchema;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// How long the scheduler may take to report its state; it blocks while the journal is far behind.
const SCHEDULER_WAIT_MAX: Duration = Duration::from_secs(2);

pub(super) fn endpoints() -> Vec<Endpoint> {
    let unwell =
        "No registered engine responds, or the store can't be written; `detail` has the cause.";
    vec![
        get("/health", Needs::Nothing, show)
            .around(of_sandboxes)
            .summary("200 if programs can be served, else 503 with the cause")
            .details("Callers without the scope viewer get only the status.")
            .answers::<Health>(200, "Programs can be served.")
            .answers::<Health>(503, unwell),
        get("/metrics", VIEW, show_metrics)
            .summary(
                "Metrics in Prometheus' text format; JSON per engine with `Accept: \
                      application/json`",
            )
            .answers_as("text/plain", "Metrics.")
            .fails(&[ErrorCode::Overloaded]),
    ]
}

/// Serves the path for the sandbox if the request names one.
fn of_sandboxes(app: &App, handler: MethodRouter<App>) -> MethodRouter<App> {
    handler.layer(from_fn_with_state(app.sandbox_app(), health_of_sandbox))
}

/// The health of treadle.
#[derive(Serialize, ToSchema)]
struct Health {
    /// ok, no_healthy_worker, store_failing, store_lost or scheduler_stalled.
    status: &'static str,
    /// The cause; empty without one.
    detail: &'static str,
    /// Version of treadle.
    version: &'static str,
    /// Failures of the store; hidden from callers without the scope viewer.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<StoreHealth>,
    #[serde(flatten)]
    load: Option<DaemonLoad>,
}

/// Current load; hidden from callers without the scope viewer.
#[derive(Serialize, ToSchema)]
struct DaemonLoad {
    /// tr if programs are scheduled, else default; for clients of ThunderAgent.
    #[schema(required = false)]
    router_mode: &'static str,
    /// The scheduling mode.
    #[schema(value_type = String, required = false)]
    mode: Mode,
    /// Whether programs are scheduled.
    #[schema(required = false)]
    scheduling_enabled: bool,
    /// URLs of the engines.
    #[schema(required = false)]
    backends: Vec<Box<str>>,
    /// Number of engines that respond.
    #[schema(required = false)]
    healthy_backends: usize,
    /// Live programs.
    #[schema(required = false)]
    programs_count: u64,
    /// Programs that generate or wait to, without paused ones.
    #[schema(required = false)]
    reasoning_count: u64,
    /// Programs whose tools are running, without paused ones.
    #[schema(required = false)]
    acting_count: u64,
    /// Paused programs.
    #[schema(required = false)]
    paused_count: u64,
    /// Steps that wait for a placement.
    #[schema(required = false)]
    waiting_steps: u64,
    /// Programs by URL of the engine.
    #[schema(required = false)]
    per_backend: BTreeMap<String, BackendPrograms>,
    /// Always true.
    #[schema(required = false)]
    profile_enabled: bool,
    /// The policy that pauses programs.
    #[schema(required = false)]
    eviction_policy: String,
    /// Caches that are not at an engine.
    #[schema(required = false)]
    kv: HostTotals,
    /// The broker, if configured. It does not affect the health status: scheduling works without
    /// it.
    #[schema(required = false)]
    broker: Option<BrokerHealth>,
}

/// Programs at an engine.
#[derive(Serialize, ToSchema)]
struct BackendPrograms {
    /// All programs at the engine.
    total: u64,
    /// Programs that generate.
    reasoning: u64,
    /// Programs whose tools are running.
    acting: u64,
    /// The engine's role, prefill or decode, if it does not do both.
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
}

async fn show(State(app): State<App>, caller: Caller) -> Response {
    let condition = app.store.condition();
    let may_see = caller.principal.scope.is_some();
    let store = may_see.then(|| StoreHealth::of(&condition));
    // The scheduler may wait for the same store.
    if let Some((status, detail)) = store_health::objection(&condition) {
        return unwell(status, detail, store);
    }
    let read = async {
        let scope = Scope::Everyone;
        let policy = app.driver.active_policy(World::Eviction, scope).await;
        (app.driver.overview().await, policy)
    };
    let Ok(read) = timeout(SCHEDULER_WAIT_MAX, read).await else {
        let stalled = "the scheduler waits for the journal";
        return unwell("scheduler_stalled", stalled, store);
    };
    let (Ok(overview), Ok(policy)) = read else {
        return stopped();
    };
    let (totals, mode) = (overview.totals, overview.mode);
    let (policy, kv) = (policy.to_string(), HostTotals::of(overview.caches));
    let healthy = totals.workers.iter().filter(|w| w.healthy).count();
    let (code, status, detail) = if totals.workers.is_empty() {
        (StatusCode::OK, "ok", "no engine is registered yet")
    } else if healthy == 0 {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "no_healthy_worker",
            "no registered engine responds",
        )
    } else {
        (StatusCode::OK, "ok", "")
    };
    let is_scheduled = mode == Mode::ProgramAware;
    let load = may_see.then(|| DaemonLoad {
        router_mode: if is_scheduled { "tr" } else { "default" },
        mode,
        scheduling_enabled: is_scheduled,
        backends: totals.workers.iter().map(|w| w.url.clone()).collect(),
        healthy_backends: healthy,
        programs_count: totals.programs,
        reasoning_count: totals.reasoning - totals.paused_reasoning,
        acting_count: (totals.acting + totals.paused_reasoning).saturating_sub(totals.paused),
        paused_count: totals.paused,
        waiting_steps: totals.waiting_steps,
        per_backend: by_url(&totals, |w| BackendPrograms {
            total: w.programs,
            reasoning: w.reasoning,
            acting: w.acting,
            role: w.role.name_if_set(),
        }),
        profile_enabled: true,
        eviction_policy: policy,
        kv,
        broker: app.broker.as_ref().map(|broker| broker.report()),
    });
    let health = Health {
        status,
        detail,
        version: VERSION,
        store,
        load,
    };
    (code, Json(health)).into_response()
}

/// The response while the scheduler does not answer.
fn unwell(status: &'static str, detail: &'static str, store: Option<StoreHealth>) -> Response {
    let health = Health {
        status,
        detail,
        version: VERSION,
        store,
        load: None,
    };
    (StatusCode::SERVICE_UNAVAILABLE, Json(health)).into_response()
}

fn by_url<T>(totals: &Totals, entry: impl Fn(&WorkerTotals) -> T) -> BTreeMap<String, T> {
    let workers = totals.workers.iter();
    workers.map(|w| (w.url.to_string(), entry(w))).collect()
}

async fn show_metrics(State(app): State<App>, caller: Caller, headers: HeaderMap) -> Response {
    let of_store = store_health::render(&app.store.condition());
    let read = async {
        let overview = app.driver.overview().await;
        (overview, app.driver.memory_accounts().await)
    };
    let Ok(read) = timeout(SCHEDULER_WAIT_MAX, read).await else {
        // The scheduler waits for the journal; the store's metrics show why.
        return prometheus(of_store);
    };
    let policies = (app.policies.totals().await, app.policies.versions().await);
    let ((Ok(overview), Ok(accounts)), (Ok(policies), Ok(versions))) = (read, policies) else {
        return stopped();
    };
    let (totals, counters) = (overview.totals, overview.counters);
    let held = HostTotals::of(overview.caches);
    if wants_json(&headers) {
        return Json(BackendMetrics::of(&totals)).into_response();
    }
    let mut text = metrics::render(
        &app.gateway.metrics,
        &totals,
        &counters,
        &policies,
        &|worker| app.engines.compared(worker),
    );
    text.push_str(&of_store);
    text.push_str(&held.render(&counters));
    text.push_str(&app.node.render());
    text.push_str(&app.training.metrics(&caller.principal).await);
    text.push_str(&MemoryUses::shown_to(accounts, &caller.principal).render());
    text.push_str(&treadle_http::gauge(
        "treadle_request_bodies_bytes",
        "Bytes of request bodies in memory; `server.bodies_bytes_max` bounds them.",
        app.gateway.room.bodies.0.used(),
    ));
    if let Some(bodies) = &app.gateway.bodies {
        text.push_str(&treadle_http::counter(
            "treadle_bodies_left_out_total",
            "Bodies that were not stored because they were too long or the write queue was full.",
            bodies.left_out(),
        ));
    }
    if let Some(broker) = &app.broker {
        text.push_str(&broker.render());
    }
    if let Some(actions) = &app.actions {
        match actions.render().await {
            Ok(rendered) => text.push_str(&rendered),
            Err(_) => return stopped(),
        }
    }
    if let Some(sandboxes) = &app.sandboxes {
        text.push_str(&sandboxes.render());
    }
    if let Some(nodes) = &app.nodes {
        text.push_str(&nodes.render());
    }
    // Names of policies are private to their tenants.
    if caller.principal.root || app.auth.has_one_tenant() {
        text.push_str(&treadle_registry::render_versions(&versions));
    }
    prometheus(text)
}

fn prometheus(text: String) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

/// The metrics that clients of ThunderAgent read.
#[derive(Serialize)]
struct BackendMetrics {
    metrics_enabled: bool,
    metrics_interval: Option<f64>,
    backends: BTreeMap<String, Backend>,
}

#[derive(Serialize)]
struct Backend {
    url: Box<str>,
    healthy: bool,
    active_program_tokens: u64,
    shared_tokens: u64,
    cache_config: CacheConfig,
    running_steps: u64,
}

#[derive(Serialize)]
struct CacheConfig {
    total_tokens_capacity: Option<u64>,
}

impl BackendMetrics {
    fn of(totals: &Totals) -> Self {
        Self {
            metrics_enabled: true,
            metrics_interval: None,
            backends: by_url(totals, |w| Backend {
                url: w.url.clone(),
                healthy: w.healthy,
                active_program_tokens: w.used_tokens,
                shared_tokens: w.shared_tokens,
                cache_config: CacheConfig {
                    total_tokens_capacity: w.capacity_tokens,
                },
                running_steps: w.running_steps,
            }),
        }
    }
}
