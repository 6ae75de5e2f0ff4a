//! The journal as a stream, sorted and filtered pages, and their OpenAPI document.

use super::work;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use treadle_tests::support::client::{Client, Events};
use treadle_tests::support::fixture::Fixture;

/// Ids and kinds of events.
type EventList = Vec<(u64, String)>;

/// Reads this number of messages from a stream.
async fn read(stream: &mut Events, count: usize) -> EventList {
    let mut text = String::new();
    loop {
        let whole = text.rfind("\n\n").map_or("", |end| &text[..end]);
        let messages = whole
            .split("\n\n")
            .filter(|message| message.contains("data: "));
        let seen: EventList = messages.map(message).take(count).collect();
        if seen.len() == count {
            return seen;
        }
        let piece = stream.piece().await.expect("the stream goes on");
        text.push_str(std::str::from_utf8(&piece.expect("a piece")).expect("text"));
    }
}

fn message(text: &str) -> (u64, String) {
    let line = |start: &str| {
        let mut lines = text.lines();
        lines
            .find_map(|line| line.strip_prefix(start))
            .unwrap_or_default()
    };
    let event: Value = serde_json::from_str(line("data: ")).expect("JSON");
    let id = line("id: ").parse().expect("a number");
    assert_eq!(event["seq"], id);
    (id, event["kind"].as_str().unwrap_or_default().to_owned())
}

