//! An engine with ranks of data parallelism.

use treadle_model::{EngineKind, ProgramId};
use treadle_transfer::{Executors, Export, Import, KvExecutor, Prompt, Settings, Tags, WorkerRef};

use super::*;

const TOKENS: u64 = 640;

async fn with_ranks(ranks: u32) -> Bench {
    Bench::start(EngineSimOptions {
        profile: EngineProfile::instant(),
        ranks,
        ..EngineSimOptions::default()
    })
    .await
}

fn body(rank: u32) -> Value {
    let ids: Vec<u64> = (1_000..1_000 + TOKENS).collect();
    json!({
        "model": "treadle-sim", "prompt": ids, "max_tokens": 2, "data_parallel_rank": rank,
    })
}

async fn cached_at(bench: &Bench, rank: u32) -> u64 {
    let answer = bench.post_json("/v1/completions", &body(rank)).await;
    let details = &answer["usage"]["prompt_tokens_details"];
    details["cached_tokens"].as_u64().expect("tokens")
}

#[tokio::test]
async fn each_rank_has_its_cache_and_its_rows_of_metrics() {
    let bench = with_ranks(3).await;
    assert_eq!(cached_at(&bench, 1).await, 0);
    assert!(cached_at(&bench, 1).await > 600);
    assert_eq!(cached_at(&bench, 2).await, 0);
    let (_, metrics) = bench.get_text("/metrics").await;
    for (rank, prompts) in [(0, 0), (1, 2 * TOKENS), (2, TOKENS)] {
        let row = format!("{{engine=\"{rank}\",model_name=\"treadle-sim\"}} {prompts}\n");
        let row = format!("vllm:prompt_tokens_total{row}");
        assert!(metrics.contains(&row), "{row} {metrics}");
    }
    let (_, info) = bench.get_text("/server_info").await;
    let info: Value = serde_json::from_str(&info).expect("JSON");
    assert_eq!(info["dp_size"], 3);
    // Without a rank the engine spreads them.
    for words in ["a", "b", "c"] {
        bench.post_json(CHAT, &chat(words, 2, false)).await;
    }
    let ranks = bench.engine.rank_snapshots().await;
    let finished: Vec<u64> = ranks
        .iter()
        .map(|rank| rank.counters.finished_requests)
        .collect();
    assert_eq!(finished, [1, 3, 2]);
    assert_eq!(bench.engine.snapshot().await.counters.finished_requests, 6);
    let refused = bench.post("/v1/completions", &body(3)).await;
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    let reason = whole(refused).await.expect("a body");
    let reason = String::from_utf8_lossy(&reason);
    assert!(reason.contains("the ranks are 0 to 2"), "{reason}");
}

#[tokio::test]
async fn caches_move_between_ranks() {
    let bench = with_ranks(2).await;
    let worker = |rank: u32| WorkerRef {
        url: format!("{}#{rank}", bench.engine.url()).into(),
        kind: EngineKind::Vllm,
        node: None,
    };
    let tags = || Tags {
        model: "treadle-sim".into(),
        shape: None,
        block_tokens: None,
        dtype: None,
    };
    let export = |rank: u32| Export {
        worker: worker(rank),
        slot: None,
        program: ProgramId(1),
        owner: "".into(),
        tokens: TOKENS,
        prompt: Some(Prompt::Body {
            path: "/v1/completions".into(),
            body: body(rank).to_string().into(),
        }),
        cache_salt: None,
        tags: tags(),
    };
    let executors = Executors::new(Settings::default());
    bench.post_json("/v1/completions", &body(1)).await;
    let nothing = KvExecutor::export(&executors, export(0)).await;
    assert!(nothing.is_err(), "it is in the other rank's cache");
    let copy = KvExecutor::export(&executors, export(1)).await;
    let import = Import {
        worker: worker(0),
        slot: None,
        program: ProgramId(1),
        prompt: None,
        cache_salt: None,
        tags: tags(),
        copy: copy.expect("it is cached"),
    };
    let taken = executors.import(import).await.expect("it is taken");
    assert_eq!(taken.tokens, TOKENS);
    assert!(cached_at(&bench, 0).await > 600);
}
