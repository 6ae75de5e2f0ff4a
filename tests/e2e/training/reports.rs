//! Reports of members that come at once, in between, or with what must not be changed; and rewards
//! that the daemon computes.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use treadle_config::Config;
use treadle_tests::support::client::TIMEOUT;
use treadle_tests::support::fixture::Fixture;
use treadle_tests::support::raw_engine::RawEngine;

use crate::actions::with_actions;

use super::{batch, declare, get, member, post, put, submit, whole};

/// Of two different reports at the same time one is on record as a whole, and the other refused.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_reports_one_counts_as_a_whole() {
    let fixture = Fixture::start(1, 10_000).await;
    let client = &fixture.client;
    let settings = json!({"group_size": 1, "batch_groups": 1, "capture": "tokens", "pipeline": 1});
    declare(client, settings).await;
    for number in 1..=20_u64 {
        let (key, program) = (format!("g{number}"), format!("p{number}"));
        submit(client, &[&key]).await;
        post(client, "/members", json!({"program": program}))
            .await
            .ok();
        let path = format!("/members/{program}");
        let reports = [whole(1.0, 2), whole(2.0, 3)];
        let answers = tokio::join!(
            put(client, &path, &reports[0]),
            put(client, &path, &reports[1])
        );
        let accepted = [answers.0.status == 200, answers.1.status == 200];
        assert_ne!(accepted[0], accepted[1], "one of them");
        let winner = usize::from(accepted[1]);
        let (view, _) = batch(client, number).await;
        let member = &view["groups"][0]["members"][0];
        assert_eq!(member["reward"], reports[winner]["reward"]);
        assert_eq!(member["info"], reports[winner]["info"]);
        post(client, "/versions", json!({"version": number}))
            .await
            .ok();
    }
    fixture.finish().await;
}

/// The first one completes the batch, which is cut while others are on their way: these are answered
/// as reports that come later.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_meets_its_batch_is_answered_as_one_that_comes_later() {
    let fixture = Fixture::start(1, 10_000).await;
    let client = &fixture.client;
    declare(client, json!({"group_size": 1, "batch_groups": 1})).await;
    for number in 1..=20_u64 {
        let program = format!("p{number}");
        submit(client, &[&format!("g{number}")]).await;
        let begun = json!({"program": program});
        post(client, "/members", begun).await.ok();
        let path = format!("/members/{program}");
        let (same, other) = (whole(1.0, 2), json!({"end": "client_failed"}));
        put(client, &path, &same).await.ok();
        let (_, again, differs, again_too, differs_too) = tokio::join!(
            batch(client, number),
            put(client, &path, &same),
            put(client, &path, &other),
            put(client, &path, &same),
            put(client, &path, &other),
        );
        for (answer, status) in [
            (again, 200),
            (differs, 409),
            (again_too, 200),
            (differs_too, 409),
        ] {
            assert_eq!(answer.status, status, "{number}: {}", answer.json());
        }
        post(client, "/versions", json!({"version": number}))
            .await
            .ok();
    }
    fixture.finish().await;
}

/// The answer that equals its reference earns 1: no policy is bound, so the default judges.
#[tokio::test(flavor = "multi_thread")]
async fn the_bound_policy_computes_rewards() {
    let fixture = Fixture::start(1, 10_000).await;
    let client = &fixture.client;
    let reward = json!({"policy": true});
    declare(
        client,
        json!({"group_size": 2, "batch_groups": 1, "reward": reward}),
    )
    .await;
    let groups = json!({"groups": [{"group": "a", "content": {"reference": "42"}}]});
    post(client, "/groups", groups).await.ok();
    for (program, answer) in [("p1", "42"), ("p2", "41")] {
        let begun = json!({"program": program, "group": "a"});
        post(client, "/members", begun).await.ok();
        let end = json!({"end": "completed", "info": {"answer": answer}});
        put(client, &format!("/members/{program}"), &end).await.ok();
    }
    let (view, _) = batch(client, 1).await;
    let rewards = view["groups"][0]["members"]
        .as_array()
        .expect("a list")
        .iter();
    let rewards: Vec<&Value> = rewards.map(|member| &member["reward"]).collect();
    assert_eq!(rewards, [&json!(1.0), &json!(0.0)]);
    fixture.finish().await;
}

