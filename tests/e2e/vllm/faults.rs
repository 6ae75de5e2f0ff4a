//! A server dies before or while another one fetches a cache from it: the answers are the same.

use treadle_tests::support::fixture::{Fixture, endpoint};
use treadle_tests::support::vllm_server::{Relay, VllmServer};

use super::copies::{Pair, fresh, tokens};
use super::{client_of, model_of, pair, undisturbed};
use crate::conversation::answer_ids;
use crate::offload::moves::{MORE, PROGRAMS, TOKENS, both_act, joins, moving};
use crate::offload::stage;

/// When the server dies.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Moment {
    /// Once it holds the cache, before the other one knows of it.
    BeforeTheFetch,
    /// While the other one fetches.
    DuringTheFetch,
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a vLLM server at TREADLE_TEST_VLLM_URL, and another one to kill"]
async fn vllm_that_dies_before_its_cache_is_fetched_loses_no_answer() {
    dies(Moment::BeforeTheFetch).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a vLLM server at TREADLE_TEST_VLLM_URL, and another one to kill"]
async fn vllm_that_dies_while_its_cache_is_fetched_loses_no_answer() {
    dies(Moment::DuringTheFetch).await;
}

async fn dies(moment: Moment) {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(victim) = VllmServer::start(folder.path()).await else {
        return;
    };
    let [second, _] = pair();
    if moment == Moment::DuringTheFetch {
        know_each_other(victim.url(), &second).await;
    }
    let mut relay = Relay::before(&victim).await;
    let fixture = Fixture::tuned(0, 0, |config| {
        config.engines.endpoints = vec![endpoint(relay.url())];
        moving(config);
    })
    .await;
    let client = &fixture.client;
    let model = model_of(&second).await;
    let both = both_act(&fixture, &model).await;
    let before = transfers(&second).await;
    joins(&fixture, &second).await;
    let held = relay.held().await;
    match moment {
        Moment::BeforeTheFetch => {
            victim.kill();
            held.let_go();
        }
        Moment::DuringTheFetch => {
            victim.freeze();
            held.let_go();
            let waits = async || {
                let metrics = client_of(&second).metrics().await;
                metrics.count("vllm:num_requests_waiting") >= 1
            };
            stage::until("the other server waits for it", waits).await;
            victim.kill();
        }
    }
    let ended = async || {
        // It fails at the engines, or is taken back once one is seen to be gone: whichever comes first.
        let metrics = client.metrics().await;
        metrics.count("treadle_migrations_cancelled_total") >= 1
    };
    stage::until("the move is given up", ended).await;
    for name in PROGRAMS {
        let acted = both.step(client, &model, name, TOKENS + MORE).await;
        let answer = answer_ids(&acted.answer["choices"][0]);
        assert_eq!(answer, undisturbed(&second, &acted.request).await, "{name}");
    }
    assert_eq!(transfers(&second).await, before, "nothing came");
    fixture.finish().await;
}

/// Transfers that came to their end at a server. Its count of tokens by source has those too that it
/// only expected.
async fn transfers(url: &str) -> u64 {
    let metrics = client_of(url).metrics().await;
    metrics.count("vllm:nixl_bytes_transferred_count")
}

/// Moves a cache from one server to the other, so that their handshake is done.
async fn know_each_other(first: &str, second: &str) {
    let pair = Pair::of(first, second).await;
    let prompt = fresh(200);
    let copy = pair.export(tokens(&prompt)).await;
    let taken = pair.import(&copy, tokens(&prompt)).await;
    taken.expect("both live");
}
