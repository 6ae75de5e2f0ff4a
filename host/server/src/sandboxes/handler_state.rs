//! What handlers of requests about sandboxes share, in a daemon and in a node's agent.

use super::Host;
use crate::nodes::Nodes;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use treadle_auth::rate::Rate;
use treadle_auth::{Auth, TenantLimits, TenantState};
use treadle_http::Bounded;
use treadle_model::Tenant;

/// Tenants that an agent remembers at most.
const TENANTS_MAX: usize = 10_000;

/// What handlers of requests about sandboxes share.
#[derive(Clone)]
pub(crate) struct SandboxApp {
    /// Sandboxes of this machine, where it has any.
    pub(crate) host: Option<Arc<Host>>,
    /// What people call this node, where it is one.
    pub(crate) node: Option<String>,
    /// Machines that have sandboxes for this daemon, where it may have any.
    pub(crate) nodes: Option<Arc<Nodes>>,
    /// Whose requests come.
    pub(crate) tenants: Tenants,
    /// Bytes of all bodies that are held.
    pub(crate) bodies: Bounded,
    /// Longest pause within a body.
    pub(crate) body_timeout: Duration,
}

/// Whose requests come.
#[derive(Clone)]
pub(crate) enum Tenants {
    /// Those that a daemon knows.
    Known(Arc<Auth>),
    /// Those that an agent's daemon lets in, which has checked their limits.
    LetIn(Arc<Mutex<BTreeMap<String, Arc<TenantState>>>>),
}

impl Tenants {
    /// Those of an agent.
    pub(crate) fn let_in() -> Self {
        Self::LetIn(Arc::default())
    }

    /// A tenant, if it is known.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<TenantState>> {
        match self {
            Self::Known(auth) => auth.directory().tenants.get(name).cloned(),
            Self::LetIn(seen) => {
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                if seen.len() >= TENANTS_MAX {
                    seen.clear();
                }
                let state = seen.entry(name.to_owned());
                Some(state.or_insert_with(|| Arc::new(unlimited(name))).clone())
            }
        }
    }
}

fn unlimited(name: &str) -> TenantState {
    TenantState {
        tenant: Tenant::new(name),
        created_at_us: 0,
        limits: TenantLimits::default(),
        rate: Rate::new(None),
        steps: Arc::default(),
        bodies_bytes: Arc::default(),
    }
}
