//! What SGLang's clients ask a router: how loaded it is, and to abort.

use super::{object, ok, stopped};
use crate::app::App;
use axum::extract::State;
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use bytes::Bytes;
use serde_json::{Value, json};
use treadle_auth::{Caller, Change};
use treadle_core::Totals;
use treadle_scheduler::LinkInput;
use treadle_scheduler::link::{ToGateway, Withdrawn};

/// `GET /get_load`: one entry per worker, from treadle's own ledger.
pub(super) async fn get_load(State(app): State<App>) -> Response {
    match app.driver.read(|view| view.core.state().totals()).await {
        Ok(totals) => ok(Value::Array(entries(&totals))),
        Err(_) => stopped(),
    }
}

/// `GET /v1/loads`: the same with totals.
pub(super) async fn loads(State(app): State<App>) -> Response {
    let Ok(totals) = app.driver.read(|view| view.core.state().totals()).await else {
        return stopped();
    };
    ok(json!({
        "loads": entries(&totals),
        "aggregate": {
            "total_running_reqs": totals.running_steps,
            "total_waiting_reqs": totals.waiting_steps,
            "total_reqs": totals.running_steps + totals.waiting_steps,
            "total_tokens": totals.workers.iter().map(|w| w.used_tokens).sum::<u64>(),
        },
    }))
}

fn entries(totals: &Totals) -> Vec<Value> {
    let entry = |(rank, w): (usize, &treadle_core::WorkerTotals)| {
        json!({
            "dp_rank": rank,
            "url": w.url,
            "num_reqs": w.running_steps,
            "num_running_reqs": w.running_steps,
            "num_waiting_reqs": 0,
            "num_tokens": w.used_tokens,
            "max_total_num_tokens": w.capacity_tokens,
        })
    };
    totals.workers.iter().enumerate().map(entry).collect()
}

/// `POST /abort_request {rid, abort_all}`: withdraws steps here, and notifies the engines, which
/// may run requests of theirs that treadle never saw.
pub(super) async fn abort_request(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let request = match object(if body.is_empty() { b"{}" } else { &body }) {
        Ok(request) => request,
        Err(response) => return response,
    };
    let all = request
        .get("abort_all")
        .and_then(Value::as_bool)
        .unwrap_or(false);
    let rid = request
        .get("rid")
        .and_then(Value::as_str)
        .filter(|rid| !rid.is_empty());
    // Engines know no tenants: an abort sent to them aborts requests of others too.
    let engines_may_be_notified = caller.principal.root || app.auth.has_one_tenant();
    let withdrawn = withdraw(&app, &caller, all, rid, !engines_may_be_notified);
    notify_gateways(&app, &caller, all, rid, !engines_may_be_notified);
    let change = Change {
        action: "requests.aborted",
        target: rid.unwrap_or("*"),
        before: json!({"withdrawn": withdrawn}),
        after: Value::Null,
    };
    if withdrawn > 0 {
        app.auth.audit.note(&caller, change).await;
    }
    if !engines_may_be_notified {
        return ok(json!({"status": "ok", "aborted_here": withdrawn, "engines_told": 0}));
    }
    let urls = app.driver.read(|view| {
        let workers = view.core.state().workers.values();
        workers
            .filter(|w| w.is_healthy())
            .map(|w| w.url.clone())
            .collect::<Vec<_>>()
    });
    let Ok(urls) = urls.await else {
        return stopped();
    };
    for url in &urls {
        let base = url.trim_end_matches('/');
        let told =
            app.gateway
                .upstream
                .send(Method::POST, base, "/abort_request", &headers, body.clone());
        if let Err(error) = told.await {
            tracing::warn!(%url, %error, "the abort could not be sent to the engine");
        }
    }
    ok(json!({"status": "ok", "aborted_here": withdrawn, "engines_told": urls.len()}))
}

/// The same at gateways in other processes, which don't report how many there were.
fn notify_gateways(app: &App, caller: &Caller, all: bool, rid: Option<&str>, cut: bool) {
    if !all && rid.is_none() {
        return;
    }
    let principal = &caller.principal;
    let everybody = all && principal.whole;
    let withdrawn = ToGateway::Withdraw(Withdrawn {
        tenant: (!everybody).then(|| principal.tenant.tenant.name().to_owned()),
        id: rid.filter(|_| !all).map(str::to_owned),
        cut,
    });
    // A driver that has stopped has no gateways.
    let _ = app.driver.link(LinkInput::Notify(withdrawn));
}

/// Withdraws the caller's requests, all or those with one id; gives their number.
fn withdraw(app: &App, caller: &Caller, all: bool, rid: Option<&str>, cut: bool) -> usize {
    let principal = &caller.principal;
    let requests = &app.gateway.requests;
    match (all, rid) {
        (true, _) if principal.whole => requests.withdraw(|_| true, cut),
        (true, _) => requests.withdraw(|key| principal.outside(key).is_some(), cut),
        (false, Some(rid)) => {
            let chosen = |key: &str| {
                let rest = principal.outside(key).and_then(|key| key.strip_prefix(rid));
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
            };
            requests.withdraw(chosen, cut)
        }
        (false, None) => 0,
    }
}
