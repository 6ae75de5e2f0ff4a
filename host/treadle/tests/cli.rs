//! The command line as people use it: the built binary against daemons with
//! simulated engines that answer at once.

#[path = "cli/cluster.rs"]
mod cluster;
#[path = "cli/demo.rs"]
mod demo;
#[path = "cli/doctor.rs"]
mod doctor;
#[path = "cli/identity.rs"]
mod identity;
#[path = "cli/limits.rs"]
mod limits;
#[path = "cli/lost_store.rs"]
mod lost_store;
#[path = "cli/pages.rs"]
mod pages;
#[path = "cli/plugins.rs"]
mod plugins;
#[path = "cli/provision.rs"]
mod provision;
#[path = "cli/refusals.rs"]
mod refusals;
#[path = "cli/status.rs"]
mod status;
#[path = "cli/tokens.rs"]
mod tokens;

use std::path::Path;
use std::process::Stdio;

use cluster::{
    Cluster, Served, TIMEOUT, binary, engine, failure, guest, repository, stdout, step, step_of,
    treadle, until,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use treadle_config::{Config, reference_markdown};

#[test]
fn the_command_line_is_consistent() {
    ::treadle::cli::command().debug_assert();
}

#[tokio::test]
async fn the_printed_reference_is_the_one_in_docs() {
    let line = "config docs";
    let printed = stdout(&treadle("http://127.0.0.1:1", line).await, line);
    assert_eq!(printed, reference_markdown());
    let page = std::fs::read_to_string(repository().join("docs/configuration.md"));
    let page = page.expect("the page is there");
    assert!(
        printed == page,
        "docs/configuration.md is stale; run `make docs`"
    );
}

#[tokio::test]
async fn the_configuration_that_holds_can_be_shown_and_read_again() {
    let url = "http://127.0.0.1:1";
    let line = "config show --set scheduler.programs_max=50 --set engines.endpoints=http://a:1";
    let shown = stdout(&treadle(url, line).await, line);
    let read: Config = toml::from_str(&shown).expect("it is a configuration");
    assert_eq!(read.scheduler.programs_max, 50);
    assert_eq!(read.engines.endpoints[0].url, "http://a:1");
    let line = format!("{line} --json");
    let shown = stdout(&treadle(url, &line).await, &line);
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(shown["scheduler"]["programs_max"], 50);
    for json in ["", " --json"] {
        let line = format!(
            "config show{json} --set store.url=postgres://u:hunter2@h/d \
             --set broker.url=amqp://u:hunter2@h --set cluster.secret=hunter2hunter2hunter2"
        );
        let shown = stdout(&treadle(url, &line).await, &line);
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.contains("postgres://u:[redacted]@h/d"), "{shown}");
    }
}

#[tokio::test]
async fn completions_are_printed_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let line = format!("completions {shell}");
        let script = stdout(&treadle("http://127.0.0.1:1", &line).await, &line);
        assert!(script.contains("engine-sim"), "{shell}");
    }
}

