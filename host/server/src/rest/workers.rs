//! Workers: engines are registered and removed while treadle runs.

mod reported;

use self::reported::{Capabilities, ReportedLoad, reported};
use super::Endpoint;
use super::{not_audited, not_recorded, refuse, stopped};
use crate::app::App;
use crate::commands::{self, workers_named};
use crate::engine_profiles;
use axum::extract::State;
use axum::response::{Json, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use treadle_auth::permissions::{ENGINES, VIEW};
use treadle_auth::{Caller, Change};
use treadle_core::Event;
use treadle_core::programs::ProgramEvent;
use treadle_core::programs::{Rest, Worker, WorkerState};
use treadle_endpoints::arguments::{Body, InPath};
use treadle_endpoints::signature::Answer;
use treadle_endpoints::{delete, get, patch, post};
use treadle_engines::{Declared, class_named, role_named};
use treadle_http::error_response;
use treadle_model::{EngineKind, Span};
use treadle_wire::ErrorCode;
use utoipa::ToSchema;

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        get("/api/v1/workers", VIEW, list)
            .summary("Registered engines")
            .fails(&[ErrorCode::Overloaded]),
        post("/api/v1/workers", ENGINES, add)
            .summary("Registers an engine")
            .fails(&[ErrorCode::QueueFull, ErrorCode::Overloaded]),
        patch("/api/v1/workers/{worker}", ENGINES, change)
            .summary(
                "Cordons, drains or reactivates an engine, or sets its class or role, by id or URL",
            )
            .fails(&[ErrorCode::WorkerUnknown, ErrorCode::Overloaded]),
        delete("/api/v1/workers/{worker}", ENGINES, remove)
            .summary("Removes an engine, by id or encoded URL; its programs continue elsewhere")
            .fails(&[ErrorCode::WorkerUnknown, ErrorCode::Overloaded]),
    ]
}

/// Registered engines.
#[derive(Serialize, ToSchema)]
pub(crate) struct Workers {
    /// In ascending order of id.
    pub(crate) workers: Vec<WorkerView>,
    /// Number of workers.
    pub(crate) total: usize,
}

/// A registered engine.
#[derive(Serialize, ToSchema)]
pub(crate) struct WorkerView {
    /// Its id.
    id: String,
    /// Its URL.
    pub(crate) url: Box<str>,
    /// Its role in the words of SGLang's router: prefill, decode or regular.
    worker_type: &'static str,
    /// Whether it responds.
    is_healthy: bool,
    /// active: it accepts programs. cordoned: it accepts no new programs, and those placed there
    /// continue. draining: programs also leave once their running steps have ended; then it is
    /// drained. asleep or paused: it is active, but its engine reports this state and gets no steps
    /// until that changes. fenced: it gets no steps because of its weights.
    state: &'static str,
    /// Why it gets no steps, or why programs that leave it can't be placed elsewhere; absent
    /// otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'static str>,
    /// Its class of hardware, if it was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<Box<str>>,
    /// The engine: vllm, sglang, llamacpp or another.
    #[schema(value_type = String)]
    engine: EngineKind,
    /// The model that it serves, if it reports one.
    model: Option<Box<str>>,
    /// Other model names that it serves, including adapters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    other_models: Vec<Box<str>>,
    /// Version of its software, as reported when it last became reachable.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<Box<str>>,
    /// prefill: it computes prompts for decode workers, and no program is placed on it. decode: long
    /// prompts of its programs are computed by prefill workers first. Absent if it does both.
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    /// Its detected capabilities.
    capabilities: Capabilities,
    /// Steps running on it.
    load: u32,
    /// Prompts that it computes at present for steps of decode workers.
    #[serde(skip_serializing_if = "treadle_model::is_default")]
    #[schema(required = false)]
    prefills: u32,
    /// Programs that are placed on it.
    programs: usize,
    /// KV memory charged to its programs, in tokens.
    used_tokens: u64,
    /// Its KV memory, in tokens, if known.
    capacity_tokens: Option<u64>,
    /// Longest context of one program, in tokens, if known.
    context_tokens_max: Option<u64>,
    /// Concurrent programs, for engines with slots.
    slots: Option<u32>,
    /// GPUs that it runs on, if known.
    gpus: Option<u32>,
    /// Host memory to which the engine itself offloads, as measured, in tokens.
    host_tokens: u64,
    /// Prompt tokens that it computes per second, once measured.
    prefill_tokens_per_s: Option<u64>,
    /// Microseconds per token of a single step, once measured from enough steps.
    token_us: Option<u64>,
    /// Microseconds that each further concurrent step adds to the time per token.
    step_us: Option<u64>,
    /// Its own reported load, beside treadle's ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    engine_load: Option<ReportedLoad>,
}

