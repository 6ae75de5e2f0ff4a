//! Sessions of browsers: a token is exchanged for a cookie that no script reads. The session is the
//! token's: it ends with it, everywhere.

use super::arguments::Body;
use super::endpoint::{Endpoint, delete, post};
use super::refuse;
use super::signature::WithCookie;
use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use treadle_auth::permissions::Needs;
use treadle_auth::{Auth, Scope, credentials, principal_of};
use treadle_http::{Encrypted, error_response};
use treadle_wire::ErrorCode;
use utoipa::ToSchema;

/// What every daemon answers on its own, whichever schedules.
pub(crate) fn endpoints() -> Vec<Endpoint<Arc<Auth>>> {
    let path = "/api/v1/session";
    vec![
        post(path, Needs::Nothing, begin)
            .summary("Begins a browser's session")
            .details(
                "The answer sets the cookie `treadle_session`, which counts as the token for \
                 requests of the console's own pages. It ends when the token does.",
            )
            .fails(&[
                ErrorCode::TokenInvalid,
                ErrorCode::TokenExpired,
                ErrorCode::Forbidden,
            ]),
        delete(path, Needs::Nothing, end)
            .summary("Ends the browser's session; the token stays good"),
    ]
}

/// Whose session it is to be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewSession {
    /// An API token, or a JSON Web Token of the identity provider.
    token: String,
}

/// A session.
#[derive(Serialize, ToSchema)]
struct Session {
    /// A token or a subject of the identity provider; absent in an ended session.
    who: Option<String>,
    /// What it may do.
    scope: Option<Scope>,
}

async fn begin(
    State(auth): State<Arc<Auth>>,
    encrypted: Option<Extension<Encrypted>>,
    headers: HeaderMap,
    Body(new): Body<NewSession>,
) -> Result<WithCookie<Session>, Response> {
    if !credentials::is_of_own_page(&headers) {
        let message = "a page of another site sent it; sign in on the daemon's own page";
        return Err(refuse(ErrorCode::Forbidden, message));
    }
    let token = new.token.trim();
    let principal = principal_of(&auth, token).await;
    let principal = principal.map_err(|error| error_response(&error))?;
    let session = Session {
        who: Some(principal.who.to_string()),
        scope: principal.scope,
    };
    let is_encrypted = encrypted.is_some() || is_forwarded_from_https(&headers);
    let cookie = credentials::cookie(Some(token), is_encrypted);
    Ok(WithCookie(session, cookie))
}

async fn end() -> WithCookie<Session> {
    let session = Session {
        who: None,
        scope: None,
    };
    WithCookie(session, credentials::cookie(None, false))
}

fn is_forwarded_from_https(headers: &HeaderMap) -> bool {
    let scheme = headers.get("x-forwarded-proto");
    scheme.is_some_and(|scheme| scheme.as_bytes() == b"https")
}
