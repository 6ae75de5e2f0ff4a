//! vLLM, SGLang and simulated engines: what is asked of them, and what is believed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::engines::{Engine, export, ids, import};
use serde_json::{Value, json};
use treadle_model::EngineKind;
use treadle_transfer::{
    CopyLocation, Executors, KvCopy, KvExecutor, KvInterface, Limits, Prompt, Settings, WorkerRef,
};

fn executors(limits: Limits) -> Executors {
    Executors::new(Settings {
        limits,
        ..Settings::default()
    })
}

/// A vLLM server with the connector.
#[derive(Clone, Default)]
struct Vllm {
    /// Tokens that it reports as fetched.
    fetched: Arc<AtomicU64>,
    /// Tokens that it fetches at each import.
    fetches: Arc<AtomicU64>,
    /// Completions that were asked for.
    asked: Arc<Mutex<Vec<Value>>>,
    /// Whether imports fail.
    fails: bool,
}

impl Vllm {
    async fn serve(&self) -> Engine {
        let vllm = self.clone();
        Engine::start(move |path, body| {
            let answer = vllm.answer(&path, body);
            Box::pin(async move { answer })
        })
        .await
    }

    fn answer(&self, path: &str, body: Value) -> (u16, String) {
        match path {
            "/metrics" => {
                let fetched = self.fetched.load(Ordering::SeqCst);
                let text = format!(
                    "# HELP x\nvllm:nixl_num_failed_transfers{{}} 0\n\
                     vllm:prompt_tokens_cached_by_source_total{{source=\"local\"}} 7\n\
                     vllm:prompt_tokens_cached_by_source_total{{source=\"p2p\"}} {fetched}.0\n"
                );
                (200, text)
            }
            "/v1/completions" | "/v1/chat/completions" => {
                let given = body["kv_transfer_params"].clone();
                self.asked.lock().unwrap().push(body);
                if given["do_remote_decode"] == true {
                    let held = json!({
                        "do_remote_prefill": true, "do_remote_decode": false,
                        "remote_engine_id": "e", "remote_block_ids": [1, 2, 3],
                        "remote_host": "127.0.0.1", "remote_port": 5600,
                    });
                    let answer = json!({
                        "usage": { "prompt_tokens": 100 }, "kv_transfer_params": held,
                        "prompt_token_ids": ids(9, 100),
                    });
                    return (200, answer.to_string());
                }
                if self.fails {
                    let error = json!({ "error": { "message": "the load failed" } });
                    return (500, error.to_string());
                }
                let fetches = self.fetches.load(Ordering::SeqCst);
                self.fetched.fetch_add(fetches, Ordering::SeqCst);
                // Its report about its own cache is not trusted here.
                let usage = json!({ "prompt_tokens_details": { "cached_tokens": 96 } });
                (200, json!({ "usage": usage }).to_string())
            }
            _ => (404, "{}".into()),
        }
    }

    fn asked(&self) -> Vec<Value> {
        self.asked.lock().unwrap().clone()
    }
}

fn vllm(engine: &Engine) -> WorkerRef {
    engine.worker(EngineKind::Vllm)
}

async fn held(executors: &Executors, source: &Engine) -> KvCopy {
    let asked = export(vllm(source), 1, &ids(1, 100));
    executors.export(asked).await.unwrap()
}

#[tokio::test]
async fn vllm_fetches_once_and_its_counter_is_believed() {
    let (source, target) = (Vllm::default(), Vllm::default());
    target.fetches.store(96, Ordering::SeqCst);
    let (from, to) = (source.serve().await, target.serve().await);
    let executors = executors(Limits::default());
    let support = executors.support(vllm(&from)).await.unwrap();
    assert_eq!(support.interface, KvInterface::Nixl);
    assert!(support.migrate && !support.offload);
    let copy = held(&executors, &from).await;
    assert_eq!(copy.prefix.tokens, 100);
    let copy = KvCopy::from_handle(&copy.to_handle().unwrap()).unwrap();
    let asked = import(vllm(&to), &copy, &ids(1, 130));
    let taken = executors.import(asked.clone()).await.unwrap();
    assert_eq!(taken.tokens, 96);
    // The first engine may have freed the blocks and filled them with something else.
    let error = executors.import(asked).await.unwrap_err();
    assert_eq!(error.code(), "gone");
    let [completion] = &source.asked()[..] else {
        panic!("{:?}", source.asked());
    };
    assert_eq!(completion["prompt"], json!(ids(1, 100)));
    assert_eq!(completion["max_tokens"], 1);
    let [completion] = &target.asked()[..] else {
        panic!("{:?}", target.asked());
    };
    assert_eq!(completion["prompt"], json!(ids(1, 100)));
    assert_eq!(
        completion["kv_transfer_params"]["remote_block_ids"],
        json!([1, 2, 3])
    );
}

