//! The guard: every request passes here before it reaches a handler.

use super::credentials::{self, Credential, TENANT_HEADER};
use super::oidc::Pending;
use super::permissions::{Needs, Permissions, Route, RouteMatch};
use super::principal::Principal;
use super::scope::Scope;
use super::{Auth, now_us, secret};
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::Limited;
use std::sync::Arc;
use std::time::Duration;
use treadle_http::body::{self, BodyLimits};
use treadle_http::{Bounded, InUse, error_response, refuse_coded, wrong_method};
use treadle_model::Tenant;
use treadle_wire::{ErrorBody, ErrorCode};

/// Timeout from the head of a request that is not for an engine to the head of its response.
/// Uploads may wait for the compiler.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(20);

/// Checks callers, with the permissions of each path.
#[derive(Clone)]
pub struct Guard {
    /// Authentication.
    pub auth: Arc<Auth>,
    /// The permissions of each path.
    pub permissions: Arc<Permissions>,
    /// Memory for request bodies.
    pub bodies: Bounded,
    /// Longest pause within a body.
    pub body_pause_max: Duration,
}

/// Why a request is refused.
struct Stopped {
    error: ErrorBody,
    retry_after: Option<Duration>,
}

impl From<ErrorBody> for Stopped {
    fn from(error: ErrorBody) -> Self {
        Self {
            error,
            retry_after: None,
        }
    }
}

/// Admits permitted requests, with their [`Principal`] and without their secret.
pub async fn guard(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    let Some(path) = request.extensions().get::<MatchedPath>() else {
        // No route: the fallback responds, with nothing that needs protection.
        return next.run(request).await;
    };
    let route = match guard.permissions.find(request.method(), path.as_str()) {
        RouteMatch::Route(route) => route,
        RouteMatch::OtherMethods => return wrong_method(request.method(), request.uri()),
        RouteMatch::Nothing => {
            let message = format!("{} is never served", path.as_str());
            return error_response(&ErrorBody::new(ErrorCode::Forbidden, message));
        }
    };
    match admit(&guard.auth, route, request.headers_mut()).await {
        Ok(principal) => {
            let request = bounded(&guard, request, route, &principal).await;
            match request {
                Ok(mut request) => {
                    request.extensions_mut().insert(principal);
                    answer(route, ANSWER_TIMEOUT, next.run(request)).await
                }
                Err(error) => error_response(&error),
            }
        }
        Err(stopped) => refused(&stopped),
    }
}

/// Runs the handler, with a timeout unless the gateway relays the request, which has its own.
async fn answer(
    route: &Route,
    timeout: Duration,
    answering: impl Future<Output = Response>,
) -> Response {
    if route.relayed {
        return answering.await;
    }
    let within = tokio::time::timeout(timeout, answering).await;
    within.unwrap_or_else(|_| {
        let message = format!(
            "{} was not answered within {} s; check whether it took effect before sending it again",
            route.path,
            timeout.as_secs()
        );
        error_response(&ErrorBody::new(ErrorCode::Overloaded, message))
    })
}

async fn admit(
    auth: &Auth,
    route: &Route,
    headers: &mut HeaderMap,
) -> Result<Arc<Principal>, Stopped> {
    let principal = identify(auth, headers, route.needs == Needs::Nothing).await?;
    let principal = in_chosen_tenant(auth, principal, headers)?;
    permit(auth, route, &principal, headers)?;
    if route.needs != Needs::Nothing {
        principal.tenant.rate.take().map_err(|wait| {
            let name = principal.tenant.tenant.name();
            let message = format!(
                "the tenant `{name}` exceeds its `requests_per_s`; wait {} ms",
                wait.as_millis().max(1)
            );
            Stopped {
                error: ErrorBody::new(ErrorCode::RateLimited, message),
                retry_after: Some(wait),
            }
        })?;
    }
    Ok(principal)
}

/// Identifies the caller. An expired session must not prevent a new one: on paths that need nothing
/// it counts as absent.
async fn identify(
    auth: &Auth,
    headers: &mut HeaderMap,
    needs_nothing: bool,
) -> Result<Arc<Principal>, ErrorBody> {
    match credentials::take(headers, auth.oidc.is_some()) {
        Credential::None => Ok(unknown(auth, headers)),
        Credential::Session(own) => match of_credential(auth, *own).await {
            Err(_) if needs_nothing => Ok(unknown(auth, headers)),
            known => known,
        },
        credential => of_credential(auth, credential).await,
    }
}

/// The owner of a token.
///
/// # Errors
/// It is not a token, or no longer valid.
pub async fn principal_of(auth: &Auth, token: &str) -> Result<Arc<Principal>, ErrorBody> {
    let credential = credentials::read(token, auth.oidc.is_some()).unwrap_or(Credential::None);
    of_credential(auth, credential).await
}

