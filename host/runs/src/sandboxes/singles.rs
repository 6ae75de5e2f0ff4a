//! Limits concurrent requests with their own sandbox, in total and per tenant, so that no tenant's
//! requests wait behind another's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Permits for requests with their own sandbox.
#[derive(Debug)]
pub struct Singles {
    most: usize,
    by_tenant: Mutex<BTreeMap<String, Turns>>,
}

#[derive(Debug)]
struct Turns {
    most: usize,
    turns: Arc<Semaphore>,
}

impl Singles {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            by_tenant: Mutex::default(),
        }
    }

    /// Waits for a permit of a tenant, out of `tenants`.
    pub async fn turn(&self, tenant: &str, tenants: usize) -> Option<OwnedSemaphorePermit> {
        let turns = self.of(tenant, tenants);
        turns.acquire_owned().await.ok()
    }

    /// If the share has changed, requests that wait or run keep the old semaphore.
    fn of(&self, tenant: &str, tenants: usize) -> Arc<Semaphore> {
        let most = (self.most / tenants.max(1)).max(1);
        let mut by_tenant = self
            .by_tenant
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        by_tenant.retain(|name, turns| name == tenant || Arc::strong_count(&turns.turns) > 1);
        let new = || Turns {
            most,
            turns: Arc::new(Semaphore::new(most)),
        };
        let own = by_tenant.entry(tenant.to_owned()).or_insert_with(new);
        if own.most != most {
            *own = new();
        }
        own.turns.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_tenant_waits_behind_its_own_alone() {
        let singles = Singles::new(4);
        let first = singles.turn("red", 2).await;
        let second = singles.turn("red", 2).await;
        assert!(singles.of("red", 2).try_acquire().is_err());
        let other = singles.turn("blue", 2).await;
        assert!(other.is_some());
        drop(first);
        assert!(singles.of("red", 2).try_acquire().is_ok());
        drop((second, other));
        assert!(singles.turn("red", 100).await.is_some(), "one at least");
        assert_eq!(
            singles.by_tenant.lock().unwrap().len(),
            1,
            "nobody is remembered"
        );
    }
}
