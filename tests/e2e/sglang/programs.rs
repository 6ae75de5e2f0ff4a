//! Programs of several steps, and their caches.

use http::Method;
use treadle_tests::support::client::Client;

use super::{GENERATE, client_of, count, fresh, gateway, generation, output, pair, workers};
use crate::offload::stage;

const STEPS: usize = 4;
const ANSWER_TOKENS: u32 = 16;
/// Tokens that a tool adds.
const TOOL_TOKENS: usize = 30;
const CACHED: &str = "sglang:cached_tokens_total";

/// One of slime's trajectories.
struct Trajectory {
    name: &'static str,
    context: Vec<u32>,
    /// Tokens that each step found in the cache.
    cached: Vec<u64>,
    /// Minimum number of these tokens that must be cached.
    least: Vec<u64>,
}

impl Trajectory {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            context: fresh(200),
            cached: Vec::new(),
            least: Vec::new(),
        }
    }

    async fn step(&mut self, client: &Client, page_tokens: u64) {
        let headers = [
            ("content-type", "application/json"),
            ("x-smg-routing-key", self.name),
        ];
        let body = generation(&self.context, ANSWER_TOKENS).to_string();
        let answer = client.send(Method::POST, GENERATE, &headers, body).await;
        let answer = answer.ok();
        let meta = &answer["meta_info"];
        assert_eq!(
            meta["prompt_tokens"].as_u64(),
            Some(self.context.len() as u64)
        );
        self.cached
            .push(meta["cached_tokens"].as_u64().expect("a count"));
        self.context.extend(output(&answer));
        // The last token of an answer was never computed; pages are kept whole.
        let kept = self.context.len() as u64 - 1;
        self.least.push(kept / page_tokens * page_tokens);
        self.context.extend(fresh(TOOL_TOKENS));
    }

    /// The server that had all its steps, which are on record as the servers counted them.
    async fn server(&self, client: &Client) -> String {
        let path = format!("/api/v1/programs/{}/steps", self.name);
        let page = client.get(&path).await.ok();
        let steps = page["steps"].as_array().expect("a list");
        assert_eq!(steps.len(), STEPS, "{page}");
        let worker = &steps[0]["worker"];
        assert!(steps.iter().all(|step| step["worker"] == *worker), "{page}");
        let recorded = steps.iter().map(|step| step["cached_tokens"].as_u64());
        let recorded: Vec<_> = recorded.flatten().collect();
        assert_eq!(recorded, self.cached, "{page}");
        worker.as_str().expect("its URL").to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs two SGLang servers at TREADLE_TEST_SGLANG_URL"]
async fn sglang_programs_keep_their_caches() {
    let fixture = gateway().await;
    let client = &fixture.client;
    let [first, _] = pair();
    let metrics = client_of(&first).metrics().await;
    let page_tokens = metrics.count("sglang:page_size");
    let mut before = Vec::new();
    for url in pair() {
        before.push((count(&url, CACHED).await, url));
    }
    let mut both = ["left", "right"].map(Trajectory::new);
    for _ in 0..STEPS {
        for trajectory in &mut both {
            trajectory.step(client, page_tokens).await;
        }
    }
    let mut servers = Vec::new();
    for trajectory in &both {
        for (cached, least) in trajectory.cached[1..].iter().zip(&trajectory.least) {
            assert!(*least > 0 && cached >= least, "{cached} of {least}");
        }
        servers.push(trajectory.server(client).await);
    }
    assert_ne!(servers[0], servers[1], "each has a server of its own");
    for (trajectory, server) in both.iter().zip(&servers) {
        let before = before.iter().find(|(_, url)| url == server);
        let (before, url) = before.expect("one of the pair");
        let saved: u64 = trajectory.cached.iter().sum();
        let as_told = async || count(url, CACHED).await - before == saved;
        stage::until("the server has counted as many", as_told).await;
        let shown = async || {
            let workers = workers(client).await;
            let worker = workers.iter().find(|worker| worker["url"] == **url);
            worker.is_some_and(|w| w["engine_load"]["cached_tokens_total"] == before + saved)
        };
        stage::until("the daemon shows the server's count", shown).await;
    }
    fixture.finish().await;
}
