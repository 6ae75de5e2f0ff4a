//! Changes of tenants and tokens: made in the store, then in the directory, then recorded in the
//! audit log.

use super::audit::{Change, NotAudited};
use super::directory::{Directory, TokenState};
use super::limits::TenantLimits;
use super::principal::Caller;
use super::scope::Scope;
use super::tenant::Tenant;
use super::tenant_state::TenantState;
use super::{Auth, now_us, secret};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use treadle_model::ClientName;
use treadle_model::tenant::WHOLE_DAEMON;
use treadle_store::{StoreError, TenantRow, TokenRow};
use treadle_wire::{ErrorBody, ErrorCode};
use utoipa::ToSchema;

/// Most tenants.
const TENANTS_MAX: usize = 1_024;
/// Most tokens, including recently expired and revoked ones.
const TOKENS_MAX: usize = 8_192;
/// Longest name of a token, in bytes.
const NAME_BYTES_MAX: usize = 200;

/// Why nothing was changed, or why the change is not on record.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// It is not allowed or invalid.
    #[error("{}", .0.message)]
    Refused(ErrorBody),
    /// The store failed.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The change was made, but is not in the audit log.
    #[error("{0}")]
    NotAudited(#[from] NotAudited),
    /// No secret can be created.
    #[error("{0}")]
    Randomness(#[from] secret::NoRandomness),
}

/// Checks the limit on tokens, which the tenants and the whole daemon share equally.
fn check_token_room(directory: &Directory, tenant: &str) -> Result<(), ChangeError> {
    let most = TOKENS_MAX / (directory.tenants.len() + 1);
    let tokens = directory.tokens.iter();
    let own = tokens.filter(|token| token.row.tenant == tenant).count();
    if own < most.max(1) {
        return Ok(());
    }
    let message = format!(
        "the tenant `{tenant}` has {own} tokens, its share of the limit of {TOKENS_MAX}; revoke \
         some and wait"
    );
    Err(refused(ErrorCode::TenantLimit, message))
}

fn refused(code: ErrorCode, message: impl Into<String>) -> ChangeError {
    ChangeError::Refused(ErrorBody::new(code, message))
}

/// A token to be created.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// A descriptive name.
    pub name: String,
    /// Its scope.
    pub scope: Scope,
    /// Its tenant; `*` for the whole daemon.
    pub tenant: String,
    /// When it expires.
    pub expires_at_us: Option<u64>,
}

/// A token as clients see it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TokenView {
    /// Its id, which is not secret.
    pub id: String,
    /// Its tenant; `*` for the whole daemon.
    pub tenant: String,
    /// A descriptive name.
    pub name: String,
    /// Its scope: viewer, job, operator or admin.
    pub scope: String,
    /// When it was created, in microseconds since 1970.
    pub created_at_us: u64,
    /// When it expires, in microseconds since 1970.
    pub expires_at_us: Option<u64>,
    /// When it was revoked, in microseconds since 1970.
    pub revoked_at_us: Option<u64>,
    /// When it was last used, to the minute, in microseconds since 1970.
    pub last_used_at_us: Option<u64>,
    /// When the secret before the last rotation expires, in microseconds since 1970.
    pub previous_until_us: Option<u64>,
    /// The secret; only in the response that created it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

impl TokenView {
    /// A stored token, without its secret.
    pub fn of(row: &TokenRow, last_used_at_us: Option<u64>) -> Self {
        Self {
            id: row.token.clone(),
            tenant: row.tenant.clone(),
            name: row.name.clone(),
            scope: row.scope.clone(),
            created_at_us: row.created_at_us,
            expires_at_us: row.expires_at_us,
            revoked_at_us: row.revoked_at_us,
            last_used_at_us,
            previous_until_us: row.previous_until_us,
            secret: None,
        }
    }
}

/// A tenant as clients see it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TenantView {
    /// Its name.
    pub tenant: String,
    /// When it was created, in microseconds since 1970.
    pub created_at_us: u64,
    /// Its limits.
    pub limits: TenantLimits,
}

impl TenantView {
    /// A tenant with these limits.
    pub fn of(name: &str, created_at_us: u64, limits: &TenantLimits) -> Self {
        Self {
            tenant: name.to_owned(),
            created_at_us,
            limits: limits.clone(),
        }
    }
}

/// The JSON of a view for the audit log.
fn logged(view: &impl Serialize) -> Value {
    // Text, numbers and flags always have a JSON form.
    serde_json::to_value(view).unwrap_or_default()
}

