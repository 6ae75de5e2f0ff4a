//! Tokens of members' steps, as engines report them: kept, hidden from the client, and spoilt
//! visibly if one is missing. The engines are scripted by hand after vLLM's and SGLang's answers.

use crate::offload::stage::until;

use super::{batch, declare, get, post, put, submit};
use http::Method;
use serde_json::{Value, json};
use treadle_config::{Endpoint, EngineChoice};
use treadle_tests::support::client::{Answer, Client};
use treadle_tests::support::fixture::{CHAT, Fixture, chat};
use treadle_tests::support::raw_engine::{RawEngine, RawRequest};

pub(super) async fn gateway(engine: &RawEngine, kind: EngineChoice) -> Fixture {
    let url = engine.url().to_owned();
    let fixture = Fixture::tuned(0, 0, |config| {
        config.engines.endpoints = vec![Endpoint {
            kind: Some(kind),
            capacity_tokens: Some(100_000),
            ..Endpoint::at(url)
        }];
    })
    .await;
    let settings =
        json!({"group_size": 1, "batch_groups": 1, "capture": "tokens", "rewarded": false});
    declare(&fixture.client, settings).await;
    submit(&fixture.client, &["a"]).await;
    fixture
}

/// Sends a step of a member of group `a`.
pub(super) fn step(client: &Client, program: &str, body: Value) -> tokio::task::JoinHandle<Answer> {
    let (client, program) = (client.clone(), program.to_owned());
    tokio::spawn(async move {
        let headers = [
            ("x-treadle-job", "math"),
            ("x-treadle-group", "a"),
            ("x-program-id", &*program),
        ];
        let body = body.to_string().into_bytes();
        client.send(Method::POST, CHAT, &headers, body).await
    })
}

/// vLLM's answer to a chat: these tokens, with log-probabilities -0.5, -1.5, ...
pub(super) fn vllm(prompt: &[i32], output: &[i32]) -> Value {
    let entries = (0..output.len()).map(|n| json!({"token": "t", "logprob": -0.5 - n as f64}));
    json!({"id": "c", "model": "m", "prompt_token_ids": prompt,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "yes"},
                     "logprobs": {"content": entries.collect::<Vec<_>>()}, "token_ids": output,
                     "finish_reason": "stop"}],
        "usage": {"prompt_tokens": prompt.len(), "completion_tokens": output.len()}})
}

pub(super) async fn answer(request: RawRequest, body: &Value) {
    request
        .answer("200 OK", "application/json", &body.to_string())
        .await;
}

pub(super) fn asked(request: &RawRequest) -> Value {
    serde_json::from_slice(&request.body).expect("a request is JSON")
}

