//! Caches are exported and imported by the daemon's own executor.

use treadle_model::{EngineKind, ProgramId};
use treadle_transfer::{
    Executors, Export, Import, KvCopy, KvExecutor, KvInterface, Prompt, Settings, Tags, WorkerRef,
};

use super::*;

const TOKENS: u32 = 640;

fn worker(bench: &Bench) -> WorkerRef {
    WorkerRef {
        url: bench.engine.url().into(),
        kind: EngineKind::Vllm,
        node: None,
    }
}

fn tags() -> Tags {
    Tags {
        model: "treadle-sim".into(),
        shape: None,
        block_tokens: None,
        dtype: None,
    }
}

fn body(tokens: u32) -> Value {
    let ids: Vec<u32> = (1_000..1_000 + tokens).collect();
    json!({ "model": "treadle-sim", "prompt": ids, "max_tokens": 2 })
}

fn export(bench: &Bench) -> Export {
    let body = Bytes::from(body(TOKENS).to_string());
    let path = "/v1/completions".into();
    Export {
        worker: worker(bench),
        slot: None,
        program: ProgramId(1),
        owner: "".into(),
        tokens: u64::from(TOKENS),
        prompt: Some(Prompt::Body { path, body }),
        cache_salt: None,
        tags: tags(),
    }
}

fn import(bench: &Bench, copy: &KvCopy) -> Import {
    Import {
        worker: worker(bench),
        slot: None,
        program: ProgramId(1),
        prompt: None,
        cache_salt: None,
        tags: tags(),
        copy: copy.clone(),
    }
}

async fn cached(bench: &Bench) -> u64 {
    let answer = bench
        .post_json("/v1/completions", &body(TOKENS + 100))
        .await;
    let details = &answer["usage"]["prompt_tokens_details"];
    details["cached_tokens"].as_u64().expect("tokens")
}

#[tokio::test]
async fn a_cache_comes_back_here_and_elsewhere() {
    let (one, two) = (Bench::quick().await, Bench::quick().await);
    let executors = Executors::new(Settings::default());
    let support = executors.support(worker(&one)).await.expect("it answers");
    assert_eq!(support.interface, KvInterface::Simulated);
    let nothing = KvExecutor::export(&executors, export(&one)).await;
    assert!(nothing.is_err(), "no step has run yet");
    one.post_json("/v1/completions", &body(TOKENS)).await;
    let copy = KvExecutor::export(&executors, export(&one)).await;
    let copy = copy.expect("it is cached");
    assert_eq!(copy.prefix.tokens, u64::from(TOKENS));
    let per_token = EngineSimOptions::default().kv_bytes_per_token;
    assert_eq!(copy.bytes, u64::from(TOKENS) * per_token);
    one.post("/reset_prefix_cache", &json!({})).await;
    for bench in [&one, &two] {
        let taken = executors.import(import(bench, &copy)).await;
        assert_eq!(taken.expect("it is taken").tokens, u64::from(TOKENS));
        assert_eq!(cached(bench).await, u64::from(TOKENS));
    }
    let other = Import {
        program: ProgramId(2),
        copy: KvCopy {
            program: ProgramId(2),
            ..copy.clone()
        },
        ..import(&two, &copy)
    };
    assert!(executors.import(other).await.is_err(), "of another program");
    KvExecutor::drop(&executors, copy.clone())
        .await
        .expect("gone");
    KvExecutor::drop(&executors, copy.clone())
        .await
        .expect("again");
    assert!(executors.import(import(&one, &copy)).await.is_err());
}

#[tokio::test]
async fn host_memory_has_a_bound() {
    let options = EngineSimOptions {
        profile: EngineProfile::instant(),
        host_bytes_max: EngineSimOptions::default().kv_bytes_per_token * u64::from(TOKENS),
        ..EngineSimOptions::default()
    };
    let bench = Bench::start(options).await;
    let executors = Executors::new(Settings::default());
    bench.post_json("/v1/completions", &body(TOKENS)).await;
    let first = KvExecutor::export(&executors, export(&bench)).await;
    let first = first.expect("there is room for one");
    let second = KvExecutor::export(&executors, export(&bench)).await;
    assert!(second.is_err(), "and for no other");
    KvExecutor::drop(&executors, first).await.expect("gone");
    let third = KvExecutor::export(&executors, export(&bench)).await;
    third.expect("there is room again");
}
