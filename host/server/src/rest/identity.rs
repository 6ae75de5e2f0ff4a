//! Proof that this daemon knows a token.

use super::refuse;
use axum::Extension;
use axum::extract::State;
use axum::response::Json;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use treadle_auth::identity::{CHALLENGE_BYTES_MAX, proof};
use treadle_auth::permissions::Needs;
use treadle_auth::{Auth, now_us};
use treadle_endpoints::arguments::Query;
use treadle_endpoints::signature::Answer;
use treadle_endpoints::{Endpoint, get};
use treadle_http::ServedAddress;
use treadle_wire::ErrorCode;
use utoipa::{IntoParams, ToSchema};

/// Endpoints that every daemon serves itself, whether or not it schedules.
pub(crate) fn endpoints() -> Vec<Endpoint<Arc<Auth>>> {
    vec![
        get("/api/v1/identity", Needs::Nothing, prove)
            .summary("Proves that this daemon knows a token, without sending the token"),
    ]
}

/// A challenge from a client that has a token and does not want to send it yet.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ChallengeQuery {
    /// The token's id.
    token: Option<String>,
    /// Random characters.
    challenge: Option<String>,
}

/// The proof, if there is one.
#[derive(Serialize, ToSchema)]
struct Proof {
    /// Absent if the daemon does not know the token.
    proof: Option<String>,
}

async fn prove(
    State(auth): State<Arc<Auth>>,
    reached_at: Option<Extension<ServedAddress>>,
    Query(query): Query<ChallengeQuery>,
) -> Answer<Proof> {
    let challenge = query.challenge.unwrap_or_default();
    if challenge.len() > CHALLENGE_BYTES_MAX {
        let message = format!("`challenge` is longer than {CHALLENGE_BYTES_MAX} bytes; shorten it");
        return Err(refuse(ErrorCode::InvalidField, message));
    }
    let directory = auth.directory();
    let hash = query
        .token
        .and_then(|name| directory.named(&name, now_us()));
    let proof = hash
        .zip(reached_at)
        .map(|(hash, at)| proof(hash, at.0.0, &challenge));
    Ok(Json(Proof { proof }))
}
