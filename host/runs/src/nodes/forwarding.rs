//! Forwarding requests to nodes, with the callers' identity.

use super::Nodes;
use crate::proxy::Unreachable;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::Response;
use std::sync::Arc;
use std::time::Duration;
use treadle_auth::relay::Allowed;
use treadle_auth::{Principal, Scope, relay};
use treadle_model::tenant::DEFAULT_TENANT;

/// Timeout of the daemon's own requests to nodes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// Largest response to such a request.
const ANSWER_BYTES_MAX: usize = 64 << 20;

impl Nodes {
    /// The URL of a node; `None` while it is disconnected.
    pub fn url_of(&self, mark: &str) -> Option<String> {
        let state = self.lock();
        let node = state.nodes.get(mark).filter(|node| node.link.is_some())?;
        Some(node.hello.as_ref()?.url.clone())
    }

    /// Marks and URLs of connected nodes.
    pub fn linked(&self) -> Vec<(String, String)> {
        let state = self.lock();
        let linked = state.nodes.iter().filter(|(_, node)| node.link.is_some());
        let linked = linked.filter_map(|(mark, node)| {
            let hello = node.hello.as_ref()?;
            Some((mark.clone(), hello.url.clone()))
        });
        linked.collect()
    }

    /// Forwards a request to a node.
    pub async fn send(&self, url: &str, request: Request) -> Result<Response<Body>, Unreachable> {
        let principal = request.extensions().get::<Arc<Principal>>().cloned();
        let (tenant, scope) = principal.as_ref().map_or(("", None), |principal| {
            (principal.tenant.tenant.name(), principal.scope)
        });
        let allowed = principal.as_ref().map(|principal| Allowed {
            tenants: principal.tenants,
            limits: principal.tenant.limits.clone(),
        });
        let (secret, allowed) = (self.secret.reveal(), allowed.as_ref());
        let passed = self.proxy.pass_on(url, request, |method, uri, headers| {
            relay::vouch(secret, tenant, scope, allowed, method, uri, headers);
        });
        passed.await.inspect_err(|error| {
            tracing::warn!(url, %error, "a request could not be forwarded to a node");
        })
    }

    /// Sends the daemon's own request to a node.
    pub(crate) async fn send_own(
        &self,
        url: &str,
        request: Request,
    ) -> Result<Response<Body>, Unreachable> {
        let passed = self.proxy.pass_on(url, request, |method, uri, headers| {
            let (secret, scope) = (self.secret.reveal(), Some(Scope::Operator));
            relay::vouch(secret, DEFAULT_TENANT, scope, None, method, uri, headers);
        });
        passed.await
    }

    /// Sends the daemon's own request to a node, and returns the response's body if it succeeds.
    pub async fn told(&self, url: &str, path: &str, tenant: &str) -> Option<Bytes> {
        let asking = async {
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = path.parse().ok()?;
            let passed = self.proxy.pass_on(url, request, |method, uri, headers| {
                let (secret, scope) = (self.secret.reveal(), Some(Scope::Viewer));
                relay::vouch(secret, tenant, scope, None, method, uri, headers);
            });
            let response = passed.await.ok()?;
            if !response.status().is_success() {
                return None;
            }
            to_bytes(response.into_body(), ANSWER_BYTES_MAX).await.ok()
        };
        tokio::time::timeout(ANSWER_TIMEOUT, asking)
            .await
            .ok()
            .flatten()
    }
}
