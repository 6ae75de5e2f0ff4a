//! The beginnings, pauses and ends of answers by different engines and proxies.

use std::time::Duration;

use serde_json::{Value, json};
use treadle_config::{Config, Endpoint, EngineChoice};
use treadle_tests::support::client::{Client, Ended, TIMEOUT};
use treadle_tests::support::fixture::{CHAT, Fixture, chat, plain_endpoint, streamed};
use treadle_tests::support::raw_engine::{CHAT_ANSWER, RawEngine};

/// A daemon in front of these engines.
async fn before(engines: &[&RawEngine], tune: impl FnOnce(&mut Config)) -> Fixture {
    let urls: Vec<_> = engines
        .iter()
        .map(|engine| engine.url().to_owned())
        .collect();
    Fixture::tuned(0, 0, |config| {
        let endpoint = |url: String| Endpoint {
            kind: Some(EngineChoice::Vllm),
            ..plain_endpoint(url, 9_000)
        };
        config.engines.endpoints = urls.into_iter().map(endpoint).collect();
        tune(config);
    })
    .await
}

fn asking(client: &Client, path: &'static str, body: Value) -> tokio::task::JoinHandle<Ended> {
    let client = client.clone();
    tokio::spawn(async move { client.stream(path, &body).await.finish().await })
}

fn delta(index: u32, finish: &str) -> String {
    format!(
        "data: {{\"choices\":[{{\"index\":{index},\"delta\":{{\"content\":\"a\"}},\
         \"finish_reason\":{finish}}}]}}"
    )
}