/// The token of a browser that returns from the identity provider with a code.
///
/// # Errors
/// No provider is configured, or it issues no trusted token.
pub async fn signed_in(
    auth: &Auth,
    pending: &Pending,
    code: &str,
    back_to: &str,
) -> Result<String, ErrorBody> {
    match &auth.oidc {
        Some(oidc) => {
            oidc.signed_in(pending, code, back_to, &auth.directory())
                .await
        }
        None => Err(ErrorBody::new(
            ErrorCode::TokenInvalid,
            "no identity provider is configured",
        )),
    }
}

async fn of_credential(auth: &Auth, credential: Credential) -> Result<Arc<Principal>, ErrorBody> {
    match credential {
        Credential::Secret(text) => auth
            .directory()
            .principal(&secret::hash(&text), now_us())
            .map_err(|refused| {
                let message = match refused.code() {
                    ErrorCode::TokenExpired => {
                        "the token has expired; rotate it or create a new one"
                    }
                    _ => "the token is unknown; create one with `treadle access tokens create`",
                };
                ErrorBody::new(refused.code(), message)
            }),
        Credential::Jwt(text) => match &auth.oidc {
            Some(oidc) => oidc.principal(&text, &auth.directory()).await,
            None => Ok(auth.directory().anonymous().clone()),
        },
        Credential::Several => Err(ErrorBody::new(
            ErrorCode::TokenInvalid,
            "the request carries two different tokens; send one",
        )),
        Credential::Unclear => Err(ErrorBody::new(
            ErrorCode::TokenInvalid,
            "the request has a token of treadle in a form that is not understood; send it as \
             `Authorization: Bearer tr_...`",
        )),
        Credential::None | Credential::Session(_) => Err(ErrorBody::new(
            ErrorCode::TokenInvalid,
            "this is not a token; tokens begin with `tr_`, and `treadle access tokens create` \
             creates one",
        )),
    }
}

/// The tenant that a request acts in. Its permissions are checked elsewhere.
///
/// # Errors
/// It needs a token and has none, its token is invalid, or it may not choose the tenant.
pub async fn tenant_of(auth: &Auth, headers: &HeaderMap) -> Result<Tenant, ErrorBody> {
    let mut headers = headers.clone();
    let principal = identify(auth, &mut headers, false).await?;
    let principal = in_chosen_tenant(auth, principal, &mut headers)?;
    if principal.scope.is_none() {
        let message = "this needs a token; send it as `Authorization: Bearer tr_...`";
        return Err(ErrorBody::new(ErrorCode::TokenMissing, message));
    }
    Ok(principal.tenant.tenant.clone())
}

fn unknown(auth: &Auth, headers: &HeaderMap) -> Arc<Principal> {
    let directory = auth.directory();
    let anonymous = directory.anonymous();
    if auth.anonymous.objection(headers).is_none() {
        return anonymous.clone();
    }
    Arc::new(Principal {
        scope: None,
        ..(**anonymous).clone()
    })
}

/// An admin of the whole daemon acts in the default tenant, or in the one named in the request.
fn in_chosen_tenant(
    auth: &Auth,
    principal: Arc<Principal>,
    headers: &mut HeaderMap,
) -> Result<Arc<Principal>, ErrorBody> {
    let Some(chosen) = headers.remove(TENANT_HEADER) else {
        return Ok(principal);
    };
    let chosen = chosen.to_str().unwrap_or_default();
    if !principal.root {
        let own = principal.tenant.tenant.name();
        if chosen == own {
            return Ok(principal);
        }
        let message = format!(
            "the caller acts in the tenant `{own}`; only an admin of the whole daemon may choose \
             another with x-treadle-tenant"
        );
        return Err(ErrorBody::new(ErrorCode::Forbidden, message));
    }
    let directory = auth.directory();
    let tenant = directory.tenants.get(chosen).ok_or_else(|| {
        let message = format!("no tenant `{chosen}`; `treadle access tenants` lists them");
        ErrorBody::new(ErrorCode::TenantUnknown, message)
    })?;
    Ok(Arc::new(Principal {
        tenant: tenant.clone(),
        whole: false,
        ..(*principal).clone()
    }))
}