pub(super) async fn release(client: &Client, program: &str) {
    client
        .delete(&format!("/api/v1/programs/{program}"))
        .await
        .ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_steps_of_a_member_become_its_sample() {
    let mut engine = RawEngine::start().await;
    let fixture = gateway(&engine, EngineChoice::Vllm).await;
    let client = &fixture.client;
    let talk = [
        (vec![1, 2, 3], vec![4, 5]),
        (vec![1, 2, 3, 4, 5, 6], vec![7]),
        // Its prompt has the answer in other tokens.
        (vec![1, 2, 3, 45, 6, 8], vec![9, 2]),
    ];
    for (prompt, output) in &talk {
        let sent = step(client, "p", chat("p", "hello", 5));
        let request = engine.request().await;
        let body = asked(&request);
        assert_eq!(
            (&body["return_token_ids"], &body["logprobs"]),
            (&json!(true), &json!(true))
        );
        answer(request, &vllm(prompt, output)).await;
        let shown = sent.await.expect("it ends").ok();
        let mut expected = vllm(prompt, output);
        expected["prompt_token_ids"] = Value::Null;
        expected["choices"][0]["token_ids"] = Value::Null;
        expected["choices"][0]["logprobs"] = Value::Null;
        assert_eq!(shown, expected, "ids are hidden, and nothing else");
    }
    let steps = get(client, "/members/p/steps").await.ok();
    assert_eq!(
        (&steps["sample"], &steps["group"], &steps["end"]),
        (&Value::Null, &json!("a"), &Value::Null)
    );
    let has_come_as_far = async || {
        let page = get(client, "/groups?group=a").await.ok();
        page["groups"][0]["members"][0]["tokens"] == 5
    };
    until("tokens of a member that runs", has_come_as_far).await;
    assert_eq!(steps["steps"][1]["prompt"], json!([1, 2, 3, 4, 5, 6]));
    assert_eq!(steps["steps"][0]["logprobs"], json!([-0.5, -1.5]));
    assert_eq!(
        steps["breaks"],
        json!([{"step": 2, "kind": "edited"}]),
        "{steps}"
    );
    release(client, "p").await;
    let (view, _) = batch(client, 1).await;
    let member = &view["groups"][0]["members"][0];
    assert_eq!(
        (&member["tokens"], &member["turns"]),
        (&json!(5), &json!(3)),
        "{view}"
    );
    let steps = get(client, "/members/p/steps").await.ok();
    assert_eq!(
        (&steps["sample"], &steps["end"]),
        (&member["sample"], &json!("completed"))
    );
    let job = get(client, "").await.ok();
    assert_eq!(job["account"]["breaks"], json!({"edited": 1}));
    let sequences = json!([
        {"ids": [1, 2, 3, 4, 5, 6, 7],
         "sampled": [{"step": 0, "start": 3, "end": 5}, {"step": 1, "start": 6, "end": 7}]},
        {"ids": [1, 2, 3, 45, 6, 8, 9, 2], "sampled": [{"step": 2, "start": 6, "end": 8}]},
    ]);
    assert_eq!(steps["sequences"], sequences);
    fixture.finish().await;
}

/// Each row is an answer that lacks something, and a word of the reason.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_was_not_captured_spoils_its_member_and_nothing_else() {
    let mut engine = RawEngine::start().await;
    let fixture = gateway(&engine, EngineChoice::Vllm).await;
    let client = &fixture.client;
    let change = |pointer: &str, value: Value| {
        let mut body = vllm(&[1, 2], &[3, 4]);
        *body.pointer_mut(pointer).expect("it is there") = value;
        body
    };
    let answers = [
        (
            change("/choices/0/token_ids", Value::Null),
            "counted 2 output",
        ),
        (
            change("/choices/0/token_ids", json!([3])),
            "counted 2 output",
        ),
        (change("/prompt_token_ids", Value::Null), "prompt is empty"),
        (
            change("/choices/0/logprobs/content/0/logprob", json!(-9999.0)),
            "log-probability",
        ),
        (
            change("/choices/0/logprobs", Value::Null),
            "0 log-probabilities",
        ),
        (change("/usage/prompt_tokens", json!(3)), "counted 3 prompt"),
    ];
    let count = answers.len();
    for (number, (body, cause)) in answers.into_iter().enumerate() {
        let program = format!("p{number}");
        let sent = step(client, &program, chat(&program, "hello", 5));
        answer(engine.request().await, &body).await;
        sent.await.expect("it ends").ok();
        release(client, &program).await;
        let events = client
            .get("/api/v1/events?kind=capture_failed&limit=100")
            .await
            .ok();
        let events = events["events"].as_array().expect("a list");
        assert_eq!(events.len(), number + 1, "{events:?}");
        let causes: Vec<_> = events
            .iter()
            .map(|e| e["event"]["cause"].to_string())
            .collect();
        assert!(
            causes.iter().any(|text| text.contains(cause)),
            "{cause}: {causes:?}"
        );
    }
    let view = get(client, "").await.ok();
    assert_eq!(
        view["account"]["lost"]["capture_failed"]["members"], count,
        "{view}"
    );
    // Failures were counted against the group; it still gets its member.
    let sent = step(client, "good", chat("good", "hello", 5));
    answer(engine.request().await, &vllm(&[1, 2], &[3])).await;
    sent.await.expect("it ends").ok();
    release(client, "good").await;
    let (view, _) = batch(client, 1).await;
    assert_eq!(view["groups"][0]["members"][0]["program"], "good");
    fixture.finish().await;
}

/// An engine that does not know the fields answers without them.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_refuses_to_give_tokens_answers_without() {
    let mut engine = RawEngine::start().await;
    let fixture = gateway(&engine, EngineChoice::Vllm).await;
    let client = &fixture.client;
    let sent = step(client, "refused", chat("refused", "hello", 5));
    let error = r#"{"error": {"message": "logprobs: extra fields not permitted"}}"#;
    engine
        .request()
        .await
        .answer("400 Bad Request", "application/json", error)
        .await;
    let again = engine.request().await;
    assert_eq!(asked(&again).get("return_token_ids"), None);
    again.answer_chat().await;
    sent.await.expect("it ends").ok();
    release(client, "refused").await;
    let events = client
        .get("/api/v1/events?kind=capture_failed&limit=10")
        .await
        .ok();
    let cause = events["events"][0]["event"]["cause"].as_str();
    assert!(
        cause.is_some_and(|text| text.contains("extra fields")),
        "{events}"
    );
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_captured_without_the_setting_and_of_members_that_clients_sample() {
    let mut engine = RawEngine::start().await;
    let fixture = gateway(&engine, EngineChoice::Vllm).await;
    let client = &fixture.client;
    let begun = post(
        client,
        "/members",
        json!({"program": "direct", "group": "a"}),
    )
    .await;
    begun.ok();
    let sent = step(client, "direct", chat("direct", "hello", 5));
    let request = engine.request().await;
    assert_eq!(
        asked(&request).get("logprobs"),
        None,
        "its client reports its sample"
    );
    request.answer_chat().await;
    sent.await.expect("it ends").ok();
    let failed = json!({"end": "client_failed"});
    put(client, "/members/direct", &failed).await.ok();
    declare(
        client,
        json!({"group_size": 1, "batch_groups": 1, "rewarded": false}),
    )
    .await;
    let sent = step(client, "plain", chat("plain", "hello", 5));
    let request = engine.request().await;
    assert_eq!(asked(&request).get("logprobs"), None);
    request.answer_chat().await;
    sent.await.expect("it ends").ok();
    release(client, "plain").await;
    batch(client, 1).await;
    get(client, "/members/plain/steps")
        .await
        .refused(404, "member_unknown");
    fixture.finish().await;
}

