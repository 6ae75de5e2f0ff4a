//! Weights, as the control paths of vLLM and SGLang load them. Nothing is read: a simulated engine holds the
//! version that it was told to load. A pause keeps new requests back; those that run go on, unless
//! loads take time.

use super::Shared;
use super::error::ApiError;
use super::faults::broken_answer;
use super::load_record::LoadRecord;
use super::request::parse;
use axum::extract::{Json, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

type SharedState = State<Arc<Shared>>;

/// What the next load does instead of succeeding.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadFault {
    /// Nothing.
    #[default]
    None,
    /// It answers an error and has changed nothing.
    Refuse,
    /// It answers an error and has loaded a part.
    Tear,
    /// It loads all, and the connection breaks before the answer.
    Lose,
    /// It says that it has the version, and has loaded a part.
    Lie,
}

/// The weights of an engine.
pub(super) struct Weights {
    loaded: Mutex<Loaded>,
    /// Process groups that it joined, as it was asked to.
    groups: Mutex<Vec<Value>>,
    paused: watch::Sender<bool>,
}

/// What it has.
struct Loaded {
    /// The version that it reports.
    name: String,
    /// The folder that its weights are from.
    folder: String,
    /// The name that `/v1/models` has in place of the model's: SGLang names the folder.
    renamed: Option<String>,
    /// The number of the load that left a mixture, if one did.
    torn: Option<u64>,
    loads: u64,
    /// The update that a trainer has begun.
    transfer: Option<Transfer>,
    fault: LoadFault,
    record: LoadRecord,
}

impl Weights {
    /// What an engine comes with.
    pub(super) fn new(record: LoadRecord) -> Self {
        let mut loaded = Loaded {
            name: "default".to_owned(),
            folder: "default".to_owned(),
            renamed: None,
            torn: None,
            loads: 0,
            transfer: None,
            fault: LoadFault::None,
            record,
        };
        loaded.note("start", LoadFault::None);
        Self {
            loaded: Mutex::new(loaded),
            groups: Mutex::default(),
            paused: watch::channel(false).0,
        }
    }

    fn loaded(&self) -> std::sync::MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_fault(&self, fault: LoadFault) {
        self.loaded().fault = fault;
    }

    pub(super) fn renamed(&self) -> Option<String> {
        self.loaded().renamed.clone()
    }

    pub(super) fn is_torn(&self) -> bool {
        self.loaded().torn.is_some()
    }

    pub(super) fn join(&self, info: Value) {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.push(info);
    }

    pub(super) fn groups(&self) -> Vec<Value> {
        let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.clone()
    }

    /// Begins an update, unless one is active: its weights are a mixture until the end.
    pub(super) fn begin(&self) -> bool {
        let mut loaded = self.loaded();
        if loaded.transfer.is_some() {
            return false;
        }
        loaded.loads += 1;
        loaded.torn = Some(loaded.loads);
        loaded.transfer = Some(Transfer::default());
        loaded.note("begin", LoadFault::None);
        true
    }

    /// Adds a part of an update; one that was not begun is an update of its own.
    pub(super) fn add_part(&self, sent: &str, name: Option<String>) -> LoadFault {
        let mut loaded = self.loaded();
        let fault = std::mem::take(&mut loaded.fault);
        match fault {
            LoadFault::Refuse => {
                if let Some(transfer) = &mut loaded.transfer {
                    transfer.lacks = true;
                }
            }
            LoadFault::Tear => {
                loaded.loads += 1;
                (loaded.torn, loaded.transfer) = (Some(loaded.loads), None);
            }
            LoadFault::None | LoadFault::Lose | LoadFault::Lie => {
                let has_begun = loaded.transfer.is_some();
                let transfer = loaded.transfer.get_or_insert_default();
                transfer.add(sent, name, fault == LoadFault::Lie);
                if !has_begun {
                    loaded.end(None);
                }
            }
        }
        loaded.note("part", fault);
        fault
    }

    /// Ends an update, if one is active.
    pub(super) fn end(&self, name: Option<String>) -> bool {
        self.loaded().end(name)
    }

    /// The version's name, as JSON with quotes.
    pub(super) fn name_json(&self) -> String {
        Value::from(self.loaded().name.as_str()).to_string()
    }

    /// Whether the engine computes nothing: while it is paused, if pauses stop it at all.
    pub(super) fn stands(&self, pauses_stop: bool) -> watch::Receiver<bool> {
        if pauses_stop {
            self.paused.subscribe()
        } else {
            watch::channel(false).1
        }
    }