/// Why programs wait while an engine is out of service.
const NO_OTHER: &str =
    "no engine accepts programs, so their steps wait in the queue; activate or register one";

/// Why an engine gets no steps whose weights treadle loads.
const FENCED: &str = "it has not proven which version it has, or is being loaded; `treadle weights \
                      status` has the reason";

/// Why an engine gets no steps.
const fn rests(rest: Rest) -> &'static str {
    match rest {
        Rest::Asleep => {
            "its engine is asleep, so it gets no steps; wake it with POST /wake_up of vLLM"
        }
        Rest::Paused => {
            "its engine is paused, so it gets no steps; resume it with POST /resume of vLLM or \
             /continue_generation of SGLang"
        }
    }
}

/// The registered engines; an error if treadle is stopping.
pub(crate) async fn workers(app: &App) -> Result<Vec<WorkerView>, Response> {
    let workers = app.driver.workers().await.map_err(|_| stopped())?;
    let waits = !workers.iter().any(Worker::takes_programs);
    let view = |w: &Worker| view_of(app, w, waits);
    let staying = workers.iter().filter(|w| !w.leaving);
    Ok(staying.map(view).collect())
}

/// The view of a worker; `waits` if programs wait because no worker accepts any.
fn view_of(app: &App, w: &Worker, waits: bool) -> WorkerView {
    let details = app.engines.details(w.id).unwrap_or_default();
    let captures = app.gateway.captures.as_ref();
    let logprobs = captures.and_then(|captures| captures.kinds.of(w.id));
    let no_other = (waits && w.state != WorkerState::Active).then_some(NO_OTHER);
    WorkerView {
        id: w.id.0.to_string(),
        url: w.url.clone(),
        worker_type: w.role.name_if_set().unwrap_or("regular"),
        is_healthy: w.is_healthy(),
        state: w.state_name(),
        problem: w
            .rest
            .map(rests)
            .or(w.fenced.then_some(FENCED))
            .or(no_other),
        class: w.class.clone(),
        engine: w.engine,
        model: w.model.clone(),
        other_models: w.other_models.iter().cloned().collect(),
        capabilities: Capabilities::of(w, &details, logprobs),
        version: details.facts.version,
        role: w.role.name_if_set(),
        load: w.running_steps,
        prefills: w.prefills,
        programs: w.programs.len(),
        used_tokens: w.used_tokens(),
        capacity_tokens: w.capacity.tokens,
        context_tokens_max: w.capacity.context_tokens_max,
        slots: w.capacity.slots,
        gpus: w.capacity.gpus,
        host_tokens: w.host_tokens(),
        prefill_tokens_per_s: w.speeds.prefill_tokens_per_s(),
        token_us: w.speeds.decode_time().map(|time| time.alone.micros()),
        step_us: w
            .speeds
            .decode_time()
            .and_then(|time| time.further)
            .map(Span::micros),
        engine_load: reported(app, w.id),
    }
}

pub(crate) async fn list(State(app): State<App>) -> Answer<Workers> {
    let workers = workers(&app).await?;
    let total = workers.len();
    Ok(Json(Workers { workers, total }))
}

