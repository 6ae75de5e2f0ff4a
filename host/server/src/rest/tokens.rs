//! Creating, rotating, revoking and listing API tokens. A secret is returned only once.

use super::Endpoint;
use super::refuse;
use super::tenants::change_failed;
use crate::app::App;
use axum::extract::State;
use axum::response::{Json, Response};
use serde::{Deserialize, Serialize};
use treadle_auth::changes::{NewToken, TokenView};
use treadle_auth::permissions::ADMIN;
use treadle_auth::{Caller, Scope, now_us};
use treadle_endpoints::arguments::{Body, InPath};
use treadle_endpoints::signature::{Answer, Created};
use treadle_endpoints::{delete, get, post};
use treadle_wire::ErrorCode;
use utoipa::ToSchema;

pub(super) fn endpoints() -> Vec<Endpoint> {
    let one = "/api/v1/tokens/{token}";
    vec![
        get("/api/v1/tokens", ADMIN, list)
            .summary("Tokens, newest first")
            .details(
                "Returns the tenant's tokens, or all tokens for an admin of the whole daemon.",
            ),
        post("/api/v1/tokens", ADMIN, create)
            .summary("Creates a token; the response has its secret")
            .fails(&[ErrorCode::TenantUnknown, ErrorCode::TenantLimit]),
        delete(one, ADMIN, revoke)
            .summary("Revokes a token immediately")
            .fails(&[ErrorCode::TokenUnknown]),
        post(&format!("{one}/rotate"), ADMIN, rotate)
            .summary("Rotates a token's secret; the previous one stays valid for a while")
            .fails(&[ErrorCode::TokenUnknown, ErrorCode::TokenInvalid]),
    ]
}

/// Tokens that the caller may see.
#[derive(Serialize, ToSchema)]
struct Tokens {
    /// Newest first.
    tokens: Vec<TokenView>,
}

async fn list(State(app): State<App>, caller: Caller) -> Json<Tokens> {
    let tokens = app.auth.tokens(&caller);
    let view = |token: &std::sync::Arc<treadle_auth::directory::TokenState>| {
        TokenView::of(&token.row, token.last_used_at_us())
    };
    Json(Tokens {
        tokens: tokens.iter().map(view).collect(),
    })
}

/// A token to be created.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct TokenRequest {
    /// A descriptive name.
    name: String,
    /// Its scope.
    scope: Scope,
    /// Its tenant; default the caller's own. An admin of the whole daemon may name another, or `*`
    /// for the whole daemon with the scope operator or admin.
    #[serde(default)]
    tenant: Option<String>,
    /// Its lifetime in seconds; default unlimited.
    #[serde(default)]
    expires_in_s: Option<u64>,
}

async fn create(
    State(app): State<App>,
    caller: Caller,
    Body(request): Body<TokenRequest>,
) -> Result<Created<TokenView>, Response> {
    let own = caller.principal.tenant.tenant.name();
    let new = NewToken {
        name: request.name,
        scope: request.scope,
        tenant: request.tenant.unwrap_or_else(|| own.to_owned()),
        expires_at_us: request.expires_in_s.map(expiry_us).transpose()?,
    };
    let made = app.auth.create_token(&caller, new).await;
    made.map(Created).map_err(|error| change_failed(&error))
}

fn expiry_us(seconds: u64) -> Result<u64, Response> {
    if seconds == 0 {
        let message = "`expires_in_s` must be a positive whole number";
        return Err(refuse(ErrorCode::InvalidField, message));
    }
    // The store holds signed numbers.
    let until = now_us().saturating_add(seconds.saturating_mul(1_000_000));
    Ok(until.min(i64::MAX as u64))
}

async fn rotate(
    State(app): State<App>,
    caller: Caller,
    InPath(id): InPath<String>,
) -> Answer<TokenView> {
    let rotated = app.auth.rotate_token(&caller, &id).await;
    rotated.map(Json).map_err(|error| change_failed(&error))
}

async fn revoke(
    State(app): State<App>,
    caller: Caller,
    InPath(id): InPath<String>,
) -> Answer<TokenView> {
    let revoked = app.auth.revoke_token(&caller, &id).await;
    revoked.map(Json).map_err(|error| change_failed(&error))
}