/// All members are judged at once, and what one lacks is no 0.
#[tokio::test(flavor = "multi_thread")]
async fn members_of_a_group_are_judged_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = Fixture::tuned(1, 10_000, |config| with_actions(config, folder.path(), 2)).await;
    let client = &fixture.client;
    // It answers only if it got both members, and once for both.
    let script = "grep -q '\"p1\".*\"p2\"' && echo '{\"rewards\": {\"p1\": 0.25, \"p2\": 0.75}}'";
    let process = json!({"command": ["sh", "-c", script]});
    let reward = json!({"of": "group", "kind": "judge", "run": {"process": process}});
    declare(
        client,
        json!({"group_size": 2, "batch_groups": 1, "reward": reward}),
    )
    .await;
    submit(client, &["a"]).await;
    // The last member has a reward of its client's.
    let ends = [
        json!({"end": "completed"}),
        json!({"end": "completed", "reward": 0.5}),
    ];
    for (program, end) in ["p1", "p2"].into_iter().zip(ends) {
        let begun = json!({"program": program, "group": "a"});
        post(client, "/members", begun).await.ok();
        put(client, &format!("/members/{program}"), &end).await.ok();
    }
    let (view, _) = batch(client, 1).await;
    let rewards = view["groups"][0]["members"]
        .as_array()
        .expect("a list")
        .iter();
    let rewards: Vec<&Value> = rewards.map(|member| &member["reward"]).collect();
    assert_eq!(rewards, [&json!(0.25), &json!(0.5)], "{view}");
    let actions = client.get("/api/v1/actions").await.ok();
    assert_eq!(
        actions["actions"].as_array().map(Vec::len),
        Some(1),
        "{actions}"
    );
    fixture.finish().await;
}

/// Contents come back as they were written, and a run that was forgotten takes nothing of the next
/// one with it.
#[tokio::test(flavor = "multi_thread")]
async fn contents_are_not_changed() {
    let fixture = Fixture::start(1, 10_000).await;
    let client = &fixture.client;
    let content = r#"{"z":1e2,"a":123456789012345678901234567890,"z2":[ 1 ]}"#;
    for _ in 0..2 {
        declare(client, json!({"group_size": 1, "batch_groups": 1})).await;
        let body = format!("{{\"groups\":[{{\"group\":\"a\",\"content\":{content}}}]}}");
        let path = "/api/v1/jobs/math/groups";
        let sent = client.send(http::Method::POST, path, &[], body.into_bytes());
        sent.await.ok();
        member(client, "p", "a", 1.0).await;
        let whole = get(client, "/batches/1?wait_s=10").await;
        let text = String::from_utf8_lossy(&whole.body).into_owned();
        assert!(text.contains(content), "{text}");
        client.delete("/api/v1/jobs/math?forget=true").await.ok();
    }
    fixture.finish().await;
}

/// Workers that name no group get one that needs them, also while members fail, and each at once.
#[tokio::test(flavor = "multi_thread")]
async fn workers_without_a_group_get_the_next_one() {
    let fixture = Fixture::start(1, 10_000).await;
    let client = &fixture.client;
    declare(
        client,
        json!({"group_size": 4, "batch_groups": 1, "pipeline": 0}),
    )
    .await;
    submit(client, &["a", "b"]).await;
    let begins = (0..8).map(|number| {
        let client = client.clone();
        let body = json!({"program": format!("p{number}")});
        tokio::spawn(async move { post(&client, "/members", body).await })
    });
    let mut begun = Vec::new();
    for answer in begins.collect::<Vec<_>>() {
        let answer = answer.await.expect("it ends");
        begun.extend((answer.status == 200).then(|| answer.ok()));
    }
    assert_eq!(begun.len(), 4, "{begun:?}");
    assert!(
        begun
            .iter()
            .all(|begun| begun["surplus"] == false && begun["group"] == "a")
    );
    let failed = begun[0]["program"].as_str().expect("a name");
    put(
        client,
        &format!("/members/{failed}"),
        &json!({"end": "aborted"}),
    )
    .await
    .ok();
    let next = post(client, "/members", json!({"program": "next"}))
        .await
        .ok();
    assert_eq!(next["group"], "a", "the others wait for it");
    fixture.finish().await;
}

/// A reward that can't be submitted as an action is refused when the job is declared.
#[tokio::test(flavor = "multi_thread")]
async fn a_reward_that_is_no_action_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let tune = |config: &mut Config| with_actions(config, folder.path(), 2);
    let fixture = Fixture::tuned(1, 10_000, tune).await;
    let client = &fixture.client;
    for run in [json!(5), json!({"http": {"url": "zzz"}})] {
        let settings = json!({"reward": {"kind": "judge", "run": run}});
        let answer = put(client, "", &settings).await;
        let message = answer.refused(400, "invalid_field");
        assert_eq!(answer.json()["error"]["param"], "reward", "{message}");
    }
    get(client, "").await.refused(404, "job_unknown");
    fixture.finish().await;
}