/// An engine to be registered.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewWorker {
    /// Its URL, of the form http://host:port.
    url: String,
    /// vllm, sglang, llamacpp or openai; detected by default.
    #[serde(default)]
    kind: Option<String>,
    /// Its KV memory in tokens, if the engine does not report it.
    #[serde(default)]
    capacity_tokens: Option<u64>,
    /// GPUs that it runs on, by tensor parallelism; SGLang reports it itself.
    #[serde(default)]
    gpus: Option<u32>,
    /// Its class of hardware, such as h20, which jobs name in `affinity`; at most 64 bytes.
    #[serde(default)]
    class: Option<String>,
    /// Its role: both (the default), prefill or decode; SGLang reports it itself.
    #[serde(default)]
    role: Option<String>,
    /// Its speed until its own steps are measured: the document that `treadle calibrate` writes, or
    /// a preset's name. It is not measured at registration then.
    #[serde(default)]
    #[schema(value_type = Object)]
    profile: Option<Value>,
}

async fn add(
    State(app): State<App>,
    caller: Caller,
    Body(new): Body<NewWorker>,
) -> Answer<Registered> {
    let declared = Declared::new(new.kind.as_deref(), new.capacity_tokens);
    let declared = declared.and_then(|declared| declared.on_gpus(new.gpus));
    let declared = declared.and_then(|declared| declared.of_class(new.class.as_deref()));
    let declared = declared.and_then(|declared| declared.with_role(new.role.as_deref()));
    let declared = declared.and_then(|declared| {
        let speeds = new.profile.as_ref().map(engine_profiles::of_value);
        let speeds = speeds.transpose()?;
        Ok(Declared { speeds, ..declared })
    });
    let declared = declared.map_err(|error| error_response(&error))?;
    register(&app, &caller, &new.url, declared).await
}

/// An engine was registered.
#[derive(Serialize, ToSchema)]
pub(crate) struct Registered {
    /// Always success; for clients of SGLang's router.
    status: &'static str,
    /// True if it was not registered before.
    added: bool,
    /// Its id.
    worker_id: String,
    /// Its URL.
    url: String,
    /// All engines.
    workers: Vec<WorkerView>,
    /// Their URLs.
    worker_urls: Vec<Box<str>>,
}

/// URLs of some engines.
pub(crate) fn urls(workers: &[WorkerView]) -> Vec<Box<str>> {
    workers.iter().map(|w| w.url.clone()).collect()
}

/// Registers an engine, unless it is already registered.
pub(crate) async fn register(
    app: &App,
    caller: &Caller,
    url: &str,
    declared: Declared,
) -> Answer<Registered> {
    let registered = commands::register(app, url, declared).await;
    let (worker, added) = registered.map_err(|error| error_response(&error))?;
    let workers = workers(app).await.unwrap_or_default();
    let worker_id = worker.0.to_string();
    let entry = workers.iter().find(|w| w.id == worker_id);
    let change = Change {
        action: if added {
            "worker.added"
        } else {
            "worker.registered_again"
        },
        target: url,
        before: Value::Null,
        after: serde_json::to_value(entry).unwrap_or_default(),
    };
    let recorded = app.auth.audit.record(caller, change).await;
    recorded.map_err(|_| not_audited())?;
    Ok(Json(Registered {
        status: "success",
        added,
        worker_id,
        url: url.to_owned(),
        worker_urls: urls(&workers),
        workers,
    }))
}

/// An engine was removed.
#[derive(Serialize, ToSchema)]
#[expect(
    clippy::struct_field_names,
    reason = "clients of SGLang's router expect them"
)]
pub(crate) struct Removed {
    /// Always success; for clients of SGLang's router.
    status: &'static str,
    /// Always true.
    removed: bool,
    /// The remaining engines.
    workers: Vec<WorkerView>,
    /// Their URLs.
    worker_urls: Vec<Box<str>>,
}

pub(crate) async fn remove(
    State(app): State<App>,
    caller: Caller,
    InPath(reference): InPath<String>,
) -> Answer<Removed> {
    take_out(&app, &caller, reference).await
}

