//! Room for payloads of training runs, by tenant.

use crate::{Names, Store, StoreError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use thiserror::Error;
use treadle_model::Tenant;

/// Stored bytes of a tenant are measured this often; in between, what is added is counted.
const MEASURED_FOR: Duration = Duration::from_mins(1);

/// Counts the payloads that each tenant stores.
pub struct PayloadRoom {
    store: Arc<dyn Store>,
    bytes_max: u64,
    stored: Mutex<BTreeMap<String, Stored>>,
}

/// Stored bytes of a tenant, and when they were measured.
#[derive(Clone, Copy)]
struct Stored {
    bytes: u64,
    at: Instant,
}

/// Why a payload can't be stored.
#[derive(Debug, Error)]
pub enum NoRoom {
    /// The tenant's share is used up.
    #[error(
        "the tenant `{tenant}` may keep {share} bytes of training payloads and would have \
         {bytes}; report a checkpoint, which releases batches, or raise `training.bytes_max`"
    )]
    Full {
        /// The tenant.
        tenant: String,
        /// Its share.
        share: u64,
        /// What it would have.
        bytes: u64,
    },
    /// The store can't tell.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl PayloadRoom {
    /// At most `bytes_max` for all tenants together.
    pub fn new(store: Arc<dyn Store>, bytes_max: u64) -> Self {
        Self {
            store,
            bytes_max,
            stored: Mutex::default(),
        }
    }

    /// The limit for all tenants together.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Forgets how many bytes a tenant stored: some were removed.
    pub fn removed(&self, tenant: &Tenant) {
        self.stored().remove(tenant.name());
    }

    /// Counts bytes that a tenant is about to store.
    ///
    /// # Errors
    /// Its share is used up.
    pub async fn reserve(&self, tenant: &Tenant, share: u64, bytes: u64) -> Result<(), NoRoom> {
        let known = self.stored().get(tenant.name()).copied();
        let known = known.filter(|stored| stored.at.elapsed() < MEASURED_FOR);
        let stored = match known {
            Some(stored) => stored,
            None => Stored {
                bytes: self.store.payload_bytes(&Names::from(tenant)).await?,
                at: Instant::now(),
            },
        };
        let bytes = stored.bytes.saturating_add(bytes);
        if bytes > share {
            let tenant = tenant.name().to_owned();
            return Err(NoRoom::Full {
                tenant,
                share,
                bytes,
            });
        }
        let stored = Stored { bytes, ..stored };
        self.stored().insert(tenant.name().to_owned(), stored);
        Ok(())
    }

    fn stored(&self) -> MutexGuard<'_, BTreeMap<String, Stored>> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
