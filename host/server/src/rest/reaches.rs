//! What each endpoint has the daemon do to the machine and to others at its caller's word: open a path,
//! run a program, call an address. `docs/security.md` has this as a table; an endpoint that is not
//! listed here fails the tests.

use super::groups;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use treadle_auth::Scope;
use treadle_auth::permissions::Needs;
use treadle_endpoints::EndpointDescription;

/// Endpoints of these groups send what they are sent to an engine, and reach nothing else.
const TO_ENGINES: [&str; 2] = ["Generation", "Forwarded to an engine"];

const ENGINE: (&str, &str) = (
    "an engine",
    "one that is registered; of the body and the head only [what is listed](#what-engines-are-given)",
);
const CONTROL: (&str, &str) = (
    "engines, which open a folder or join a process group",
    "engines that are registered, by the [listed paths](weights.md#updates-that-a-trainer-drives) \
     only; folders and addresses of the body are opened by engines, as their own user",
);
const ADDRESS: (&str, &str) = (
    "an address",
    "a base URL that [may be an engine's](#engines): `engines.allowed`, checked whenever a connection \
     is opened; never the daemon, link-local addresses or a cloud's metadata",
);
const INSIDE: (&str, &str) = (
    "a program in a sandbox",
    "nothing of the machine is in [a sandbox](sandboxes.md#what-keeps-it-apart)",
);
const FILES_INSIDE: (&str, &str) = (
    "files of a sandbox",
    "the kernel looks paths up within its root; only what lies on its own disk is opened",
);
const IMAGE: (&str, &str) = (
    "an image",
    "the machine's own, one of the tenant or a shared one; on Kubernetes any reference that the \
     cluster can pull",
);
const COPY: (&str, &str) = ("files of a sandbox", "the daemon copies them beside it");
const POLICY: (&str, &str) = (
    "a compiler of its own",
    "a child process with limits; the policy itself is WebAssembly without imports of the system",
);
const PROVIDER: (&str, &str) = (
    "the identity provider",
    "`oidc.issuer` and the addresses that it names; no address of the caller's",
);

/// What endpoints reach, and what bounds it.
const REACHES: &[(&str, (&str, &str))] = &[
    (
        "POST /api/v1/actions",
        (
            "a program as the daemon's user; an address; a service",
            "none unless `actions.enabled`; no program where `sandboxes.required`; addresses of \
             `actions.egress` for the tenant, never the daemon; a service of the tenant",
        ),
    ),
    (
        "PUT /api/v1/services/{service}",
        (
            "a program as the daemon's user; an address",
            "as with actions; where `sandboxes.required`, commands take an operator's token, of the \
             whole daemon beside other tenants",
        ),
    ),
    (
        "PUT /api/v1/jobs/{job}",
        (
            "a program as the daemon's user; an address; a service",
            "its `reward` is an action, run for each member: as `POST /api/v1/actions`",
        ),
    ),
    (
        "POST /api/v1/jobs/{job}/weights",
        (
            "engines open a folder",
            "an absolute path, which each engine opens on its own machine as its own user; the daemon \
             opens nothing. Without one, the job's folders in `weights.store` and `weights.folder`, \
             which nobody names",
        ),
    ),
    ("ANY /api/v1/jobs/{job}/engine/{*path}", CONTROL),
    (
        "ANY /api/v1/jobs/{job}/workers/{worker}/engine/{*path}",
        CONTROL,
    ),
    (
        "PUT /api/v1/images/{image}",
        (
            "a path",
            "below a folder of `sandboxes.image_folders` once links are followed, and nothing of the \
             daemon's own, by whatever name; beside other tenants for tokens of the whole daemon only",
        ),
    ),
    ("POST /api/v1/workers", ADDRESS),
    ("POST /workers", ADDRESS),
    ("POST /add_worker", ADDRESS),
    ("POST /abort_request", ENGINE),
    ("POST /api/v1/plugins", POLICY),
    ("POST /api/v1/plugins/check", POLICY),
    (
        "POST /api/v1/ask",
        (
            "a policy; a prediction service",
            "what is bound for the tenant; `prediction.url`",
        ),
    ),
    ("POST /api/v1/session", PROVIDER),
    ("GET /api/v1/session/sign-in", PROVIDER),
    ("GET /api/v1/session/callback", PROVIDER),
    ("POST /api/v1/sandboxes", IMAGE),
    ("POST /sandboxes", IMAGE),
    ("POST /v2/sandboxes", IMAGE),
    ("POST /run_code", INSIDE),
    ("POST /api/v1/sandboxes/{sandbox}/fork", COPY),
    ("POST /api/v1/sandboxes/{sandbox}/snapshot", COPY),
    ("POST /sandboxes/{sandbox}/fork", COPY),
    ("POST /sandboxes/{sandbox}/snapshots", COPY),
    ("POST /swerex/{sandbox}/create_session", INSIDE),
    ("POST /swerex/{sandbox}/run_in_session", INSIDE),
    ("POST /swerex/{sandbox}/execute", INSIDE),
    ("POST /swerex/{sandbox}/read_file", FILES_INSIDE),
    ("POST /swerex/{sandbox}/write_file", FILES_INSIDE),
    ("POST /swerex/{sandbox}/upload", FILES_INSIDE),
    ("POST /process.Process/{method}", INSIDE),
    ("POST /filesystem.Filesystem/{method}", FILES_INSIDE),
    ("GET /files", FILES_INSIDE),
    ("POST /files", FILES_INSIDE),
];

