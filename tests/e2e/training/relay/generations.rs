//! Calls of trainers at engines written by hand: of either generation of SGLang, and all at once.

use super::*;
use treadle_config::Endpoint;
use treadle_tests::support::client::Answer;
use treadle_tests::support::raw_engine::{RawEngine, RawRequest};

const OK: (&str, &str) = ("200 OK", r#"{"success":true}"#);

async fn by_hand(kind: EngineChoice, engines: &[RawEngine]) -> Fixture {
    let urls = engines.iter().map(|engine| engine.url().to_owned());
    let endpoints = urls.map(|url| Endpoint {
        kind: Some(kind),
        capacity_tokens: Some(100_000),
        ..Endpoint::at(url)
    });
    let endpoints = endpoints.collect();
    Fixture::tuned(0, 0, |config| config.engines.endpoints = endpoints).await
}

fn path(request: &RawRequest) -> String {
    let path = request.line.split(' ').nth(1).expect("a path");
    path.to_owned()
}

async fn reply(request: RawRequest, (status, page): (&str, &str)) {
    request.answer(status, "application/json", page).await;
}

/// One SGLang server, and a trainer that calls it.
pub(super) struct Trainer {
    pub(super) fixture: Fixture,
    pub(super) engine: RawEngine,
    /// It has calls that begin and end an update in parts.
    has_sessions: bool,
    /// They fail.
    pub(super) fails: bool,
}

impl Trainer {
    async fn start(has_sessions: bool) -> Self {
        Self::at(RawEngine::start().await, has_sessions).await
    }

    pub(super) async fn at(engine: RawEngine, has_sessions: bool) -> Self {
        let engines = [engine];
        let fixture = by_hand(EngineChoice::Sglang, &engines).await;
        let [engine] = engines;
        Self {
            fixture,
            engine,
            has_sessions,
            fails: false,
        }
    }

    /// Makes a call. Returns the answer, and what the engine was asked meanwhile.
    pub(super) async fn call(&mut self, step: &str, body: Value) -> (Answer, Vec<String>) {
        let client = self.fixture.client.clone();
        let path_of_call = format!("/api/v1/jobs/math/engine{step}");
        let mut call = tokio::spawn(async move { client.post(&path_of_call, &body).await });
        let mut asked = Vec::new();
        loop {
            tokio::select! {
                answer = &mut call => return (answer.expect("is answered"), asked),
                request = self.engine.request() => {
                    let of_session = ["/begin_weight_update", "/end_weight_update"];
                    let path = path(&request);
                    let is_of_session = of_session.contains(&&*path);
                    let said = match &*path {
                        _ if is_of_session && !self.has_sessions => ("404 Not Found", "{}"),
                        _ if is_of_session && self.fails => ("500 Internal Server Error", "{}"),
                        "/weights_checker" => ("400 Bad Request", "{}"),
                        _ => OK,
                    };
                    asked.push(path);
                    reply(request, said).await;
                }
            }
        }
    }

    pub(super) async fn asks(&mut self, step: &str, expected: &[&str]) {
        let (answer, asked) = self.call(step, json!({"names": ["w"]})).await;
        answer.ok();
        assert_eq!(asked, expected, "{step}");
    }
}

pub(super) const BUCKET: &str = "/update_weights_from_distributed";
pub(super) const PROOF: [&str; 3] = [
    "/weights_checker",
    "/flush_cache?timeout=30",
    "/continue_generation",
];

#[tokio::test(flavor = "multi_thread")]
async fn buckets_are_put_between_a_begin_and_an_end() {
    let mut trainer = Trainer::start(true).await;
    let [checker, flush, resume] = PROOF;
    trainer
        .asks("/pause_generation", &["/pause_generation"])
        .await;
    trainer
        .asks(BUCKET, &["/begin_weight_update", BUCKET])
        .await;
    trainer.asks(BUCKET, &[BUCKET]).await;
    let all = ["/end_weight_update", checker, flush, resume];
    trainer.asks("/continue_generation", &all).await;
    // A trainer that died after a bucket, and begins anew.
    trainer
        .asks("/pause_generation", &["/pause_generation"])
        .await;
    trainer
        .asks(BUCKET, &["/begin_weight_update", BUCKET])
        .await;
    trainer
        .asks("/pause_generation", &["/pause_generation"])
        .await;
    let (answer, asked) = trainer.call("/continue_generation", json!({})).await;
    let refusal = answer.refused(409, "weights_conflict");
    assert!(refusal.contains("only a part of the weights"), "{refusal}");
    assert!(asked.is_empty(), "{asked:?}");
    let again = ["/end_weight_update", "/begin_weight_update", BUCKET];
    trainer.asks(BUCKET, &again).await;
    trainer.fails = true;
    let (answer, asked) = trainer.call("/continue_generation", json!({})).await;
    let refusal = answer.refused(409, "weights_conflict");
    assert!(refusal.contains("may be a mixture"), "{refusal}");
    assert_eq!(asked, ["/end_weight_update"]);
    trainer.fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_server_gets_buckets_as_they_are() {
    let mut trainer = Trainer::start(false).await;
    trainer
        .asks("/pause_generation", &["/pause_generation"])
        .await;
    trainer
        .asks(BUCKET, &["/begin_weight_update", BUCKET])
        .await;
    trainer.asks(BUCKET, &[BUCKET]).await;
    trainer.asks("/continue_generation", &PROOF).await;
    trainer.fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ranks_without_parallel_attention_are_not_torn_by_buckets() {
    let mut trainer = Trainer::start(true).await;
    trainer
        .engine
        .set_info(r#"{"dp_size":2,"enable_dp_attention":false}"#);
    trainer
        .asks("/pause_generation", &["/pause_generation"])
        .await;
    for step in [BUCKET, "/update_weights_from_ipc", "/begin_weight_update"] {
        let (answer, asked) = trainer.call(step, json!({})).await;
        let refusal = answer.refused(409, "weights_conflict");
        assert!(refusal.contains("--enable-dp-attention"), "{refusal}");
        assert!(asked.is_empty(), "{step}: {asked:?}");
    }
    // It is as it was.
    trainer
        .asks("/continue_generation", &["/continue_generation"])
        .await;
    trainer.fixture.finish().await;
}

/// A call that blocks until all engines got it, as one that joins a group, would hang otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn all_engines_are_called_before_any_has_answered() {
    let mut engines = [RawEngine::start().await, RawEngine::start().await];
    let fixture = by_hand(EngineChoice::Vllm, &engines).await;
    let client = fixture.client.clone();
    for (step, fails) in [("/pause?mode=keep", false), ("/start_weight_update", true)] {
        let client = client.clone();
        let path_of_call = format!("/api/v1/jobs/math/engine{step}");
        let call = tokio::spawn(async move { client.post(&path_of_call, &json!({})).await });
        let [first, second] = &mut engines;
        let (first, second) = (first.request().await, second.request().await);
        assert_eq!(
            (path(&first), path(&second)),
            (step.to_owned(), step.to_owned())
        );
        // The first to fail is not the answer: that of the other is awaited.
        let failed = ("500 Internal Server Error", r#"{"detail":"out of memory"}"#);
        reply(first, if fails { failed } else { OK }).await;
        reply(second, OK).await;
        let answer = call.await.expect("is answered").ok();
        let behind = &answer["treadle"]["behind"][0]["worker"];
        assert_eq!(
            *behind,
            if fails { json!(0) } else { Value::Null },
            "{answer}"
        );
    }
    fixture.finish().await;
}
