//! Lists the places where a daemon runs programs and opens connections, with the setting that
//! controls each, so that a new one that clients can reach gets a review; docs/security.md lists
//! what requests reach.

use crate::code::code_of;
use crate::none;
use crate::tree::sources;
use std::collections::BTreeSet;

/// The command line, simulations and demonstrations: they run with their user's own rights. All other
/// crates are the daemon's.
const OTHERS: &[&str] = &[
    "host/calibrate/",
    "host/demo/",
    "host/dst/",
    "host/engine-model/",
    "host/engine-sim/",
    "host/report/",
    "host/rollouts/",
    "host/simulator/",
    "host/training-check/",
    "host/treadle/",
];

/// Where programs are run.
const PROGRAMS: &[(&str, &str)] = &[
    (
        "host/actions/src/process/guard.rs",
        "the daemon's own binary",
    ),
    (
        "host/actions/src/process/pool.rs",
        "the daemon's own binary",
    ),
    (
        "host/actions/src/process/supervisor.rs",
        "actions and services, where they are allowed",
    ),
    (
        "host/policy-runtime/src/compiler/supervisor.rs",
        "the daemon's own binary",
    ),
    ("host/sandbox/src/inside/init.rs", "inside of a sandbox"),
    ("host/sandbox/src/inside/mod.rs", "the daemon's own binary"),
    ("host/sandbox/src/layers.rs", "cp, on folders of sandboxes"),
    ("host/sandbox/src/live.rs", "the daemon's own binary"),
];

/// Where connections are opened.
const CONNECTIONS: &[(&str, &str)] = &[
    ("host/actions/src/requests.rs", "within actions.egress"),
    ("host/auth/src/oidc/keys.rs", "oidc.jwks"),
    ("host/auth/src/oidc/sign_in.rs", "oidc.issuer"),
    ("host/broker/src/rabbitmq/inspect.rs", "broker.url"),
    ("host/config/src/tls.rs", "engines, within engines.allowed"),
    (
        "host/http/src/upstream.rs",
        "services of this machine (host/actions/src/requests.rs)",
    ),
    ("host/registry/src/remote.rs", "prediction.url"),
    ("host/runs/src/proxy.rs", "daemons and nodes"),
    (
        "host/transfer/src/limits.rs",
        "nobody: a default that the daemon replaces",
    ),
    ("host/transfer/src/stream/link.rs", "kv.nodes"),
    ("host/trust/src/connector.rs", "what the others ask for"),
];

const RUN: &[&str] = &["Command::new"];
const OPEN: &[&str] = &[
    "Connector::new(",
    "Connector::to_all(",
    "TcpStream::connect",
    "TcpSocket::new",
    "UnixStream::connect",
    "lookup_host(",
];

/// Files whose code, without tests, contains one of the words.
fn with(words: &[&str]) -> BTreeSet<String> {
    let files = sources(&["host"], ".rs").into_iter();
    let files = files.filter(|file| file.path.contains("/src/") && !file.path.contains("/tests"));
    let files = files.filter(|file| !OTHERS.iter().any(|other| file.path.starts_with(other)));
    let has = |text: &str| {
        let code = code_of(text.split("#[cfg(test)]").next().unwrap_or_default());
        words.iter().any(|word| code.contains(word))
    };
    let found = files.filter(|file| has(&file.text));
    found.map(|file| file.path).collect()
}

fn are_known(rule: &str, words: &[&str], known: &[(&str, &str)]) {
    let known: BTreeSet<String> = known.iter().map(|(path, _)| (*path).to_owned()).collect();
    let found = with(words);
    assert!(!found.is_empty(), "the walk found nothing");
    let new: Vec<_> = found.difference(&known).cloned().collect();
    none(
        &format!("{rule}, and are not listed with what decides on it"),
        &new,
    );
    let gone: Vec<_> = known.difference(&found).cloned().collect();
    none(&format!("no more {rule}"), &gone);
}

#[test]
fn programs_are_run_in_known_places() {
    are_known("files that run programs", RUN, PROGRAMS);
}

#[test]
fn connections_are_opened_in_known_places() {
    are_known("files that open connections", OPEN, CONNECTIONS);
}
