//! The API of E2B, for clients that only change their URLs: the control plane, and that of the
//! daemon in each sandbox (envd), both on treadle's port.
//!
//! The control plane is authenticated with treadle's tokens. envd's calls are authenticated with
//! the sandbox's secret, which the control plane returns, and name the sandbox by a header, the
//! host name, or that secret.

mod connect;
mod control;
mod entries;
mod errors;
mod filesystem;
mod input;
mod keys;
mod lifecycle;
mod listing;
mod process;
mod request;
mod routing;
mod snapshots;
mod start;
mod transfer;
mod unserved;
mod upload;
mod users;
mod view;
mod watching;

pub use errors::in_form;
pub use routing::is_well;
pub(crate) use routing::{called, is_named};
pub use transfer::FileQuery;

use axum::extract::DefaultBodyLimit;
use axum::http::Method;
use axum::routing::MethodRouter;
use treadle_auth::permissions::{Needs, RUN, VIEW};
use treadle_endpoints::{Endpoint, delete, get, post, relayed};
use treadle_runs::sandboxes::SandboxApp;
use treadle_wire::ErrorCode;

/// The version of envd whose calls are served; clients adapt to it.
const ENVD_VERSION: &str = "0.5.7";
/// Prefix of labels that are hidden from clients.
const HIDDEN: &str = "treadle/";
/// The template for the machine's own programs.
const BASE: &str = "base";

const JSON: &str = "application/json";
const CONNECT_JSON: &str = "application/connect+json";

pub(crate) fn endpoints() -> Vec<Endpoint<SandboxApp>> {
    let mut all = Vec::new();
    for start in ["/sandboxes", "/v2/sandboxes"] {
        all.extend(of_both(start));
    }
    all.extend(of_one());
    all.extend(of_envd());
    all.extend(unserved::endpoints());
    all
}

fn none() -> [ErrorCode; 2] {
    [ErrorCode::SandboxesDisabled, ErrorCode::SandboxUnknown]
}

/// Paths that both versions of E2B's API have.
fn of_both(start: &str) -> Vec<Endpoint<SandboxApp>> {
    vec![
        post(start, RUN, control::create)
            .takes::<control::NewE2bSandbox>()
            .summary("Creates a sandbox and responds once it is ready")
            .details(
                "`templateID` is an image; `base` is that of the machine. In `metadata`, \
                 `treadle_program_id` and `treadle_job` name the program and the job. The same \
                 `Idempotency-Key` with the same body returns the same sandbox.",
            )
            .fails(&[
                ErrorCode::SandboxesDisabled,
                ErrorCode::ImageUnknown,
                ErrorCode::IdempotencyKeyTaken,
                ErrorCode::Unserved,
                ErrorCode::Overloaded,
                ErrorCode::TenantBusy,
                ErrorCode::TenantLimit,
            ]),
        post(
            &format!("{start}/{{sandbox}}/connect"),
            RUN,
            lifecycle::connect,
        )
        .takes::<lifecycle::Lease>()
        .answers::<view::E2bSandbox>(
            200,
            "It is running and lives at least as long as requested.",
        )
        .answers::<view::E2bSandbox>(201, "It was resumed.")
        .summary("Resumes a sandbox if it is paused, and extends its life")
        .fails(&none()),
    ]
}

