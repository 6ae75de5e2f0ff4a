//! How a daemon that forwards a request proves its origin.
//!
//! The receiving daemon sees the forwarding one as its client. So the client's address is sent
//! along with an HMAC over it and the request, keyed by the daemons' shared secret: only daemons of
//! the cluster can act for others.

use super::limits::TenantLimits;
use super::scope::Scope;
use super::secret::hex;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use ring::hmac::{HMAC_SHA256, Key, sign};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Marks a forwarded request, with a proof; it is not forwarded again.
const PASSED_ON: HeaderName = HeaderName::from_static("x-treadle-passed-on");
/// The caller for whom a daemon sends a request to a node.
const VOUCHED: HeaderName = HeaderName::from_static("x-treadle-vouched");
/// The limits of that tenant.
const ALLOWED: HeaderName = HeaderName::from_static("x-treadle-allowed");
/// The address that the request came from.
const CLIENT: HeaderName = HeaderName::from_static("x-treadle-client");

/// A tenant's limits, and the number of tenants.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Allowed {
    /// Number of tenants.
    pub tenants: usize,
    /// Limits of this tenant.
    pub limits: TenantLimits,
}

/// The caller that a daemon vouches for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Vouched {
    /// The tenant.
    pub tenant: String,
    /// The caller's scope.
    pub scope: Option<Scope>,
    /// The tenant's limits, if needed.
    pub allowed: Option<Allowed>,
}

/// How a request arrived, according to its headers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Way {
    /// From its client.
    Direct,
    /// From another daemon, for this client, if that is known.
    PassedOn(Option<SocketAddr>),
    /// From a caller that pretends to be another daemon, or a daemon with another secret.
    Unproven,
}

/// Marks a request as forwarded for a client.
pub fn mark(
    secret: &str,
    client: Option<SocketAddr>,
    method: &Method,
    uri: &Uri,
    headers: &mut HeaderMap,
) {
    let client = client.map_or_else(String::new, |client| client.to_string());
    let proof = proof(secret, &client, method, uri);
    for (name, text) in [(CLIENT, client), (PASSED_ON, proof)] {
        // Addresses and hexadecimal digits are values of headers.
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert(name, value);
        }
    }
}

/// Removes the mark from a request, and returns its meaning.
pub fn take(secret: &str, method: &Method, uri: &Uri, headers: &mut HeaderMap) -> Way {
    let (client, marked) = (headers.remove(CLIENT), headers.remove(PASSED_ON));
    let Some(marked) = marked else {
        return Way::Direct;
    };
    let client = client.as_ref().and_then(|client| client.to_str().ok());
    let client = client.unwrap_or_default();
    if secret.is_empty() || !is_same(&marked, &proof(secret, client, method, uri)) {
        return Way::Unproven;
    }
    Way::PassedOn(client.parse().ok())
}

/// Adds headers that vouch to a node for a tenant's request, with its scope and the tenant's
/// limits.
pub fn vouch(
    secret: &str,
    tenant: &str,
    scope: Option<Scope>,
    allowed: Option<&Allowed>,
    method: &Method,
    uri: &Uri,
    headers: &mut HeaderMap,
) {
    let who = format!("{}:{tenant}", scope.map_or("none", Scope::as_str));
    let allowed = allowed
        .and_then(|allowed| serde_json::to_string(allowed).ok())
        .unwrap_or_default();
    let proof = proof(secret, &format!("vouched {who} {allowed}"), method, uri);
    for (name, text) in [(VOUCHED, who), (ALLOWED, allowed), (PASSED_ON, proof)] {
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert(name, value);
        }
    }
}

/// The caller that the daemon vouches for, with its tenant's limits; `None` without a valid proof.
pub fn vouched(
    secret: &str,
    method: &Method,
    uri: &Uri,
    headers: &mut HeaderMap,
) -> Option<Vouched> {
    let allowed = headers.remove(ALLOWED);
    let (who, marked) = (headers.remove(VOUCHED)?, headers.remove(PASSED_ON)?);
    let (who, allowed) = (who.to_str().ok()?, allowed.as_ref());
    let allowed = allowed.map_or(Some(""), |text| text.to_str().ok())?;
    let told = format!("vouched {who} {allowed}");
    if secret.is_empty() || !is_same(&marked, &proof(secret, &told, method, uri)) {
        return None;
    }
    let (scope, tenant) = who.split_once(':')?;
    Some(Vouched {
        tenant: tenant.to_owned(),
        scope: Scope::from_name(scope),
        allowed: serde_json::from_str(allowed).ok(),
    })
}