/// An Anthropic client, captured: the engine gets a chat, the client its own API.
#[tokio::test(flavor = "multi_thread")]
async fn messages_go_to_the_engine_as_chat_and_come_back_translated() {
    let mut engine = RawEngine::start().await;
    let fixture = gateway(&engine, EngineChoice::Vllm).await;
    let client = &fixture.client;
    let sent = tokio::spawn({
        let client = client.clone();
        async move {
            let headers = [
                ("x-treadle-job", "math"),
                ("x-treadle-group", "a"),
                ("x-program-id", "p"),
            ];
            let body = json!({"model": "m", "max_tokens": 5, "system": "be brief",
                "messages": [{"role": "user", "content": "hello"}]});
            let body = body.to_string().into_bytes();
            client
                .send(Method::POST, "/v1/messages", &headers, body)
                .await
        }
    });
    let request = engine.request().await;
    assert!(
        request.line.contains("/v1/chat/completions"),
        "{}",
        request.line
    );
    let chat = asked(&request);
    assert_eq!(chat["messages"][0]["role"], "system");
    assert_eq!(chat["return_token_ids"], true);
    answer(request, &vllm(&[1, 2], &[3])).await;
    let shown = sent.await.expect("it ends").ok();
    assert_eq!(shown["type"], "message");
    assert_eq!(shown["content"][0]["text"], "yes");
    assert_eq!(shown["usage"]["output_tokens"], 1);
    release(client, "p").await;
    batch(client, 1).await;
    let steps = get(client, "/members/p/steps").await.ok();
    assert_eq!(steps["steps"][0]["output"], json!([3]));
    fixture.finish().await;
}

/// Each of several choices is a step of its own, after the same prompt.
#[tokio::test(flavor = "multi_thread")]
async fn each_choice_is_trained() {
    let mut engine = RawEngine::start().await;
    let fixture = gateway(&engine, EngineChoice::Vllm).await;
    let client = &fixture.client;
    let mut body = chat("p", "hello", 5);
    body["n"] = json!(2);
    let sent = step(client, "p", body);
    let mut both = vllm(&[1, 2], &[3]);
    let mut second = both["choices"][0].clone();
    second["index"] = json!(1);
    second["token_ids"] = json!([4]);
    both["choices"].as_array_mut().expect("a list").push(second);
    both["usage"]["completion_tokens"] = json!(2);
    answer(engine.request().await, &both).await;
    sent.await.expect("it ends").ok();
    release(client, "p").await;
    batch(client, 1).await;
    let steps = get(client, "/members/p/steps").await.ok();
    let ids: Vec<&Value> = steps["sequences"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|sequence| &sequence["ids"])
        .collect();
    assert_eq!(ids, [&json!([1, 2, 3]), &json!([1, 2, 4])], "{steps}");
    fixture.finish().await;
}

/// Sends a step of a program in its own group.
fn step_in(client: &Client, group: &str, program: &str) -> tokio::task::JoinHandle<Answer> {
    let (client, group, program) = (client.clone(), group.to_owned(), program.to_owned());
    tokio::spawn(async move {
        let headers = [
            ("x-treadle-job", "math"),
            ("x-treadle-group", &*group),
            ("x-program-id", &*program),
        ];
        let body = chat(&program, "hello", 5).to_string().into_bytes();
        client.send(Method::POST, CHAT, &headers, body).await
    })
}

fn outputs(steps: &Value) -> Vec<&Value> {
    let steps = steps["steps"].as_array().expect("a list");
    steps.iter().map(|step| &step["output"]).collect()
}