fn of_one() -> Vec<Endpoint<SandboxApp>> {
    let of = |call: &str| format!("/sandboxes/{{sandbox}}{call}");
    vec![
        get("/sandboxes", VIEW, listing::running)
            .summary("Running sandboxes")
            .fails(&none()[..1]),
        get("/v2/sandboxes", VIEW, listing::page)
            .answers::<Vec<view::E2bDetails>>(200, "The header `x-next-token` has the next page.")
            .summary("Sandboxes, newest first, page by page")
            .fails(&none()[..1]),
        get(&of(""), VIEW, control::show)
            .summary("A sandbox")
            .fails(&none()),
        delete(&of(""), RUN, control::remove)
            .answers_nothing(204, "Done.")
            .summary("Removes a sandbox")
            .fails(&none()),
        get(&of("/metrics"), VIEW, control::metrics)
            .summary("The current resource usage of a sandbox")
            .fails(&none()),
        post(&of("/timeout"), RUN, lifecycle::set_timeout)
            .takes::<lifecycle::Lease>()
            .answers_nothing(204, "Done.")
            .summary("Sets a sandbox's time to live, in seconds from now")
            .fails(&none())
            .fails(&[ErrorCode::SandboxState, ErrorCode::Unserved]),
        post(&of("/refreshes"), RUN, lifecycle::refresh)
            .takes::<lifecycle::Refresh>()
            .answers_nothing(204, "Done.")
            .summary("Extends a sandbox's time to live to at least the given seconds from now")
            .fails(&none()),
        post(&of("/pause"), RUN, lifecycle::pause)
            .takes::<lifecycle::Lease>()
            .answers_nothing(204, "Done.")
            .summary("Pauses a sandbox's processes; they keep their memory")
            .fails(&none())
            .fails(&[ErrorCode::SandboxState, ErrorCode::Unserved]),
        post(&of("/resume"), RUN, lifecycle::resume)
            .takes::<lifecycle::Lease>()
            .summary("Resumes the processes of a paused sandbox")
            .fails(&none())
            .fails(&[ErrorCode::SandboxState, ErrorCode::Unserved]),
        post(&of("/snapshots"), RUN, snapshots::make)
            .takes::<snapshots::NewSnapshot>()
            .summary("Takes a snapshot of a sandbox's files")
            .details(
                "Use `snapshotID` as the `templateID` of new sandboxes. A snapshot contains \
                      only files.",
            )
            .fails(&none())
            .fails(&[ErrorCode::Unserved, ErrorCode::Overloaded]),
        get("/snapshots", VIEW, snapshots::list)
            .answers::<Vec<snapshots::E2bSnapshot>>(
                200,
                "The header `x-next-token` has the next page.",
            )
            .summary("Snapshots, newest first, page by page")
            .fails(&none()[..1]),
        delete("/templates/{template}", RUN, snapshots::remove)
            .answers_nothing(204, "Done.")
            .summary("Removes a snapshot; images can only be removed by an operator")
            .fails(&[ErrorCode::SandboxesDisabled, ErrorCode::ImageUnknown]),
        post(&of("/fork"), RUN, lifecycle::fork)
            .takes::<lifecycle::Forking>()
            .summary("Creates sandboxes with copies of a sandbox's files")
            .fails(&none()),
    ]
}

/// envd's API. Callers send the sandbox's secret instead of a token, and bodies have their own
/// limits.
fn of_envd() -> Vec<Endpoint<SandboxApp>> {
    let post = Some(Method::POST);
    let own = [
        ErrorCode::SandboxesDisabled,
        ErrorCode::InvalidField,
        ErrorCode::BodyTooLarge,
        ErrorCode::SandboxFailed,
    ];
    let secret = "Authenticated by the header `X-Access-Token` with the sandbox's \
                  `envdAccessToken`. The sandbox is named by the header `E2b-Sandbox-Id`, by a \
                  host name that begins with `49983-<sandbox>.`, or by that token.";
    vec![
        relayed(
            post.clone(),
            "/process.Process/{method}",
            Needs::Nothing,
            process::serve,
        )
        .summary("Commands in a sandbox, over Connect: Start, Connect, List, SendInput and others")
        .details(secret)
        .answers_as(
            JSON,
            "A Connect response; a stream for Start, Connect, StreamInput.",
        )
        .fails(&own),
        relayed(
            post.clone(),
            "/filesystem.Filesystem/{method}",
            Needs::Nothing,
            filesystem::serve,
        )
        .summary(
            "Files of a sandbox, over Connect: Stat, ListDir, MakeDir, Move, Remove and watches",
        )
        .details(secret)
        .answers_as(JSON, "A Connect response; a stream for WatchDir.")
        .fails(&own),
        relayed(
            Some(Method::GET),
            "/files",
            Needs::Nothing,
            transfer::download,
        )
        .summary("Reads a file of a sandbox: `path`, `username`")
        .details(secret)
        .answers_as("application/octet-stream", "Its bytes.")
        .fails(&own),
        relayed(post, "/files", Needs::Nothing, upload::upload)
            .around(without_limit)
            .summary("Writes files of a sandbox: a form, or one file as the raw body with `path`")
            .details(secret)
            .answers_as(JSON, "The written files.")
            .fails(&own),
    ]
}

/// The size of a form is limited while it is written.
fn without_limit(_: &SandboxApp, handler: MethodRouter<SandboxApp>) -> MethodRouter<SandboxApp> {
    handler.layer(DefaultBodyLimit::disable())
}
