//! Tenants and API tokens.

use std::slice;

use async_trait::async_trait;

use super::store::writing;
use super::table::table;
use super::{Engine, SqlStore, Statement, TableRow as _, Work as _};
use crate::{Access, PAGE_ROWS_MAX, StoreError};

table! {
    /// A tenant.
    pub struct TenantRow in "tenants", upsert (tenant) {
        /// Its name.
        tenant: String,
        /// When it was created.
        created_at_us: u64,
        /// Its limits, as JSON.
        limits: String,
    }
}

table! {
    /// An API token. The store holds only the hash of its secret.
    pub struct TokenRow in "api_tokens", upsert (token) {
        /// Its id, which is not secret.
        token: String,
        /// Tenant that it acts for; `*` for the whole daemon.
        tenant: String,
        /// A label for people.
        name: String,
        /// Its permissions.
        scope: String,
        /// SHA-256 of its secret, 32 bytes.
        hash: Vec<u8>,
        /// SHA-256 of the secret before the last rotation.
        previous_hash: Option<Vec<u8>>,
        /// Until when the secret before the last rotation is valid.
        previous_until_us: Option<u64>,
        /// When it was created.
        created_at_us: u64,
        /// When it expires.
        expires_at_us: Option<u64>,
        /// When it was revoked.
        revoked_at_us: Option<u64>,
        /// When it was last used, to the minute.
        last_used_at_us: Option<u64>,
    }
}

const TOUCH: &str = "UPDATE api_tokens SET last_used_at_us = $1 WHERE token = $2";

const PRUNE: &str = "DELETE FROM api_tokens WHERE revoked_at_us < $1 OR expires_at_us < $1";

#[async_trait]
impl<E: Engine> Access for SqlStore<E> {
    async fn put_tenant(&self, tenant: &TenantRow) -> Result<(), StoreError> {
        writing!(self, "tenants", |work| work
            .insert(slice::from_ref(tenant))
            .await?)
    }

    async fn tenants(&self) -> Result<Vec<TenantRow>, StoreError> {
        let all = TenantRow::select("ORDER BY tenant LIMIT $1").number(PAGE_ROWS_MAX.into());
        self.engine.read_rows(all).await
    }

    async fn put_token(&self, token: &TokenRow) -> Result<(), StoreError> {
        writing!(self, "tokens", |work| work
            .insert(slice::from_ref(token))
            .await?)
    }

    async fn tokens(&self) -> Result<Vec<TokenRow>, StoreError> {
        let all = TokenRow::select("ORDER BY created_at_us DESC, token LIMIT $1");
        self.engine
            .read_rows(all.number(PAGE_ROWS_MAX.into()))
            .await
    }

    async fn touch_tokens(&self, uses: &[(String, u64)]) -> Result<(), StoreError> {
        self.watched("tokens", async {
            let mut work = self.begin_beside().await?;
            for (token, at_us) in uses {
                let touch = Statement::new(TOUCH).number(*at_us).text(token);
                work.execute(touch).await?;
            }
            work.commit().await
        })
        .await
    }

    async fn prune_tokens(&self, ended_before_us: u64) -> Result<u64, StoreError> {
        let prune = Statement::new(PRUNE).number(ended_before_us);
        writing!(self, "tokens", |work| work.execute(prune).await?)
    }
}