/// Waits for `count` steps of the program; returns how each ended.
async fn outcomes(client: &Client, program: &str, count: usize) -> Vec<String> {
    let path = format!("/api/v1/programs/{program}/steps");
    let listed = async {
        loop {
            let steps = client.get(&path).await.ok();
            let steps = steps["steps"].as_array().cloned().unwrap_or_default();
            let ended = steps.iter().filter_map(|step| step["outcome"].as_str());
            let ended: Vec<_> = ended.map(str::to_owned).collect();
            if ended.len() >= count {
                return ended;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, listed).await.expect("steps")
}

/// Ends of streams: the bytes, the number of outputs, and whether the answer is complete.
fn ends() -> Vec<(String, u32, bool)> {
    let (goes_on, stops) = (delta(0, "null"), delta(0, "\"stop\""));
    let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}";
    let whole = format!("{goes_on}\n\n{stops}\n\n");
    let two = format!("{whole}{}\n\n{}", delta(1, "null"), delta(1, "\"length\""));
    vec![
        (format!("{whole}data: [DONE]\n\n"), 1, true),
        (format!("{whole}data: [DONE]"), 1, true),
        (format!("{whole}data: [DO"), 1, true),
        (whole.clone(), 1, true),
        (format!("{goes_on}\n\n{stops}\n"), 1, true),
        (format!("{goes_on}\r\n\r\n{stops}"), 1, true),
        (format!("\u{feff}{goes_on}\r\r{stops}\r"), 1, true),
        (format!("{whole}{usage}"), 1, true),
        (format!("{whole}{}", &usage[..30]), 1, true),
        (two.clone(), 2, true),
        (format!("{goes_on}\n\ndata: [DONE]\n\n"), 1, true),
        (format!("{goes_on}\n\n"), 1, false),
        (
            format!("{goes_on}\n\n{}", &stops[..stops.len() - 1]),
            1,
            false,
        ),
        (whole.clone(), 2, false),
        (format!("{whole}data: [DONE]\n\n"), 2, false),
        (two[..two.len() - 3].to_owned(), 2, false),
        (format!("{whole}{}\n\n", delta(1, "null")), 2, false),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_complete_when_all_of_it_has_come_however_its_stream_ends() {
    let mut engine = RawEngine::start().await;
    let fixture = before(&[&engine], |config| config.engines.retry_max = 0).await;
    let cases = ends();
    let mut ended_well = 0;
    for (stream, n, is_complete) in &cases {
        for breaks in [false, true] {
            let mut body = streamed(chat("p", "x", 9));
            body["n"] = json!(n);
            let asked = asking(&fixture.client, CHAT, body);
            let mut request = engine.request().await;
            request.begin_events().await;
            request.chunk(stream.as_bytes()).await;
            if breaks {
                drop(request);
            } else {
                request.end().await;
            }
            let ended = asked.await.expect("an end");
            let text = String::from_utf8_lossy(&ended.bytes).into_owned();
            assert_eq!(
                ended.broken, !is_complete,
                "{stream:?}, breaks: {breaks}: {text:?}"
            );
            assert_eq!(
                text.contains("engine_stream_broken"),
                !is_complete,
                "{text:?}"
            );
            if *is_complete {
                assert!(text.starts_with(stream.as_str()), "{text:?}");
                ended_well += 1;
            }
        }
    }
    let error = "data: {\"error\":{\"message\":\"CUDA\",\"code\":500}}\n\n";
    let asked = asking(&fixture.client, CHAT, streamed(chat("p", "x", 9)));
    let mut request = engine.request().await;
    request.begin_events().await;
    request
        .chunk(format!("{}\n\n{error}", delta(0, "null")).as_bytes())
        .await;
    request.end().await;
    let ended = asked.await.expect("an end");
    assert!(!ended.broken, "the engine has told what it is");
    assert_eq!(
        ended.objects().last().expect("an event")["error"]["message"],
        "CUDA"
    );
    let outcomes = outcomes(&fixture.client, "p", 2 * cases.len() + 1).await;
    let failed = outcomes
        .iter()
        .filter(|outcome| *outcome == "failed")
        .count();
    assert_eq!(failed, outcomes.len() - ended_well, "{outcomes:?}");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_messages_is_complete_with_its_reason() {
    let mut engine = RawEngine::start().await;
    let fixture = before(&[&engine], |config| config.engines.retry_max = 0).await;
    let start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{}}\n\n";
    let reason = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n";
    let stop = "event: message_stop\ndata: {\"type\":\"message_stop\"}";
    for (stream, is_complete) in [
        (format!("{start}{reason}{stop}\n\n"), true),
        (format!("{start}{reason}{stop}"), true),
        (format!("{start}{reason}"), true),
        (format!("{start}{stop}\n"), false),
        (start.to_owned(), false),
    ] {
        let body = json!({
            "model": "m", "max_tokens": 9, "stream": true,
            "messages": [{"role": "user", "content": "x"}],
        });
        let asked = asking(&fixture.client, "/v1/messages", body);
        let mut request = engine.request().await;
        request.begin_events().await;
        request.chunk(stream.as_bytes()).await;
        drop(request);
        let ended = asked.await.expect("an end");
        let text = String::from_utf8_lossy(&ended.bytes).into_owned();
        assert_eq!(ended.broken, !is_complete, "{stream:?}: {text:?}");
        let told = text.contains("event: error\ndata: {") && text.contains("\"api_error\"");
        assert_eq!(told, !is_complete, "{text:?}");
    }
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_cut_off_is_asked_for_again_and_a_complete_one_is_not() {
    let mut engine = RawEngine::start().await;
    let fixture = before(&[&engine], |_| ()).await;
    let ask = |program: &'static str| {
        let client = fixture.client.clone();
        tokio::spawn(async move { client.post(CHAT, &chat(program, "x", 9)).await })
    };
    let cut = &CHAT_ANSWER[..CHAT_ANSWER.len() - 2];
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
    // Without a length, with one that is too large, in chunks without the last.
    let ways = |body: &str| {
        let (long, chunk) = (body.len() + 9, format!("{:x}\r\n{body}\r\n", body.len()));
        [
            format!("{head}\r\n{body}"),
            format!("{head}content-length: {long}\r\n\r\n{body}"),
            format!("{head}transfer-encoding: chunked\r\n\r\n{chunk}"),
        ]
    };
    for way in ways(CHAT_ANSWER) {
        let asked = ask("whole");
        engine.request().await.write(way).await;
        let answer = asked.await.expect("an answer").ok();
        assert_eq!(answer["choices"][0]["message"]["content"], "yes");
    }
    assert!(engine.is_idle());
    for way in ways(cut) {
        let asked = ask("cut");
        engine.request().await.write(way).await;
        engine.request().await.answer_chat().await;
        asked.await.expect("an answer").ok();
    }
    fixture.finish().await;
}

/// What an engine or a proxy before it says that is no answer, whatever its status.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_answer_is_on_record_as_a_failure() {
    let mut engine = RawEngine::start().await;
    let fixture = before(&[&engine], |config| config.engines.retry_max = 0).await;
    let error = r#"{"error":{"message":"CUDA error"}}"#;
    let length = error.len();
    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\n";
    for (answer, told) in [
        (
            format!("{head}content-length: {length}\r\n\r\n{error}"),
            "CUDA error",
        ),
        (
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n".into(),
            "101 Switching Protocols",
        ),
    ] {
        let client = fixture.client.clone();
        let asked = tokio::spawn(async move { client.post(CHAT, &chat("p", "x", 9)).await });
        engine.request().await.write(answer).await;
        let refused = asked.await.expect("an answer");
        let text = String::from_utf8_lossy(&refused.body);
        assert_eq!(refused.status, 502, "{text}");
        assert!(text.contains(told), "{text}");
    }
    assert_eq!(outcomes(&fixture.client, "p", 2).await, ["failed"; 2]);
    fixture.finish().await;
}

/// A proxy before a dead engine ends what it has of the answer properly.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_that_a_proxy_announces_does_not_reach_the_client() {
    let mut engine = RawEngine::start().await;
    let fixture = before(&[&engine], |config| config.engines.retry_max = 0).await;
    let mut body = streamed(chat("p", "x", 9));
    body["n"] = json!(2);
    let asked = asking(&fixture.client, CHAT, body);
    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: Text/Event-Stream\r\n\r\n";
    let events = format!("{}\n\ndata: [DONE]\n\ndata: {{}}\n\n", delta(0, "\"stop\""));
    let answer = format!("{head}{events}");
    engine.request().await.write(answer).await;
    let ended = asked.await.expect("an end");
    let text = String::from_utf8_lossy(&ended.bytes).into_owned();
    assert!(
        ended.broken && text.contains("not each of 2 outputs"),
        "{text}"
    );
    assert!(!text.contains("[DONE]"), "{text}");
    assert_eq!(outcomes(&fixture.client, "p", 1).await, ["failed"]);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_dies_after_comments_has_answered_nothing() {
    let mut engine = RawEngine::start().await;
    let fixture = before(&[&engine], |_| ()).await;
    let asked = asking(&fixture.client, CHAT, streamed(chat("p", "x", 9)));
    let mut request = engine.request().await;
    request.begin_events().await;
    request
        .chunk(b": keep-alive\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\ndata:\n\n")
        .await;
    drop(request);
    let mut request = engine.request().await;
    request.begin_events().await;
    let answer = format!(": again\n\n{}\n\ndata: [DONE]\n\n", delta(0, "\"stop\""));
    request.chunk(answer.as_bytes()).await;
    request.end().await;
    let ended = asked.await.expect("an end");
    assert_eq!(String::from_utf8_lossy(&ended.bytes), answer);
    assert!(!ended.broken);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_waits_shows_that_it_lives_and_is_still_sent_elsewhere() {
    let mut engine = RawEngine::start().await;
    let fixture = before(&[&engine], |config| {
        config.server.keep_alive_s = 1;
        config.engines.retry_max = 1;
    })
    .await;
    let sign = b": keep-alive\n\n";
    for is_answered in [true, false] {
        let mut waits = fixture
            .client
            .stream(CHAT, &streamed(chat("p", "x", 9)))
            .await;
        let first = waits.piece().await.expect("a sign").expect("no break");
        assert_eq!(&first[..], sign);
        drop(engine.request().await);
        let mut request = engine.request().await;
        if is_answered {
            request.begin_events().await;
            request
                .chunk(format!("{}\n\n", delta(0, "null")).as_bytes())
                .await;
            let mut seen = Vec::new();
            while !seen.ends_with(sign) || !String::from_utf8_lossy(&seen).contains("data: ") {
                seen.extend(waits.piece().await.expect("more").expect("no break"));
            }
            request
                .chunk(format!("{}\n\n", delta(0, "\"stop\"")).as_bytes())
                .await;
            request.end().await;
        } else {
            drop(request);
        }
        let ended = waits.finish().await;
        let last = ended.objects().pop().expect("an event");
        assert_eq!(ended.broken, !is_answered, "{last}");
        let expected = if is_answered {
            Value::Null
        } else {
            "engine_unreachable".into()
        };
        assert_eq!(last["error"]["code"], expected);
    }
    fixture.finish().await;
}

/// As long as the routed experts of a long answer by a large mixture of experts: longer than the
/// part of an event that is parsed.
const LONG_BYTES: usize = 20 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn one_event_of_any_size_reaches_the_client_and_is_counted() {
    let mut engine = RawEngine::start().await;
    let fixture = before(&[&engine], |_| ()).await;
    let long = "A".repeat(LONG_BYTES);
    let event = format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"a\"}},\
         \"routed_experts\":\"{long}\",\"finish_reason\":\"stop\"}}],\
         \"usage\":{{\"prompt_tokens\":5,\"completion_tokens\":7}}}}"
    );
    // As the first event and after another one.
    for begins in [String::new(), format!("{}\n\n", delta(0, "null"))] {
        let asked = asking(&fixture.client, CHAT, streamed(chat("p", "x", 9)));
        let stream = format!("{begins}{event}\n\ndata: [DONE]\n\n");
        let mut request = engine.request().await;
        request.begin_events().await;
        request.chunk(stream.as_bytes()).await;
        request.end().await;
        let ended = asked.await.expect("an end");
        assert!(!ended.broken);
        assert!(ended.bytes == stream.as_bytes(), "it is as it was sent");
    }
    assert_eq!(outcomes(&fixture.client, "p", 2).await, ["stop"; 2]);
    let steps = fixture.client.get("/api/v1/programs/p/steps").await.ok();
    for step in steps["steps"].as_array().expect("a list") {
        let counts = (&step["prompt_tokens"], &step["output_tokens"]);
        assert_eq!(counts, (&json!(5), &json!(7)));
    }
    assert!(engine.is_idle(), "it is generated once");
    fixture.finish().await;
}

const BUSY: &str = r#"{"error":{"message":"The request queue is full.","code":503}}"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_engines_words_reach_the_client_where_no_other_takes_the_step() {
    let mut engine = RawEngine::start().await;
    let fixture = before(&[&engine], |_| ()).await;
    for (status, retry) in [("503 Busy", true), ("503 Busy", false), ("429 Busy", true)] {
        let client = fixture.client.clone();
        let asked = tokio::spawn(async move { client.post(CHAT, &chat("p", "x", 5)).await });
        let retry_after = if retry { "retry-after: 7\r\n" } else { "" };
        let length = BUSY.len();
        let mut request = engine.request().await;
        request
            .write(format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{retry_after}\
                 content-length: {length}\r\n\r\n{BUSY}"
            ))
            .await;
        let answer = asked.await.expect("an answer");
        assert_eq!(answer.status.as_str(), &status[..3]);
        assert_eq!(answer.body, BUSY);
        let told = answer
            .headers
            .get("retry-after")
            .map(http::HeaderValue::as_bytes);
        assert_eq!(told, retry.then_some(&b"7"[..]));
        assert!(engine.is_idle(), "it is not asked again at once");
    }
    // The same as the first event of a stream.
    let body = streamed(chat("p", "x", 5)).to_string();
    let client = fixture.client.clone();
    let asked = tokio::spawn(async move {
        let headers = [("content-type", "application/json")];
        client.send(http::Method::POST, CHAT, &headers, body).await
    });
    let mut request = engine.request().await;
    request.begin_events().await;
    request.chunk(format!("data: {BUSY}\n\n").as_bytes()).await;
    request.end().await;
    let answer = asked.await.expect("an answer");
    assert_eq!(
        (answer.status.as_u16(), &answer.body[..]),
        (503, BUSY.as_bytes())
    );
    let workers = fixture.client.get("/api/v1/workers").await.ok();
    assert_eq!(workers["workers"][0]["is_healthy"], true);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_engine_takes_what_a_busy_one_turns_away() {
    let (mut first, mut second) = (RawEngine::start().await, RawEngine::start().await);
    let fixture = before(&[&first, &second], |config| config.engines.retry_max = 0).await;
    let client = fixture.client.clone();
    let asked = tokio::spawn(async move { client.post(CHAT, &chat("p", "x", 5)).await });
    let busy = |request: treadle_tests::support::raw_engine::RawRequest| {
        request.answer("503 Busy", "application/json", BUSY)
    };
    tokio::select! {
        request = first.request() => {
            busy(request).await;
            second.request().await.answer_chat().await;
        }
        request = second.request() => {
            busy(request).await;
            first.request().await.answer_chat().await;
        }
    }
    asked.await.expect("an answer").ok();
    assert!(first.is_idle() && second.is_idle());
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_sleeps_gets_no_steps_until_it_is_woken() {
    let (mut sleeper, mut other) = (RawEngine::start().await, RawEngine::start().await);
    sleeper.set_asleep(true);
    let fixture = before(&[&sleeper, &other], |_| ()).await;
    let ask = |program: &'static str| {
        let client = fixture.client.clone();
        tokio::spawn(async move { client.post(CHAT, &chat(program, "x", 5)).await })
    };
    let until = async |what: &str| {
        let seen = async {
            loop {
                let workers = fixture.client.get("/api/v1/workers").await.ok();
                let url = sleeper.url();
                let rows = workers["workers"].as_array().cloned().unwrap_or_default();
                let row = rows
                    .into_iter()
                    .find(|row| row["url"] == url)
                    .unwrap_or_default();
                let awake = row["is_healthy"] == true;
                if row["state"] == what && awake == (what == "active") {
                    return row;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, seen).await.expect(what)
    };
    let row = until("asleep").await;
    let problem = row["problem"].as_str().unwrap_or_default().to_owned();
    assert!(problem.contains("/wake_up"), "{row}");
    for program in ["a", "b", "c"] {
        let asked = ask(program);
        other.request().await.answer_chat().await;
        asked.await.expect("an answer").ok();
    }
    sleeper.set_asleep(false);
    until("active").await;
    other.set_well(false);
    let asked = ask("d");
    tokio::select! {
        request = sleeper.request() => request.answer_chat().await,
        request = other.request() => {
            request.answer("503 Loading", "text/plain", "loading model").await;
            sleeper.request().await.answer_chat().await;
        }
    }
    asked.await.expect("an answer").ok();
    fixture.finish().await;
}
