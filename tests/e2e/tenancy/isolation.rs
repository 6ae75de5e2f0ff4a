//! Two tenants with the same names each see only their own objects.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use treadle_tests::support::client::{Client, TIMEOUT};
use treadle_tests::support::fixture::{CHAT, Fixture, chat, plain_endpoint, streamed};
use treadle_tests::support::metrics::Metrics;
use treadle_tests::support::policy::lru_eviction;
use treadle_tests::support::raw_engine::RawEngine;

use super::{client_of, make_tenant};

const JOB: &str = "x-treadle-job";

/// One step of a program in a job.
async fn step(client: &Client, job: &str, program: &str, text: &str) {
    let headers = [("content-type", "application/json"), (JOB, job)];
    let body = chat(program, text, 4).to_string();
    let answer = client.send(Method::POST, CHAT, &headers, body).await;
    answer.ok();
    assert_eq!(answer.headers["x-treadle-program"], program);
}

async fn until_stored(client: &Client, program: &str) {
    let began = Instant::now();
    let path = format!("/api/v1/programs/{program}/steps");
    while client.get(&path).await.ok()["steps"] == json!([]) {
        assert!(began.elapsed() < TIMEOUT, "{program} is not stored");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn names(page: &Value, list: &str, field: &str) -> Vec<String> {
    let rows = page[list].as_array().expect("a list").iter();
    rows.map(|row| row[field].as_str().expect("a name").to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_of_one_name_are_two() {
    let fixture = Fixture::start(2, 100_000).await;
    let nobody = fixture.client.without_token();
    make_tenant(&fixture, "acme", json!({})).await;
    make_tenant(&fixture, "acme2", json!({})).await;
    let acme = client_of(&fixture, "acme", "admin").await;
    let beta = client_of(&fixture, "acme2", "admin").await;
    for (client, own) in [
        (&acme, "only-acme"),
        (&beta, "only-beta"),
        (&nobody, "only-default"),
    ] {
        step(client, "run", "same", "hello").await;
        step(client, "run", own, "hello").await;
        until_stored(client, "same").await;
        until_stored(client, own).await;
    }
    step(&acme, "secret-job", "same-too", "hello").await;
    until_stored(&acme, "same-too").await;
    for (client, own) in [(&beta, "only-beta"), (&nobody, "only-default")] {
        let live = client.get("/programs").await.ok();
        let live: Vec<_> = live.as_object().expect("an object").keys().collect();
        assert_eq!(live, [own, "same"]);
        let profiles = client.get("/profiles").await.ok();
        assert_eq!(profiles.as_object().expect("an object").len(), 2);
        let stored = client.get("/api/v1/programs").await.ok();
        let mut stored = names(&stored, "programs", "program_id");
        stored.sort();
        assert_eq!(stored, [own, "same"]);
        let steps = client.get("/api/v1/programs/same/steps").await.ok();
        assert_eq!(steps["steps"].as_array().map(Vec::len), Some(1));
        let of_job = client.get("/api/v1/programs?job=run").await.ok();
        assert_eq!(of_job["programs"].as_array().map(Vec::len), Some(2));
        nothing_of_acme(client).await;
    }
    // Releasing one does not release the other.
    let released = beta.delete("/api/v1/jobs/run").await.ok();
    assert_eq!(released["released"], 2);
    let live = acme.get("/programs").await.ok();
    assert_eq!(live.as_object().map(serde_json::Map::len), Some(3));
    for client in [&acme, &nobody] {
        assert_eq!(
            client.delete("/api/v1/programs/same").await.ok()["released"],
            true
        );
        assert_eq!(
            client.delete("/api/v1/programs/same").await.ok()["released"],
            false
        );
    }
    fixture.stop().await;
}

/// Searches all answers for texts that only the tenant `acme` may see.
async fn nothing_of_acme(client: &Client) {
    for path in [
        "/health",
        "/metrics",
        "/programs",
        "/profiles",
        "/workers",
        "/list_workers",
        "/v1/loads",
        "/api/v1/memory",
        "/get_load",
        "/api/v1/programs?limit=1000",
        "/api/v1/programs/same",
        "/api/v1/programs/same/steps",
        "/api/v1/programs/same/decisions",
        "/api/v1/events?limit=10000",
        "/api/v1/events?program=same",
        "/api/v1/plugins",
        "/api/v1/bindings",
        "/api/v1/whoami",
        "/api/v1/what-if/runs",
    ] {
        let page = client.get(path).await;
        let text = String::from_utf8_lossy(&page.body);
        assert!(page.status.is_success(), "{path}: {text}");
        for secret in [
            "only-acme",
            "secret-job",
            "same-too",
            "acme\\u001f",
            "\u{1f}",
        ] {
            assert!(!text.contains(secret), "{secret} in {path}: {text}");
        }
    }
    let key = "only-acme";
    let path = format!("/api/v1/programs/{key}");
    client.get(&path).await.refused(404, "program_unknown");
    let path = format!("/profiles/{key}");
    client.get(&path).await.refused(404, "program_unknown");
    for list in ["steps", "decisions"] {
        let page = client
            .get(&format!("/api/v1/programs/{key}/{list}"))
            .await
            .ok();
        assert_eq!(page[list], json!([]), "{key}");
    }
    let gone = client.delete(&format!("/api/v1/programs/{key}")).await.ok();
    assert_eq!(gone["released"], false, "{key}");
    let page = client
        .get(&format!("/api/v1/events?program={key}"))
        .await
        .ok();
    let about = page["events"].as_array().expect("a list").iter();
    assert_eq!(about.filter(|event| !event["program"].is_null()).count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_continues_no_program_of_another_tenant() {
    let fixture = Fixture::start(1, 100_000).await;
    make_tenant(&fixture, "acme", json!({})).await;
    let acme = client_of(&fixture, "acme", "job").await;
    let beta = fixture.client.without_token();
    let ask = async |client: &Client, turns: usize| {
        let messages: Vec<Value> = (0..turns)
            .map(|turn| json!({"role": "user", "content": format!("turn {turn}")}))
            .collect();
        let body = json!({"model": "treadle-sim", "messages": messages, "max_tokens": 4});
        let answer = client.post(CHAT, &body).await;
        answer.ok();
        answer.headers["x-treadle-program"].clone()
    };
    let first = ask(&acme, 1).await;
    let other = ask(&beta, 2).await;
    assert_ne!(first, other);
    assert_eq!(ask(&acme, 3).await, first);
    assert_eq!(ask(&beta, 4).await, other);
    fixture.finish_all(&[&acme]).await;
}

/// Programs that were considered in decisions about one.
fn alternatives(page: &Value) -> Vec<String> {
    let decisions = page["decisions"].as_array().expect("a list").iter();
    let others = decisions.filter_map(|decision| decision["why"]["alternatives"].as_array());
    let name = |other: &Value| other["key"].as_str().expect("a name").to_owned();
    others.flatten().map(name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn decisions_name_no_programs_of_other_tenants() {
    let mut engine = RawEngine::start().await;
    let url = engine.url().to_owned();
    let fixture = Fixture::tuned(0, 0, |config| {
        config.engines.endpoints = vec![plain_endpoint(url, 8_192)];
    })
    .await;
    make_tenant(&fixture, "acme", json!({})).await;
    let acme = client_of(&fixture, "acme", "job").await;
    let ours = client_of(&fixture, "default", "job").await;
    let ask = |client: &Client, program: &'static str| {
        // No two have a beginning in common.
        let (client, body) = (client.clone(), chat(program, &program.repeat(4_000), 4));
        tokio::spawn(async move { client.post(CHAT, &body).await.ok() })
    };
    // One fills the engine; two wait for its placement, then one waits for that of the other.
    let first = ask(&acme, "first");
    let held = engine.request().await;
    let waiting = [ask(&acme, "theirs"), ask(&ours, "ours")];
    let two_wait = |m: &Metrics| m.count("treadle_queue_programs") == 2;
    fixture.client.until("two programs wait", two_wait).await;
    held.answer_chat().await;
    first.await.expect("an answer");
    acme.delete("/api/v1/programs/first").await.ok();
    let [theirs, ours_too] = waiting;
    let next = engine.request().await;
    let is_theirs = String::from_utf8_lossy(&next.body).contains("theirs");
    next.answer_chat().await;
    let (client, program, answered, other) = if is_theirs {
        (&acme, "theirs", theirs, ours_too)
    } else {
        (&ours, "ours", ours_too, theirs)
    };
    answered.await.expect("an answer");
    let path = format!("/api/v1/programs/{program}");
    client.delete(&path).await.ok();
    engine.request().await.answer_chat().await;
    other.await.expect("an answer");
    let mut considered = 0;
    for (client, tenant, program) in [(&acme, "acme", "theirs"), (&ours, "default", "ours")] {
        let path = format!("/api/v1/programs/{program}/decisions");
        let chosen = [("x-treadle-tenant", tenant)];
        let all = fixture.client.send(Method::GET, &path, &chosen, "").await;
        let all = all.ok();
        let names = alternatives(&all);
        considered += names.len();
        let other = if program == "ours" { "theirs" } else { "ours" };
        assert!(names.iter().all(|name| name.ends_with(other)), "{names:?}");
        let hidden = alternatives(&client.get(&path).await.ok());
        assert!(hidden.is_empty(), "{hidden:?}");
    }
    assert!(considered > 0, "an admin of the whole daemon sees them");
    fixture.finish_all(&[&acme]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plugins_and_bindings_are_ones_own() {
    let fixture = Fixture::start(1, 100_000).await;
    make_tenant(&fixture, "acme", json!({})).await;
    make_tenant(&fixture, "beta", json!({})).await;
    let acme = client_of(&fixture, "acme", "admin").await;
    let beta = client_of(&fixture, "beta", "admin").await;
    let brought_along = "foresight-eviction";
    let plugins = async |client: &Client| {
        let mut page = client.get("/api/v1/plugins").await.ok();
        let listed = page["plugins"].as_array_mut().expect("a list");
        listed.retain(|plugin| plugin["uploaded_at_us"].is_number());
        let mut names = names(&page, "plugins", "name");
        names.retain(|name| name != brought_along);
        names
    };
    let upload = async |client: &Client| {
        let answer = client.send(Method::POST, "/api/v1/plugins", &[], lru_eviction());
        answer.await.ok()["new"].clone()
    };
    assert_eq!(upload(&acme).await, true);
    assert_eq!(plugins(&acme).await, ["lru-eviction"]);
    assert!(plugins(&beta).await.is_empty());
    assert_eq!(upload(&beta).await, true, "new to this tenant");
    assert_eq!(upload(&beta).await, false);
    let bind = json!({"world": "eviction", "policy": "lru-eviction"}).to_string();
    let bound = acme
        .send(Method::PUT, "/api/v1/bindings", &[], bind)
        .await
        .ok();
    assert_eq!(bound["job"], "*", "all jobs of this tenant: {bound}");
    let bindings = async |client: &Client| {
        let page = client.get("/api/v1/bindings").await;
        String::from_utf8_lossy(&page.body).into_owned()
    };
    assert!(bindings(&acme).await.contains("lru-eviction"));
    for other in [&beta, &fixture.client.without_token()] {
        let seen = bindings(other).await;
        assert!(!seen.contains("lru-eviction"), "{seen}");
    }

    let log = acme.get("/api/v1/audit").await.ok();
    let actions = names(&log, "changes", "action");
    assert_eq!(actions, ["binding.changed", "plugin.uploaded"]);
    assert_eq!(names(&log, "changes", "tenant"), ["acme", "acme"]);
    let all = fixture.client.get("/api/v1/audit").await.ok();
    let actions = names(&all, "changes", "action");
    for action in ["tenant.created", "token.created", "plugin.uploaded"] {
        assert!(actions.iter().any(|known| known == action), "{actions:?}");
    }
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_and_tenants_are_ones_own() {
    let fixture = Fixture::start(1, 100_000).await;
    make_tenant(&fixture, "acme", json!({})).await;
    make_tenant(&fixture, "beta", json!({})).await;
    let acme = client_of(&fixture, "acme", "admin").await;
    let beta = client_of(&fixture, "beta", "admin").await;
    let own = acme.get("/api/v1/tokens").await.ok();
    assert_eq!(names(&own, "tokens", "tenant"), ["acme"]);
    let id = own["tokens"][0]["id"].as_str().expect("an id");
    for path in [
        format!("/api/v1/tokens/{id}"),
        "/api/v1/tokens/nobody".to_owned(),
    ] {
        beta.delete(&path).await.refused(404, "token_unknown");
        let rotated = beta.post(&format!("{path}/rotate"), &json!({})).await;
        rotated.refused(404, "token_unknown");
    }
    let stolen = json!({"name": "n", "scope": "viewer", "tenant": "acme"});
    beta.post("/api/v1/tokens", &stolen)
        .await
        .refused(403, "forbidden");
    let whole = json!({"name": "n", "scope": "admin", "tenant": "*"});
    beta.post("/api/v1/tokens", &whole)
        .await
        .refused(403, "forbidden");

    assert_eq!(
        names(&acme.get("/api/v1/tenants").await.ok(), "tenants", "tenant"),
        ["acme"]
    );
    beta.get("/api/v1/tenants/acme")
        .await
        .refused(404, "tenant_unknown");
    let change = json!({"limits": {"plugins": 1}}).to_string();
    let changed = beta
        .send(Method::PUT, "/api/v1/tenants/acme", &[], change)
        .await;
    changed.refused(404, "tenant_unknown");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_of_everything_is_one_of_ones_own() {
    let mut engine = RawEngine::start().await;
    let url = engine.url().to_owned();
    let fixture = Fixture::tuned(0, 0, |config| {
        config.engines.endpoints = vec![plain_endpoint(url, 100_000)];
    })
    .await;
    make_tenant(&fixture, "acme", json!({})).await;
    let acme = client_of(&fixture, "acme", "job").await;
    let beta = fixture.client.without_token();
    let begin = |client: &Client| {
        let client = client.clone();
        let body = streamed(chat("same", "x", 5));
        tokio::spawn(async move { client.stream(CHAT, &body).await })
    };
    let ours = begin(&acme);
    let mut at_engine = engine.request().await;
    at_engine.begin_events().await;
    at_engine.chunk(b"data: {\"choices\":[]}\n\n").await;
    let mut ours = ours.await.expect("no panic");
    ours.piece().await.expect("an event").expect("whole");
    let theirs = begin(&beta);
    let waiting = engine.request().await;

    let aborted = beta
        .post("/abort_request", &json!({"abort_all": true}))
        .await
        .ok();
    assert_eq!(aborted["aborted_here"], 1, "{aborted}");
    assert_eq!(aborted["engines_told"], 0, "{aborted}");
    waiting.until_given_up().await;
    theirs.abort();
    let rest = b"data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    at_engine.chunk(rest).await;
    at_engine.end().await;
    let ended = ours.finish().await;
    assert!(
        ended.is_done() && !ended.broken,
        "the other tenant's goes on"
    );
    fixture.finish_all(&[&acme]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn engines_are_registered_by_operators_of_the_whole_daemon() {
    let fixture = Fixture::start(1, 100_000).await;
    let (root, nobody) = (&fixture.client, fixture.client.without_token());
    let engine = fixture.engines[0].url();
    let registration = json!({"url": engine});
    // One tenant: a local caller is an operator of everything.
    nobody.post("/workers", &registration).await.ok();
    make_tenant(&fixture, "acme", json!({})).await;
    let (acme, default) = (
        client_of(&fixture, "acme", "admin").await,
        client_of(&fixture, "default", "operator").await,
    );
    let path = format!("/remove_worker?url={engine}");
    for (caller, status, code) in [
        (&acme, 403, "forbidden"),
        (&default, 403, "forbidden"),
        (&nobody, 401, "token_missing"),
    ] {
        for path in ["/workers", "/add_worker", "/api/v1/workers"] {
            let refused = caller.post(path, &registration).await;
            let message = refused.refused(status, code);
            assert!(message.contains("whole daemon"), "{message}");
        }
        let removal = caller.send(http::Method::POST, &path, &[], "").await;
        removal.refused(status, code);
    }
    let operator = client_of(&fixture, "*", "operator").await;
    for caller in [&operator, root] {
        caller.post("/workers", &registration).await.ok();
    }
    // It may manage engines, but no other tenant.
    let elsewhere = [("x-treadle-tenant", "acme")];
    let answer = operator.send(http::Method::GET, "/programs", &elsewhere, "");
    answer.await.refused(403, "forbidden");
    let tenant = json!({"tenant": "other", "limits": {}});
    operator
        .post("/api/v1/tenants", &tenant)
        .await
        .refused(403, "forbidden");
    let weak = json!({"name": "weak", "scope": "job", "tenant": "*"});
    root.post("/api/v1/tokens", &weak)
        .await
        .refused(400, "invalid_field");
    fixture.finish().await;
}
