//! Tests that a command obeys every option in its help. A command that is missing in [`LINES`]
//! fails the tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::Request;
use axum::response::Json;
use clap::Parser;
use serde_json::json;
use tokio::net::TcpListener;

use super::{Cli, command};

/// Commands, and arguments that they succeed with. `FILE` stands for a file with an empty object.
const LINES: &[(&str, &str)] = &[
    ("serve", ""),
    ("up", ""),
    ("demo", ""),
    ("engine-sim", ""),
    ("calibrate", ""),
    ("sim", ""),
    ("node-agent", ""),
    ("completions", "bash"),
    ("config show", ""),
    ("config docs", ""),
    ("store migrate", ""),
    ("status", ""),
    ("doctor", ""),
    ("programs", ""),
    ("programs release", "p"),
    ("programs reward", "p 1"),
    ("actions", ""),
    ("actions list", ""),
    ("actions show", "1"),
    ("actions run", "-- true"),
    ("actions cancel", "1"),
    ("actions resources", ""),
    ("sandboxes", ""),
    ("sandboxes list", ""),
    ("sandboxes create", ""),
    ("sandboxes show", "s"),
    ("sandboxes run", "s -- true"),
    ("sandboxes pause", "s"),
    ("sandboxes resume", "s"),
    ("sandboxes fork", "s"),
    ("sandboxes snapshot", "s"),
    ("sandboxes snapshots", ""),
    ("sandboxes remove-snapshot", "s"),
    ("sandboxes remove", "s"),
    ("sandboxes images", ""),
    ("sandboxes import", "i /x"),
    ("nodes", ""),
    ("nodes list", ""),
    ("nodes cordon", "n"),
    ("nodes drain", "n --timeout-s 0"),
    ("nodes activate", "n"),
    ("training", ""),
    ("training list", ""),
    ("training show", "j"),
    ("training check", "--job j --batches /x"),
    ("weights collect", "--job j"),
    ("weights history", "--job j"),
    ("weights publish", "/x --job j --version 1"),
    ("weights pull", "--job j --version 1"),
    ("weights status", "--job j"),
    ("weights verify", "--job j --version 1"),
    ("workers", ""),
    ("workers list", ""),
    ("workers add", "http://127.0.0.1:1"),
    ("workers remove", "w"),
    ("workers cordon", "w"),
    ("workers drain", "w"),
    ("workers activate", "w"),
    ("workers memory", ""),
    ("workers provision", "--ask FILE"),
    ("events tail", ""),
    ("events replay", ""),
    ("plugin new", "x"),
    ("plugin build", ""),
    ("plugin check", "FILE"),
    ("plugin test", "FILE --inputs FILE"),
    ("plugin push", "FILE"),
    ("plugin list", ""),
    ("plugin bind", "p"),
    ("plugin rollback", ""),
    ("plugin unbind", ""),
    ("plugin logs", "p"),
    ("what-if compare", ""),
    ("what-if run", "--policies a --detach"),
    ("what-if list", ""),
    ("what-if show", "r"),
    ("what-if cancel", "r"),
    ("access tokens", ""),
    ("access tokens list", ""),
    ("access tokens create", "c --scope job"),
    ("access tokens rotate", "t"),
    ("access tokens revoke", "t"),
    ("access tenants", ""),
    ("access tenants list", ""),
    ("access tenants create", "a"),
    ("access tenants set", "a"),
    ("access audit", ""),
];

/// Leaf commands with the names of their options.
fn commands() -> BTreeMap<String, Vec<String>> {
    let mut all = command();
    // Global options are inherited by all commands below.
    all.build();
    let mut found = BTreeMap::new();
    let mut left = vec![(String::new(), &all)];
    while let Some((path, command)) = left.pop() {
        let below = command.get_subcommands().filter(|c| c.get_name() != "help");
        let below: Vec<_> = below
            .map(|c| (format!("{path} {}", c.get_name()).trim().to_owned(), c))
            .collect();
        if !path.is_empty() && (below.is_empty() || !command.is_subcommand_required_set()) {
            let options = command.get_arguments().filter_map(|arg| arg.get_long());
            found.insert(path, options.map(str::to_owned).collect());
        }
        left.extend(below);
    }
    found
}

