//! What handlers of requests about sandboxes share, in a daemon and in a node's agent.

use super::Host;
use crate::nodes::Nodes;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use treadle_auth::limits::share;
use treadle_auth::rate::Rate;
use treadle_auth::relay::Allowed;
use treadle_auth::{Auth, TenantLimits, TenantState};
use treadle_http::Bounded;
use treadle_model::Tenant;
use treadle_sandbox::{Shared, Shares};

/// Most tenants that an agent remembers.
const TENANTS_MAX: usize = 10_000;

/// What handlers of requests about sandboxes share.
#[derive(Clone)]
pub struct SandboxApp {
    /// Sandboxes of this machine, if it runs any.
    pub host: Option<Arc<Host>>,
    /// The name of this node, if it is one.
    pub node: Option<String>,
    /// The nodes of this daemon, if it accepts any.
    pub nodes: Option<Arc<Nodes>>,
    /// The tenants of requests.
    pub tenants: Tenants,
    /// Memory for request bodies.
    pub bodies: Bounded,
    /// Longest pause within a body.
    pub body_timeout: Duration,
}

/// The tenants of requests.
#[derive(Clone)]
pub enum Tenants {
    /// The tenants of a daemon.
    Known(Arc<Auth>),
    /// The tenants that a node's daemon has admitted, with their latest limits.
    LetIn(Arc<Mutex<LetIn>>),
}

/// Tenants that a node's daemon has admitted.
#[derive(Default)]
pub struct LetIn {
    by_name: BTreeMap<String, Arc<TenantState>>,
    /// Number of tenants; 0 until reported.
    tenants: usize,
}

impl Tenants {
    /// The tenants of a new agent.
    pub fn let_in() -> Self {
        Self::LetIn(Arc::default())
    }

    /// A tenant, if it is known.
    pub fn get(&self, name: &str) -> Option<Arc<TenantState>> {
        Some(self.let_in_as(name, None)?.0)
    }

    /// Returns a tenant and the number of tenants. An agent first stores what its daemon reports of
    /// the tenant.
    pub fn let_in_as(
        &self,
        name: &str,
        allowed: Option<Allowed>,
    ) -> Option<(Arc<TenantState>, usize)> {
        match self {
            Self::Known(auth) => {
                let directory = auth.directory();
                let state = directory.tenants.get(name)?.clone();
                Some((state, directory.tenants.len()))
            }
            Self::LetIn(seen) => Some(lock(seen).take_in(name, allowed)),
        }
    }
}

impl LetIn {
    fn take_in(&mut self, name: &str, allowed: Option<Allowed>) -> (Arc<TenantState>, usize) {
        if self.by_name.len() >= TENANTS_MAX {
            self.by_name.clear();
        }
        let known = self.by_name.get(name);
        let limits = match allowed {
            Some(Allowed { tenants, limits }) => {
                self.tenants = tenants;
                limits
            }
            None => known.map_or_else(TenantLimits::default, |known| known.limits.clone()),
        };
        let state = match known.filter(|known| known.limits == limits) {
            Some(known) => known.clone(),
            None => Arc::new(state_of(name, limits, known)),
        };
        self.by_name.insert(name.to_owned(), state.clone());
        (state, self.tenants.max(1))
    }
}

impl fmt::Debug for Tenants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tenants")
    }
}

impl Shares for Tenants {
    fn most(&self, tenant: &str, of: Shared, all: u64) -> u64 {
        let limit = |limits: &TenantLimits| match of {
            Shared::Sandboxes => limits.sandboxes,
            Shared::Snapshots | Shared::OutputBytes => None,
            Shared::CopiesBytes => limits.snapshot_bytes,
            Shared::FilesBytes => limits.sandbox_bytes,
            Shared::MemoryBytes => {
                let percent = limits.action_percent;
                percent.map(|percent| (all / 100).saturating_mul(percent))
            }
        };
        match self {
            Self::Known(auth) => auth.directory().most(tenant, limit, all),
            Self::LetIn(seen) => {
                let seen = lock(seen);
                let state = seen.by_name.get(tenant);
                let own = state.and_then(|state| limit(&state.limits));
                share(own, all, seen.tenants)
            }
        }
    }
}

fn lock(seen: &Mutex<LetIn>) -> MutexGuard<'_, LetIn> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A tenant with the limits that its daemon reports; the daemon has already checked its request
/// rate. Counts of running requests are kept.
fn state_of(name: &str, limits: TenantLimits, known: Option<&Arc<TenantState>>) -> TenantState {
    TenantState {
        tenant: Tenant::new(name),
        created_at_us: 0,
        rate: Rate::new(None),
        steps: known.map(|known| known.steps.clone()).unwrap_or_default(),
        bodies_bytes: known
            .map(|known| known.bodies_bytes.clone())
            .unwrap_or_default(),
        limits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_holds_tenants_to_what_their_daemon_said_of_them_last() {
        let tenants = Tenants::let_in();
        let most = |tenant| tenants.most(tenant, Shared::Sandboxes, 12);
        assert_eq!(most("red"), 12, "nothing was said of other tenants");
        let with = |sandboxes| TenantLimits {
            sandboxes,
            ..TenantLimits::default()
        };
        let allowed = |tenants, limits| Some(Allowed { tenants, limits });
        tenants.let_in_as("red", allowed(3, with(None)));
        let (blue, count) = tenants
            .let_in_as("blue", allowed(3, with(Some(7))))
            .expect("known");
        assert_eq!((most("red"), most("blue"), count), (4, 7, 3));
        let again = tenants.get("blue").expect("known");
        assert!(Arc::ptr_eq(&blue, &again), "who only looks changes nothing");
        tenants.let_in_as("red", allowed(2, with(None)));
        assert_eq!(most("red"), 6);
    }
}
