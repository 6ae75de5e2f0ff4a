//! Calls against servers that answer as scripted, in the forms of vLLM 0.32 and SGLang 0.5.23.

use super::*;
use axum::Router;
use axum::extract::State;
use axum::http::{Request, Uri};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use serde_json::json;
use std::sync::{Arc, Mutex};
use treadle_core::weights::Answer;
use treadle_http::Upstream;

/// What a server answers to the requests for a path, one after the other.
pub(crate) type Script = Vec<(&'static str, u16, Value)>;

#[derive(Clone)]
pub(crate) struct Server {
    script: Arc<Mutex<Script>>,
    seen: Arc<Mutex<Vec<(String, Value)>>>,
    url: String,
}

impl Server {
    pub(crate) async fn start(script: Script) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let server = Self {
            script: Arc::new(Mutex::new(script)),
            seen: Arc::default(),
            url,
        };
        let app = Router::new().fallback(answer).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        server
    }

    async fn call(&self, kind: EngineKind, call: Call) -> Answer {
        let upstream = Upstream::new(Duration::from_secs(1));
        let engine = Engine {
            upstream: &upstream,
            url: &self.url,
            kind,
        };
        super::call(engine, call, &weights()).await
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn seen(&self) -> Vec<(String, Value)> {
        self.seen.lock().expect("unpoisoned").clone()
    }

    fn is_over(&self) -> bool {
        self.script.lock().expect("unpoisoned").is_empty()
    }
}

async fn answer(State(server): State<Server>, request: Request<axum::body::Body>) -> Response {
    let uri: Uri = request.uri().clone();
    let body = request
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    server
        .seen
        .lock()
        .expect("unpoisoned")
        .push((uri.to_string(), body));
    let mut script = server.script.lock().expect("unpoisoned");
    let next = script.iter().position(|(path, _, _)| *path == uri.path());
    let Some((_, status, page)) = next.map(|at| script.remove(at)) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let status = StatusCode::from_u16(status).expect("a status");
    (status, axum::Json(page)).into_response()
}

pub(crate) fn weights() -> Weights {
    Weights {
        lineage: 0,
        version: 3,
        name: "0.3".into(),
        folder: "/weights/3".into(),
    }
}

fn is_failed(answer: &Answer, words: &str) -> bool {
    matches!(answer, Answer::Failed { cause } if cause.contains(words))
}

fn is_refused(answer: &Answer, words: &str) -> bool {
    matches!(answer, Answer::Refused { cause } if cause.contains(words))
}

#[tokio::test]
async fn vllm_names_a_version_only_after_it_has_loaded_it() {
    let server = Server::start(vec![
        ("/update_weight_version", 200, json!({"success": true})),
        ("/collective_rpc", 200, json!({"results": [null]})),
        ("/update_weight_version", 200, json!({"success": true})),
    ])
    .await;
    assert_eq!(
        server.call(EngineKind::Vllm, Call::Apply).await,
        Answer::Done
    );
    let seen = server.seen();
    assert_eq!(seen[0].1["new_version"], "treadle-loading");
    assert_eq!(seen[1].1["kwargs"]["weights_path"], "/weights/3");
    assert_eq!(seen[2].1["new_version"], "0.3");

    let message = json!({"error": {"message": "Worker failed with error ''"}});
    let server = Server::start(vec![
        ("/update_weight_version", 200, json!({"success": true})),
        ("/collective_rpc", 500, message),
    ])
    .await;
    let answer = server.call(EngineKind::Vllm, Call::Apply).await;
    assert!(is_failed(&answer, "Worker failed"), "{answer:?}");
    assert!(server.is_over(), "the new name is never set");
}

#[tokio::test]
async fn vllm_without_its_development_mode_is_refused_with_the_remedy() {
    let server = Server::start(Vec::new()).await;
    for call in [Call::Prepare, Call::Apply] {
        let answer = server.call(EngineKind::Vllm, call).await;
        let is_named = is_refused(&answer, "VLLM_SERVER_DEV_MODE=1");
        assert!(
            is_named || call == Call::Apply && is_refused(&answer, "404"),
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn vllm_that_keeps_caches_of_old_weights_has_not_cleared_them() {
    let path = "/reset_prefix_cache";
    let server = Server::start(vec![
        (path, 200, json!({"success": false})),
        (path, 200, json!({"success": true})),
    ])
    .await;
    let first = server.call(EngineKind::Vllm, Call::Clear).await;
    assert!(is_failed(&first, "old weights"), "{first:?}");
    assert_eq!(
        server.call(EngineKind::Vllm, Call::Clear).await,
        Answer::Done
    );
    assert!(server.seen()[0].0.contains("reset_running_requests=true"));
}

#[tokio::test]
async fn checksums_of_the_same_tensors_can_be_compared() {
    let report = |digests: Value| {
        vec![
            ("/weight_info", 200, json!({"weight_version": "0.3"})),
            ("/weight_checker", 200, json!({"checksums": digests})),
        ]
    };
    let nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let mut found = Vec::new();
    for digests in [
        json!({"dp0:a": "1", "dp0:b": "2", "dp0:packed": nothing}),
        json!({"dp0:b": "2", "dp0:a": "1"}),
        json!({"dp0:a": "1", "dp0:b": "3"}),
        json!({"dp0:a": "1"}),
        json!({"dp0:packed": nothing}),
    ] {
        let server = Server::start(report(digests)).await;
        let Answer::Reports {
            name,
            checksum,
            whole,
        } = server.call(EngineKind::Vllm, Call::Verify).await
        else {
            panic!("it reports");
        };
        assert_eq!((name.as_deref(), whole), (Some("0.3"), true));
        found.push(checksum);
    }
    assert_eq!(found[0], found[1], "in any order, without what is packed");
    let (first, third) = (
        found[0].clone().expect("some"),
        found[2].clone().expect("some"),
    );
    assert_eq!(first.layout, third.layout);
    assert_ne!(first.value, third.value);
    assert_ne!(found[3].clone().expect("some").layout, first.layout);
    assert_eq!(found[4], None, "nothing was computed");
}

#[tokio::test]
async fn an_update_of_sglang_may_have_happened_though_it_answers_an_error() {
    let path = "/update_weights_from_disk";
    let updated = "Weights were updated, but the cache was not flushed because there are requests";
    let torn =
        "Failed to update weights. The full weights of the ModelRunner are partially updated.";
    let server = Server::start(vec![
        (path, 400, json!({"success": false, "message": updated})),
        (path, 400, json!({"success": false, "message": torn})),
        (path, 200, json!({"success": true, "message": "Succeeded"})),
    ])
    .await;
    assert_eq!(
        server.call(EngineKind::Sglang, Call::Apply).await,
        Answer::Done
    );
    let answer = server.call(EngineKind::Sglang, Call::Apply).await;
    assert!(is_failed(&answer, "partially updated"), "{answer:?}");
    assert_eq!(
        server.call(EngineKind::Sglang, Call::Apply).await,
        Answer::Done
    );
    let sent = &server.seen()[0].1;
    let expected = json!({
        "model_path": "/weights/3", "weight_version": "0.3", "flush_cache": false,
        "keep_pause": true, "abort_all_requests": false,
    });
    assert_eq!(*sent, expected);
}

#[tokio::test]
async fn sglang_is_asked_for_its_version_and_the_checksums_of_all_ranks() {
    let ranks = json!([{"checksums": {"a": "1"}}, {"checksums": {"a": "2"}}]);
    let server = Server::start(vec![
        ("/model_info", 200, json!({"weight_version": "0.3"})),
        (
            "/weights_checker",
            200,
            json!({"success": true, "ranks": ranks}),
        ),
        ("/model_info", 200, json!({"weight_version": "0.3"})),
        (
            "/weights_checker",
            400,
            json!({"success": false, "message": "busy"}),
        ),
    ])
    .await;
    for has_checksum in [true, false] {
        let answer = server.call(EngineKind::Sglang, Call::Verify).await;
        let Answer::Reports {
            name,
            checksum,
            whole,
        } = answer
        else {
            panic!("it reports: {answer:?}");
        };
        assert_eq!((name.as_deref(), whole), (Some("0.3"), false));
        assert_eq!(checksum.is_some(), has_checksum);
    }
}

#[tokio::test]
async fn llama_cpp_has_a_version_once_it_was_restarted_with_it() {
    let models = |id: &str| json!({"data": [{"id": id}]});
    let server = Server::start(vec![
        ("/v1/models", 200, models("0.2")),
        ("/v1/models", 200, models("0.3")),
    ])
    .await;
    let answer = server.call(EngineKind::Llamacpp, Call::Prepare).await;
    assert!(is_refused(&answer, "--alias 0.3"), "{answer:?}");
    let answer = server.call(EngineKind::Llamacpp, Call::Prepare).await;
    assert_eq!(answer, Answer::Done);
}

#[tokio::test]
async fn an_engine_that_can_not_be_reached_has_not_changed() {
    let mut server = Server::start(Vec::new()).await;
    // Nothing listens there.
    server.url = "http://127.0.0.1:9".to_owned();
    for kind in [EngineKind::Vllm, EngineKind::Sglang] {
        let answer = server.call(kind, Call::Pause).await;
        assert!(is_refused(&answer, "no connection"), "{answer:?}");
    }
    let answer = server.call(EngineKind::Openai, Call::Prepare).await;
    assert!(is_refused(&answer, "register it"), "{answer:?}");
}

#[tokio::test]
async fn the_storage_of_an_older_sglang_is_cleared_too() {
    let info = |storage: Value| {
        (
            "/server_info",
            200,
            json!({"hicache_storage_backend": storage}),
        )
    };
    let flushed = ("/flush_cache", 200, json!({}));
    let old = "/clear_hicache_storage_backend";
    let server = Server::start(vec![
        flushed.clone(),
        info(json!("file")),
        (old, 200, json!("cleared")),
        flushed.clone(),
        info(json!("file")),
        (
            old,
            400,
            json!({"message": "it needs an administrator's key"}),
        ),
        flushed,
        info(Value::Null),
    ])
    .await;
    let clear = async || server.call(EngineKind::Sglang, Call::Clear).await;
    assert_eq!(clear().await, Answer::Done);
    let refused = clear().await;
    assert!(is_refused(&refused, "administrator's key"), "{refused:?}");
    assert_eq!(clear().await, Answer::Done, "it has no storage");
    assert!(server.is_over());
    assert_eq!(server.seen()[2].0, "/hicache/storage-backend/clear");
}