/// A fetch with fewer tokens takes the last of the blocks, with more it ends the server.
#[tokio::test]
async fn vllm_fetches_the_tokens_that_the_first_engine_saw() {
    let (source, target) = (Vllm::default(), Vllm::default());
    target.fetches.store(96, Ordering::SeqCst);
    let (from, to) = (source.serve().await, target.serve().await);
    let executors = executors(Limits::default());
    let chat = |messages: Value| Prompt::Body {
        path: "/v1/chat/completions".into(),
        body: json!({ "model": "m", "messages": messages, "stream": true })
            .to_string()
            .into(),
    };
    let said = json!([{ "role": "user", "content": "x" }]);
    let mut asked = export(vllm(&from), 1, &[]);
    asked.prompt = Some(chat(said));
    let copy = executors.export(asked).await.unwrap();
    assert!(copy.prefix.may_begin(&ids(9, 130)) && !copy.prefix.may_begin(&ids(8, 130)));
    let mut asked = import(vllm(&to), &copy, &[]);
    asked.prompt = Some(chat(json!([{ "role": "user", "content": "x, and more" }])));
    executors.import(asked).await.unwrap();
    let [completion] = &target.asked()[..] else {
        panic!("{:?}", target.asked());
    };
    assert_eq!(completion["prompt"], json!(ids(9, 100)));
    assert_eq!(completion["messages"], Value::Null);
}

#[tokio::test]
async fn vllms_that_fetch_nothing_are_not_believed() {
    let source = Vllm::default();
    let failing = Vllm {
        fails: true,
        ..Vllm::default()
    };
    let (from, idle, failing) = (
        source.serve().await,
        Vllm::default().serve().await,
        failing.serve().await,
    );
    let executors = executors(Limits::default());
    for (to, code) in [(&idle, "not-taken"), (&failing, "refused")] {
        let copy = held(&executors, &from).await;
        let error = executors
            .import(import(vllm(to), &copy, &ids(1, 100)))
            .await
            .unwrap_err();
        assert_eq!(error.code(), code, "{error}");
    }
}

#[tokio::test]
async fn blocks_held_by_an_engine_are_used_in_time_and_by_their_owner() {
    let source = Vllm::default();
    let from = source.serve().await;
    let ours = executors(Limits::default());
    let copy = held(&ours, &from).await;
    let asked = import(vllm(&from), &copy, &ids(1, 100));
    let others = executors(Limits::default());
    let error = others.import(asked.clone()).await.unwrap_err();
    assert_eq!(error.code(), "gone");
    let mut altered = held(&ours, &from).await;
    let CopyLocation::Engine { parameters, .. } = &mut altered.place else {
        panic!("{altered:?}");
    };
    parameters["remote_block_ids"] = json!([4, 5, 6]);
    let altered = import(vllm(&from), &altered, &ids(1, 100));
    let error = ours.import(altered).await.unwrap_err();
    assert_eq!(error.code(), "wrong-handle");
    ours.drop(copy).await.unwrap();
    assert_eq!(ours.import(asked).await.unwrap_err().code(), "gone");
    let hasty = executors(Limits {
        engine_held: Duration::ZERO,
        ..Limits::default()
    });
    let copy = held(&hasty, &from).await;
    let asked = import(vllm(&from), &copy, &ids(1, 100));
    assert_eq!(hasty.import(asked).await.unwrap_err().code(), "gone");
    let mut blind = export(vllm(&from), 1, &[]);
    blind.prompt = None;
    assert_eq!(ours.export(blind).await.unwrap_err().code(), "incomplete");
    assert_eq!(source.asked().len(), 3, "only what was exported");
}

#[tokio::test]
async fn engines_without_the_means_are_distinguished() {
    let bare = Engine::start(|path, _| {
        Box::pin(async move {
            match path.as_str() {
                "/metrics" => (200, "vllm:num_requests_running 0\n".to_owned()),
                "/server_info" => (
                    200,
                    json!({ "enable_hierarchical_cache": false }).to_string(),
                ),
                "/slots/0?action=save" => (501, "{}".to_owned()),
                _ => (404, "{}".to_owned()),
            }
        })
    })
    .await;
    let executors = executors(Limits::default());
    for &kind in EngineKind::ALL {
        let support = executors.support(bare.worker(kind)).await.unwrap();
        assert_eq!(support.interface, KvInterface::Nothing, "{kind}");
        assert!(!support.why.is_empty());
        let error = executors
            .export(export(bare.worker(kind), 1, &ids(1, 9)))
            .await;
        assert_eq!(error.unwrap_err().code(), "unsupported");
    }
}

