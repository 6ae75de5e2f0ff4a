//! Traces of steps: spans for the collector, and headers for the engine.

use http::Method;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use std::fmt::Write;
use treadle_tests::support::fixture::{CHAT, chat};
use treadle_tests::support::process::DaemonProcess;
use treadle_tests::support::raw_engine::RawEngine;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

#[tokio::test(flavor = "multi_thread")]
async fn a_step_is_traced_from_the_client_to_the_engine() {
    let mut engine = RawEngine::start().await;
    let mut collector = RawEngine::start().await;
    let traces = format!("traces.url={}", collector.url());
    let settings = ["store.path=memory", "engines.measure=false", &traces];
    let mut arguments = vec!["--engine", engine.url()];
    for setting in &settings {
        arguments.extend(["--set", setting]);
    }
    let daemon = DaemonProcess::serve(&arguments).await;
    let client = daemon.client.clone();
    let asking = tokio::spawn(async move {
        let traceparent = format!("00-{TRACE}-{PARENT}-01");
        let body = chat("agent-7", "hi", 4).to_string();
        client
            .send(Method::POST, CHAT, &[("traceparent", &traceparent)], body)
            .await
    });
    let request = engine.request().await;
    let sent = request.headers.iter().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("traceparent")
            .then(|| value.to_owned())
    });
    request.answer_chat().await;
    asking.await.expect("an answer").ok();
    // The daemon flushes its spans when it stops.
    let ending = tokio::task::spawn_blocking(move || daemon.terminate());
    let mut spans = Vec::new();
    while spans.len() < 3 {
        let request = collector.request().await;
        assert!(
            request.line.starts_with("POST /v1/traces "),
            "{}",
            request.line
        );
        let sent = ExportTraceServiceRequest::decode(request.body.as_slice()).expect("spans");
        let scopes = sent
            .resource_spans
            .into_iter()
            .flat_map(|of| of.scope_spans);
        spans.extend(scopes.flat_map(|scope| scope.spans));
        request.answer("200 OK", "application/x-protobuf", "").await;
    }
    assert!(ending.await.expect("it ended"));
    let named = |name: &str| -> &Span {
        let found = spans.iter().find(|span| span.name.starts_with(name));
        found.unwrap_or_else(|| panic!("no {name} in {spans:?}"))
    };
    let (step, queue, at_engine) = (named("chat"), named("queue"), named("engine"));
    assert_eq!(hex(&step.trace_id), TRACE);
    assert_eq!(hex(&step.parent_span_id), PARENT);
    assert_eq!(queue.parent_span_id, step.span_id);
    assert_eq!(at_engine.parent_span_id, step.span_id);
    assert!(queue.end_time_unix_nano <= at_engine.start_time_unix_nano);
    let of_engine = format!("00-{TRACE}-{}-01", hex(&at_engine.span_id));
    assert_eq!(sent.as_deref(), Some(&*of_engine));
    let said = format!("{:?}", step.attributes);
    for word in [
        "gen_ai.conversation.id",
        "agent-7",
        "gen_ai.usage.output_tokens",
    ] {
        assert!(said.contains(word), "{said}");
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}").expect("room");
    }
    text
}
