//! Authentication and authorisation: tenants, tokens, scopes, limits and the audit log.
//!
//! Requests are checked against a snapshot in memory ([`Directory`]), never against the store. A
//! change is first written to the store and then creates the next snapshot.

pub mod anonymous;
pub mod audit;
mod cache_salts;
pub mod changes;
pub mod credentials;
pub mod directory;
pub mod first_token;
mod guard;
pub mod identity;
pub mod limits;
pub mod oidc;
pub mod permissions;
pub mod principal;
pub mod rate;
pub mod relay;
pub mod scope;
pub mod secret;
mod tenant_state;

pub use audit::{Audit, Change};
pub use cache_salts::CacheSalts;
pub use directory::Directory;
pub use first_token::FirstToken;
pub use guard::{Guard, guard, principal_of, signed_in, tenant_of};
pub use limits::TenantLimits;
pub use principal::{Caller, Principal, PrincipalKind};
pub use scope::Scope;
pub use tenant_state::TenantState;
pub use treadle_model::tenant::{self, Tenant};

use anonymous::Anonymous;
use oidc::Oidc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};
use treadle_config::Config;
use treadle_model::tenant::WHOLE_DAEMON;
use treadle_store::{Access, PRUNE_ROWS_MAX, Store, StoreError, TokenRow};
use xxhash_rust::xxh3::xxh3_64;

/// Why no caller can be admitted.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// The store failed.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// No secret can be created.
    #[error("{0}")]
    Randomness(#[from] secret::NoRandomness),
    /// The file with the first token can't be written.
    #[error(
        "the admin's token can't be written to {path}: {error}; check the folder's permissions"
    )]
    File {
        /// The file.
        path: String,
        /// The system's error.
        error: std::io::Error,
    },
}

/// Checks callers and keeps tenants, tokens and the audit log.
pub struct Auth {
    /// The audit log.
    pub audit: Audit,
    /// Callers without a token.
    pub anonymous: Anonymous,
    /// The identity provider, if there is one.
    pub oidc: Option<Oidc>,
    store: Arc<dyn Store>,
    picture: RwLock<Arc<Directory>>,
    /// Whether this daemon is the one that writes tenants and tokens.
    keeps: AtomicBool,
    /// Fingerprint of the rows behind the directory, if another daemon writes them.
    print: AtomicU64,
    /// Serialises changes.
    changing: tokio::sync::Mutex<()>,
    rotation_grace_us: u64,
    audit_rows_max: u64,
    ended_kept_us: u64,
    /// Hint for local callers where to find a token, appended to refusals.
    token_hint: String,
}

impl Auth {
    /// Reads tenants and tokens; creates a token for the whole daemon if none is valid.
    pub async fn open(
        config: &Config,
        store: Arc<dyn Store>,
    ) -> Result<(Arc<Self>, Option<FirstToken>), AuthError> {
        let file = first_token::file_of(&config.store);
        let auth = Self::follow(config, store).await?;
        auth.keeps.store(true, Ordering::Relaxed);
        auth.ensure_default_tenant().await?;
        let first = if auth.directory().has_root(now_us()) {
            None
        } else {
            Some(auth.make_first_token(file).await?)
        };
        Ok((auth, first))
    }

    /// Reads tenants and tokens of a store that another daemon writes.
    pub async fn follow(config: &Config, store: Arc<dyn Store>) -> Result<Arc<Self>, AuthError> {
        let anonymous = Anonymous::of(config);
        let directory = read(&*store, anonymous, None).await?;
        let file = first_token::file_of(&config.store);
        // Remote callers can't read it and should not learn its path.
        let file = file.filter(|_| config.server.listen.ip().is_loopback());
        Ok(Arc::new(Self {
            audit: Audit::start(store.clone()),
            anonymous,
            oidc: Oidc::new(&config.oidc, config.tls.trust()),
            store,
            picture: RwLock::new(Arc::new(directory)),
            keeps: AtomicBool::new(false),
            print: AtomicU64::new(0),
            changing: tokio::sync::Mutex::new(()),
            rotation_grace_us: config.auth.rotation_grace_s.saturating_mul(1_000_000),
            audit_rows_max: config.auth.audit_rows_max,
            ended_kept_us: config.store.keep_ended_s.saturating_mul(1_000_000),
            token_hint: file.as_ref().map_or_else(String::new, |file| {
                format!("; the admin's own was written to {}", file.display())
            }),
        }))
    }

