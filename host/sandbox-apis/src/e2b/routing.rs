//! Finding the sandbox of a call to envd, and checking its caller's access.
//!
//! All sandboxes share one port. A call names its sandbox in a header or by its host name; some
//! calls of old clients do neither, and are routed by the sandbox's secret, which is unique.
//! Callers who may run programs of the sandbox's tenant need no secret.

use super::errors::{refuse, told};
use super::keys;
use super::request::{go_on, host};
use super::users::base64_of;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use treadle_auth::{Caller, Principal, Scope};
use treadle_runs::sandboxes::{Host, SandboxApp, refused};
use treadle_sandbox::{Sandbox, State as Life};
use treadle_wire::{ErrorBody, ErrorCode};

const ID: HeaderName = HeaderName::from_static("e2b-sandbox-id");
const PORT: HeaderName = HeaderName::from_static("e2b-sandbox-port");
const TOKEN: HeaderName = HeaderName::from_static("x-access-token");
/// The port of envd.
const ENVD_PORT: &str = "49983";
/// Length of a sandbox's name.
const ID_CHARS: usize = 21;

/// A sandbox that a caller may use.
pub(super) struct Reached {
    pub(super) host: Arc<Host>,
    pub(super) sandbox: Arc<Sandbox>,
    /// The caller in the sandbox's tenant, whose limits apply to the request.
    pub(super) principal: Arc<Principal>,
}

/// A signature of a URL, made with the sandbox's secret.
#[derive(Clone, Debug, Default)]
pub(super) struct Signature {
    /// The signed text: path, operation and user.
    pub(super) signed: String,
    /// The signature.
    pub(super) proof: String,
    /// When it expires, in seconds since 1970.
    pub(super) expiration: Option<u64>,
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let text = headers.get(name)?.to_str().ok()?;
    (!text.is_empty()).then_some(text)
}

/// Port and sandbox in a host name such as `49983-<sandbox>.example.com`.
fn of_host(headers: &HeaderMap) -> Option<(&str, &str)> {
    let host = text(headers, header::HOST)?;
    let (port, sandbox) = host.split('.').next()?.split_once('-')?;
    let is_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let is_id = sandbox.len() == ID_CHARS && sandbox.starts_with('s');
    (is_port && is_id).then_some((port, sandbox))
}

/// Refuses a request for a port of a sandbox other than envd's.
pub(super) fn other_port(request: &Request) -> Option<Response> {
    let headers = request.headers();
    let of_header = text(headers, ID).and_then(|id| Some((text(headers, PORT)?, id)));
    let (port, sandbox) = of_host(headers).or(of_header)?;
    (port != ENVD_PORT).then(|| {
        let message = format!("treadle serves no port of a sandbox, such as {port} of {sandbox}");
        refuse(ErrorCode::Unserved, message)
    })
}

/// The response of E2B's proxy for a sandbox that does not exist or is paused.
fn gone(id: &str) -> Response {
    let error = ErrorBody::new(ErrorCode::SandboxFailed, "The sandbox was not found");
    let mut body: Value = serde_json::from_slice(&error.to_json()).unwrap_or_default();
    body["code"] = json!(502);
    body["message"] = json!(error.message);
    body["sandboxId"] = json!(id);
    let head = [(header::CONTENT_TYPE, super::JSON)];
    (StatusCode::BAD_GATEWAY, head, Body::from(body.to_string())).into_response()
}

/// Whether two secrets are equal. Comparing digests leaks nothing through timing.
fn is_same(one: &str, other: &str) -> bool {
    Sha256::digest(one) == Sha256::digest(other)
}

impl Signature {
    /// Whether the signature was made with this secret.
    pub(super) fn is_of(&self, secret: &str) -> bool {
        let until = self
            .expiration
            .map_or_else(String::new, |until| format!(":{until}"));
        let whole = format!("{}:{secret}{until}", self.signed);
        let digest = base64_of(&Sha256::digest(whole));
        is_same(&format!("v1_{}", digest.trim_end_matches('=')), &self.proof)
    }