/// Ids and kinds of events from the pages of the journal.
async fn journal(client: &Client, query: &str) -> EventList {
    let (mut seen, mut after) = (EventList::new(), 0);
    loop {
        let path = format!("/api/v1/events?limit=7&after={after}{query}");
        let page = client.get(&path).await.ok();
        let events = page["events"].as_array().expect("a list");
        seen.extend(events.iter().map(|event| {
            let kind = event["kind"].as_str().unwrap_or_default();
            (event["seq"].as_u64().unwrap_or_default(), kind.to_owned())
        }));
        match page["next"].as_u64() {
            Some(next) => after = next,
            None => return seen,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_taken_up_again_has_every_event_once() {
    let fixture = Fixture::start(1, 100_000).await;
    let client = &fixture.client;
    work(client, 0).await;
    let before = journal(client, "").await;
    let mut stream = client.follow("/api/v1/stream?after=0", &[]).await;
    let mut seen = read(&mut stream, before.len() - 3).await;
    drop(stream);
    work(client, 10).await;
    let all = journal(client, "").await;
    let last = seen.last().expect("events").0.to_string();
    let path = "/api/v1/stream?after=0";
    let mut stream = client.follow(path, &[("last-event-id", &last)]).await;
    seen.extend(read(&mut stream, all.len() - seen.len()).await);
    assert_eq!(seen, all);
    // What happens from now on.
    let live = tokio::spawn({
        let client = client.clone();
        async move { work(&client, 20).await }
    });
    let more = read(&mut stream, 5).await;
    assert!(more[0].0 > all.last().expect("events").0);
    live.await.expect("it works");

    let query = "&program=p11&kind=step_finished";
    let of_one = journal(client, query).await;
    assert_eq!(of_one.len(), 5);
    let path = format!("/api/v1/stream?after=0{query}");
    let mut stream = client.follow(&path, &[]).await;
    assert_eq!(read(&mut stream, of_one.len()).await, of_one);
    let bad = [("last-event-id", "x")];
    let refused = client
        .send(http::Method::GET, "/api/v1/stream", &bad, "")
        .await;
    let message = refused.refused(400, "invalid_field");
    assert!(message.contains("Last-Event-ID"), "{message}");
    // Open streams do not delay the daemon's stop.
    let begun = std::time::Instant::now();
    fixture.finish().await;
    assert!(begun.elapsed() < std::time::Duration::from_secs(10));
    drop(stream);
}

/// Live and ended programs show rewards and can be sorted by them.
async fn rewards_are_kept(client: &Client) {
    let all = client.get("/api/v1/programs?sort=created_at_us").await.ok();
    let all = all["programs"].as_array().expect("a list");
    let name = |program: &Value| program["program_id"].as_str().expect("a name").to_owned();
    let (live, ended): (Vec<_>, Vec<_>) = all.iter().partition(|one| one["ended"].is_null());
    let (first, second, ended) = (name(live[0]), name(live[1]), name(ended[0]));
    for (program, reward) in [(&first, -1.5), (&second, 0.7), (&ended, 0.25)] {
        let path = format!("/api/v1/programs/{program}/reward");
        let answer = client
            .send(
                http::Method::PUT,
                &path,
                &[],
                json!({"reward": reward}).to_string(),
            )
            .await;
        assert_eq!(answer.ok()["reward"], reward);
        let shown = client.get(&format!("/api/v1/programs/{program}")).await;
        assert_eq!(shown.ok()["reward"], reward);
    }
    for (sort, expected) in [
        ("reward", [&first, &ended, &second]),
        ("-reward", [&second, &ended, &first]),
    ] {
        let page = client
            .get(&format!("/api/v1/programs?sort={sort}"))
            .await
            .ok();
        let page = page["programs"].as_array().expect("a list");
        let names: Vec<_> = page.iter().map(name).collect();
        assert_eq!(names.iter().take(3).collect::<Vec<_>>(), expected, "{sort}");
        assert!(page[3]["reward"].is_null(), "those without one come last");
    }
    let path = format!("/api/v1/programs/{first}");
    let answer = client.delete(&format!("{path}?reward=NaN")).await;
    let message = answer.refused(400, "invalid_field");
    assert!(message.contains("`reward` is NaN"), "{message}");
    client.delete(&format!("{path}?reward=0.5")).await.ok();
    let shown = client.get(&path).await.ok();
    assert_eq!(
        (&shown["reward"], &shown["ended"]),
        (&json!(0.5), &json!("released"))
    );
    for (program, body, code, words) in [
        (&*first, r#"{"reward":"x"}"#, 400, "`reward`: invalid type"),
        (&*first, r#"{"reward":2e9}"#, 400, "`reward` is 2000000000"),
        (&*first, r#"{"reward":1e300}"#, 400, "`reward` is 1e300;"),
        (&*first, "{}", 400, "`reward` is missing"),
        ("nobody", r#"{"reward":1}"#, 404, "no program `nobody`"),
    ] {
        let path = format!("/api/v1/programs/{program}/reward");
        let answer = client.send(http::Method::PUT, &path, &[], body).await;
        let kind = match (code, body) {
            (404, _) => "program_unknown",
            (_, "{}") => "missing_field",
            _ => "invalid_field",
        };
        let message = answer.refused(code, kind);
        assert!(message.contains(words), "{message}");
    }
}

/// Names of all programs, in pages of one, by how long they have lasted.
async fn by_lasted(client: &Client, sort: &str) -> Vec<String> {
    let (mut names, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("/api/v1/programs?limit=1&sort={sort}{after}");
        let page = client.get(&path).await.ok();
        let programs = page["programs"].as_array().expect("a list");
        names.extend(programs.iter().map(|p| p["program_id"].to_string()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return names,
        }
    }
}

/// Live programs sort by age and ended ones by duration, stable over pages.
async fn how_long_they_lasted_sorts_them(client: &Client) {
    let mut longest = by_lasted(client, "-lasted").await;
    let live = client.get("/api/v1/programs?sort=created_at_us").await.ok();
    let live = live["programs"].as_array().expect("a list").iter();
    let live: Vec<_> = live.filter(|program| program["ended"].is_null()).collect();
    let live: Vec<_> = live.iter().map(|p| p["program_id"].to_string()).collect();
    assert_eq!((longest.len(), live.len()), (4, 3));
    let found: Vec<_> = longest.iter().filter(|name| live.contains(name)).collect();
    assert_eq!(found, live.iter().collect::<Vec<_>>(), "the oldest first");
    let shortest = by_lasted(client, "lasted").await;
    longest.reverse();
    let found: Vec<_> = shortest.iter().filter(|name| live.contains(name)).collect();
    let expected: Vec<_> = longest.iter().filter(|name| live.contains(name)).collect();
    assert_eq!(found, expected);
    assert_eq!(shortest.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_sorted_filtered_and_whole() {
    let fixture = Fixture::start(1, 100_000).await;
    let client = &fixture.client;
    work(client, 0).await;
    for sort in ["steps", "-tokens_total", "updated_at_us", "-context_tokens"] {
        let (mut found, mut values, mut after) = (BTreeSet::new(), Vec::new(), String::new());
        loop {
            let path = format!("/api/v1/programs?limit=3&sort={sort}{after}");
            let page = client.get(&path).await.ok();
            for program in page["programs"].as_array().expect("a list") {
                assert!(
                    found.insert(program["program_id"].to_string()),
                    "{sort}: twice"
                );
                values.push(program[sort.trim_start_matches('-')].as_u64());
            }
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
        assert_eq!(found.len(), 4, "{sort}");
        if sort.starts_with('-') {
            values.reverse();
        }
        assert!(values.is_sorted(), "{sort}: {values:?}");
    }
    how_long_they_lasted_sorts_them(client).await;
    let ended = client.get("/api/v1/programs?status=finished").await.ok();
    assert_eq!(
        ended["programs"].as_array().map(Vec::len),
        Some(1),
        "{ended}"
    );
    rewards_are_kept(client).await;
    let newest = client.get("/api/v1/events?sort=-seq&limit=2").await.ok();
    let seqs = [&newest["events"][0]["seq"], &newest["events"][1]["seq"]];
    assert_eq!(seqs[0].as_u64(), seqs[1].as_u64().map(|seq| seq + 1));
    for (path, words) in [
        (
            "/api/v1/programs?sort=name",
            "`sort` is `name`; send created_at_us",
        ),
        (
            "/api/v1/programs?after=p1",
            "send `next` of the previous page",
        ),
        (
            "/api/v1/programs?sort=lasted&after=5:p1",
            "with the same `sort`",
        ),
        ("/api/v1/programs?state=x", "unknown field `state`"),
        ("/api/v1/events?limit=many", "`limit`: invalid digit"),
        ("/api/v1/programs/p1/decisions?after=1.x", "send `next`"),
    ] {
        let message = client.get(path).await.refused(400, "invalid_field");
        assert!(message.contains(words), "{path}: {message}");
    }
    let missing = client.post("/api/v1/tokens", &json!({"name": "n"})).await;
    let message = missing.refused(400, "missing_field");
    assert!(message.contains("`scope` is missing"), "{message}");
    let document = client.without_token().get("/openapi.json").await.ok();
    assert_eq!(document["openapi"], "3.1.0");
    assert!(document["paths"]["/api/v1/stream"]["get"].is_object());
    fixture.finish().await;
}