    /// Completes when it is not paused: a step begins.
    pub(super) async fn begin_step(&self) {
        let mut paused = self.paused.subscribe();
        loop {
            // The sender lives as long as this.
            let _ = paused.wait_for(|paused| !paused).await;
            if self.has_begun_step() {
                return;
            }
        }
    }

    /// No load comes between the look at the pause and the record.
    fn has_begun_step(&self) -> bool {
        let mut loaded = self.loaded();
        let begins = !*self.paused.borrow();
        if begins {
            loaded.note("step", LoadFault::None);
        }
        begins
    }
}

/// An update that has begun.
#[derive(Default)]
pub(super) struct Transfer {
    /// What was sent so far.
    sent: String,
    /// The version's name, if a part had it.
    name: Option<String>,
    /// A part is not there: it was refused, or lost and nobody was told.
    lacks: bool,
}

impl Transfer {
    /// Adds a part.
    pub(super) fn add(&mut self, sent: &str, name: Option<String>, lacks: bool) {
        self.sent.push_str(sent);
        self.name = name.or(self.name.take());
        self.lacks |= lacks;
    }

    /// What an engine has after it, by its name; `None` if that is a mixture.
    pub(super) fn content(self, name: Option<&str>) -> Option<String> {
        let name = name.or(self.name.as_deref());
        let content = name.map_or(self.sent.clone(), |name| format!("version {name}"));
        (!self.lacks).then_some(content)
    }

    /// The version's name, if a part had it.
    pub(super) fn name(&self) -> Option<String> {
        self.name.clone()
    }
}

#[derive(Deserialize)]
pub(super) struct LoadBody {
    model_path: String,
    #[serde(default)]
    weight_version: Option<String>,
}

impl LoadBody {
    /// Whole weights from a folder.
    pub(super) fn unnamed(folder: String) -> Self {
        Self {
            model_path: folder,
            weight_version: None,
        }
    }
}

impl Loaded {
    /// Ends the update that a trainer has begun.
    fn end(&mut self, name: Option<String>) -> bool {
        let Some(transfer) = self.transfer.take() else {
            return false;
        };
        let name = name.or(transfer.name());
        self.loads += 1;
        match transfer.content(name.as_deref()) {
            Some(content) => (self.folder, self.torn) = (content, None),
            None => self.torn = Some(self.loads),
        }
        self.name = name.unwrap_or_else(|| self.name.clone());
        self.note("end", LoadFault::None);
        true
    }

    /// Loads a folder, or does what it was told to do instead.
    fn load(&mut self, folder: String) -> LoadFault {
        self.loads += 1;
        self.transfer = None;
        let fault = std::mem::take(&mut self.fault);
        match fault {
            LoadFault::Refuse => {}
            LoadFault::None | LoadFault::Lose => self.torn = None,
            LoadFault::Tear | LoadFault::Lie => self.torn = Some(self.loads),
        }
        if !matches!(fault, LoadFault::Refuse | LoadFault::Tear) {
            self.folder = folder;
        }
        self.note("load", fault);
        fault
    }

    /// Puts on record what it did, and whether its weights are whole since.
    fn note(&mut self, did: &str, fault: LoadFault) {
        if !self.record.is_kept() {
            return;
        }
        let is_whole = self.torn.is_none();
        let line = json!({"did": did, "fault": fault, "weights": self.folder, "whole": is_whole});
        self.record.add(&line);
    }

    fn checksum(&self, addr: SocketAddr) -> String {
        match self.torn {
            Some(load) => format!("torn in load {load} of {addr}"),
            None => self.folder.clone(),
        }
    }
}

/// Waits as long as it takes to load the files of a folder.
async fn take_time(shared: &Shared, folder: &str) {
    let rate = shared.options.load_bytes_per_s;
    if rate == 0 {
        return;
    }
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = |entry: std::fs::DirEntry| entry.metadata().map_or(0, |metadata| metadata.len());
    let bytes: u64 = files.map(bytes).sum();
    let took_s = bytes as f64 / rate as f64 / shared.options.time_scale;
    tokio::time::sleep(Duration::from_secs_f64(took_s)).await;
}

/// As SGLang answers.
pub(super) async fn load_from_disk(state: SharedState, body: Bytes) -> Result<Response, ApiError> {
    let body: LoadBody = parse(&body)?;
    Ok(update_from_disk(state, body).await)
}