    fn is_over(&self) -> bool {
        let now_s = treadle_auth::now_us() / 1_000_000;
        self.expiration.is_some_and(|until| until < now_s)
    }
}

/// The sandbox of a call.
fn named(
    host: &Host,
    headers: &HeaderMap,
    signature: Option<&Signature>,
) -> Result<Arc<Sandbox>, Response> {
    let named = text(headers, ID).or_else(|| of_host(headers).map(|(_, id)| id));
    if let Some(id) = named {
        return host.sandboxes.get(id).map_err(|_| gone(id));
    }
    if let Some(token) = text(headers, TOKEN) {
        let found = host.sandboxes.with_secret(|secret| is_same(secret, token));
        return found.ok_or_else(|| gone(""));
    }
    if let Some(signature) = signature {
        let found = host.sandboxes.with_secret(|secret| signature.is_of(secret));
        return found.ok_or_else(|| gone(""));
    }
    Err(unnamed())
}

fn unnamed() -> Response {
    refuse(
        ErrorCode::InvalidField,
        "the request names no sandbox; send the header `E2b-Sandbox-Id`",
    )
}

/// Whether a request names a sandbox.
pub(crate) fn is_named(headers: &HeaderMap) -> bool {
    headers.contains_key(ID) || headers.contains_key(TOKEN) || of_host(headers).is_some()
}

/// Whether a caller may run programs, and so use sandboxes.
pub(super) fn may_run(principal: &Principal) -> bool {
    principal.scope.is_some_and(|scope| scope >= Scope::Job)
}

/// The caller in the sandbox's tenant, unless that exceeds its request rate.
fn in_tenant(
    app: &SandboxApp,
    caller: &Caller,
    sandbox: &Sandbox,
) -> Result<Arc<Principal>, Response> {
    let tenant = app.tenants.get(&sandbox.tenant());
    let tenant = tenant.ok_or_else(|| gone(sandbox.id()))?;
    if let Err(wait) = tenant.rate.take() {
        let message = format!(
            "the tenant sends more requests than its `requests_per_s`; wait {} ms",
            wait.as_millis().max(1)
        );
        return Err(refuse(ErrorCode::RateLimited, message));
    }
    Ok(Arc::new(Principal {
        tenant,
        ..(*caller.principal).clone()
    }))
}

/// Whether the caller may use a sandbox.
fn permit(
    caller: &Caller,
    sandbox: &Sandbox,
    headers: &HeaderMap,
    signature: Option<&Signature>,
) -> Result<(), Response> {
    let secret = sandbox.secret();
    if let Some(token) = headers.get(TOKEN) {
        let is_right = token.to_str().is_ok_and(|token| is_same(token, &secret));
        return if is_right {
            Ok(())
        } else {
            Err(refuse(
                ErrorCode::TokenInvalid,
                "the X-Access-Token is wrong",
            ))
        };
    }
    if let Some(signature) = signature {
        if !signature.is_of(&secret) {
            return Err(refuse(ErrorCode::TokenInvalid, "the signature is wrong"));
        }
        if signature.is_over() {
            return Err(refuse(
                ErrorCode::TokenInvalid,
                "the signature has expired; make a new URL",
            ));
        }
        return Ok(());
    }
    let principal = &caller.principal;
    if may_run(principal) && principal.tenant.tenant.name() == sandbox.tenant() {
        return Ok(());
    }
    let message = "this needs the header `X-Access-Token` with the sandbox's `envdAccessToken`";
    Err(refuse(ErrorCode::TokenInvalid, message))
}