#[tokio::test]
async fn sglang_looks_in_the_storage_that_it_shares() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let cached = Arc::new(AtomicU64::new(64));
    let told = Arc::clone(&cached);
    let engine = Engine::start(move |path, body| {
        let answer = match path.as_str() {
            "/server_info" => json!({
                "enable_hierarchical_cache": true, "hicache_storage_backend": "file",
                "hicache_write_policy": "write_through",
            }),
            "/generate" => {
                log.lock().unwrap().push(body);
                let cached = told.load(Ordering::SeqCst);
                json!({ "meta_info": { "prompt_tokens": 100, "cached_tokens": cached } })
            }
            _ => return Box::pin(async { (404, "{}".to_owned()) }),
        };
        Box::pin(async move { (200, answer.to_string()) })
    })
    .await;
    let executors = executors(Limits::default());
    let worker = engine.worker(EngineKind::Sglang);
    let mut out = export(worker.clone(), 1, &ids(1, 100));
    out.cache_salt = Some("v1".into());
    let copy = executors.export(out).await.unwrap();
    assert!(matches!(copy.place, CopyLocation::Storage { .. }));
    let back = import(worker, &copy, &ids(1, 100));
    assert_eq!(executors.import(back.clone()).await.unwrap().tokens, 64);
    cached.store(0, Ordering::SeqCst);
    assert_eq!(
        executors.import(back).await.unwrap_err().code(),
        "not-taken"
    );
    let asked = asked.lock().unwrap();
    assert_eq!(asked[0]["extra_key"], "v1");
    assert_eq!(asked[0]["sampling_params"]["max_new_tokens"], 1);
    assert_eq!(asked[1]["input_ids"], json!(ids(1, 100)));
}

#[tokio::test]
async fn simulated_engines_are_asked_for_all_verbs() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let engine = Engine::start(move |path, body| {
        let answer = match path.as_str() {
            "/kv" => json!({ "engine": "treadle-engine-sim", "offload": true, "migrate": false }),
            "/kv/export" if body["program"] == 9 => {
                log.lock().unwrap().push((path, body));
                return Box::pin(std::future::pending());
            }
            "/kv/export" => json!({ "tokens": 96, "bytes": 9_600, "block_tokens": 16 }),
            "/kv/import" => json!({ "tokens": 96, "bytes": 9_600 }),
            "/kv/drop" => json!({}),
            _ => return Box::pin(async { (404, "{}".to_owned()) }),
        };
        if path != "/kv" {
            log.lock().unwrap().push((path, body));
        }
        Box::pin(async move { (200, answer.to_string()) })
    })
    .await;
    let hasty = executors(Limits {
        export: Duration::from_millis(100),
        ..Limits::default()
    });
    let executors = executors(Limits::default());
    let worker = engine.worker(EngineKind::Sglang);
    let support = executors.support(worker.clone()).await.unwrap();
    assert_eq!(support.interface, KvInterface::Simulated);
    assert!(support.offload && !support.migrate);
    let mut out = export(worker.clone(), 1, &[]);
    out.prompt = Some(Prompt::Body {
        path: "/v1/chat/completions".into(),
        body: json!({ "messages": [] }).to_string().into(),
    });
    let copy = executors.export(out).await.unwrap();
    assert_eq!((copy.prefix.tokens, copy.bytes), (96, 9_600));
    assert_eq!(copy.tags.block_tokens, Some(16));
    let mut back = import(worker.clone(), &copy, &[]);
    back.prompt = None;
    assert_eq!(executors.import(back).await.unwrap().tokens, 96);
    executors.drop(copy.clone()).await.unwrap();
    // One that takes too long is not left behind there.
    hasty.support(worker.clone()).await.unwrap();
    let late = hasty.export(export(worker, 9, &ids(1, 9))).await;
    assert_eq!(late.unwrap_err().code(), "timeout");
    let began = std::time::Instant::now();
    while asked.lock().unwrap().len() < 5 {
        assert!(began.elapsed() < Duration::from_secs(5));
        tokio::task::yield_now().await;
    }
    let asked = asked.lock().unwrap();
    let paths: Vec<&str> = asked.iter().map(|(path, _)| &**path).collect();
    let expected = [
        "/kv/export",
        "/kv/import",
        "/kv/drop",
        "/kv/export",
        "/kv/drop",
    ];
    assert_eq!(paths, expected);
    assert_eq!(asked[0].1["prompt"]["path"], "/v1/chat/completions");
    assert_eq!(asked[1].1["copy"], json!(copy.id));
    assert_eq!(asked[3].1["copy"], asked[4].1["copy"]);
}
