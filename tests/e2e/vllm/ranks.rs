//! A real server with data parallelism: each rank is a worker, and programs stay at their ranks.

use serde_json::json;
use treadle_tests::support::fixture::{COMPLETIONS, Fixture, endpoint};
use treadle_tests::support::vllm_server::VllmServer;

use super::copies::fresh;
use super::{TIMEOUT, block_tokens, model_of};
use crate::conversation::{answer_ids, usage};
use crate::ranks::two_workers;

const RANKS: u32 = 2;
/// More than one for each rank.
const PROGRAMS: [&str; 4] = ["a", "b", "c", "d"];
/// Tokens of a program's first prompt, and those by which its context grows.
const TOKENS: usize = 1_000;
const MORE: usize = 40;

/// Tokens of prompts that a rank had in its cache.
async fn hits(server: &VllmServer, rank: u32) -> u64 {
    let metrics = server.client.metrics().await;
    metrics.count_with(
        "vllm:prefix_cache_hits_total",
        &format!("engine=\"{rank}\""),
    )
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs vLLM, and starts a server with two ranks"]
async fn vllm_ranks_are_workers_and_find_their_programs_caches() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(server) = VllmServer::with_ranks(folder.path(), RANKS).await else {
        return;
    };
    let endpoints = vec![endpoint(server.url())];
    let fixture = Fixture::tuned(0, 0, |config| config.engines.endpoints = endpoints).await;
    let client = fixture.client.with_timeout(TIMEOUT);
    let ranks = [0, 1].map(|rank| format!("{}#{rank}", server.url()));
    for (worker, url) in two_workers(&client).await.iter().zip(&ranks) {
        assert_eq!(worker["url"], *url);
    }

    let model = model_of(server.url()).await;
    let block = block_tokens(server.url()).await;
    let least = (TOKENS as u64 / block - 1) * block;
    let before = [hits(&server, 0).await, hits(&server, 1).await];
    let mut places = Vec::new();
    for program in PROGRAMS {
        let mut prompt = fresh(TOKENS);
        // A server that chose the rank itself would send the second turn to the other one.
        for turn in 0..3 {
            let request = json!({
                "model": model, "program_id": program, "prompt": prompt, "max_tokens": 8,
                "temperature": 0, "ignore_eos": true, "return_token_ids": true,
            });
            let answer = client.post(COMPLETIONS, &request).await.ok();
            let cached = usage(std::slice::from_ref(&answer)).cached;
            assert!(turn == 0 || cached >= least, "{program}: {cached} tokens");
            prompt.extend(answer_ids(&answer["choices"][0]));
            prompt.extend(fresh(MORE));
            let listed = client.get("/programs").await.ok();
            let place = listed[program]["backend"].clone();
            if turn == 0 {
                places.push(place);
            } else {
                assert_eq!(places.last(), Some(&place), "{program} stays");
            }
        }
    }
    for (rank, url) in (0..).zip(&ranks) {
        let programs = places.iter().filter(|place| **place == *url).count();
        assert_eq!(programs, PROGRAMS.len() / 2, "{places:?}");
        let hits = hits(&server, rank).await - before[rank as usize];
        // Two further turns of two programs, and none of the others'.
        let most = 4 * (TOKENS + 2 * (8 + MORE)) as u64;
        assert!((4 * least..most).contains(&hits), "rank {rank}: {hits}");
    }
    fixture.finish().await;
}