/// The sandbox of a call to envd, if it exists and the caller may use it. A paused sandbox does not
/// count as existing, unless calls resume it.
pub(super) async fn reach(
    app: &SandboxApp,
    caller: &Caller,
    headers: &HeaderMap,
    signature: Option<&Signature>,
) -> Result<Reached, Response> {
    if !is_named(headers) && signature.is_none() {
        return Err(unnamed());
    }
    if app.host.is_none() && app.nodes.is_some() {
        return Err(gone(called(headers).map_or("", |(named, _)| named)));
    }
    let host = host(app)?;
    let sandbox = named(host, headers, signature)?;
    permit(caller, &sandbox, headers, signature)?;
    let principal = in_tenant(app, caller, &sandbox)?;
    let status = sandbox.status();
    match status.state {
        Life::Paused if keys::is_resumed_by_calls(&status.spec.labels) => {
            let resumed = go_on(&sandbox, None).await;
            resumed.map_err(|error| told(&refused(&error)))?;
        }
        Life::Paused | Life::Failed(_) | Life::Removed => return Err(gone(sandbox.id())),
        Life::Preparing | Life::Ready | Life::Stopped => {}
    }
    let host = host.clone();
    Ok(Reached {
        host,
        sandbox,
        principal,
    })
}

/// The name of the sandbox in a call, or its secret; true for the secret.
pub(crate) fn called(headers: &HeaderMap) -> Option<(&str, bool)> {
    let named = text(headers, ID).or_else(|| of_host(headers).map(|(_, id)| id));
    match named {
        Some(named) => Some((named, false)),
        None => Some((text(headers, TOKEN)?, true)),
    }
}

/// Whether a sandbox accepts calls.
pub async fn is_well(State(app): State<SandboxApp>, caller: Caller, request: Request) -> Response {
    match reach(&app, &caller, request.headers(), None).await {
        Ok(_) => StatusCode::NO_CONTENT.into_response(),
        Err(refusal) => refusal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            let value = value.parse().expect("a header");
            (HeaderName::from_static(name), value)
        });
        pairs.collect()
    }

    #[test]
    fn a_host_name_names_a_sandbox() {
        let id = "sabcdefghijklmnopqrst";
        let host = format!("49983-{id}.treadle.example:8300");
        assert_eq!(of_host(&headers(&[("host", &host)])), Some(("49983", id)));
        for other in [
            "127.0.0.1:8300",
            "gpu-box",
            "10-x.example",
            "localhost",
            "8-sx.y",
        ] {
            assert_eq!(of_host(&headers(&[("host", other)])), None, "{other}");
        }
        let request = |pairs: &[(&'static str, &str)]| {
            let mut request = Request::new(Body::empty());
            *request.headers_mut() = headers(pairs);
            other_port(&request).map(|refusal| refusal.status().as_u16())
        };
        assert_eq!(request(&[("host", &host)]), None);
        assert_eq!(
            request(&[("host", &host.replace("49983", "8080"))]),
            Some(501)
        );
        assert_eq!(
            request(&[("e2b-sandbox-id", id), ("e2b-sandbox-port", "80")]),
            Some(501)
        );
        assert_eq!(
            request(&[("e2b-sandbox-id", id), ("e2b-sandbox-port", "49983")]),
            None
        );
        assert_eq!(request(&[("host", "localhost")]), None);
    }

    #[test]
    fn a_signature_is_of_one_secret() {
        // As e2b 2.63.0 makes them.
        let signature = Signature {
            signed: "/a b:read:user".to_owned(),
            proof: "v1_eOAX7IaXLyUTwYy2Pm+vUtrzgsOekQjop6VCbElaxL8".to_owned(),
            expiration: Some(1_800_000_000),
        };
        assert!(signature.is_of("secret"));
        assert!(!signature.is_of("other"));
        let later = Signature {
            expiration: Some(1_900_000_000),
            ..signature.clone()
        };
        assert!(!later.is_of("secret"));
        assert!(
            Signature {
                expiration: Some(1),
                ..signature
            }
            .is_over()
        );
    }
}
