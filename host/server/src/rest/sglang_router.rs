//! The API of SGLang's router: workers, their load, and aborts.
//!
//! Its clients wait until they see the URLs that they registered, and send fields of their own.

use crate::app::App;
use crate::rest::Endpoint;
use crate::rest::stopped;
use crate::rest::workers::{self, Registered, Removed, register, take_out, urls};
use axum::extract::State;
use axum::http::{HeaderMap, Method};
use axum::response::Json;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use treadle_auth::permissions::{ENGINES, RUN, VIEW};
use treadle_auth::{Caller, Change};
use treadle_core::programs::{Totals, WorkerTotals};
use treadle_endpoints::arguments::{Query, Raw, parse};
use treadle_endpoints::signature::Answer;
use treadle_endpoints::{delete, get, post};
use treadle_engines::Declared;
use treadle_http::{error_response, refuse};
use treadle_scheduler::LinkInput;
use treadle_scheduler::link::{ToGateway, Withdrawn};
use treadle_wire::ErrorCode;
use utoipa::{IntoParams, ToSchema};

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let busy = &[ErrorCode::Overloaded];
    let wrong = &[ErrorCode::MissingField, ErrorCode::InvalidField];
    let registers = "Registers an engine";
    let removes = "Removes an engine; its programs continue elsewhere";
    vec![
        get("/workers", VIEW, workers::list)
            .summary("Registered engines")
            .fails(busy),
        post("/workers", ENGINES, add)
            .summary(registers)
            .takes::<AddWorker>()
            .fails(wrong)
            .fails(busy),
        delete("/workers/{worker}", ENGINES, workers::remove)
            .summary("Removes an engine, by id or encoded URL; its programs continue elsewhere")
            .fails(&[ErrorCode::WorkerUnknown, ErrorCode::Overloaded]),
        get("/list_workers", VIEW, list_urls)
            .summary("URLs of the registered engines")
            .fails(busy),
        post("/add_worker", ENGINES, add)
            .summary(registers)
            .takes::<AddWorker>()
            .fails(wrong)
            .fails(busy),
        post("/remove_worker", ENGINES, remove)
            .summary(removes)
            .fails(&[ErrorCode::MissingField, ErrorCode::WorkerUnknown])
            .fails(busy),
        get("/get_load", VIEW, get_load)
            .summary("Load per engine, from treadle's ledger")
            .fails(busy),
        get("/v1/loads", VIEW, loads)
            .summary("Load per engine, from treadle's ledger, with totals")
            .fails(busy),
        post("/abort_request", RUN, abort_request)
            .summary("Aborts requests here and at the engines")
            .details(
                "The abort is sent to engines only for callers who see all tenants, because \
                      engines do not know tenants.",
            )
            .takes::<Abort>()
            .fails(busy),
    ]
}

/// URLs of engines.
#[derive(Serialize, ToSchema)]
struct WorkerUrls {
    /// In ascending order of id.
    urls: Vec<Box<str>>,
}

async fn list_urls(State(app): State<App>) -> Answer<WorkerUrls> {
    let workers = workers::workers(&app).await?;
    let urls = urls(&workers);
    Ok(Json(WorkerUrls { urls }))
}

/// A worker's URL in the query, as older clients send it.
#[derive(Deserialize, IntoParams)]
struct UrlQuery {
    /// Its URL.
    url: Option<String>,
    /// Its URL, under the name that older clients use.
    worker_url: Option<String>,
}

/// An engine to be registered. Other fields are for other routers.
#[derive(Deserialize, ToSchema)]
struct AddWorker {
    /// Its URL, of the form http://host:port.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    url: Value,
    /// Its URL, under the name that older clients use.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    worker_url: Value,
    /// vllm, sglang, llamacpp or openai; detected by default.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    kind: Value,
    /// Its KV memory in tokens, if the engine does not report it.
    #[serde(default)]
    #[schema(value_type = Option<u64>)]
    capacity_tokens: Value,
    /// Its class of hardware, such as h20.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    class: Value,
    /// Its role: both, prefill or decode.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    role: Value,
    /// Its role in the words of SGLang's router: regular, prefill or decode.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    worker_type: Value,
}

/// A role in the words of SGLang's router; others are for other routers.
fn as_role(worker_type: &Value) -> Option<&str> {
    let known = worker_type.as_str();
    known.filter(|word| matches!(*word, "prefill" | "decode"))
}

async fn add(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<UrlQuery>,
    Raw(body): Raw,
) -> Answer<Registered> {
    let body: AddWorker = parse(or_empty(&body)).map_err(|error| error_response(&error))?;
    let in_body = body.url.as_str().or(body.worker_url.as_str());
    let in_query = query.url.as_deref().or(query.worker_url.as_deref());
    let url = in_body.or(in_query).ok_or_else(|| {
        let message = "`url` is missing; send {\"url\": \"http://host:port\"}";
        refuse(ErrorCode::MissingField, message)
    })?;
    let capacity_tokens = match &body.capacity_tokens {
        Value::Null => None,
        // Anything but a whole number is refused like 0.
        value => Some(value.as_u64().unwrap_or_default()),
    };
    let declared = Declared::new(body.kind.as_str(), capacity_tokens)
        .and_then(|declared| declared.of_class(body.class.as_str()))
        .and_then(|declared| declared.with_role(body.role.as_str().or(as_role(&body.worker_type))))
        .map_err(|error| error_response(&error))?;
    // slime registers the port at which it controls an engine.
    let port = app.relay_ports.iter().find(|port| port.is_at(url));
    let url = port.map_or(url, |port| &port.engine);
    register(&app, &caller, url, declared).await
}

