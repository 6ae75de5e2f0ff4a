//! Browser sessions: a token is exchanged for a cookie that scripts can't read. The session ends
//! with the token, in every browser.

use super::refuse;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{Json, Response};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use treadle_auth::oidc::{Oidc, Pending};
use treadle_auth::permissions::Needs;
use treadle_auth::{Auth, Scope, credentials, principal_of, signed_in};
use treadle_endpoints::arguments::{Body, Query};
use treadle_endpoints::signature::{SeeOther, WithCookie};
use treadle_endpoints::{Endpoint, delete, get, post};
use treadle_http::{Encrypted, error_response};
use treadle_wire::{ErrorBody, ErrorCode};
use utoipa::{IntoParams, ToSchema};

/// Endpoints that every daemon serves itself, whether or not it schedules.
pub(crate) fn endpoints() -> Vec<Endpoint<Arc<Auth>>> {
    let path = "/api/v1/session";
    vec![
        post(path, Needs::Nothing, begin)
            .summary("Starts a browser session")
            .details(
                "The response sets the cookie `treadle_session`, which stands for the token in \
                 requests of the console's own pages. The session expires with the token.",
            )
            .fails(&[
                ErrorCode::TokenInvalid,
                ErrorCode::TokenExpired,
                ErrorCode::Forbidden,
            ]),
        delete(path, Needs::Nothing, end)
            .summary("Ends the browser session; the token stays valid"),
        get(path, Needs::Nothing, tell).summary("How browsers can sign in"),
        get("/api/v1/session/sign-in", Needs::Nothing, leave)
            .summary("Redirects a browser to the identity provider")
            .details(
                "OpenID Connect's authorization code flow with PKCE. The provider redirects the \
                 browser to `/api/v1/session/callback`, which starts its session.",
            ),
        get("/api/v1/session/callback", Needs::Nothing, come_back)
            .summary("Completes a sign-in with the identity provider"),
    ]
}

/// The credentials of a new session.
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
    let principal = principal_of(&auth, token)
        .await
        .map_err(|error| error_response(&error))?;
    let session = Session {
        who: Some(principal.who.to_string()),
        scope: principal.scope,
    };
    let is_encrypted = encrypted.is_some() || is_forwarded_from_https(&headers);
    let cookie = credentials::cookie(Some(token), is_encrypted);
    Ok(WithCookie(session, cookie))
}

/// How browsers may sign in.
#[derive(Serialize, ToSchema)]
struct WaysToSignIn {
    /// The path that redirects to the identity provider; absent if sign-in with one is not
    /// configured.
    provider: Option<&'static str>,
}

async fn tell(State(auth): State<Arc<Auth>>) -> Json<WaysToSignIn> {
    let signs_in = auth.oidc.as_ref().is_some_and(Oidc::signs_in);
    Json(WaysToSignIn {
        provider: signs_in.then_some("/api/v1/session/sign-in"),
    })
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct Leaving {
    /// The console's page to return to.
    back: Option<String>,
}

async fn leave(
    State(auth): State<Arc<Auth>>,
    encrypted: Option<Extension<Encrypted>>,
    headers: HeaderMap,
    Query(leaving): Query<Leaving>,
) -> SeeOther {
    let is_encrypted = encrypted.is_some() || is_forwarded_from_https(&headers);
    let back = leaving.back.as_deref().unwrap_or("/");
    let left = match (&auth.oidc, Pending::new(back)) {
        (Some(oidc), Ok(pending)) => {
            let back_to = back_to(&headers, is_encrypted);
            let to = oidc.sign_in_address(&pending, &back_to).await;
            to.map(|to| (to, pending.to_text()))
        }
        (_, Err(error)) => Err(error),
        (None, _) => Err(ErrorBody::new(
            ErrorCode::TokenInvalid,
            "no identity provider is configured; sign in with a token",
        )),
    };
    match left {
        Ok((to, pending)) => SeeOther {
            to,
            cookies: vec![credentials::cookie_of_sign_in(Some(&pending), is_encrypted)],
        },
        Err(error) => SeeOther {
            to: failed(&error.message),
            cookies: Vec::new(),
        },
    }
}

/// Query parameters that the provider adds to the redirect: a code, or an error. It may add others.
#[derive(Deserialize, IntoParams)]
struct ComingBack {
    /// The authorization code, which can be exchanged for a token once.
    #[serde(default)]
    code: String,
    /// The `state` of the sign-in that this answers.
    #[serde(default)]
    state: String,
    /// The provider's error, if there is no code.
    error: Option<String>,
}

async fn come_back(
    State(auth): State<Arc<Auth>>,
    encrypted: Option<Extension<Encrypted>>,
    headers: HeaderMap,
    Query(coming): Query<ComingBack>,
) -> SeeOther {
    let is_encrypted = encrypted.is_some() || is_forwarded_from_https(&headers);
    let over = credentials::cookie_of_sign_in(None, is_encrypted);
    let pending = credentials::pending_sign_in(&headers);
    // A request that answers no sign-in of this browser is ignored and does not end a sign-in in
    // progress.
    let pending = pending.and_then(|text| Pending::answered(&text, &coming.state));
    let begun = match (&pending, &coming.error) {
        (None, _) => {
            return SeeOther {
                to: failed("the sign-in took too long, or began in another browser or tab"),
                cookies: Vec::new(),
            };
        }
        (Some(_), Some(error)) => Err(format!("the identity provider refused: {error}")),
        (Some(pending), None) => {
            let back_to = back_to(&headers, is_encrypted);
            let begun = signed_in(&auth, pending, &coming.code, &back_to).await;
            begun.map_err(|error| error.message)
        }
    };
    let (to, cookies) = match begun {
        Ok(token) => {
            let session = credentials::cookie(Some(&token), is_encrypted);
            let back = pending.map_or_else(|| "/".to_owned(), |pending| pending.back);
            (back, vec![session, over])
        }
        Err(why) => {
            let then = pending.map_or_else(String::new, |pending| {
                format!(
                    "&then={}",
                    utf8_percent_encode(&pending.back, NON_ALPHANUMERIC)
                )
            });
            (failed(&why) + &then, vec![over])
        }
    };
    SeeOther { to, cookies }
}

/// The address of the page that shows why the sign-in failed.
fn failed(why: &str) -> String {
    let why = utf8_percent_encode(why, NON_ALPHANUMERIC);
    format!("/console/sign-in?failed={why}")
}

/// The redirect URI, which must be registered with the provider.
fn back_to(headers: &HeaderMap, is_encrypted: bool) -> String {
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let scheme = if is_encrypted { "https" } else { "http" };
    format!(
        "{scheme}://{}/api/v1/session/callback",
        host.unwrap_or_default()
    )
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