/// Commands with an option, each with its arguments and options.
fn with_option(option: &str, file: &str) -> Vec<(String, Vec<String>, Vec<String>)> {
    let lines: BTreeMap<&str, &str> = LINES.iter().copied().collect();
    let shown = commands().into_iter();
    let shown = shown.filter(|(_, options)| options.iter().any(|name| name == option));
    let line = |(path, options): (String, Vec<String>)| {
        let arguments = lines[&*path].replace("FILE", file);
        let arguments = arguments.split_whitespace().map(str::to_owned).collect();
        (path, arguments, options)
    };
    shown.map(line).collect()
}

/// Runs a command and returns its error.
async fn run(path: &str, options: &[&str], arguments: &[String]) -> Option<String> {
    let words = ["treadle"].into_iter().chain(path.split(' '));
    let words = words.chain(options.iter().copied());
    let words = words.chain(arguments.iter().map(|word| &**word));
    let cli = Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{path}: {error}"));
    let ended = tokio::time::timeout(Duration::from_secs(30), cli.command.run()).await;
    let ended = ended.unwrap_or_else(|_| panic!("{path} does not end"));
    ended.err().map(|error| error.to_string())
}

/// A file that every command can read.
fn file(folder: &tempfile::TempDir) -> String {
    let path = folder.path().join("file");
    std::fs::write(&path, "{}").unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn every_command_has_a_line() {
    let shown: Vec<String> = commands().into_keys().collect();
    let mut lines: Vec<&str> = LINES.iter().map(|(path, _)| *path).collect();
    lines.sort_unstable();
    assert_eq!(shown, lines);
}

/// The credentials of the requests that a test server received.
type Credentials = Arc<Mutex<Vec<(String, String)>>>;

async fn server() -> (String, Credentials) {
    let seen = Credentials::default();
    let heard = seen.clone();
    let answer = move |request: Request| {
        let header = |name: &str| {
            let value = request.headers().get(name);
            let text = value.and_then(|value| value.to_str().ok());
            text.unwrap_or_default().to_owned()
        };
        let credentials = (header("authorization"), header("x-treadle-tenant"));
        heard.lock().unwrap().push(credentials);
        async { Json(json!({"released": true, "status": "ended", "nodes": []})) }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = axum::Router::new().fallback(answer);
    tokio::spawn(async { axum::serve(listener, app).await });
    (url, seen)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_shows_url_token_and_tenant_sends_them_there() {
    let folder = tempfile::tempdir().unwrap();
    let (url, seen) = server().await;
    let shown = with_option("url", &file(&folder));
    assert!(shown.len() > 50, "{}", shown.len());
    // An engine has no credentials.
    for (path, arguments, options) in shown.into_iter().filter(|(path, ..)| path != "calibrate") {
        seen.lock().unwrap().clear();
        let mut given = vec!["--url", &*url, "--token", "tr_x"];
        let has_tenant = options.iter().any(|name| name == "tenant");
        if has_tenant {
            given.extend(["--tenant", "acme"]);
        }
        let error = run(&path, &given, &arguments).await;
        let mut seen = seen.lock().unwrap().clone();
        if path == "doctor" {
            // It also queries the daemon's clock, which needs no credentials.
            seen.retain(|(token, _)| !token.is_empty());
        }
        let tenant = if has_tenant { "acme" } else { "" };
        let expected = ("Bearer tr_x".to_owned(), tenant.to_owned());
        assert!(!seen.is_empty(), "{path} asks nobody: {error:?}");
        assert!(seen.iter().all(|one| *one == expected), "{path}: {seen:?}");
    }
    for option in ["token", "tenant", "ca"] {
        for (path, _, options) in with_option(option, "") {
            assert!(
                options.iter().any(|name| name == "url"),
                "{path} --{option}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_shows_config_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("nowhere.toml");
    let nowhere = nowhere.to_str().unwrap();
    let shown = with_option("config", &file(&folder));
    assert!(shown.len() > 5, "{}", shown.len());
    for (path, arguments, _) in shown {
        let error = run(&path, &["--config", nowhere], &arguments).await;
        let error = error.unwrap_or_default();
        assert!(error.contains(nowhere), "{path}: {error}");
    }
}
