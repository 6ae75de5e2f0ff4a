//! Storage quotas of tenants: bytes of stored descriptions, outputs, requests and responses. Each
//! tenant has its share of `payloads.bytes_max`. At the limit its oldest data is removed, except
//! for descriptions that actions still need; if that is not enough, its next action is refused.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use treadle_auth::Auth;
use treadle_model::Tenant;
use treadle_model::tenant::split;
use treadle_store::{Names, PRUNE_BODIES_MAX, Store, StoreError};
use treadle_wire::{ErrorBody, ErrorCode};

/// Trimming leaves this part of the share free, so that it does not happen on every write.
const ROOM_PART: u64 = 32;

/// Counts and trims stored bytes per tenant.
pub struct StorageQuotas {
    store: Arc<dyn Store>,
    /// The tenants and their limits; without it there is no limit.
    auth: Option<Arc<Auth>>,
    bytes_max: u64,
    /// Bytes as last measured, plus those stored since.
    by_tenant: Mutex<BTreeMap<String, u64>>,
    /// Locked while data is removed.
    removing: tokio::sync::Mutex<()>,
    full: tokio::sync::Notify,
}

impl StorageQuotas {
    /// Counts what is in a store.
    pub fn new(store: Arc<dyn Store>, auth: Arc<Auth>, bytes_max: u64) -> Arc<Self> {
        Arc::new(Self::of(store, Some(auth), bytes_max))
    }