impl Auth {
    /// Creates a tenant.
    pub async fn create_tenant(
        &self,
        caller: &Caller,
        name: &str,
        limits: &TenantLimits,
    ) -> Result<TenantView, ChangeError> {
        let _turn = self.changing.lock().await;
        if !Tenant::is_name(name) {
            let message = format!(
                "`{name}` is not a tenant name; use up to 63 lower-case letters, digits and dashes"
            );
            return Err(refused(ErrorCode::InvalidField, message));
        }
        let tenants = self.store.tenants().await?;
        if tenants.iter().any(|row| row.tenant == name) {
            let message = format!("the tenant `{name}` already exists; choose another name");
            return Err(refused(ErrorCode::TenantExists, message));
        }
        if tenants.len() >= TENANTS_MAX {
            let message = format!("tenant limit reached ({TENANTS_MAX})");
            return Err(refused(ErrorCode::TenantLimit, message));
        }
        let created_at_us = now_us();
        self.put_tenant(name, created_at_us, limits).await?;
        self.reload().await?;
        let after = TenantView::of(name, created_at_us, limits);
        self.changed(caller, "tenant.created", name, Value::Null, &after)
            .await?;
        Ok(after)
    }

    /// Changes a tenant's limits. Its own admins may only tighten them.
    pub async fn set_limits(
        &self,
        caller: &Caller,
        tenant: &TenantState,
        limits: &TenantLimits,
    ) -> Result<TenantView, ChangeError> {
        let _turn = self.changing.lock().await;
        let name = tenant.tenant.name();
        // The current limits, not those from before the lock was taken.
        let directory = self.directory();
        let held = directory.tenants.get(name).map(|held| &held.limits);
        let held = held.unwrap_or(&tenant.limits);
        if !caller.principal.root && !limits.are_within(held) {
            let message = "an admin of the tenant may only tighten its limits, and may not set \
                           limits that are still equal shares of the daemon; ask an admin of the \
                           whole daemon";
            return Err(refused(ErrorCode::Forbidden, message));
        }
        self.put_tenant(name, tenant.created_at_us, limits).await?;
        self.reload().await?;
        let before = logged(&TenantView::of(name, tenant.created_at_us, held));
        let after = TenantView::of(name, tenant.created_at_us, limits);
        self.changed(caller, "tenant.changed", name, before, &after)
            .await?;
        Ok(after)
    }

    pub(super) async fn put_tenant(
        &self,
        name: &str,
        created_at_us: u64,
        limits: &TenantLimits,
    ) -> Result<(), StoreError> {
        let row = TenantRow {
            tenant: name.to_owned(),
            created_at_us,
            // Numbers and flags always have a JSON form.
            limits: serde_json::to_string(limits).unwrap_or_default(),
        };
        self.store.put_tenant(&row).await
    }

    /// Creates a token; its secret is only in the returned view.
    pub async fn create_token(
        &self,
        caller: &Caller,
        new: NewToken,
    ) -> Result<TokenView, ChangeError> {
        let _turn = self.changing.lock().await;
        self.check_new(caller, &new)?;
        let secret = secret::new_secret()?;
        let row = TokenRow {
            token: secret::new_id()?,
            tenant: new.tenant,
            name: new.name,
            scope: new.scope.as_str().to_owned(),
            hash: secret::hash(&secret).to_vec(),
            previous_hash: None,
            previous_until_us: None,
            created_at_us: now_us(),
            expires_at_us: new.expires_at_us,
            revoked_at_us: None,
            last_used_at_us: None,
        };
        self.put_token(caller, "token.created", Value::Null, &row)
            .await?;
        Ok(TokenView {
            secret: Some(secret),
            ..TokenView::of(&row, None)
        })
    }

    fn check_new(&self, caller: &Caller, new: &NewToken) -> Result<(), ChangeError> {
        let directory = self.directory();
        ClientName::parse("name", new.name.as_str())
            .map_err(|error| ChangeError::Refused(error.into()))?;
        if new.name.len() > NAME_BYTES_MAX {
            let message = format!("`name` must have 1 to {NAME_BYTES_MAX} bytes");
            return Err(refused(ErrorCode::InvalidField, message));
        }
        let own = caller.principal.tenant.tenant.name();
        if !caller.principal.root && new.tenant != own {
            let message = format!("an admin of `{own}` may only create tokens of that tenant");
            return Err(refused(ErrorCode::Forbidden, message));
        }
        if new.tenant == WHOLE_DAEMON && new.scope < Scope::Operator {
            let message = "a token of the whole daemon has the scope operator or admin; name a tenant instead";
            return Err(refused(ErrorCode::InvalidField, message));
        }
        if new.tenant != WHOLE_DAEMON && !directory.tenants.contains_key(new.tenant.as_str()) {
            let message = format!("no tenant `{}`; create it first", new.tenant);
            return Err(refused(ErrorCode::TenantUnknown, message));
        }
        check_token_room(&directory, &new.tenant)
    }

