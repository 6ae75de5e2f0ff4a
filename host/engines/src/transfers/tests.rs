//! Transfers with simulated engines.

use std::future::Future;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use treadle_model::{EngineKind, ProgramId, WorkerId};

use super::node::Node;
use super::work::Transfer;
use treadle_config::Config;
use treadle_scheduler::orders::{End, Work};

/// The requests that an engine received: path and body.
type Requests = Arc<Mutex<Vec<(String, Value)>>>;

/// Serves until the runtime ends.
async fn engine<A>(answer: impl Fn(String, Value) -> A + Clone + Send + Sync + 'static) -> Box<str>
where
    A: Future<Output = (u16, String)> + Send,
{
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serve = move |request: Request| {
        let answer = answer.clone();
        async move {
            let path = request.uri().to_string();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let (status, text) = answer(path, body).await;
            (StatusCode::from_u16(status).unwrap(), text).into_response()
        }
    };
    let router = Router::new().fallback(serve);
    tokio::spawn(async move { axum::serve(listener, router).await });
    url.into()
}

fn end(worker: u32, url: &str, kind: EngineKind, slot: Option<u32>) -> End {
    End {
        worker: WorkerId(worker),
        url: url.into(),
        kind,
        slot,
    }
}

async fn transfer(node: &Arc<Node>, work: &Work) -> Option<&'static str> {
    let transfer = Transfer {
        node: node.clone(),
        program: ProgramId(1),
        owner: "".into(),
        key: "p".into(),
        passing: Arc::default(),
    };
    transfer.run(work).await.err().map(|failure| failure.code)
}

/// A vLLM server with what a move needs.
fn vllm(path: &str, body: &Value) -> (u16, String) {
    match path {
        "/metrics" => (
            200,
            "x\nvllm:nixl_x 0\nvllm:prompt_tokens_cached_by_source_total{source=\"p2p\"} 1\n"
                .into(),
        ),
        "/v1/models" => (200, json!({"data": [{"id": "m"}]}).to_string()),
        "/v1/completions" => {
            let out = body["kv_transfer_params"]["do_remote_decode"] == true;
            let held = out.then(|| json!({"remote_block_ids": [1], "remote_engine_id": "e"}));
            let answer = json!({"usage": {"prompt_tokens": 9}, "kv_transfer_params": held});
            (200, answer.to_string())
        }
        _ => (404, "{}".into()),
    }
}

#[tokio::test]
async fn both_engines_are_asked_with_one_prompt() {
    let node = Node::open(&Config::default()).await.unwrap();
    let request = |text: &str| Bytes::from(json!({"prompt": text}).to_string());
    let key: Arc<str> = "p".into();
    node.prompts
        .remember(&key, "/v1/completions", &request("first"));
    let asked = Requests::default();
    let (log, prompts, next) = (asked.clone(), node.prompts.clone(), request("second"));
    let url = engine(move |path, body| {
        let answer = vllm(&path, &body);
        if path == "/v1/completions" {
            log.lock().unwrap().push((path, body));
            // Meanwhile a step arrives.
            prompts.remember(&key, "/v1/completions", &next);
        }
        async move { answer }
    })
    .await;
    let work = Work::Migrate {
        from: end(0, &url, EngineKind::Vllm, None),
        to: end(1, &url, EngineKind::Vllm, None),
        tokens: 9,
    };
    transfer(&node, &work).await;
    let asked = asked.lock().unwrap();
    let prompts: Vec<_> = asked.iter().map(|(_, body)| &body["prompt"]).collect();
    assert_eq!(prompts, ["first", "first"]);
}

#[tokio::test]
async fn nothing_is_saved_for_a_server_without_a_slot_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut config = Config::default();
    config.kv.host_bytes_max = 1 << 20;
    config.kv.folder = path("tier");
    config.kv.slots_folder = path("slots");
    let node = Node::open(&config).await.unwrap();
    let asked = Requests::default();
    let log = asked.clone();
    let url = engine(move |path, body| {
        let (is_kv, is_probe) = (path == "/kv", body["filename"] == "/");
        if !is_kv && !is_probe {
            log.lock().unwrap().push((path, body));
        }
        // An invalid file name is refused by servers that can save slots.
        let status = if is_kv { 404 } else { 400 };
        async move { (status, "{}".into()) }
    })
    .await;
    let work = Work::Migrate {
        from: end(0, &url, EngineKind::Llamacpp, Some(0)),
        to: end(1, &url, EngineKind::Llamacpp, None),
        tokens: 9,
    };
    assert_eq!(transfer(&node, &work).await, Some("unsupported"));
    assert!(asked.lock().unwrap().is_empty(), "{asked:?}");
}