    /// For tests: no bound.
    #[cfg(test)]
    pub(crate) fn unbounded(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self::of(store, None, u64::MAX))
    }

    fn of(store: Arc<dyn Store>, auth: Option<Arc<Auth>>, bytes_max: u64) -> Self {
        Self {
            store,
            auth,
            bytes_max,
            by_tenant: Mutex::default(),
            removing: tokio::sync::Mutex::default(),
            full: tokio::sync::Notify::new(),
        }
    }

    /// Adds stored bytes of a tenant.
    pub(crate) fn added(&self, tenant: &str, bytes: u64) {
        let most = self.most(tenant);
        let mut by_tenant = self.lock();
        let own = by_tenant.entry(tenant.to_owned()).or_default();
        *own = own.saturating_add(bytes);
        if *own > most {
            self.full.notify_one();
        }
    }

    /// Adds stored bytes of a program, by its internal name.
    pub fn added_of(&self, program: &str, bytes: u64) {
        self.added(split(program).0, bytes);
    }

    /// Completes once some tenant may have more than its share.
    pub async fn is_full(&self) {
        self.full.notified().await;
    }

    /// Checks that a tenant may store another action with this many bytes.
    ///
    /// # Errors
    /// The share is used up and nothing can be removed.
    pub(crate) async fn check(&self, tenant: &str, bytes: u64) -> Result<(), ErrorBody> {
        let most = self.most(tenant);
        let fits = |own: u64| own.saturating_add(bytes) <= most;
        if fits(self.own(tenant)) {
            return Ok(());
        }
        let _removing = self.removing.lock().await;
        let mut own = self.own(tenant);
        if !fits(own) {
            // If the store fails, so does the next step.
            own = self.make_room(tenant, bytes).await.unwrap_or(own);
        }
        if fits(own) {
            return Ok(());
        }
        let message = format!(
            "the tenant `{tenant}` stores {own} bytes of its share of {most}, and its waiting and \
             running actions need them; wait for some to end, or have an admin of the daemon raise \
             its limit `kept_bytes`"
        );
        Err(ErrorBody::new(ErrorCode::TenantBusy, message))
    }

    /// Measures the stored data of each tenant, and trims the tenants that exceed their share.
    ///
    /// # Errors
    /// The store's.
    pub async fn keep_within(&self) -> Result<(), StoreError> {
        let Some(auth) = &self.auth else {
            return Ok(());
        };
        let _removing = self.removing.lock().await;
        let tenants: Vec<String> = auth
            .directory()
            .tenants
            .keys()
            .map(ToString::to_string)
            .collect();
        for tenant in tenants {
            self.make_room(&tenant, 0).await?;
        }
        // The tenants' limits may add up to more than the total.
        loop {
            let (all, largest) = {
                let by_tenant = self.lock();
                let largest = by_tenant.iter().max_by_key(|(_, bytes)| **bytes);
                let largest = largest.map(|(tenant, bytes)| (tenant.clone(), *bytes));
                (by_tenant.values().sum::<u64>(), largest)
            };
            let over = all.saturating_sub(self.bytes_max);
            let Some((tenant, bytes)) = largest.filter(|_| over > 0) else {
                return Ok(());
            };
            let least = bytes.saturating_sub(over);
            if self.shrink(&tenant, least).await? >= bytes {
                return Ok(());
            }
        }
    }

    /// Removes a tenant's oldest data to make room for this many bytes; returns what is left.
    async fn make_room(&self, tenant: &str, bytes: u64) -> Result<u64, StoreError> {
        let most = self.most(tenant);
        let own = self.measure(tenant).await?;
        if own.saturating_add(bytes) <= most {
            return Ok(own);
        }
        let least = (most - most / ROOM_PART).saturating_sub(bytes);
        let left = self.shrink(tenant, least).await?;
        tracing::info!(
            tenant,
            before = own,
            left,
            most,
            "the oldest stored data of a tenant was removed"
        );
        Ok(left)
    }

    async fn shrink(&self, tenant: &str, bytes: u64) -> Result<u64, StoreError> {
        let names = Names::from(&Tenant::new(tenant));
        let mut own = self.measure(tenant).await?;
        while own > bytes {
            let gone = self.store.shed_bodies(&names, own - bytes).await?;
            own = self.measure(tenant).await?;
            if gone < PRUNE_BODIES_MAX {
                break;
            }
        }
        Ok(own)
    }

    async fn measure(&self, tenant: &str) -> Result<u64, StoreError> {
        let names = Names::from(&Tenant::new(tenant));
        let bytes = self.store.body_bytes(&names).await?;
        self.lock().insert(tenant.to_owned(), bytes);
        Ok(bytes)
    }

    fn most(&self, tenant: &str) -> u64 {
        let auth = self.auth.as_ref();
        let most = auth.map(|auth| {
            let directory = auth.directory();
            directory.most(tenant, |limits| limits.kept_bytes, self.bytes_max)
        });
        most.unwrap_or(u64::MAX)
    }

    fn own(&self, tenant: &str) -> u64 {
        self.lock().get(tenant).copied().unwrap_or(0)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.by_tenant
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use treadle_auth::TenantLimits;
    use treadle_config::Config;
    use treadle_store::{BodyRow, DESCRIPTION, Location, TenantRow};

    async fn quotas(bytes_max: u64, limits: &TenantLimits) -> (Arc<StorageQuotas>, Arc<dyn Store>) {
        let store = treadle_store::open(&Location::Memory)
            .await
            .expect("it opens");
        for (tenant, limits) in [("default", "{}".to_owned()), ("red", to_text(limits))] {
            let row = TenantRow {
                tenant: tenant.to_owned(),
                created_at_us: 0,
                limits,
            };
            store.put_tenant(&row).await.expect("it is stored");
        }
        let auth = Auth::follow(&Config::default(), store.clone())
            .await
            .expect("it opens");
        (StorageQuotas::new(store.clone(), auth, bytes_max), store)
    }

    fn to_text(limits: &TenantLimits) -> String {
        serde_json::to_string(limits).expect("JSON")
    }

    async fn put(quotas: &StorageQuotas, tenant: &str, kind: &str, step: u64) {
        let row = BodyRow {
            program: format!("{}p", Tenant::new(tenant).prefix()),
            step,
            kind: kind.to_owned(),
            at_us: 10 + step,
            body: vec![7; 100],
        };
        quotas.store.put_bodies(&[row]).await.expect("it is stored");
        quotas.added(tenant, 100);
    }

    #[tokio::test]
    async fn a_tenants_own_oldest_make_room_and_others_keep_theirs() {
        let (quotas, store) = quotas(2_000, &TenantLimits::default()).await;
        for step in 0..8 {
            put(&quotas, "default", "answer", step).await;
        }
        for step in 0..25 {
            put(&quotas, "red", "output", step).await;
        }
        quotas.is_full().await;
        quotas.keep_within().await.expect("the store is there");
        let left =
            async |program: &str, step| !store.bodies(program, step).await.unwrap().is_empty();
        assert!(left("p", 0).await && left("p", 7).await);
        let red = "\u{1f}red\u{1f}p";
        assert!(!left(red, 15).await && left(red, 16).await && left(red, 24).await);
        quotas.check("red", 50).await.expect("there is room");
        quotas
            .check("red", 200)
            .await
            .expect("there is room once more have gone");
        assert!(!left(red, 16).await);
    }

    #[tokio::test]
    async fn what_actions_need_stays_and_the_next_one_is_refused() {
        let limits = TenantLimits {
            kept_bytes: Some(500),
            ..TenantLimits::default()
        };
        let (quotas, store) = quotas(10_000, &limits).await;
        for step in 0..5 {
            let row = BodyRow {
                program: format!("\u{1f}red\u{1f}\u{1}{step}"),
                step: 0,
                kind: DESCRIPTION.to_owned(),
                at_us: treadle_auth::now_us(),
                body: vec![7; 100],
            };
            store.put_bodies(&[row]).await.expect("it is stored");
            quotas.added("red", 100);
        }
        let refused = quotas.check("red", 1).await.expect_err("nothing can go");
        assert_eq!(refused.code, ErrorCode::TenantBusy);
        for told in ["500 bytes of its share of 500", "`kept_bytes`"] {
            assert!(refused.message.contains(told), "{}", refused.message);
        }
        quotas
            .check("default", 1)
            .await
            .expect("others have theirs");
        put(&quotas, "red", "output", 3).await;
        quotas.keep_within().await.expect("the store is there");
        assert_eq!(quotas.own("red"), 500, "outputs go before descriptions");
    }
}