    /// Rereads what another daemon may have changed.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        let (tenants, tokens) = (self.store.tenants().await?, self.store.tokens().await?);
        let print = xxh3_64(format!("{tenants:?}{tokens:?}").as_bytes());
        if self.print.swap(print, Ordering::Relaxed) == print {
            return Ok(());
        }
        let before = self.directory();
        self.replace(Directory::new(
            tenants,
            tokens,
            self.anonymous.scope,
            Some(&before),
        ));
        Ok(())
    }

    /// The current tenants and tokens.
    pub fn directory(&self) -> Arc<Directory> {
        match self.picture.read() {
            Ok(picture) => picture.clone(),
            // A directory is swapped as a whole, so a poisoned lock still has a valid one.
            Err(broken) => broken.into_inner().clone(),
        }
    }

    /// Whether the default tenant is the only one.
    pub fn has_one_tenant(&self) -> bool {
        self.directory().tenants.len() == 1
    }

    /// Stores which tokens were used and removes expired rows.
    pub async fn run_maintenance(&self) {
        let uses = self.directory().uses();
        let ended_before_us = now_us().saturating_sub(self.ended_kept_us);
        let cleaned_up = async {
            if !uses.is_empty() {
                self.store.touch_tokens(&uses).await?;
            }
            if !self.keeps.load(Ordering::Relaxed) {
                return Ok(());
            }
            while self.store.prune_audit(self.audit_rows_max).await? >= PRUNE_ROWS_MAX {}
            if self.store.prune_tokens(ended_before_us).await? > 0 {
                self.reload().await?;
            }
            Ok::<_, StoreError>(())
        };
        if let Err(error) = cleaned_up.await {
            tracing::warn!(%error, "old tokens and audit entries could not be removed");
        }
    }

    /// Writes what is left to the store.
    pub async fn close(&self) {
        self.audit.close().await;
        self.run_maintenance().await;
    }

    async fn reload(&self) -> Result<(), StoreError> {
        let before = self.directory();
        let next = read(&*self.store, self.anonymous, Some(&before)).await?;
        self.replace(next);
        Ok(())
    }

    fn replace(&self, next: Directory) {
        let next = Arc::new(next);
        match self.picture.write() {
            Ok(mut picture) => *picture = next,
            Err(broken) => *broken.into_inner() = next,
        }
    }

    async fn ensure_default_tenant(&self) -> Result<(), AuthError> {
        let tenants = self.store.tenants().await?;
        if tenants
            .iter()
            .any(|row| row.tenant == tenant::DEFAULT_TENANT)
        {
            return Ok(());
        }
        self.put_tenant(tenant::DEFAULT_TENANT, now_us(), &TenantLimits::default())
            .await?;
        Ok(self.reload().await?)
    }

    async fn make_first_token(
        &self,
        file: Option<std::path::PathBuf>,
    ) -> Result<FirstToken, AuthError> {
        let secret = secret::new_secret()?;
        if let Some(path) = &file {
            first_token::write(path, &secret).map_err(|error| AuthError::File {
                path: path.display().to_string(),
                error,
            })?;
        }
        let row = TokenRow {
            token: secret::new_id()?,
            tenant: WHOLE_DAEMON.to_owned(),
            name: "first admin".to_owned(),
            scope: Scope::Admin.as_str().to_owned(),
            hash: secret::hash(&secret).to_vec(),
            previous_hash: None,
            previous_until_us: None,
            created_at_us: now_us(),
            expires_at_us: None,
            revoked_at_us: None,
            last_used_at_us: None,
        };
        self.store.put_token(&row).await?;
        self.reload().await?;
        Ok(FirstToken { secret, file })
    }
}

async fn read(
    store: &dyn Access,
    anonymous: Anonymous,
    before: Option<&Directory>,
) -> Result<Directory, StoreError> {
    let (tenants, tokens) = (store.tenants().await?, store.tokens().await?);
    Ok(Directory::new(tenants, tokens, anonymous.scope, before))
}

/// Microseconds since 1970.
pub fn now_us() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_micros() as u64
}