/// Comparing digests leaks nothing of the proof through timing.
fn is_same(marked: &HeaderValue, expected: &str) -> bool {
    let hash = |bytes: &[u8]| ring::digest::digest(&ring::digest::SHA256, bytes);
    hash(marked.as_bytes()).as_ref() == hash(expected.as_bytes()).as_ref()
}

fn proof(secret: &str, client: &str, method: &Method, uri: &Uri) -> String {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let text = format!("treadle passed on\n{client}\n{method}\n{path}");
    let key = Key::new(HMAC_SHA256, secret.as_bytes());
    hex(sign(&key, text.as_bytes()).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef";

    #[test]
    fn only_who_knows_the_secret_says_for_whom_it_asks() {
        let (get, post) = (Method::GET, Method::POST);
        let uri: Uri = "http://a:1/api/v1/tokens?x=1".parse().unwrap();
        // The host differs from daemon to daemon.
        let here: Uri = "/api/v1/tokens?x=1".parse().unwrap();
        let other: Uri = "/api/v1/tokens".parse().unwrap();
        let client: SocketAddr = "10.0.0.7:5000".parse().unwrap();
        let mut marked = HeaderMap::new();
        marked.insert(CLIENT, HeaderValue::from_static("6.6.6.6:6"));
        assert_eq!(take(SECRET, &get, &here, &mut marked.clone()), Way::Direct);
        mark(SECRET, Some(client), &get, &uri, &mut marked);
        let taken = |secret: &str, method: &Method, uri: &Uri, headers: &HeaderMap| {
            let mut headers = headers.clone();
            let way = take(secret, method, uri, &mut headers);
            assert!(headers.is_empty());
            way
        };
        assert_eq!(
            taken(SECRET, &get, &here, &marked),
            Way::PassedOn(Some(client))
        );
        for (secret, method, uri) in [
            ("another secret of theirs", &get, &here),
            ("", &get, &here),
            (SECRET, &post, &here),
            (SECRET, &get, &other),
        ] {
            assert_eq!(taken(secret, method, uri, &marked), Way::Unproven);
        }
        marked.insert(CLIENT, HeaderValue::from_static("6.6.6.6:6"));
        assert_eq!(taken(SECRET, &get, &here, &marked), Way::Unproven);
        marked.insert(PASSED_ON, HeaderValue::from_static("1"));
        assert_eq!(taken(SECRET, &get, &here, &marked), Way::Unproven);
        let mut unknown = HeaderMap::new();
        mark(SECRET, None, &get, &uri, &mut unknown);
        assert_eq!(taken(SECRET, &get, &here, &unknown), Way::PassedOn(None));
    }

    #[test]
    fn a_node_is_vouched_for_one_tenant_and_one_request() {
        let (get, post) = (Method::GET, Method::POST);
        let uri: Uri = "http://n:1/sandboxes/s1?x=1".parse().unwrap();
        let here: Uri = "/sandboxes/s1?x=1".parse().unwrap();
        let allowed = Allowed {
            tenants: 3,
            limits: TenantLimits::default(),
        };
        let mut headers = HeaderMap::new();
        assert_eq!(vouched(SECRET, &get, &here, &mut headers), None);
        vouch(
            SECRET,
            "red",
            Some(Scope::Job),
            Some(&allowed),
            &get,
            &uri,
            &mut headers,
        );
        let of = |secret: &str, method: &Method, headers: &HeaderMap| {
            vouched(secret, method, &here, &mut headers.clone())
        };
        let who = |scope, allowed: Option<&Allowed>| {
            Some(Vouched {
                tenant: "red".to_owned(),
                scope,
                allowed: allowed.cloned(),
            })
        };
        let job = who(Some(Scope::Job), Some(&allowed));
        assert_eq!(of(SECRET, &get, &headers), job);
        let mut more = headers.clone();
        more.insert(ALLOWED, HeaderValue::from_static("{}"));
        assert_eq!(of(SECRET, &get, &more), None);
        assert_eq!(of(SECRET, &post, &headers), None);
        assert_eq!(of("another secret", &get, &headers), None);
        headers.insert(VOUCHED, HeaderValue::from_static("admin:red"));
        assert_eq!(of(SECRET, &get, &headers), None);
        let mut headers = HeaderMap::new();
        vouch(SECRET, "red", None, None, &get, &uri, &mut headers);
        assert_eq!(of(SECRET, &get, &headers), who(None, None));
        // What proves where a request of a daemon's came from proves nothing here.
        let mut passed = HeaderMap::new();
        mark(SECRET, None, &get, &uri, &mut passed);
        passed.insert(VOUCHED, HeaderValue::from_static("admin:red"));
        assert_eq!(of(SECRET, &get, &passed), None);
    }
}
