//! The caller, its tenant and its scope.

use super::limits::share;
use super::scope::Scope;
use super::tenant_state::TenantState;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use treadle_http::{ClientAddress, refuse};
use treadle_model::ClientName;
use treadle_wire::{ErrorBody, ErrorCode};

/// Longest id of a request that a client may choose, in bytes.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// The kind of caller.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PrincipalKind {
    /// A caller without a token.
    Anonymous,
    /// The owner of this token.
    Token {
        /// Its id.
        id: String,
        /// Its descriptive name.
        name: String,
    },
    /// A caller authenticated by the identity provider.
    Subject(String),
    /// A client of the message broker, which checked it.
    Broker,
}

impl fmt::Display for PrincipalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anonymous => write!(f, "anonymous"),
            Self::Token { id, name } => write!(f, "token {id} ({name})"),
            Self::Subject(subject) => write!(f, "subject {subject}"),
            Self::Broker => write!(f, "broker"),
        }
    }
}

/// The caller, its tenant and its scope.
#[derive(Clone, Debug)]
pub struct Principal {
    /// The tenant that it acts in.
    pub tenant: Arc<TenantState>,
    /// Its scope; `None` if it has none.
    pub scope: Option<Scope>,
    /// True for a token of the whole daemon: within its scope it may change what all tenants share.
    pub global: bool,
    /// True for an admin of the whole daemon.
    pub root: bool,
    /// True for an admin of the whole daemon who has chosen no tenant.
    pub whole: bool,
    /// Number of tenants of the daemon, including its own.
    pub tenants: usize,
    /// Its identity.
    pub who: PrincipalKind,
}

impl Principal {
    /// Whether no other tenant shares the engines.
    pub fn is_alone(&self) -> bool {
        self.tenants <= 1
    }

    /// The internal name of a client's program or job.
    pub fn inside(&self, name: &ClientName) -> String {
        self.tenant.tenant.inside(name).into_owned()
    }

    /// Whether uploads of its tenant need no signature.
    pub fn takes_unsigned(&self) -> bool {
        self.tenant.limits.unsigned_plugins
    }

    /// The client's name for an internal name; `None` if it belongs to another tenant.
    pub fn outside<'n>(&self, inside: &'n str) -> Option<&'n str> {
        self.tenant.tenant.outside(inside)
    }

    /// Its tenant's part of a total of `all`: the tenant's limit, else an equal share, so that no
    /// tenant starves the others.
    pub fn share(&self, own: Option<u64>, all: u64) -> u64 {
        share(own, all, self.tenants)
    }

    /// Largest body that it may send, in bytes, if the daemon accepts `daemon_max`.
    pub fn body_bytes_max(&self, daemon_max: usize) -> usize {
        let own = self.tenant.limits.body_bytes.unwrap_or(u64::MAX);
        daemon_max.min(usize::try_from(own).unwrap_or(usize::MAX))
    }

    /// Checks that another plugin may be stored beside `count` plugins of `bytes` in total.
    ///
    /// # Errors
    /// [`ErrorCode::TenantLimit`] with the limit that it would exceed.
    pub fn check_plugin(
        &self,
        count: u64,
        bytes: u64,
        new_bytes: u64,
        signed: bool,
    ) -> Result<(), ErrorBody> {
        let limits = &self.tenant.limits;
        let name = self.tenant.tenant.name();
        let limited = |limit: &str, what: String| {
            let message = format!(
                "the tenant `{name}` {what}; an admin of the daemon can raise `{limit}` with \
                 `treadle access tenants set {name}`"
            );
            Err(ErrorBody::new(ErrorCode::TenantLimit, message))
        };
        if !signed && !limits.unsigned_plugins {
            return limited("unsigned_plugins", "takes no unsigned plugins".into());
        }
        if let Some(max) = limits.plugins.filter(|max| count >= *max) {
            return limited("plugins", format!("has {count} plugins of {max}"));
        }
        let total = bytes.saturating_add(new_bytes);
        if let Some(max) = limits.plugin_bytes.filter(|max| total > *max) {
            let what = format!("would have {total} bytes of plugins, of {max}");
            return limited("plugin_bytes", what);
        }
        Ok(())
    }
}

/// A request's principal, and how it is distinguished from others in the audit log.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The caller.
    pub principal: Arc<Principal>,
    /// The address that the request came from.
    pub address: Option<SocketAddr>,
    /// The client's `x-request-id`, or a generated one.
    pub request_id: String,
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = NoPrincipal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, NoPrincipal> {
        let principal = parts.extensions.get::<Arc<Principal>>();
        let principal = principal.ok_or(NoPrincipal)?.clone();
        let given = parts.headers.get("x-request-id");
        let given = given.and_then(|value| value.to_str().ok());
        let is_name = |id: &&str| {
            !id.is_empty() && id.len() <= REQUEST_ID_BYTES_MAX && !id.contains(char::is_control)
        };
        let given = given.filter(is_name);
        let address = parts.extensions.get::<ClientAddress>();
        Ok(Self {
            principal,
            address: address.map(|address| address.0),
            request_id: given.map_or_else(next_request_id, str::to_owned),
        })
    }
}

fn next_request_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("r{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A request that did not pass the guard; a fault in the router.
#[derive(Clone, Copy, Debug)]
pub struct NoPrincipal;

impl axum::response::IntoResponse for NoPrincipal {
    fn into_response(self) -> axum::response::Response {
        let message = "the request was not checked; please report this";
        refuse(ErrorCode::Internal, message)
    }
}