/// Treats an absent body as an empty object.
fn or_empty(body: &[u8]) -> &[u8] {
    if body.is_empty() { b"{}" } else { body }
}

async fn remove(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<UrlQuery>,
) -> Answer<Removed> {
    let url = query.url.or(query.worker_url).ok_or_else(|| {
        let message = "`url` is missing from the query";
        refuse(ErrorCode::MissingField, message)
    })?;
    take_out(&app, &caller, url).await
}

/// The load of a worker.
#[derive(Serialize, ToSchema)]
struct WorkerLoad {
    /// Its index among the workers.
    dp_rank: usize,
    /// Its URL.
    url: Box<str>,
    /// Steps running on it.
    num_reqs: u64,
    /// Steps running on it.
    num_running_reqs: u64,
    /// Always 0: steps wait in treadle.
    num_waiting_reqs: u64,
    /// KV memory charged to programs, in tokens.
    num_tokens: u64,
    /// Its KV memory in tokens, if known.
    max_total_num_tokens: Option<u64>,
}

impl WorkerLoad {
    fn all(totals: &Totals) -> Vec<Self> {
        let load = |(dp_rank, w): (usize, &WorkerTotals)| Self {
            dp_rank,
            url: w.url.clone(),
            num_reqs: w.running_steps,
            num_running_reqs: w.running_steps,
            num_waiting_reqs: 0,
            num_tokens: w.used_tokens,
            max_total_num_tokens: w.capacity_tokens,
        };
        totals.workers.iter().enumerate().map(load).collect()
    }
}

async fn get_load(State(app): State<App>) -> Answer<Vec<WorkerLoad>> {
    let overview = app.driver.overview().await.map_err(|_| stopped())?;
    let totals = overview.totals;
    Ok(Json(WorkerLoad::all(&totals)))
}

/// Load per worker and in total.
#[derive(Serialize, ToSchema)]
struct Loads {
    /// Load per worker.
    loads: Vec<WorkerLoad>,
    /// Total load.
    aggregate: TotalLoad,
}

/// Load of all workers together.
#[derive(Serialize, ToSchema)]
#[expect(
    clippy::struct_field_names,
    reason = "clients of SGLang's router expect them"
)]
struct TotalLoad {
    /// Steps at engines.
    total_running_reqs: u64,
    /// Steps in the queue.
    total_waiting_reqs: u64,
    /// Steps at engines and in the queue.
    total_reqs: u64,
    /// KV memory charged to programs, in tokens.
    total_tokens: u64,
}

async fn loads(State(app): State<App>) -> Answer<Loads> {
    let overview = app.driver.overview().await.map_err(|_| stopped())?;
    let totals = overview.totals;
    Ok(Json(Loads {
        loads: WorkerLoad::all(&totals),
        aggregate: TotalLoad {
            total_running_reqs: totals.running_steps,
            total_waiting_reqs: totals.waiting_steps,
            total_reqs: totals.running_steps + totals.waiting_steps,
            total_tokens: totals.workers.iter().map(|w| w.used_tokens).sum(),
        },
    }))
}

/// The requests to abort. Other fields are for the engines.
#[derive(Deserialize, ToSchema)]
struct Abort {
    /// Abort those with this id.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    rid: Value,
    /// Abort all requests.
    #[serde(default)]
    #[schema(value_type = Option<bool>)]
    abort_all: Value,
}

/// The aborted requests.
#[derive(Serialize, ToSchema)]
#[expect(
    clippy::struct_field_names,
    reason = "clients of SGLang's router expect them"
)]
struct Aborted {
    /// Always ok.
    status: &'static str,
    /// Requests aborted in this process.
    aborted_here: usize,
    /// Engines to which the abort was sent.
    engines_told: usize,
}

async fn abort_request(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    Raw(body): Raw,
) -> Answer<Aborted> {
    let request: Abort = parse(or_empty(&body)).map_err(|error| error_response(&error))?;
    let all = request.abort_all.as_bool().unwrap_or(false);
    let rid = request.rid.as_str().filter(|rid| !rid.is_empty());
    // Engines know no tenants: an abort sent to them aborts requests of others too.
    let engines_may_be_notified = caller.principal.root || app.auth.has_one_tenant();
    let aborted_here = withdraw(&app, &caller, all, rid, !engines_may_be_notified);
    notify_gateways(&app, &caller, all, rid, !engines_may_be_notified);
    let change = Change {
        action: "requests.aborted",
        target: rid.unwrap_or("*"),
        before: json!({"withdrawn": aborted_here}),
        after: Value::Null,
    };
    if aborted_here > 0 {
        app.auth.audit.note(&caller, change).await;
    }
    let engines_told = if engines_may_be_notified {
        notify_engines(&app, &headers, &body).await?
    } else {
        0
    };
    Ok(Json(Aborted {
        status: "ok",
        aborted_here,
        engines_told,
    }))
}

/// Sends an abort to the engines, which may run requests that did not come from treadle; returns
/// the number of engines.
async fn notify_engines(
    app: &App,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<usize, axum::response::Response> {
    let workers = app.driver.workers().await.map_err(|_| stopped())?;
    let healthy = workers
        .into_iter()
        .filter(treadle_core::programs::Worker::is_healthy);
    let urls: Vec<_> = healthy.map(|worker| worker.url).collect();
    for url in &urls {
        let base = url.trim_end_matches('/');
        let told =
            app.gateway
                .upstream
                .send(Method::POST, base, "/abort_request", headers, body.clone());
        if let Err(error) = told.await {
            tracing::warn!(%url, %error, "the abort could not be sent to the engine");
        }
    }
    Ok(urls.len())
}

/// Aborts requests at gateways in other processes, which don't report their number.
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

/// Aborts the caller's requests, all or those with one id; returns their number.
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
