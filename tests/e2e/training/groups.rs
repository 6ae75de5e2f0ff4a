//! Groups that are in no batch with their members, and the account of what became of those.

use serde_json::{Value, json};
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::Fixture;

use super::{batch, declare, get, post, put};

fn names<'a>(list: &'a Value, field: &str) -> Vec<&'a str> {
    let list = list.as_array().expect("a list").iter();
    list.map(|one| one[field].as_str().expect("a name"))
        .collect()
}

/// Two steps with nothing in common.
fn broken() -> Value {
    let step = |id: i32| {
        let prompt = vec![id; 4];
        json!({"prompt": prompt, "output": [5, 5], "logprobs": [-0.5, -0.5]})
    };
    json!({"steps": [step(1), step(9)]})
}

async fn end(client: &Client, program: &str, end: Value) {
    put(client, &format!("/members/{program}"), &end).await.ok();
}

/// A job with two groups. Of the first, a member is lost, one has ended, one runs, and one program
/// is too many.
async fn job(client: &Client) {
    declare(client, json!({"group_size": 2, "batch_groups": 1})).await;
    let groups = json!({"groups": [{"group": "a", "domain": "math"}, {"group": "b"}]});
    post(client, "/groups", groups).await.ok();
    for program in ["lost", "p", "q", "late"] {
        let begun = json!({"program": program, "group": "a"});
        post(client, "/members", begun).await.ok();
        if program == "lost" {
            let failed = json!({"failed": "no judge"});
            put(client, "/members/lost/reward", &failed).await.ok();
        }
    }
    let ended = json!({"end": "truncated", "reward": 0.5, "sample": broken()});
    end(client, "p", ended).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_have_their_members_and_those_that_they_lost() {
    let fixture = Fixture::start(1, 10_000).await;
    let client = &fixture.client;
    job(client).await;
    for (query, groups, next) in [
        ("limit=1", "a", json!("a")),
        ("after=a", "b", Value::Null),
        ("begun=true", "a", Value::Null),
        ("begun=true&after=a", "", Value::Null),
    ] {
        let page = get(client, &format!("/groups?{query}")).await.ok();
        let found = names(&page["groups"], "group").concat();
        assert_eq!((&*found, &page["next"]), (groups, &next), "{query}");
    }
    let page = get(client, "/groups?group=a").await.ok();
    let group = &page["groups"][0];
    let lost = json!([{"program": "lost", "end": "reward_failed", "cause": "no judge"}]);
    assert_eq!(
        (&group["lost"], &group["surplus"]),
        (&lost, &json!(1)),
        "{group}"
    );
    assert_eq!(names(&group["members"], "program"), ["p", "q"]);
    let (p, q) = (&group["members"][0], &group["members"][1]);
    assert_eq!(
        (&p["end"], &p["reward"]),
        (&json!("truncated"), &json!(0.5))
    );
    assert_eq!((&p["tokens"], &p["turns"]), (&json!(4), &json!(2)));
    assert_eq!((&q["end"], &q["reward"]), (&Value::Null, &Value::Null));
    assert!(
        p["begun_at_us"].as_u64() <= q["begun_at_us"].as_u64(),
        "{group}"
    );

    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_account_is_kept_by_domain_and_counts_breaks() {
    let fixture = Fixture::start(1, 10_000).await;
    let client = &fixture.client;
    job(client).await;
    let ended = json!({"end": "completed", "reward": 1, "tokens": 6});
    end(client, "q", ended).await;
    batch(client, 1).await;
    assert_eq!(
        get(client, "/groups?group=a").await.ok()["groups"],
        json!([])
    );
    let job = get(client, "").await.ok();
    let account = &job["account"];
    assert_eq!(account["breaks"], json!({"other": 1}));
    let math = &account["domains"]["math"];
    assert_eq!(
        (&math["begun"], &math["lost"]["reward_failed"]["members"]),
        (&json!(3), &json!(1))
    );
    assert_eq!(math["served"], account["served"]);
    assert_eq!(math["served"]["tokens"], 10);
    let metrics = client.metrics().await;
    let counted = metrics.count_with("treadle_training_breaks_total", "kind=\"other\"");
    assert_eq!(counted, 1);

    let long = json!({"groups": [{"group": "c", "domain": "x".repeat(65)}]});
    post(client, "/groups", long)
        .await
        .refused(400, "invalid_field");
    fixture.finish().await;
}