/// A step that began later may end first, and the agent `s/agent` is not the program `s`.
#[tokio::test(flavor = "multi_thread")]
async fn steps_belong_to_their_program_whatever_the_order_in_which_they_end() {
    let mut engine = RawEngine::start().await;
    let fixture = gateway(&engine, EngineChoice::Vllm).await;
    let client = &fixture.client;
    submit(client, &["b"]).await;
    let prompt: Vec<i32> = (0..200).collect();
    let sent = [step_in(client, "a", "s"), step_in(client, "a", "s")];
    let first = engine.request().await;
    let second = engine.request().await;
    answer(second, &vllm(&prompt, &[7])).await;
    answer(first, &vllm(&prompt, &[8])).await;
    for sent in sent {
        sent.await.expect("it ends").ok();
    }
    let other = step_in(client, "b", "s/agent");
    answer(engine.request().await, &vllm(&prompt, &[666])).await;
    other.await.expect("it ends").ok();
    for program in ["s", "s%2Fagent"] {
        release(client, program).await;
    }
    batch(client, 1).await;
    let steps = get(client, "/members/s/steps").await.ok();
    let mut found = outputs(&steps);
    found.sort_by_key(ToString::to_string);
    assert_eq!(found, [&json!([7]), &json!([8])], "{steps}");
    fixture.finish().await;
}

/// What a run has stored that was forgotten is nothing for the next one of its name.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_forgotten_leaves_no_steps_to_the_next_one() {
    let mut engine = RawEngine::start().await;
    let fixture = gateway(&engine, EngineChoice::Vllm).await;
    let client = &fixture.client;
    let prompt: Vec<i32> = (0..200).collect();
    let settings =
        json!({"group_size": 1, "batch_groups": 1, "capture": "tokens", "rewarded": false});
    for token in [7, 8] {
        declare(client, settings.clone()).await;
        submit(client, &["a"]).await;
        let sent = step(client, "p", chat("p", "hello", 5));
        answer(engine.request().await, &vllm(&prompt, &[token])).await;
        sent.await.expect("it ends").ok();
        release(client, "p").await;
        batch(client, 1).await;
        let steps = get(client, "/members/p/steps").await.ok();
        assert_eq!(outputs(&steps), [&json!([token])]);
        client.delete("/api/v1/jobs/math?forget=true").await.ok();
    }
    fixture.finish().await;
}

/// What is stored of a member can be deleted, in a batch too; the batch says so.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_of_a_member_is_deleted() {
    let mut engine = RawEngine::start().await;
    let fixture = gateway(&engine, EngineChoice::Vllm).await;
    let client = &fixture.client;
    let settings =
        json!({"group_size": 1, "batch_groups": 1, "capture": "tokens", "rewarded": false});
    declare(client, settings).await;
    submit(client, &["a", "b"]).await;
    for (group, program) in [("a", "p"), ("b", "p/2")] {
        let sent = step_in(client, group, program);
        answer(engine.request().await, &vllm(&[1, 2], &[7])).await;
        sent.await.expect("it ends").ok();
        release(client, &program.replace('/', "%2F")).await;
    }
    let (_, whole) = batch(client, 1).await;
    let path = "/api/v1/jobs/math/members/p";
    let deleted = client.delete(path).await.ok();
    assert_eq!(deleted["batches"], json!([1]), "{deleted}");
    assert_eq!(deleted["payloads"], 2, "a step and the sample: {deleted}");
    let (view, payload) = batch(client, 1).await;
    let member = &view["groups"][0]["members"][0];
    assert_eq!(member["deleted"], true, "{view}");
    assert_eq!(member["sample"], Value::Null, "{view}");
    assert!(payload.len() < whole.len(), "its tokens are gone");
    assert_eq!(get(client, "/members/p/steps").await.status, 404);
    let again = client.delete(path).await.ok();
    assert_eq!(again["payloads"], 0, "{again}");
    // What begins with the same name is another program's.
    let (view, _) = batch(client, 2).await;
    let other = &view["groups"][0]["members"][0];
    assert_eq!(
        (&other["program"], &other["deleted"]),
        (&json!("p/2"), &Value::Null)
    );
    fixture.finish().await;
}

/// The client says that its program is over while a step still runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_ends_after_its_member_is_part_of_the_sample() {
    let mut engine = RawEngine::start().await;
    let fixture = gateway(&engine, EngineChoice::Vllm).await;
    let client = &fixture.client;
    let sent = step(client, "p", chat("p", "hello", 5));
    let request = engine.request().await;
    let end = json!({"end": "completed"});
    put(client, "/members/p", &end).await.ok();
    answer(request, &vllm(&[1, 2], &[3])).await;
    sent.await.expect("it ends").ok();
    let (view, _) = batch(client, 1).await;
    assert_eq!(view["groups"][0]["members"][0]["tokens"], 1, "{view}");
    fixture.finish().await;
}