/// The engines with an id or a URL: the URL of an endpoint is that of all its ranks.
async fn found(app: &App, reference: &str) -> Result<Vec<Worker>, Response> {
    let registered = app.driver.workers().await.map_err(|_| stopped())?;
    let found: Vec<Worker> = workers_named(&registered, reference).cloned().collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let message = format!("no worker `{reference}` is registered; GET /workers lists them");
    Err(refuse(ErrorCode::WorkerUnknown, message))
}

/// A change of an engine: at least one field.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct WorkerChange {
    /// active, cordoned or draining.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    state: Option<WorkerState>,
    /// Its class of hardware; an empty text takes it away.
    #[serde(default)]
    class: Option<String>,
    /// both, prefill or decode.
    #[serde(default)]
    role: Option<String>,
}

async fn change(
    State(app): State<App>,
    caller: Caller,
    InPath(reference): InPath<String>,
    Body(new): Body<WorkerChange>,
) -> Answer<WorkerView> {
    let class = new.class.as_deref().map(class_named).transpose();
    let class = class.map_err(|error| error_response(&error))?;
    let role = new.role.as_deref().map(role_named).transpose();
    let role = role.map_err(|error| error_response(&error))?;
    if new.state.is_none() && class.is_none() && role.is_none() {
        let message = "nothing to change; send `state`, `class` or `role`";
        return Err(refuse(ErrorCode::MissingField, message));
    }
    let known = found(&app, &reference).await?;
    let id = known[0].id.0.to_string();
    for known in known {
        let worker = known.id;
        if let Some(state) = new.state {
            let set = ProgramEvent::WorkerStateSet { worker, state };
            let values = [json!({"state": known.state}), json!({"state": state})];
            set_one(&app, &caller, &known, set, "worker.state_set", values).await?;
        }
        if let Some(class) = class.clone() {
            let values = [json!({"class": known.class}), json!({"class": class})];
            let set = ProgramEvent::WorkerClassSet { worker, class };
            set_one(&app, &caller, &known, set, "worker.class_set", values).await?;
        }
        if let Some(role) = role {
            let values = [json!({"role": known.role}), json!({"role": role})];
            let set = ProgramEvent::WorkerRoleSet {
                worker,
                role,
                bootstrap_port: known.bootstrap_port,
            };
            set_one(&app, &caller, &known, set, "worker.role_set", values).await?;
        }
    }
    let view = workers(&app).await?.into_iter().find(|w| w.id == id);
    view.map(Json).ok_or_else(|| {
        let message = format!("worker `{reference}` was just removed");
        refuse(ErrorCode::WorkerUnknown, message)
    })
}

/// Puts a change of an engine on record, with the values before and after it in the audit log.
async fn set_one(
    app: &App,
    caller: &Caller,
    known: &Worker,
    set: ProgramEvent,
    action: &'static str,
    values: [Value; 2],
) -> Result<(), Response> {
    let set = app.driver.event_committed(Event::Program(set)).await;
    set.map_err(not_recorded)?;
    let [before, after] = values.map(|mut value| {
        value["id"] = json!(known.id.0.to_string());
        value
    });
    let change = Change {
        action,
        target: &known.url,
        before,
        after,
    };
    let recorded = app.auth.audit.record(caller, change).await;
    recorded.map_err(|_| not_audited())
}

/// Removes the engine with an id or a URL.
pub(crate) async fn take_out(app: &App, caller: &Caller, reference: String) -> Answer<Removed> {
    for found in found(app, &reference).await? {
        let (worker, url, programs) = (found.id, found.url.to_string(), found.programs.len());
        app.engines.forget(worker);
        let removed = Event::Program(ProgramEvent::WorkerRemoved { worker });
        app.driver
            .event_committed(removed)
            .await
            .map_err(not_recorded)?;
        let change = Change {
            action: "worker.removed",
            target: &url,
            before: json!({"id": worker.0.to_string(), "url": url, "programs": programs}),
            after: Value::Null,
        };
        let recorded = app.auth.audit.record(caller, change).await;
        recorded.map_err(|_| not_audited())?;
    }
    let workers = workers(app).await.unwrap_or_default();
    Ok(Json(Removed {
        status: "success",
        removed: true,
        worker_urls: urls(&workers),
        workers,
    }))
}
