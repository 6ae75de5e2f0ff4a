//! Disk usage of copies of sandboxes' files, by tenant. A copy is a layer under snapshots and
//! forked sandboxes, and counts until its folder is removed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::config::SandboxConfig;
use crate::error::SandboxError;
use crate::shares::Shared;

/// The size and tenant of a copy.
#[derive(Clone, Debug)]
struct Copy {
    tenant: String,
    bytes: u64,
}

/// All copies of an agent, by layer.
#[derive(Debug, Default)]
pub(crate) struct Copies(Mutex<BTreeMap<String, Copy>>);

impl Copies {
    /// Adds a copy, or updates its size.
    pub(crate) fn put(&self, layer: &str, tenant: &str, bytes: u64) {
        let tenant = tenant.to_owned();
        self.lock().insert(layer.to_owned(), Copy { tenant, bytes });
    }

    /// Removes a copy that is deleted or was not made.
    pub(crate) fn gone(&self, layer: &str) {
        self.lock().remove(layer);
    }

    /// Reserves an estimated size for a copy, or updates it.
    ///
    /// # Errors
    /// If it exceeds its tenant's share or the limit for all tenants.
    pub(crate) fn take(
        &self,
        layer: &str,
        tenant: &str,
        bytes: u64,
        config: &SandboxConfig,
    ) -> Result<(), SandboxError> {
        let mut copies = self.lock();
        let others = || copies.iter().filter(|(name, _)| *name != layer);
        let own = others().filter(|(_, copy)| copy.tenant == tenant);
        let own: u64 = own.map(|(_, copy)| copy.bytes).sum();
        let all: u64 = others().map(|(_, copy)| copy.bytes).sum();
        let all_max = config.copies_bytes_max;
        let own_max = config.shares.most(tenant, Shared::CopiesBytes, all_max);
        if own.saturating_add(bytes) > own_max {
            return Err(SandboxError::BeyondShare {
                tenant: tenant.to_owned(),
                of: Shared::CopiesBytes,
                has: own,
                most: own_max,
            });
        }
        if all.saturating_add(bytes) > all_max {
            return Err(SandboxError::CopiesFull(all, all_max));
        }
        let tenant = tenant.to_owned();
        copies.insert(layer.to_owned(), Copy { tenant, bytes });
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Copy>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shares::Shares;
    use std::sync::Arc;

    #[derive(Debug)]
    struct Halves;

    impl Shares for Halves {
        fn most(&self, _: &str, _: Shared, all: u64) -> u64 {
            all / 2
        }
    }

    #[test]
    fn copies_count_until_removed_and_within_the_tenants_share() {
        let none = std::path::PathBuf::new();
        let mut config = SandboxConfig::new(none.clone(), Vec::new(), none, vec![0]);
        config.copies_bytes_max = 100;
        config.shares = Arc::new(Halves);
        let copies = Copies::default();
        let take = |layer, tenant, bytes| copies.take(layer, tenant, bytes, &config);
        take("a", "red", 30).expect("it fits");
        assert!(take("b", "red", 21).is_err(), "a half is its share");
        take("a", "red", 50).expect("it turned out to be larger");
        take("c", "blue", 50).expect("the other half is left");
        let full = take("d", "green", 1).expect_err("all of it is taken");
        assert!(matches!(full, SandboxError::CopiesFull(100, 100)), "{full}");
        copies.gone("a");
        take("d", "green", 50).expect("there is room again");
    }
}
