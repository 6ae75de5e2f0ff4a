//! Paths of E2B that treadle does not support, refused by name.

use super::errors::refuse;
use axum::extract::Request;
use axum::response::Response;
use treadle_auth::permissions::RUN;
use treadle_endpoints::{Endpoint, relayed};
use treadle_runs::sandboxes::SandboxApp;
use treadle_wire::ErrorCode;

const PATHS: [&str; 6] = [
    "/sandboxes/{sandbox}/{call}",
    "/v2/sandboxes/{sandbox}/{call}",
    "/templates",
    "/v2/templates",
    "/v3/templates",
    "/volumes",
];

pub(super) fn endpoints() -> Vec<Endpoint<SandboxApp>> {
    let each = PATHS.into_iter().map(|path| {
        relayed(None, path, RUN, unserved)
            .summary("Not supported by treadle: refused with 501")
            .answers_as("text/plain", "Never.")
            .fails(&[ErrorCode::Unserved])
    });
    each.collect()
}

async fn unserved(request: Request) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    refuse(
        ErrorCode::Unserved,
        format!(
            "treadle does not serve {method} {path} of E2B; docs/sandboxes.md lists what it does"
        ),
    )
}