/// A command computes the rewards of members that ended without one; what it can't score is replaced.
#[tokio::test(flavor = "multi_thread")]
async fn rewards_are_computed_by_actions() {
    let folder = tempfile::tempdir().expect("a folder");
    let tune = |config: &mut Config| with_actions(config, folder.path(), 2);
    let fixture = Fixture::tuned(1, 10_000, tune).await;
    let client = &fixture.client;
    let script = r#"case "$(cat)" in *good*) echo '{"reward": 0.75}';; *) echo none;; esac"#;
    let reward = json!({"kind": "judge", "run": {"process": {"command": ["sh", "-c", script]}}});
    declare(
        client,
        json!({"group_size": 1, "batch_groups": 1, "reward": reward}),
    )
    .await;
    submit(client, &["a"]).await;
    for (program, info) in [("p1", "bad"), ("p2", "good")] {
        let body = json!({"program": program, "wait_s": 20});
        assert_eq!(post(client, "/members", body).await.ok()["group"], "a");
        let end = json!({"end": "completed", "info": info});
        put(client, &format!("/members/{program}"), &end).await.ok();
    }
    let (view, _) = batch(client, 1).await;
    let served: Value = view["groups"][0]["members"].clone();
    assert_eq!(
        (&served[0]["program"], &served[0]["reward"]),
        (&json!("p2"), &json!(0.75))
    );
    let lost = &get(client, "").await.ok()["account"]["lost"]["reward_failed"]["members"];
    assert_eq!(*lost, 1);
    fixture.finish().await;
}

/// A judge that fails 8 times in a row is asked nothing more, visibly; another judge is asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_judge_that_fails_again_and_again_is_left_in_peace() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut judge = RawEngine::start().await;
    let authority = judge.url().trim_start_matches("http://").to_owned();
    let fixture = Fixture::tuned(1, 10_000, |config| {
        with_actions(config, folder.path(), 2);
        config.actions.egress = vec![authority];
    })
    .await;
    let client = &fixture.client;
    let settings = |path: &str| {
        let url = format!("{}{path}", judge.url());
        json!({"group_size": 12, "batch_groups": 1, "reward": {"run": {"http": {"url": url}}}})
    };
    let (broken, other) = (settings("/broken"), settings("/other"));
    declare(client, broken).await;
    submit(client, &["a"]).await;
    for number in 0..12 {
        let program = format!("p{number}");
        let begun = json!({"program": program, "group": "a"});
        post(client, "/members", begun).await.ok();
    }
    let ended = async |number: u32| {
        let path = format!("/members/p{number}");
        put(client, &path, &json!({"end": "completed"})).await.ok();
    };
    for number in 0..8 {
        ended(number).await;
    }
    let is_shown = async || {
        let waits = get(client, "").await.ok()["waits"].clone();
        let mut all = waits.as_array().expect("a list").iter();
        let wait = all.find(|wait| wait["waits_for"] == "judge");
        wait.is_some_and(|wait| wait["message"].to_string().contains("status 503"))
    };
    let began = Instant::now();
    while !is_shown().await {
        assert!(began.elapsed() < TIMEOUT, "it is not left in peace");
        if judge.is_idle() {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        }
        let request = judge.request().await;
        request.answer("503 Busy", "text/plain", "").await;
    }
    for number in 8..12 {
        ended(number).await;
    }
    declare(client, other).await;
    let mut answered = 0;
    while answered < 12 {
        let request = judge.request().await;
        if request.line.starts_with("POST /other") {
            request.answer("200 OK", "application/json", "0.5").await;
            answered += 1;
            continue;
        }
        // It was under way.
        let body = String::from_utf8_lossy(&request.body).into_owned();
        let is_new = (8..12).any(|number| body.contains(&format!("\"p{number}\"")));
        assert!(!is_new, "{body}");
        request.answer("503 Busy", "text/plain", "").await;
    }
    let (view, _) = batch(client, 1).await;
    assert_eq!(view["groups"][0]["members"][11]["reward"], 0.5, "{view}");
    assert!(!is_shown().await);
    fixture.finish().await;
}