pub(super) async fn update_from_disk(State(shared): SharedState, body: LoadBody) -> Response {
    take_time(&shared, &body.model_path).await;
    let mut loaded = shared.weights.loaded();
    let fault = loaded.load(body.model_path);
    if !matches!(fault, LoadFault::Refuse | LoadFault::Tear) {
        loaded.renamed = Some(loaded.folder.clone());
        loaded.name = body.weight_version.unwrap_or_else(|| "default".to_owned());
    }
    let failed = |message: &str| {
        let page = json!({"success": false, "message": message, "num_paused_requests": 0});
        (StatusCode::BAD_REQUEST, Json(page)).into_response()
    };
    match fault {
        LoadFault::None | LoadFault::Lie => {
            let message = "Succeeded to update model weights.";
            Json(json!({"success": true, "message": message, "num_paused_requests": 0}))
                .into_response()
        }
        LoadFault::Refuse => failed("the simulated engine was told to refuse"),
        LoadFault::Tear => failed("The full weights of the ModelRunner are partially updated."),
        LoadFault::Lose => broken_answer(),
    }
}

#[derive(Deserialize)]
pub(super) struct RpcBody {
    method: String,
    #[serde(default)]
    kwargs: RpcArguments,
}

#[derive(Default, Deserialize)]
struct RpcArguments {
    #[serde(default)]
    weights_path: String,
}

/// As vLLM answers.
pub(super) async fn collective_rpc(
    State(shared): SharedState,
    body: Bytes,
) -> Result<Response, ApiError> {
    let body: RpcBody = parse(&body)?;
    if body.method != "reload_weights" {
        return Err(ApiError::invalid(
            "the simulated engine has only reload_weights",
        ));
    }
    take_time(&shared, &body.kwargs.weights_path).await;
    let fault = shared.weights.loaded().load(body.kwargs.weights_path);
    Ok(match fault {
        LoadFault::None | LoadFault::Lie => Json(json!({"results": [null]})).into_response(),
        LoadFault::Refuse | LoadFault::Tear => {
            let message = "Call to collective_rpc method failed: as it was told to";
            let page = json!({"error": {"message": message}});
            (StatusCode::INTERNAL_SERVER_ERROR, Json(page)).into_response()
        }
        LoadFault::Lose => broken_answer(),
    })
}

#[derive(Deserialize)]
pub(super) struct NameBody {
    new_version: String,
}

pub(super) async fn set_name(
    State(shared): SharedState,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let body: NameBody = parse(&body)?;
    shared.weights.loaded().name.clone_from(&body.new_version);
    Ok(Json(
        json!({"success": true, "new_version": body.new_version}),
    ))
}

pub(super) async fn weight_info(State(shared): SharedState) -> Json<Value> {
    Json(json!({"weight_version": shared.weights.loaded().name}))
}

pub(super) async fn weight_checker(State(shared): SharedState) -> Json<Value> {
    let checksum = shared.weights.loaded().checksum(shared.addr);
    Json(json!({"checksums": {"dp0:model": checksum}}))
}

pub(super) async fn is_paused(State(shared): SharedState) -> Json<Value> {
    Json(json!({"is_paused": *shared.weights.paused.borrow()}))
}

pub(super) async fn model_info(State(shared): SharedState) -> Json<Value> {
    let loaded = shared.weights.loaded();
    Json(json!({"model_path": loaded.folder, "weight_version": loaded.name}))
}

pub(super) async fn checksums(State(shared): SharedState) -> Json<Value> {
    let value = shared.weights.loaded().checksum(shared.addr);
    Json(json!({"success": true, "message": "", "ranks": [{"checksums": {"model": value}}]}))
}

pub(super) async fn pause(State(shared): SharedState) -> Json<Value> {
    shared.weights.paused.send_replace(true);
    Json(json!({"status": "ok", "message": "Generation paused successfully."}))
}

pub(super) async fn resume(State(shared): SharedState) -> Json<Value> {
    shared.weights.paused.send_replace(false);
    Json(json!({"status": "ok", "message": "Generation continued successfully."}))
}

/// The next load's fault, and whether its weights are whole.
pub(super) async fn show_load_fault(State(shared): SharedState) -> Json<Value> {
    let loaded = shared.weights.loaded();
    Json(json!({"fault": loaded.fault, "whole": loaded.torn.is_none()}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoadFaultBody {
    fault: LoadFault,
}

pub(super) async fn set_load_fault(
    State(shared): SharedState,
    body: Bytes,
) -> Result<StatusCode, ApiError> {
    let body: LoadFaultBody = parse(&body)?;
    shared.weights.set_fault(body.fault);
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn clear_load_fault(State(shared): SharedState) -> StatusCode {
    shared.weights.set_fault(LoadFault::None);
    StatusCode::NO_CONTENT
}
