//! The APIs of sandboxes: treadle's own, and those of E2B, SWE-ReX and SandboxFusion for clients
//! that only change their URLs. A daemon serves them, and so does a node's agent, to its daemon;
//! [`forward`] passes requests about sandboxes of nodes on to them.

#![allow(
    clippy::result_large_err,
    reason = "an early answer is a whole response; it is returned once, not propagated"
)]

mod e2b;
mod forward;
mod fusion;
mod health;
mod sandboxes;
mod snapshots;
mod swerex;

pub use e2b::{FileQuery, in_form, is_well};
pub use forward::{forward, sandbox_named};
pub use health::health_of_sandbox;

use axum::Router;
use treadle_endpoints::Endpoint;
use treadle_runs::sandboxes::SandboxApp;

/// Endpoints for sandboxes, by group; a daemon serves them, and its nodes serve them to it.
pub fn sandbox_endpoints() -> Vec<(&'static str, Vec<Endpoint<SandboxApp>>)> {
    vec![
        (
            "Sandboxes",
            sandboxes::endpoints()
                .into_iter()
                .chain(snapshots::endpoints())
                .collect(),
        ),
        ("For clients of SWE-ReX", swerex::endpoints()),
        ("For clients of SandboxFusion", fusion::endpoints()),
        ("For clients of E2B", e2b::endpoints()),
    ]
}

/// The handlers of requests about sandboxes.
pub fn sandbox_router(app: SandboxApp) -> Router {
    let all = sandbox_endpoints().into_iter().flat_map(|(_, all)| all);
    treadle_endpoints::router(all.collect(), app, 0)
}
