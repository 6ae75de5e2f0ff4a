//! Failures while caches are in host memory do not change the answers.

use std::os::unix::fs::FileExt;

use treadle_tests::support::client::Client;

use super::stage::{self, Engines, Talk};

/// Context of a program, in tokens.
const TOKENS: usize = 600;

/// A step that runs concurrently with the test.
fn step_of(talk: &Talk, client: &Client) -> tokio::task::JoinHandle<(Talk, stage::Step)> {
    let (mut talk, client) = (talk.clone(), client.clone());
    tokio::spawn(async move {
        let step = talk.step(&client).await;
        (talk, step)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_while_it_saves_loses_no_answer() {
    let Some(engines) = Engines::start(TOKENS).await else {
        return;
    };
    let fixture = engines.gateway(|_| ()).await;
    let client = &fixture.client;
    let mut talks = Talk::pair(TOKENS);
    for talk in &mut talks {
        talk.step(client).await;
    }
    let url = stage::caches(client).await["a"]["backend"].clone();
    let server = engines.server(url.as_str().expect("a place"));
    server.freeze();
    let third = step_of(&Talk::new("c", 3, TOKENS), client);
    stage::until_at(client, "a", "to_host").await;
    server.kill();
    let (third, _) = third.await.expect("no step fails");
    stage::release(client, "b").await;
    stage::release(client, "c").await;
    let first = &mut talks[0];
    first.step(client).await;
    assert!(
        client
            .metrics()
            .await
            .count("treadle_kv_transfers_failed_total")
            >= 1
    );
    engines.same_as_undisturbed(first).await;
    engines.same_as_undisturbed(&third).await;
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_while_it_restores_loses_no_answer() {
    let Some(engines) = Engines::start(TOKENS).await else {
        return;
    };
    let fixture = engines.gateway(|_| ()).await;
    let client = &fixture.client;
    let mut talks = Talk::pair(TOKENS);
    let gone = stage::press(client, &mut talks, TOKENS).await;
    stage::release(client, "c").await;
    stage::release(client, &gone.other).await;
    for server in &engines.servers {
        server.freeze();
    }
    let next = step_of(&gone.talk, client);
    stage::until_at(client, &gone.talk.name, "to_worker").await;
    let programs = stage::caches(client).await;
    let url = programs[&gone.talk.name]["cache"]["worker"].clone();
    let url = url.as_str().expect("a URL");
    engines.server(url).kill();
    let others = engines.servers.iter().filter(|server| server.url() != url);
    others.for_each(treadle_tests::support::llama_server::LlamaServer::thaw);
    let (talk, _) = next.await.expect("no step fails");
    assert!(
        client
            .metrics()
            .await
            .count("treadle_kv_transfers_failed_total")
            >= 1
    );
    engines.same_as_undisturbed(&talk).await;
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_returns_early_finds_its_cache_where_it_was() {
    let Some(engines) = Engines::start(TOKENS).await else {
        return;
    };
    let fixture = engines.gateway(|_| ()).await;
    let client = &fixture.client;
    let mut talks = Talk::pair(TOKENS);
    for talk in &mut talks {
        talk.step(client).await;
    }
    let url = stage::caches(client).await["a"]["backend"].clone();
    let server = engines.server(url.as_str().expect("a place"));
    server.freeze();
    let third = step_of(&Talk::new("c", 3, TOKENS), client);
    stage::until_at(client, "a", "to_host").await;
    let next = step_of(&talks[0], client);
    stage::until_at(client, "a", "worker").await;
    server.thaw();
    let (first, step) = next.await.expect("no step fails");
    let history = first.prompts[0].len() + first.answers[0].len();
    assert!(step.cached >= history - 2, "{} of {history}", step.cached);
    third.await.expect("its turn comes");
    let metrics = client.metrics().await;
    assert!(metrics.count("treadle_kv_transfers_cancelled_total") >= 1);
    engines.same_as_undisturbed(&first).await;
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_copy_is_not_used() {
    let Some(engines) = Engines::start(TOKENS).await else {
        return;
    };
    let fixture = engines.gateway(|_| ()).await;
    let client = &fixture.client;
    let mut talks = Talk::pair(TOKENS);
    let mut gone = stage::press(client, &mut talks, TOKENS).await;
    let tier = std::fs::read_dir(engines.folder().join("tier")).expect("a folder");
    let names = tier.map(|entry| entry.expect("an entry").path());
    let copies: Vec<_> = names
        .filter(|path| path.extension().is_some_and(|ending| ending == "kv"))
        .collect();
    assert!(!copies.is_empty());
    for path in copies {
        let file = std::fs::File::options().read(true).write(true).open(path);
        let file = file.expect("a copy");
        let at = file.metadata().expect("its length").len() / 2;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("a byte");
        file.write_all_at(&[!byte[0]], at).expect("room");
    }
    stage::release(client, "c").await;
    let talk = &mut gone.talk;
    let step = talk.step(client).await;
    assert!(step.cached < talk.prompts[0].len() / 2, "{}", step.cached);
    assert!(
        client
            .metrics()
            .await
            .count("treadle_kv_transfers_failed_total")
            >= 1
    );
    engines.same_as_undisturbed(talk).await;
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_tier_blocks_no_program() {
    let Some(engines) = Engines::start(TOKENS).await else {
        return;
    };
    let fixture = engines
        .gateway(|config| config.kv.host_bytes_max = 1_000)
        .await;
    let client = &fixture.client;
    let mut talks = Talk::pair(TOKENS);
    for talk in &mut talks {
        talk.step(client).await;
    }
    Talk::new("c", 3, TOKENS).step(client).await;
    let metrics = client.metrics().await;
    assert!(metrics.count("treadle_kv_transfers_failed_total") >= 1);
    assert_eq!(metrics.count("treadle_kv_offloads_total"), 0);
    assert_eq!(metrics.count("treadle_kv_tier_bytes"), 0);
    for talk in &mut talks {
        talk.step(client).await;
        engines.same_as_undisturbed(talk).await;
    }
    fixture.finish().await;
}
