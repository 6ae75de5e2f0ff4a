//! Whether treadle and its engines are well, and its metrics.

use super::caches::HostTotals;
use super::{ok, stopped, wants_json};
use crate::app::App;
use crate::metrics;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use serde_json::{Map, Value, json};
use treadle_auth::Caller;
use treadle_core::{Mode, Totals};
use treadle_model::World;
use treadle_policy::evaluator::Scope;

/// `GET /health`: 200 while a program can be served, 503 with the cause if no engine answers.
/// Callers without the viewer scope learn no more than that.
pub(super) async fn show(State(app): State<App>, caller: Caller) -> Response {
    let read = app.driver.read(|view| {
        let policy = view
            .policies
            .active(World::Eviction, &Scope::Everyone)
            .to_string();
        let state = view.core.state();
        let mode = view.core.config().mode;
        (state.totals(), mode, policy, HostTotals::of(state))
    });
    let Ok((totals, mode, policy, held)) = read.await else {
        return stopped();
    };
    let healthy = totals.workers.iter().filter(|w| w.healthy).count();
    let (status, word, detail) = if totals.workers.is_empty() {
        (StatusCode::OK, "ok", "no engine is registered yet")
    } else if healthy == 0 {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "no_healthy_worker",
            "no registered engine answers",
        )
    } else {
        (StatusCode::OK, "ok", "")
    };
    if caller.principal.scope.is_none() {
        let body = json!({"status": word, "detail": detail, "version": env!("CARGO_PKG_VERSION")});
        return (status, Json(body)).into_response();
    }
    let body = json!({
        "status": word,
        "detail": detail,
        "router_mode": if mode == Mode::ProgramAware { "tr" } else { "default" },
        "mode": mode,
        "scheduling_enabled": mode == Mode::ProgramAware,
        "backends": totals.workers.iter().map(|w| &w.url).collect::<Vec<_>>(),
        "healthy_backends": healthy,
        "programs_count": totals.programs,
        "reasoning_count": totals.reasoning,
        "acting_count": totals.acting,
        "paused_count": totals.paused,
        "waiting_steps": totals.waiting_steps,
        "per_backend": per_backend(&totals),
        "profile_enabled": true,
        "eviction_policy": policy,
        "kv": held.to_json(),
        // The broker is reported, and no reason to take the daemon out: scheduling does without it.
        "broker": app.broker.as_ref().map(|broker| broker.to_json()),
        "version": env!("CARGO_PKG_VERSION"),
    });
    (status, Json(body)).into_response()
}

fn per_backend(totals: &Totals) -> Value {
    let entry = |w: &treadle_core::WorkerTotals| {
        let counts = json!({
            "total": w.programs, "reasoning": w.reasoning, "acting": w.acting,
        });
        (w.url.to_string(), counts)
    };
    Value::Object(totals.workers.iter().map(entry).collect::<Map<_, _>>())
}

/// `GET /metrics`: Prometheus' text, or per-backend JSON for clients that
/// accept JSON.
pub(super) async fn metrics(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
) -> Response {
    let read = app.driver.read(|view| {
        let state = view.core.state();
        let uses = crate::memory::MemoryUses::read(view);
        (
            (state.totals(), HostTotals::of(state)),
            state.counters,
            uses,
        )
    });
    let policies = (app.policies.totals().await, app.policies.versions().await);
    let (Ok(((totals, held), counters, uses)), (Ok(policies), Ok(versions))) =
        (read.await, policies)
    else {
        return stopped();
    };
    if wants_json(&headers) {
        return ok(metrics_json(&totals));
    }
    let mut text = metrics::render(
        &app.gateway.metrics,
        &totals,
        &counters,
        &policies,
        &|worker| app.engines.compared(worker),
    );
    text.push_str(&held.render(&counters));
    text.push_str(&app.node.render());
    text.push_str(&uses.shown_to(&caller.principal).render());
    if let Some(bodies) = &app.gateway.bodies {
        text.push_str(&treadle_http::counter(
            "treadle_bodies_left_out_total",
            "Bodies that were too long to be kept, or came while too many waited.",
            bodies.left_out(),
        ));
    }
    if let Some(broker) = &app.broker {
        text.push_str(&broker.render());
    }
    // Names of policies are their tenants' affair.
    if caller.principal.root || app.auth.has_one_tenant() {
        text.push_str(&crate::policy_metrics::render(&versions));
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

fn metrics_json(totals: &Totals) -> Value {
    let entry = |w: &treadle_core::WorkerTotals| {
        let backend = json!({
            "url": w.url,
            "healthy": w.healthy,
            "active_program_tokens": w.used_tokens,
            "shared_tokens": w.shared_tokens,
            "cache_config": {"total_tokens_capacity": w.capacity_tokens},
            "running_steps": w.running_steps,
        });
        (w.url.to_string(), backend)
    };
    let backends = totals.workers.iter().map(entry).collect::<Map<_, _>>();
    json!({"metrics_enabled": true, "metrics_interval": null, "backends": backends})
}