/// Endpoints that change something and reach nothing but the daemon's own state.
const NOTHING: &[&str] = &[
    "DELETE /api/v1/programs/{program}",
    "PUT /api/v1/programs/{program}/reward",
    "DELETE /api/v1/jobs/{job}",
    "POST /api/v1/jobs/{job}/groups",
    "POST /api/v1/jobs/{job}/members",
    "PUT /api/v1/jobs/{job}/members/{program}",
    "DELETE /api/v1/jobs/{job}/members/{program}",
    "PUT /api/v1/jobs/{job}/members/{program}/reward",
    "POST /api/v1/jobs/{job}/batches/{batch}/trained",
    "POST /api/v1/jobs/{job}/versions",
    "POST /api/v1/jobs/{job}/checkpoints",
    "POST /api/v1/jobs/{job}/resume",
    "DELETE /api/v1/jobs/{job}/weights",
    "DELETE /api/v1/actions/{action}",
    "PATCH /api/v1/nodes/{node}",
    "PATCH /api/v1/workers/{worker}",
    "DELETE /api/v1/workers/{worker}",
    "DELETE /workers/{worker}",
    "POST /remove_worker",
    "PUT /api/v1/bindings",
    "DELETE /api/v1/bindings",
    "POST /api/v1/bindings/rollback",
    "POST /api/v1/what-if/runs",
    "DELETE /api/v1/what-if/runs/{run}",
    "POST /api/v1/tenants",
    "PUT /api/v1/tenants/{tenant}",
    "POST /api/v1/tokens",
    "DELETE /api/v1/tokens/{token}",
    "POST /api/v1/tokens/{token}/rotate",
    "DELETE /api/v1/session",
    "POST /programs/release",
    "POST /finish_session",
    "DELETE /api/v1/sandboxes/{sandbox}",
    "POST /api/v1/sandboxes/{sandbox}/pause",
    "POST /api/v1/sandboxes/{sandbox}/resume",
    "DELETE /api/v1/images/{image}",
    "DELETE /api/v1/snapshots/{snapshot}",
    "POST /swerex/{sandbox}/close_session",
    "POST /swerex/{sandbox}/close",
    "POST /sandboxes/{sandbox}/connect",
    "POST /v2/sandboxes/{sandbox}/connect",
    "DELETE /sandboxes/{sandbox}",
    "POST /sandboxes/{sandbox}/timeout",
    "POST /sandboxes/{sandbox}/refreshes",
    "POST /sandboxes/{sandbox}/pause",
    "POST /sandboxes/{sandbox}/resume",
    "DELETE /templates/{template}",
    "ANY /sandboxes/{sandbox}/{call}",
    "ANY /v2/sandboxes/{sandbox}/{call}",
    "ANY /templates",
    "ANY /v2/templates",
    "ANY /v3/templates",
    "ANY /volumes",
];

/// What is no endpoint: who may have it done, what it reaches, and what bounds it.
const BESIDE: &[[&str; 4]] = &[
    [
        "the queue `treadle.commands`",
        "who may publish",
        "an address",
        "as `POST /api/v1/workers`",
    ],
    [
        "the queue `treadle.runs`",
        "who may publish",
        "a program as the daemon's user; an address; a service",
        "as `POST /api/v1/actions`",
    ],
    [
        "the queue `treadle.training`",
        "who may publish",
        "a program as the daemon's user; an address; a service",
        "as `PUT /api/v1/jobs/{job}`",
    ],
    [
        "a bearer token of the identity provider, in any request",
        "anyone",
        "the provider's keys",
        "`oidc.jwks`, every 10 s at most",
    ],
    [
        "an engine's answer",
        "engines",
        "nothing",
        "no redirect is followed, and no address in it is called",
    ],
    [
        "`/internal/link`, `/internal/nodes`, host tiers, other daemons and nodes",
        "who has `cluster.secret`",
        "as their callers, in any tenant",
        "give it to daemons and nodes only",
    ],
    [
        "the configuration",
        "the machine's operator",
        "paths and addresses of any kind",
        "it is trusted",
    ],
];

