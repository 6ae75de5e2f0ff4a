//! Members that are cut while a long step of them runs: the step ends at its engine, and its client
//! is told why.

use crate::offload::stage::until;
use crate::rollouts::until_begun;

use super::{batch, declare, get, member, post};
use http::Method;
use serde_json::{Value, json};
use treadle_tests::support::fixture::{CHAT, Fixture, chat, engine_at, streamed};

/// More than the engine samples within any wait of a test.
const TOKENS: u32 = 20_000;
/// Tokens that show that it runs: more than an engine is asked for otherwise.
const BEFORE: u64 = 20;

/// How the long step is asked for.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Whole,
    /// In one piece, and fetched as a stream, so that it can be interrupted.
    Interruptible,
    Stream,
}

/// Sends the long step of the only member of a group; returns the last error that its client has.
async fn long_step(fixture: &Fixture, streams: bool) -> tokio::task::JoinHandle<Value> {
    let client = fixture.client.clone();
    let mut body = chat("slow", "hello", TOKENS);
    if streams {
        body = streamed(body);
    }
    let sent = tokio::spawn(async move {
        let headers = [
            ("content-type", "application/json"),
            ("x-treadle-job", "math"),
            ("x-treadle-group", "slow"),
            ("x-program-id", "slow"),
        ];
        if !streams {
            let answer = client.send(Method::POST, CHAT, &headers, body.to_string());
            let answer = answer.await;
            answer.refused(409, "member_dropped");
            return answer.json()["error"].clone();
        }
        let response = client.open(Method::POST, CHAT, &headers, body.to_string());
        let events = client.events(response.await.expect("an answer"));
        let ended = events.finish().await;
        assert!(ended.broken && !ended.is_done(), "it is not complete");
        let last = ended.objects().pop().expect("an event");
        last["error"].clone()
    });
    if streams {
        until_begun(&fixture.client, "slow").await;
    }
    let samples = async || {
        let snapshot = fixture.engines[0].snapshot().await;
        snapshot.counters.generation_tokens > BEFORE
    };
    until("tokens of the long step", samples).await;
    sent
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_of_a_member_that_is_cut_ends_at_its_engine() {
    let cases = [
        (Asked::Whole, "none"),
        (Asked::Whole, "tokens"),
        (Asked::Interruptible, "none"),
        (Asked::Stream, "none"),
        (Asked::Stream, "tokens"),
    ];
    for (asked, capture) in cases {
        let engine = engine_at("127.0.0.1:0", 100_000, 1.0).await;
        let fixture = Fixture::around(vec![engine], |config| {
            if matches!(asked, Asked::Interruptible) {
                config.rollout.engine_steps_max = 1;
            }
        })
        .await;
        let client = &fixture.client;
        let settings = json!({"group_size": 1, "batch_groups": 1, "capture": capture});
        declare(client, settings).await;
        let slow = long_step(&fixture, matches!(asked, Asked::Stream)).await;
        // Batches are made of other groups, until that of the long step is too old.
        for number in 1..=2 {
            let (program, group) = (format!("q{number}"), format!("b{number}"));
            member(client, &program, &group, 1.0).await;
            batch(client, number).await;
            post(client, &format!("/batches/{number}/trained"), json!({}))
                .await
                .ok();
            post(client, "/versions", json!({"version": number}))
                .await
                .ok();
        }
        let error = slow.await.expect("its client is told");
        assert_eq!(error["code"], "member_dropped", "{asked:?}, {capture}");
        fixture.until_engines_idle().await;
        let account = get(client, "").await.ok()["account"].clone();
        assert_eq!(account["lost"]["cut"]["members"], 1, "{account}");
        fixture.finish().await;
    }
}