    /// Rotates a token's secret; the previous one stays valid for a while.
    pub async fn rotate_token(&self, caller: &Caller, id: &str) -> Result<TokenView, ChangeError> {
        let _turn = self.changing.lock().await;
        let held = self.token_of(caller, id)?;
        if held.row.revoked_at_us.is_some() {
            let message = format!("the token `{id}` is revoked; create a new one");
            return Err(refused(ErrorCode::TokenInvalid, message));
        }
        let secret = secret::new_secret()?;
        let row = TokenRow {
            hash: secret::hash(&secret).to_vec(),
            previous_hash: Some(held.row.hash.clone()),
            previous_until_us: Some(now_us().saturating_add(self.rotation_grace_us)),
            last_used_at_us: held.last_used_at_us(),
            ..held.row.clone()
        };
        let before = logged(&TokenView::of(&held.row, held.last_used_at_us()));
        self.put_token(caller, "token.rotated", before, &row)
            .await?;
        Ok(TokenView {
            secret: Some(secret),
            ..TokenView::of(&row, row.last_used_at_us)
        })
    }

    /// Revokes a token immediately.
    pub async fn revoke_token(&self, caller: &Caller, id: &str) -> Result<TokenView, ChangeError> {
        let _turn = self.changing.lock().await;
        let held = self.token_of(caller, id)?;
        let row = TokenRow {
            revoked_at_us: held.row.revoked_at_us.or(Some(now_us())),
            last_used_at_us: held.last_used_at_us(),
            ..held.row.clone()
        };
        let before = logged(&TokenView::of(&held.row, held.last_used_at_us()));
        self.put_token(caller, "token.revoked", before, &row)
            .await?;
        Ok(TokenView::of(&row, row.last_used_at_us))
    }

    /// Tokens that the caller may see, newest first.
    pub fn tokens(&self, caller: &Caller) -> Vec<Arc<TokenState>> {
        let directory = self.directory();
        let visible = |token: &&Arc<TokenState>| is_visible(caller, &token.row);
        directory.tokens.iter().filter(visible).cloned().collect()
    }

    fn token_of(&self, caller: &Caller, id: &str) -> Result<Arc<TokenState>, ChangeError> {
        let mut tokens = self.tokens(caller).into_iter();
        tokens.find(|token| token.row.token == id).ok_or_else(|| {
            let message = format!("no token `{id}`; `treadle access tokens` lists them");
            refused(ErrorCode::TokenUnknown, message)
        })
    }

    async fn put_token(
        &self,
        caller: &Caller,
        action: &'static str,
        before: Value,
        row: &TokenRow,
    ) -> Result<(), ChangeError> {
        self.store.put_token(row).await?;
        self.reload().await?;
        let after = TokenView::of(row, row.last_used_at_us);
        self.changed(caller, action, &row.token, before, &after)
            .await
    }

    async fn changed(
        &self,
        caller: &Caller,
        action: &'static str,
        target: &str,
        before: Value,
        after: &impl Serialize,
    ) -> Result<(), ChangeError> {
        let change = Change {
            action,
            target,
            before,
            after: logged(after),
        };
        Ok(self.audit.record(caller, change).await?)
    }
}

fn is_visible(caller: &Caller, row: &TokenRow) -> bool {
    caller.principal.whole || row.tenant == caller.principal.tenant.tenant.name()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_with_many_tokens_leaves_others_theirs() {
        let token = |number: usize| TokenRow {
            token: format!("t{number}"),
            tenant: "red".to_owned(),
            name: "n".to_owned(),
            scope: "job".to_owned(),
            hash: number.to_be_bytes().repeat(4),
            previous_hash: None,
            previous_until_us: None,
            created_at_us: 1,
            expires_at_us: None,
            revoked_at_us: None,
            last_used_at_us: None,
        };
        let tenant = |name: &str| TenantRow {
            tenant: name.to_owned(),
            created_at_us: 1,
            limits: "{}".to_owned(),
        };
        let with = |count: usize| {
            let tenants = ["default", "red", "blue"].map(tenant).into();
            Directory::new(tenants, (0..count).map(token).collect(), None, None)
        };
        let (some, full) = (with(TOKENS_MAX / 4 - 1), with(TOKENS_MAX / 4));
        assert!(check_token_room(&some, "red").is_ok());
        assert!(check_token_room(&full, "red").is_err());
        for other in ["default", "blue", WHOLE_DAEMON] {
            assert!(check_token_room(&full, other).is_ok(), "{other}");
        }
    }
}