#[tokio::test]
async fn errors_are_one_line_with_a_remedy_and_an_exit_code() {
    let nobody = "http://127.0.0.1:1";
    let (code, text) = failure(nobody, "programs").await;
    assert_eq!(code, Some(1));
    assert!(text.contains("Connection refused"), "{text}");
    assert!(text.contains("start one with `treadle up`"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");

    let (code, text) = failure(nobody, "config show --set scheduler.quantum_shar=5").await;
    assert_eq!(code, Some(2));
    assert!(text.contains("scheduler.quantum_share"), "{text}");

    let (code, text) = failure(nobody, "serve --engine nonsense").await;
    assert_eq!(code, Some(2));
    assert!(text.contains("http://host:port"), "{text}");

    let (code, text) = failure(nobody, "plugin check /nowhere.wasm --offline").await;
    assert_eq!(code, Some(1));
    assert!(text.contains("/nowhere.wasm"), "{text}");

    let (code, text) = failure(nobody, "events replay --store /nowhere.db").await;
    assert_eq!(code, Some(1));
    assert!(text.contains("/nowhere.db"), "{text}");
    assert!(!Path::new("/nowhere.db").exists());

    let (code, text) = failure("nonsense", "status").await;
    assert_eq!(code, Some(2));
    assert!(text.contains("http://host:port"), "{text}");

    let engine = engine().await;
    let (code, text) = failure(&engine.url(), "workers").await;
    assert_eq!(code, Some(1));
    assert!(text.contains("this is not treadle"), "{text}");
    engine.shutdown().await;
}

async fn a_family_is_shown(cluster: &Cluster) {
    let body = json!({"model": "treadle-sim", "max_tokens": 4, "program_id": "task/1/a",
        "parent_program_id": "task/1", "messages": [{"role": "user", "content": "Hello"}]});
    step_of(&cluster.daemon.url(), &body).await;
    let family = until(|| async {
        let output = treadle(&cluster.daemon.url(), "programs task/1/a --family").await;
        let family = String::from_utf8(output.stdout).ok()?;
        (family.lines().count() == 3).then_some(family)
    });
    let names = |family: &str| {
        let names = family
            .lines()
            .skip(1)
            .map(|line| line[..10].trim_end().to_owned());
        names.collect::<Vec<_>>()
    };
    let family = family.await;
    assert_eq!(names(&family), ["task/1", "  task/1/a"]);
    let heads = ["ACTIVE S", "QUEUED S", "BLOCKED S", "TIMELINE"];
    assert!(heads.iter().all(|head| family.contains(head)), "{family}");
    assert!(
        family.lines().skip(1).all(|line| line.contains('#')),
        "{family}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_are_shown_and_released() {
    let cluster = Cluster::start("memory").await;
    assert_eq!(
        cluster.run_printed("programs").await,
        "no program is live\n"
    );
    step(&cluster.daemon.url(), "task/1").await;

    let live = cluster.json("programs").await;
    assert_eq!(live["task/1"]["status"], "acting");
    assert!(cluster.run_printed("programs").await.contains("task/1"));
    let steps = until(|| async {
        // The row is written after the journal.
        let output = treadle(&cluster.daemon.url(), "programs task/1 --steps --json").await;
        let steps: Value = serde_json::from_slice(&output.stdout).ok()?;
        steps["steps"][0]["finished_at_us"]
            .is_number()
            .then_some(steps)
    });
    assert_eq!(steps.await["steps"][0]["output_tokens"], 4);
    assert_eq!(cluster.json("programs task/1").await["steps"], 1);
    let decisions = cluster.json("programs task/1 --decisions").await;
    let decisions = decisions["decisions"].as_array().expect("a list");
    assert!(!decisions.is_empty());
    a_family_is_shown(&cluster).await;
    for line in [
        "programs task/1",
        "programs task/1 --decisions",
        "programs --all",
    ] {
        assert!(
            cluster.run_printed(line).await.lines().count() > 1,
            "{line}"
        );
    }

    assert_eq!(
        cluster.run_printed("programs reward task/1 -0.5").await,
        "task/1 is rewarded with -0.5\n"
    );
    assert_eq!(
        cluster
            .run_printed("programs release task/1 --reward 0.7")
            .await,
        "released task/1\n"
    );
    assert_eq!(cluster.json("programs task/1").await["reward"], 0.7);
    for line in ["programs release task/1", "programs nobody"] {
        let (code, text) = failure(&cluster.daemon.url(), line).await;
        assert_eq!(code, Some(1), "{line}");
        assert!(text.starts_with("error: no"), "{text}");
        assert!(text.contains("program `"), "{text}");
    }
    let all = cluster.json("programs --all").await;
    assert_eq!(all["programs"][1]["program_id"], "task/1");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engines_come_and_go() {
    let cluster = Cluster::start("memory").await;
    let third = engine().await;
    let added = cluster
        .run_printed(&format!("workers add {}", third.url()))
        .await;
    assert!(added.contains("registered as worker 2"), "{added}");
    let again = cluster
        .run_printed(&format!("workers add {}", third.url()))
        .await;
    assert!(again.contains("was registered already"), "{again}");
    assert_eq!(cluster.json("workers list").await["total"], 3);
    let table = cluster.run_printed("workers").await;
    for engine in cluster.engines.iter().chain([&third]) {
        assert!(table.contains(&engine.url()), "{table}");
    }
    assert!(cluster.run_printed("status").await.contains(&third.url()));
    assert_eq!(cluster.json("status").await["healthy_backends"], 3);

    cluster
        .run_printed(&format!("workers remove {}", third.url()))
        .await;
    cluster.run_printed("workers remove 0").await;
    assert_eq!(cluster.json("workers").await["total"], 1);
    let (code, text) = failure(&cluster.daemon.url(), "workers remove 0").await;
    assert_eq!(code, Some(1));
    assert!(text.contains("[worker_unknown]"), "{text}");
    third.shutdown().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_journal_is_shown_in_order_and_followed() {
    let cluster = Cluster::start("memory").await;
    let line = "events tail --program a --follow --json";
    let mut follower = binary(&cluster.daemon.url(), line);
    let follower = follower.stdout(Stdio::piped()).spawn();
    let mut follower = follower.expect("it starts");
    let mut lines = BufReader::new(follower.stdout.take().expect("piped")).lines();
    for program in ["a", "b", "a"] {
        step(&cluster.daemon.url(), program).await;
    }
    let mut seen = Vec::new();
    while seen
        .iter()
        .filter(|e: &&Value| e["kind"] == "step_arrived")
        .count()
        < 2
    {
        let line = tokio::time::timeout(TIMEOUT, lines.next_line()).await;
        let line = line.expect("it comes").expect("text").expect("a line");
        seen.push(serde_json::from_str::<Value>(&line).expect("JSON"));
    }
    follower.kill().await.expect("it runs");
    assert!(seen.iter().all(|event| event["program"] == "a"));
    let seqs: Vec<u64> = seen.iter().filter_map(|e| e["seq"].as_u64()).collect();
    assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]), "{seqs:?}");

    let newest = cluster.run_printed("events tail -n 2 --json").await;
    let newest: Vec<Value> = newest
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(newest.len(), 2);
    let text = cluster
        .run_printed("events tail --after 0 --kind worker_added")
        .await;
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.contains(&cluster.engines[0].url()), "{text}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_are_checked_pushed_and_bound() {
    let cluster = Cluster::start("memory").await;
    let guest = guest();
    let checked = cluster.run_printed(&format!("plugin check {guest}")).await;
    assert!(checked.contains("trial run     passed"), "{checked}");
    assert!(
        checked.contains("daemon        accepts it too"),
        "{checked}"
    );
    let alone = cluster
        .json(&format!("plugin check {guest} --offline"))
        .await;
    assert_eq!(
        (&alone["accepted"], &alone["daemon"]),
        (&json!(true), &Value::Null)
    );
    let before = cluster.json("plugin list").await;
    let stored = before["plugins"].as_array().expect("a list").iter();
    let stored = stored.filter(|plugin| plugin["uploaded_at_us"].is_number());
    assert_eq!(stored.count(), 1, "what is bound by default");

    let pushed = cluster.json(&format!("plugin push {guest}")).await;
    assert_eq!(
        (&pushed["new"], &pushed["name"]),
        (&json!(true), &alone["inspection"]["name"])
    );
    let name = pushed["name"].as_str().expect("a name").to_owned();
    let again = cluster.run_printed(&format!("plugin push {guest}")).await;
    assert!(again.contains("was stored already"), "{again}");
    let bound = cluster
        .run_printed(&format!("plugin bind {name} --config-json {{}}"))
        .await;
    assert!(bound.starts_with(&format!("{name}@")), "{bound}");
    let list = cluster.run_printed("plugin list").await;
    assert!(list.matches(&name).count() >= 2, "{list}");
    cluster.run_printed("plugin bind native").await;
    let (code, text) = failure(&cluster.daemon.url(), "plugin bind nobody").await;
    assert_eq!(code, Some(1));
    assert!(text.contains("[plugin_unknown]"), "{text}");
    cluster.stop().await;
}

#[tokio::test]
async fn a_bad_policy_is_refused_with_its_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("bad.wasm");
    std::fs::write(&file, b"this is no WebAssembly").expect("it can be written");
    let line = format!("plugin check {}", file.display());
    let output = treadle("http://127.0.0.1:1", &line).await;
    assert_eq!(output.status.code(), Some(1));
    let report = String::from_utf8(output.stdout).expect("text");
    for part in [
        "size          passed",
        "WebAssembly   refused",
        "  code    not-wasm",
        "  remedy  ",
        "component     not reached",
        "daemon        not checked",
    ] {
        assert!(report.contains(part), "{part}: {report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_replays_of_a_journal_end_in_the_same_state() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("journal.db");
    let store = store.to_str().expect("a path in UTF-8");
    let cluster = Cluster::start(store).await;
    for number in 0..60 {
        let program = ["a", "b"][number % 2];
        step(&cluster.daemon.url(), program).await;
    }
    cluster.stop().await;
    let replay = async |flags: &str| {
        let line = format!("events replay --store {store} --json {flags}");
        let printed = stdout(&treadle("http://127.0.0.1:1", &line).await, &line);
        serde_json::from_str::<Value>(&printed).expect("JSON")
    };
    let whole = replay("").await;
    assert_eq!(
        (&whole["programs"], &whole["workers"]),
        (&json!(2), &json!(2))
    );
    assert_eq!(whole, replay("").await);
    assert_ne!(whole["after_seq"], 0, "a snapshot was saved");
    let from_start = replay("--from-start").await;
    assert_eq!(from_start["after_seq"], 0);
    assert_eq!(whole["checksum"], from_start["checksum"]);
    // It ends before the snapshot, so it begins with the first event.
    let part = replay("--until 3").await;
    assert_eq!(part["events_replayed"], 3);
    assert_ne!(part["checksum"], whole["checksum"]);
    let line = format!("events replay --store {store} --until 1000000");
    let (code, text) = failure("http://127.0.0.1:1", &line).await;
    assert_eq!(code, Some(2));
    assert!(text.contains("the journal ends at event"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serve_needs_an_engine_alone_and_prints_its_port() {
    let folder = tempfile::tempdir().expect("a folder");
    let engines = [engine().await, engine().await];
    let urls = format!("{},{}", engines[0].url(), engines[1].url());
    let mut served = Served::start(
        &format!("serve --listen 127.0.0.1:0 --engine {urls}"),
        folder.path(),
    );
    let line = served.line().await;
    let rest = line.strip_prefix("treadle listens on ").expect("its line");
    let (url, rest) = rest.split_once(", engines: ").expect("its engines");
    assert_eq!(rest.replace(' ', ""), urls);
    step(url, "p").await;
    let code = served.stop("-TERM").await;
    assert_eq!(code, Some(0));
    assert!(folder.path().join(".treadle/treadle.db").exists());

    let line = format!("serve --listen {} --json", engines[0].addr());
    let (code, text) = failure("http://127.0.0.1:1", &line).await;
    assert_eq!(code, Some(1));
    assert!(text.contains("choose another with --listen"), "{text}");
    for engine in engines {
        engine.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_prompts_are_of_one_group_after_a_restart() {
    let (folder, other) = (tempfile::tempdir(), tempfile::tempdir());
    let (folder, other) = (folder.expect("a folder"), other.expect("a folder"));
    let engine = engine().await;
    let mut groups = Vec::new();
    for (program, place) in [("a", &folder), ("b", &folder), ("c", &other)] {
        let line = format!("serve --listen 127.0.0.1:0 --engine {}", engine.url());
        let mut served = Served::start(&line, place.path());
        let line = served.line().await;
        let rest = line.strip_prefix("treadle listens on ").expect("its line");
        let (url, _) = rest.split_once(", engines: ").expect("its engines");
        step(url, program).await;
        let line = format!("events tail --kind step_arrived --program {program} --json");
        let shown = binary(url, &line).current_dir(place.path()).output();
        let shown = stdout(&shown.await.expect("it starts"), &line);
        let event: Value = serde_json::from_str(shown.trim()).expect("one line of JSON");
        groups.push(event["event"]["group"].as_u64().expect("it has one"));
        assert_eq!(served.stop("-TERM").await, Some(0));
    }
    assert_eq!(groups[0], groups[1], "the store has the key");
    assert_ne!(groups[0], groups[2], "another store has another one");
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn up_starts_engines_marked_as_simulated() {
    let folder = tempfile::tempdir().expect("a folder");
    let line = "up --listen 127.0.0.1:0 --engines 3 --time-scale 50 --kv-tokens 20000";
    let mut served = Served::start(line, folder.path());
    let first = served.line().await;
    let url = first.strip_prefix("treadle listens on ").expect("its line");
    for _ in 0..3 {
        let line = served.line().await;
        assert!(line.contains("SIMULATED engine on http://"), "{line}");
        assert!(line.contains("at 50x time"), "{line}");
    }
    let mut curl = served.line().await;
    while !curl.contains("curl ") {
        curl = served.line().await;
    }
    assert!(
        curl.contains(&format!("curl {url}/v1/chat/completions")),
        "{curl}"
    );
    step(url, "p").await;
    let output = treadle(url, "workers --json").await;
    let workers: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(workers["total"], 3);
    assert_eq!(workers["workers"][0]["capacity_tokens"], 20_000);
    assert_eq!(served.stop("-INT").await, Some(0));
    let left = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(left, 0, "simulated history stays nowhere");
}
