//! Recorded work under other policies, over the interface of a daemon.

use std::time::Instant;

use http::Method;
use serde_json::{Value, json};
use treadle_tests::support::client::{Client, TIMEOUT};
use treadle_tests::support::fixture::{CHAT, Fixture, chat};
use treadle_tests::support::policy::{failing, failing_after, guest, lru_eviction};

use super::tenancy::{client_of, make_tenant};

const RUNS: &str = "/api/v1/what-if/runs";

/// Runs a program of `steps` steps, one after another, and releases it.
async fn program(client: &Client, job: &str, name: &str, steps: usize) {
    let headers = [("content-type", "application/json"), ("x-treadle-job", job)];
    let mut text = format!("{name} begins. ").repeat(40);
    for step in 0..steps {
        let body = chat(name, &text, 8).to_string();
        client.send(Method::POST, CHAT, &headers, body).await.ok();
        text.push_str(&format!("step {step} of {name} said this. ").repeat(10));
    }
    client
        .delete(&format!("/api/v1/programs/{name}"))
        .await
        .ok();
}

async fn until_journaled(client: &Client, programs: usize) {
    let began = Instant::now();
    loop {
        let page = client
            .get("/api/v1/events?kind=program_released&limit=100")
            .await
            .ok();
        if page["events"].as_array().map(Vec::len) == Some(programs) {
            return;
        }
        assert!(began.elapsed() < TIMEOUT, "{page}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

async fn run(client: &Client, body: &Value) -> Value {
    let started = client.post(RUNS, body).await;
    assert_eq!(started.status, 202, "{:?}", started.body);
    let path = format!("{RUNS}/{}", started.json()["run"].as_str().expect("a name"));
    let began = Instant::now();
    loop {
        let run = client.get(&path).await.ok();
        if !matches!(run["status"].as_str(), Some("queued" | "running")) {
            return run;
        }
        // Policies are compiled first, and replays run at a lower priority than everything else on
        // the machine.
        assert!(began.elapsed() < 6 * TIMEOUT, "{run}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_tenants_own_work_is_replayed_under_other_policies() {
    let fixture = Fixture::start(2, 4_000).await;
    make_tenant(&fixture, "acme", json!({})).await;
    make_tenant(&fixture, "beta", json!({})).await;
    let acme = client_of(&fixture, "acme", "admin").await;
    let beta = client_of(&fixture, "beta", "admin").await;
    let programs = ["one", "two", "three"];
    tokio::join!(
        program(&acme, "train", programs[0], 3),
        program(&acme, "train", programs[1], 2),
        program(&acme, "other", programs[2], 1),
        program(&beta, "train", "one", 4),
    );
    until_journaled(&acme, 3).await;
    until_journaled(&beta, 1).await;
    let pushed = acme
        .send(Method::POST, "/api/v1/plugins", &[], lru_eviction())
        .await;
    pushed.ok();

    let body = json!({"sets": [
        "least-load", "sticky", "recorded",
        {"name": "lru", "policies": [{"policy": "lru-eviction", "config": {}}]},
    ], "seeds": 2});
    let done = run(&acme, &body).await;
    assert_eq!(done["status"], "done", "{done}");
    assert_eq!(done["progress"]["share"], 1.0);
    let report = &done["report"];
    assert_eq!(
        (&report["programs"], &report["steps"]),
        (&json!(3), &json!(6))
    );
    assert_eq!(
        report["profile"], "qwen3-32b-h100",
        "the engines were asked"
    );
    assert_eq!(report["kv_tokens"], json!([4_000, 4_000]));
    assert_eq!(report["recorded"]["steps"], 6);
    let sets = report["sets"].as_array().expect("sets");
    let names: Vec<&str> = sets.iter().filter_map(|set| set["name"].as_str()).collect();
    assert_eq!(names, ["least-load", "sticky", "recorded", "lru"]);
    for set in sets {
        assert_eq!(set["seeds"][0]["steps"], 6, "{set}");
        assert!(set["makespan_s"]["mean"].as_f64() > Some(0.0));
        assert!(set["makespan_s"]["half_width"].is_number());
        // Names are shown as the client sent them.
        let jobs = set["seeds"][0]["jobs"].as_array().expect("jobs");
        let mut jobs: Vec<&str> = jobs.iter().filter_map(|job| job["job"].as_str()).collect();
        jobs.sort_unstable();
        assert_eq!(jobs, ["other", "train"]);
    }

    // The same run of one job and with a named profile; repeated requests give the same report.
    let body = json!({"sets": ["treadle"], "window": {"job": "train"}, "seeds": 1,
        "profile": "qwen3-8b-h100"});
    let [one, two] = [run(&acme, &body).await, run(&acme, &body).await];
    assert_eq!(one["report"]["programs"], 2, "{one}");
    assert_eq!(one["report"]["sets"], two["report"]["sets"]);
    let own = push(&acme, failing("nop")).await;
    is_hidden_from_others(&beta, &acme, one["run"].as_str().expect("a name"), &own).await;
    fixture.stop().await;
}

async fn is_hidden_from_others(beta: &Client, acme: &Client, name: &str, plugin: &str) {
    let path = format!("{RUNS}/{name}");
    assert_eq!(
        acme.get(RUNS).await.ok()["runs"].as_array().map(Vec::len),
        Some(3)
    );
    assert_eq!(beta.get(RUNS).await.ok()["runs"], json!([]));
    beta.get(&path).await.refused(404, "whatif_run_unknown");
    beta.delete(&path).await.refused(404, "whatif_run_unknown");
    let kept = acme.delete(&path).await.ok();
    assert_eq!(kept["status"], "done", "what has ended stays as it was");
    let own = run(beta, &json!({"sets": ["sticky"], "seeds": 1})).await;
    assert_eq!(own["report"]["programs"], 1, "{own}");
    // The plugin of another tenant is not found.
    let stolen = json!({"sets": [{"name": "x", "policies": [{"policy": plugin}]}]});
    beta.post(RUNS, &stolen)
        .await
        .refused(404, "plugin_unknown");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_refused_with_the_field_and_the_remedy() {
    let fixture = Fixture::start(1, 4_000).await;
    let client = &fixture.client;
    for (body, wanted) in [
        (json!({"sets": []}), "`sets`"),
        (json!({"sets": ["sticky"], "seeds": 99}), "`seeds`"),
        (
            json!({"sets": ["sticky"], "window": {"form": 1}}),
            "unknown field `form`",
        ),
    ] {
        let message = client.post(RUNS, &body).await.refused(400, "invalid_field");
        assert!(message.contains(wanted), "{message}");
    }
    client
        .post(RUNS, &json!({"sets": ["no-such-policy"]}))
        .await
        .refused(404, "plugin_unknown");
    for (body, code) in [
        (json!({"sets": ["sticky"]}), "whatif_window"),
        (
            json!({"sets": ["sticky"], "window": {"from_seq": 10_000}}),
            "whatif_window",
        ),
    ] {
        let failed = run(client, &body).await;
        assert_eq!(failed["status"], "failed", "{failed}");
        assert_eq!(failed["error"]["code"], code, "{failed}");
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_in_the_request_is_replayed_and_names_the_policies_of_each_set() {
    let fixture = Fixture::start(1, 4_000).await;
    let client = &fixture.client;
    client
        .send(Method::POST, "/api/v1/plugins", &[], lru_eviction())
        .await
        .ok();
    let line = |program: usize| {
        let steps = json!([
            [4_000, 0, 300, 2.0],
            [4_400, 4_300, 200, 1.0],
            [4_800, 4_600, 90, 0.0]
        ]);
        json!({"id": format!("p-{program}"), "steps": steps}).to_string()
    };
    let text: Vec<String> = (0..12).map(line).collect();
    let lru = json!({"name": "lru", "policies": [{"policy": "lru-eviction"}]});
    let body = json!({
        "trace": {"text": text.join("\n"), "programs": 4, "engines": 1, "kv_fraction": 0.6},
        "sets": ["sticky", lru], "seeds": 1,
    });
    let done = run(client, &body).await;
    assert_eq!(
        (&done["status"], &done["trace"]),
        (&json!("done"), &json!(true))
    );
    let report = &done["report"];
    assert_eq!(
        (&report["programs"], &report["steps"]),
        (&json!(12), &json!(36))
    );
    let scenario = report["scenario"].as_str().expect("how it was made");
    assert!(scenario.contains("4 programs live at once"), "{scenario}");
    assert_eq!(report["recorded"], Value::Null);
    assert_eq!(report["sets"][0]["asked"], json!([]));
    let asked = &report["sets"][1]["asked"][0];
    for (field, expected) in [
        ("world", json!("eviction")),
        ("name", json!("lru-eviction")),
        ("config", json!({})),
        ("is_default", json!(false)),
    ] {
        assert_eq!(asked[field], expected, "{asked}");
    }
    // These fields allow binding it.
    let policy = format!("lru-eviction@{}", asked["version"].as_str().expect("one"));
    let bind = json!({"world": "eviction", "policy": policy, "role": "canary", "share": 0.1});
    let bound = client.send(Method::PUT, "/api/v1/bindings", &[], bind.to_string());
    bound.await.ok();
    let torn = json!({"trace": {"text": "{\"id\": 7}"}, "sets": ["sticky"]});
    let message = client.post(RUNS, &torn).await.refused(400, "invalid_field");
    assert!(message.contains("`trace.text`: line 1"), "{message}");
    let long = json!({"trace": {"text": "x".repeat(9 << 20)}, "sets": ["sticky"]});
    client
        .post(RUNS, &long)
        .await
        .refused(413, "body_too_large");
    fixture.stop().await;
}

async fn push(client: &Client, component: Vec<u8>) -> String {
    let pushed = client.send(Method::POST, "/api/v1/plugins", &[], component);
    let pushed = pushed.await.ok();
    pushed["digest"].as_str().expect("a digest").to_owned()
}

/// The outcomes of the queries to the policies of a set.
fn policies_of<'r>(run: &'r Value, set: &str) -> &'r Value {
    let sets = run["report"]["sets"].as_array().expect("sets");
    let set = sets.iter().find(|found| found["name"] == set);
    &set.unwrap_or_else(|| panic!("{run}"))["policies"]
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_decide_with_the_columns_that_they_name_and_failures_are_reported() {
    let fixture = Fixture::start(1, 4_000).await;
    let client = &fixture.client;
    let names = ["one", "two", "three", "four", "five", "six"];
    tokio::join!(
        program(client, "train", names[0], 3),
        program(client, "train", names[1], 3),
        program(client, "train", names[2], 3),
        program(client, "train", names[3], 3),
        program(client, "train", names[4], 3),
        program(client, "train", names[5], 3),
    );
    until_journaled(client, names.len()).await;
    for policy in ["foresight-eviction", "ttl-pin-eviction"] {
        push(client, guest(policy)).await;
    }
    let failing = push(client, failing_after(1, "unreachable")).await;
    let foresight = json!({"turn_ms": 900});
    let bind = json!({"world": "eviction", "policy": "foresight-eviction", "config": foresight});
    let bound = client.send(Method::PUT, "/api/v1/bindings", &[], bind.to_string());
    bound.await.ok();

    let learnt = json!({"ttl": "learnt"});
    let of = |name: &str, policy: &str, config: &Value| json!({"name": name, "policies": [{"policy": policy, "config": config}]});
    let thunderagent = json!({"name": "without", "settings": {"kv": {"retention": false}}});
    // Memory for one or two of them, so that the policies have decisions to make.
    let body = json!({"sets": [
        thunderagent, "recorded", "treadle",
        of("foresight", "foresight-eviction", &foresight),
        of("learnt", "ttl-pin-eviction", &learnt),
        of("failing", &failing, &json!({})),
    ], "seeds": 1, "kv_tokens": 600});
    let done = run(client, &body).await;
    assert_eq!(done["status"], "done", "{done}");
    for set in ["recorded", "treadle", "foresight", "learnt"] {
        let told = policies_of(&done, set);
        assert!(told["answered"].as_u64() > Some(0), "{set}: {told}");
        assert_eq!((&told["faults"], &told["given_up"]), (&json!(0), &json!(0)));
        assert!(told["fuel"].as_u64() > told["answered"].as_u64(), "{told}");
    }
    // The bound policy determines the recorded decisions.
    let figures = |set: usize| &done["report"]["sets"][set]["seeds"][0];
    assert_eq!(figures(1), figures(3));
    assert_eq!(policies_of(&done, "without")["answered"], 0);
    let told = policies_of(&done, "failing");
    assert!(told["faults"].as_u64() > Some(0), "{told}");
    assert!(told["latest_fault"].is_string(), "{told}");

    let unknown = of("x", "foresight-eviction", &json!({"shoe_size": 1}));
    let failed = run(client, &json!({"sets": [unknown]})).await;
    assert_eq!(failed["error"]["code"], "plugin_invalid", "{failed}");
    let huge = json!({"sets": ["sticky"], "kv_tokens": 1_000_000_000_000_u64});
    let failed = run(client, &huge).await;
    assert_eq!(failed["error"]["param"], "kv_tokens", "{failed}");
    let endless = json!({"sets": [{"name": "a", "settings": {"tick": 0}}]});
    let failed = run(client, &endless).await;
    assert_eq!(failed["error"]["param"], "sets.a", "{failed}");
    fixture.stop().await;
}
