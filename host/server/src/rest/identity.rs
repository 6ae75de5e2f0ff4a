//! Whether this is the daemon that a token is for.

use super::{ok, refuse};
use axum::Extension;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use treadle_auth::identity::{CHALLENGE_BYTES_MAX, proof};
use treadle_auth::{Auth, now_us};
use treadle_http::ServedAddress;
use treadle_wire::ErrorCode;

/// A question of a client that has a token and does not want to send it yet.
#[derive(Deserialize)]
pub(super) struct ChallengeQuery {
    /// What the token is named by.
    token: Option<String>,
    /// Random characters.
    challenge: Option<String>,
}

/// `GET /v1/identity?token=NAME&challenge=TEXT`: the proof that this daemon knows the token, or
/// none.
pub(super) async fn prove(
    State(auth): State<Arc<Auth>>,
    reached_at: Option<Extension<ServedAddress>>,
    Query(query): Query<ChallengeQuery>,
) -> Response {
    let challenge = query.challenge.unwrap_or_default();
    if challenge.len() > CHALLENGE_BYTES_MAX {
        let message = format!("`challenge` is longer than {CHALLENGE_BYTES_MAX} bytes; shorten it");
        return refuse(ErrorCode::InvalidField, message);
    }
    let directory = auth.directory();
    let hash = query
        .token
        .and_then(|name| directory.named(&name, now_us()));
    let proof = hash
        .zip(reached_at)
        .map(|(hash, at)| proof(hash, at.0.0, &challenge));
    ok(json!({"proof": proof}))
}