fn permit(
    auth: &Auth,
    route: &Route,
    principal: &Principal,
    headers: &HeaderMap,
) -> Result<(), ErrorBody> {
    let is_anonymous = principal.who == super::PrincipalKind::Anonymous;
    let has = |scope: Scope| principal.scope.is_some_and(|own| own >= scope);
    let (allowed, wanted) = match route.needs {
        Needs::Nothing => return Ok(()),
        // Callers without a token are only admitted if the configuration makes everyone an admin.
        Needs::Token(scope) if is_anonymous => (has(Scope::Admin), scope.as_str()),
        Needs::Scope(scope) | Needs::Token(scope) => (has(scope), scope.as_str()),
        Needs::Machines if auth.has_one_tenant() => {
            (has(Scope::Operator), Scope::Operator.as_str())
        }
        Needs::Machines => (
            has(Scope::Operator) && principal.global,
            "operator of the whole daemon (there are several tenants, and engines are shared)",
        ),
        Needs::Root => (principal.root, "admin of the whole daemon"),
    };
    if allowed {
        return Ok(());
    }
    if is_anonymous {
        // If the path always needs a token, a local caller would be refused too.
        let is_open = match route.needs {
            Needs::Scope(scope) => auth.anonymous.scope >= Some(scope),
            Needs::Machines => {
                auth.has_one_tenant() && auth.anonymous.scope >= Some(Scope::Operator)
            }
            _ => false,
        };
        if let Some(why) = auth.anonymous.objection(headers).filter(|_| is_open) {
            return Err(why.refusal(&route.path));
        }
        let message = format!(
            "{} needs a token with the scope {wanted}; send it as `Authorization: Bearer tr_...`{}",
            route.path, auth.token_hint
        );
        return Err(ErrorBody::new(ErrorCode::TokenMissing, message));
    }
    let own = principal.scope.map_or("none", Scope::as_str);
    let message = format!(
        "{} needs the scope {wanted}, the token has {own}; ask an admin for another token",
        route.path
    );
    Err(ErrorBody::new(ErrorCode::Forbidden, message))
}

/// Reads bodies with a limit, within the memory for bodies; enforces the tenant's limit on others.
async fn bounded(
    guard: &Guard,
    request: Request,
    route: &Route,
    principal: &Principal,
) -> Result<Request, ErrorBody> {
    let Some(bytes_max) = route.bytes_max else {
        return held_to_limit(request, route, principal);
    };
    let tenant = &principal.tenant;
    let (bytes_max, all) = (principal.body_bytes_max(bytes_max), guard.bodies.1);
    let own_max = principal.share(tenant.limits.bodies_bytes, all);
    let limits = BodyLimits {
        bytes_max,
        pause_max: guard.body_pause_max,
        in_use: InUse::new([guard.bodies.clone(), (tenant.bodies_bytes.clone(), own_max)]),
    };
    let (mut parts, body) = request.into_parts();
    let read = body::read(&mut parts.headers, body, limits).await;
    let (body, in_use) = read.map_err(|mut error| {
        if error.code == ErrorCode::BodyTooLarge {
            error.message = format!(
                "{} accepts at most {bytes_max} bytes; send less",
                route.path
            );
        }
        error
    })?;
    Ok(Request::from_parts(parts, Body::from(in_use.hold(body))))
}

fn held_to_limit(
    request: Request,
    route: &Route,
    principal: &Principal,
) -> Result<Request, ErrorBody> {
    if route.relayed {
        return Ok(request);
    }
    refuse_coded(request.headers())?;
    let Some(max) = principal.tenant.limits.body_bytes else {
        return Ok(request);
    };
    let announced = request.headers().get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > max) {
        let message =
            format!("the tenant may send at most {max} bytes; have its `body_bytes` raised");
        return Err(ErrorBody::new(ErrorCode::BodyTooLarge, message));
    }
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    Ok(request.map(|body| Body::new(Limited::new(body, max))))
}

fn refused(stopped: &Stopped) -> Response {
    let mut response = error_response(&stopped.error);
    let headers = response.headers_mut();
    if stopped.error.code.status() == 401 {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(wait) = stopped.retry_after {
        let seconds = wait.as_millis().div_ceil(1_000).max(1);
        if let Ok(seconds) = HeaderValue::from_str(&seconds.to_string()) {
            headers.insert(header::RETRY_AFTER, seconds);
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    #[tokio::test]
    async fn what_is_not_relayed_has_a_deadline() {
        let mut route = Route {
            method: None,
            path: "/programs".into(),
            needs: Needs::Nothing,
            relayed: false,
            bytes_max: None,
        };
        let soon = Duration::from_millis(1);
        let late = tokio::time::timeout(Duration::from_mins(1), answer(&route, soon, pending()));
        assert_eq!(late.await.unwrap().status(), 503);
        route.relayed = true;
        let relayed = answer(&route, soon, pending());
        assert!(tokio::time::timeout(20 * soon, relayed).await.is_err());
    }
}
