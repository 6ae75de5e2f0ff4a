//! Engines that behave as a test wants, over HTTP.

pub(crate) mod fixture;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use treadle_model::{EngineKind, ProgramId};
use treadle_transfer::{Export, Import, KvCopy, Prompt, Tags, WorkerRef};

/// What an engine answers: a status and a body.
pub(crate) type Reply = Pin<Box<dyn Future<Output = (u16, String)> + Send>>;

/// A server; dropping it breaks all of its connections.
pub(crate) struct Engine {
    pub(crate) url: String,
    task: JoinHandle<()>,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Engine {
    /// Serves with a function of path and body.
    pub(crate) async fn start(
        answer: impl Fn(String, Value) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answer = Arc::new(answer);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let answer = Arc::clone(&answer);
                let service = service_fn(move |request: Request<Incoming>| {
                    let answer = Arc::clone(&answer);
                    async move {
                        let path = request.uri().to_string();
                        let body = request.into_body().collect().await.unwrap().to_bytes();
                        let body = serde_json::from_slice(&body).unwrap_or_default();
                        let (status, text) = answer(path, body).await;
                        let mut response = Response::new(Full::new(Bytes::from(text)));
                        *response.status_mut() = StatusCode::from_u16(status).unwrap();
                        Ok::<_, Infallible>(response)
                    }
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                connections.spawn(async move {
                    let _ = connection.await;
                });
            }
        });
        Self { url, task }
    }

    pub(crate) fn worker(&self, kind: EngineKind) -> WorkerRef {
        WorkerRef {
            url: self.url.as_str().into(),
            kind,
            node: None,
        }
    }
}

/// Slots of a llama.cpp server, and how it behaves.
#[derive(Clone)]
pub(crate) struct Slots {
    folder: PathBuf,
    /// The tokens in each slot.
    held: Arc<Mutex<BTreeMap<u32, Vec<u32>>>>,
    /// Permits to save or to restore; without one it waits, as for a busy slot.
    pub(crate) free: Arc<Semaphore>,
    /// Requests for slots, by action, as they came in.
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
    /// The model's name and its file.
    pub(crate) model: Arc<Mutex<(String, String)>>,
}

/// Bytes that represent the KV of a token.
const KV_BYTES: usize = 100;

impl Slots {
    pub(crate) fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            held: Arc::default(),
            free: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
            asked: Arc::default(),
            model: Arc::new(Mutex::new(("tiny".into(), "tiny.gguf".into()))),
        }
    }

    /// Replaces the server's model, unnoticed.
    pub(crate) fn become_another(&self, name: &str, file: &str) {
        *self.model.lock().unwrap() = (name.into(), file.into());
    }

    /// Waits until this number of requests for slots has come in.
    pub(crate) async fn until_asked(&self, requests: usize) {
        while self.asked.lock().unwrap().len() < requests {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) fn put(&self, slot: u32, tokens: &[u32]) {
        self.held.lock().unwrap().insert(slot, tokens.to_vec());
    }

    pub(crate) fn get(&self, slot: u32) -> Vec<u32> {
        let held = self.held.lock().unwrap();
        held.get(&slot).cloned().unwrap_or_default()
    }

    pub(crate) async fn serve(&self) -> Engine {
        let slots = self.clone();
        Engine::start(move |path, body| {
            let slots = slots.clone();
            Box::pin(async move { slots.answer(&path, &body).await })
        })
        .await
    }

    async fn answer(&self, path: &str, body: &Value) -> (u16, String) {
        if path == "/props" {
            let path = format!("/models/{}", self.model.lock().unwrap().1);
            let props = json!({ "total_slots": 4, "model_path": path, "build_info": "b1" });
            return (200, props.to_string());
        }
        if path == "/v1/models" {
            let name = self.model.lock().unwrap().0.clone();
            let meta = json!({ "n_params": 9, "size": 36 });
            let page = json!({ "data": [{ "id": name, "meta": meta }] });
            return (200, page.to_string());
        }
        let Some((slot, action)) = path
            .strip_prefix("/slots/")
            .and_then(|rest| rest.split_once("?action="))
        else {
            return (404, "{}".into());
        };
        let slot: u32 = slot.parse().unwrap();
        let name = body["filename"].as_str().unwrap_or_default();
        if action != "erase" && (name.is_empty() || name.contains('/')) {
            let error = json!({ "error": { "code": 400, "message": "Invalid filename" } });
            return (400, error.to_string());
        }
        self.asked.lock().unwrap().push(action.to_owned());
        let _free = self.free.acquire().await.unwrap();
        let file = self.folder.join(name);
        match action {
            "save" => {
                let tokens = self.get(slot);
                let bytes = slot_file(&tokens);
                std::fs::write(&file, &bytes).unwrap();
                let answer = json!({ "n_saved": tokens.len(), "n_written": bytes.len() });
                (200, answer.to_string())
            }
            "restore" => {
                self.put(slot, &[]);
                let Ok(bytes) = std::fs::read(&file) else {
                    let error = json!({ "error": { "message": "Unable to restore slot" } });
                    return (400, error.to_string());
                };
                let tokens = tokens_of(&bytes);
                self.put(slot, &tokens);
                let answer = json!({ "n_restored": tokens.len(), "n_read": bytes.len() });
                (200, answer.to_string())
            }
            _ => {
                self.put(slot, &[]);
                (200, "{}".into())
            }
        }
    }
}

/// A slot file, as long as its tokens' KV would be.
fn slot_file(tokens: &[u32]) -> Vec<u8> {
    let mut words = vec![0x6767_7371, 4, tokens.len() as u32 + 3, u32::MAX, 1];
    words.push(tokens.len() as u32);
    words.extend(tokens);
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend((0..tokens.len() * KV_BYTES).map(|at| (at * 31) as u8));
    bytes
}

fn tokens_of(bytes: &[u8]) -> Vec<u32> {
    let words: Vec<u32> = bytes
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
        .collect();
    words[6..6 + words[5] as usize].to_vec()
}

/// `tokens` tokens of a program.
pub(crate) fn ids(program: u32, tokens: u32) -> Vec<u32> {
    (0..tokens)
        .map(|at| (at * 7 + program * 13) % 400)
        .collect()
}

pub(crate) fn tags() -> Tags {
    Tags {
        model: "tiny".into(),
        shape: None,
        block_tokens: None,
        dtype: None,
    }
}

/// What a test mostly wants to have exported.
pub(crate) fn export(worker: WorkerRef, program: u64, tokens: &[u32]) -> Export {
    Export {
        worker,
        slot: Some(0),
        program: ProgramId(program),
        owner: "main".into(),
        tokens: tokens.len() as u64,
        prompt: Some(Prompt::Ids(tokens.into())),
        cache_salt: None,
        tags: tags(),
    }
}

/// What a test mostly wants to have imported.
pub(crate) fn import(worker: WorkerRef, copy: &KvCopy, tokens: &[u32]) -> Import {
    Import {
        worker,
        slot: Some(1),
        program: copy.program,
        prompt: Some(Prompt::Ids(tokens.into())),
        cache_salt: None,
        tags: tags(),
        copy: copy.clone(),
    }
}