/// Method and path, as the lists have it.
fn name(description: &EndpointDescription) -> String {
    let method = description.method().map_or("ANY", |method| method.as_str());
    format!("{method} {}", description.path())
}

/// Who may call an endpoint.
fn who(description: &EndpointDescription) -> String {
    match description.needs() {
        Needs::Nothing if description.path().starts_with("/api/") => "anyone".to_owned(),
        Needs::Nothing => "who has the sandbox's secret".to_owned(),
        Needs::Scope(scope) => format!("`{}`", scope.as_str()),
        Needs::Token(scope) => format!("`{}` with a token", scope.as_str()),
        Needs::Machines => format!("`{}`*", Scope::Operator.as_str()),
        Needs::Root => "`admin` of the whole daemon".to_owned(),
    }
}

/// The table, as `docs/security.md` has it.
fn table() -> String {
    let reaches: BTreeMap<&str, (&str, &str)> = REACHES.iter().copied().collect();
    let mut table = "| what | who | reaches | within |\n|---|---|---|---|\n".to_owned();
    for (group, descriptions) in groups() {
        if TO_ENGINES.contains(&group) {
            let _ = writeln!(
                table,
                "| all of [{group}](reference/http.md#{}) | `job`, `viewer` to read | {} | {} |",
                group.to_lowercase().replace(' ', "-"),
                ENGINE.0,
                ENGINE.1
            );
        }
        for description in descriptions {
            let name = name(&description);
            if let Some((what, within)) = reaches.get(&*name) {
                let who = who(&description);
                let _ = writeln!(table, "| `{name}` | {who} | {what} | {within} |");
            }
        }
    }
    for [name, who, what, within] in BESIDE {
        let _ = writeln!(table, "| {name} | {who} | {what} | {within} |");
    }
    table
}

#[test]
fn every_endpoint_says_what_it_reaches() {
    let mut listed: BTreeSet<&str> = BTreeSet::new();
    for name in REACHES.iter().map(|(name, _)| name).chain(NOTHING) {
        assert!(listed.insert(name), "{name} is listed twice");
    }
    let (mut served, mut unlisted) = (BTreeSet::new(), Vec::new());
    for (group, descriptions) in groups() {
        for description in descriptions.iter().filter(|_| !TO_ENGINES.contains(&group)) {
            let name = name(description);
            // Reading shows what is on record, unless it is listed.
            if !name.starts_with("GET ") && !listed.contains(&*name) {
                unlisted.push(name.clone());
            }
            served.insert(name);
        }
    }
    assert!(
        unlisted.is_empty(),
        "say in host/server/src/rest/reaches.rs what these have the daemon open, run or call: \
         {unlisted:#?}"
    );
    let gone: Vec<_> = listed
        .iter()
        .filter(|name| !served.contains(**name))
        .collect();
    assert!(
        gone.is_empty(),
        "these are listed and not served: {gone:#?}"
    );
}

/// What reaches files or programs of the machine itself takes more than to be local.
#[test]
fn nothing_of_the_machine_is_open_to_callers_without_a_token() {
    let machine = ["a path"];
    for (_, descriptions) in groups() {
        for description in descriptions {
            let name = name(&description);
            let found = REACHES.iter().find(|(own, _)| *own == name);
            if found.is_some_and(|(_, (what, _))| machine.contains(what)) {
                let is_closed = matches!(description.needs(), Needs::Token(_) | Needs::Root);
                assert!(is_closed, "{name}");
            }
        }
    }
}

#[test]
fn the_table_in_the_documentation_is_this_one() {
    const MARKS: [&str; 2] = [
        "<!-- written by host/server/src/rest/reaches.rs with UPDATE_DOCS=1 -->\n",
        "<!-- end -->",
    ];
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let page = std::fs::read_to_string(&path).expect("the page");
    let (before, rest) = page.split_once(MARKS[0]).expect("where the table begins");
    let (kept, after) = rest.split_once(MARKS[1]).expect("where it ends");
    let table = table();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let whole = [before, MARKS[0], &table, MARKS[1], after].concat();
        return std::fs::write(&path, whole).expect("it can be written");
    }
    assert!(
        kept == table,
        "docs/security.md is stale; run this test with UPDATE_DOCS=1"
    );
}
