//! Tenants and tokens in memory, against which requests are checked: an immutable snapshot that is
//! replaced after each change.

use super::identity;
use super::limits::{self, TenantLimits};
use super::principal::{Principal, PrincipalKind};
use super::rate::Rate;
use super::scope::Scope;
use super::secret::Hash;
use super::tenant_state::TenantState;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use treadle_model::tenant::{DEFAULT_TENANT, Tenant, WHOLE_DAEMON};
use treadle_store::{TenantRow, TokenRow};
use treadle_wire::ErrorCode;

/// Shortest interval between two updates of a token's last use.
const USE_NOTED_US: u64 = 60_000_000;

/// A token.
#[derive(Debug)]
pub struct TokenState {
    /// The stored row.
    pub row: TokenRow,
    principal: Arc<Principal>,
    /// When it was last used, if noted here.
    used_at_us: AtomicU64,
}

/// All tenants and tokens.
#[derive(Debug)]
pub struct Directory {
    /// By name.
    pub tenants: BTreeMap<Box<str>, Arc<TenantState>>,
    /// Newest first.
    pub tokens: Vec<Arc<TokenState>>,
    by_hash: HashMap<Hash, (Arc<TokenState>, Which)>,
    /// Hashes by their [`identity::name`].
    by_name: HashMap<String, Hash>,
    anonymous: Arc<Principal>,
    /// Differs from that of every earlier snapshot.
    pub generation: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Which {
    Current,
    BeforeRotation,
}

/// Why a secret is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refused {
    /// No token has it, or its token is revoked.
    Unknown,
    /// It has expired.
    Expired,
}

impl Refused {
    /// The code for clients.
    pub fn code(self) -> ErrorCode {
        match self {
            Self::Unknown => ErrorCode::TokenInvalid,
            Self::Expired => ErrorCode::TokenExpired,
        }
    }
}

impl Directory {
    /// Builds a snapshot from rows; `before` is the one that it replaces.
    pub fn new(
        tenants: Vec<TenantRow>,
        tokens: Vec<TokenRow>,
        anonymous: Option<Scope>,
        before: Option<&Directory>,
    ) -> Self {
        let mut states: BTreeMap<Box<str>, Arc<TenantState>> = tenants
            .into_iter()
            .map(|row| (row.tenant.as_str().into(), tenant_state(&row, before)))
            .collect();
        let fallback = || {
            let row = TenantRow {
                tenant: DEFAULT_TENANT.to_owned(),
                created_at_us: 0,
                limits: "{}".to_owned(),
            };
            tenant_state(&row, before)
        };
        let home = states
            .entry(DEFAULT_TENANT.into())
            .or_insert_with(fallback)
            .clone();
        let tokens: Vec<Arc<TokenState>> = tokens
            .into_iter()
            .filter_map(|row| token_state(row, &states, before))
            .collect();
        let count = states.len();
        let by_hash = by_hash(&tokens);
        let named = by_hash.keys().map(|hash| (identity::name(hash), *hash));
        Self {
            by_name: named.collect(),
            by_hash,
            tenants: states,
            tokens,
            anonymous: Arc::new(Principal {
                tenant: home,
                scope: anonymous,
                global: anonymous == Some(Scope::Admin),
                root: anonymous == Some(Scope::Admin),
                whole: anonymous == Some(Scope::Admin),
                tenants: count,
                who: PrincipalKind::Anonymous,
            }),
            generation: before.map_or(0, |before| before.generation + 1),
        }
    }

    /// A caller without a token.
    pub fn anonymous(&self) -> &Arc<Principal> {
        &self.anonymous
    }

    /// The owner of the secret with this hash.
    pub fn principal(&self, hash: &Hash, now_us: u64) -> Result<Arc<Principal>, Refused> {
        let token = self.good(hash, now_us)?;
        if now_us.saturating_sub(token.used_at_us.load(Ordering::Relaxed)) >= USE_NOTED_US {
            token.used_at_us.store(now_us, Ordering::Relaxed);
        }
        Ok(token.principal.clone())
    }

    /// A tenant's part of the total `all`: its limit if it has one, else an equal share.
    pub fn most(
        &self,
        tenant: &str,
        limit: impl Fn(&TenantLimits) -> Option<u64>,
        all: u64,
    ) -> u64 {
        let state = self.tenants.get(tenant);
        let own = state.and_then(|state| limit(&state.limits));
        limits::share(own, all, self.tenants.len())
    }

    /// The hash of the valid token with this [`identity::name`].
    pub fn named(&self, name: &str, now_us: u64) -> Option<&Hash> {
        let hash = self.by_name.get(name)?;
        self.good(hash, now_us).ok().map(|_| hash)
    }

    fn good(&self, hash: &Hash, now_us: u64) -> Result<&TokenState, Refused> {
        let (token, which) = self.by_hash.get(hash).ok_or(Refused::Unknown)?;
        let row = &token.row;
        if row.revoked_at_us.is_some() {
            return Err(Refused::Unknown);
        }
        let until = match which {
            Which::Current => row.expires_at_us,
            Which::BeforeRotation => {
                let grace = row.previous_until_us.unwrap_or(0);
                Some(grace.min(row.expires_at_us.unwrap_or(u64::MAX)))
            }
        };
        if until.is_some_and(|until| now_us >= until) {
            return Err(Refused::Expired);
        }
        Ok(token)
    }

    /// Uses of tokens that are not stored yet.
    pub fn uses(&self) -> Vec<(String, u64)> {
        let noted = self.tokens.iter().filter_map(|token| {
            let used = token.used_at_us.load(Ordering::Relaxed);
            (used > token.row.last_used_at_us.unwrap_or(0)).then(|| (token.row.token.clone(), used))
        });
        noted.collect()
    }

    /// Whether there is a valid token of an admin of the whole daemon.
    pub fn has_root(&self, now_us: u64) -> bool {
        self.tokens.iter().any(|token| {
            let row = &token.row;
            row.tenant == WHOLE_DAEMON
                && row.scope == Scope::Admin.as_str()
                && row.revoked_at_us.is_none()
                && row.expires_at_us.is_none_or(|until| until > now_us)
        })
    }
}

impl TokenState {
    /// When it was last used.
    pub fn last_used_at_us(&self) -> Option<u64> {
        let used = self.used_at_us.load(Ordering::Relaxed);
        (used > 0).then_some(used)
    }
}

fn tenant_state(row: &TenantRow, before: Option<&Directory>) -> Arc<TenantState> {
    let limits = serde_json::from_str(&row.limits).unwrap_or_else(|error| {
        tracing::error!(tenant = row.tenant, %error, "the limits can't be read; using defaults");
        TenantLimits::default()
    });
    let known = before.and_then(|before| before.tenants.get(row.tenant.as_str()));
    if let Some(known) = known.filter(|known| known.limits == limits) {
        // The same bucket is reused: other changes must not refill it.
        return known.clone();
    }
    // Counts of running requests are kept.
    Arc::new(TenantState {
        tenant: Tenant::new(&row.tenant),
        created_at_us: row.created_at_us,
        rate: Rate::new(limits.requests_per_s),
        steps: known.map(|known| known.steps.clone()).unwrap_or_default(),
        bodies_bytes: known
            .map(|known| known.bodies_bytes.clone())
            .unwrap_or_default(),
        limits,
    })
}

fn token_state(
    row: TokenRow,
    tenants: &BTreeMap<Box<str>, Arc<TenantState>>,
    before: Option<&Directory>,
) -> Option<Arc<TokenState>> {
    let global = row.tenant == WHOLE_DAEMON;
    let root = global && row.scope == Scope::Admin.as_str();
    let home = if global { DEFAULT_TENANT } else { &row.tenant };
    let (Some(tenant), Some(scope)) = (tenants.get(home), Scope::from_name(&row.scope)) else {
        tracing::error!(
            token = row.token,
            "the token has no tenant or scope and is ignored"
        );
        return None;
    };
    let known = before.and_then(|b| b.tokens.iter().find(|t| t.row.token == row.token));
    let used = known.and_then(|known| known.last_used_at_us());
    Some(Arc::new(TokenState {
        principal: Arc::new(Principal {
            tenant: tenant.clone(),
            scope: Some(scope),
            global,
            root,
            whole: root,
            tenants: tenants.len(),
            who: PrincipalKind::Token {
                id: row.token.clone(),
                name: row.name.clone(),
            },
        }),
        used_at_us: AtomicU64::new(used.or(row.last_used_at_us).unwrap_or(0)),
        row,
    }))
}

fn by_hash(tokens: &[Arc<TokenState>]) -> HashMap<Hash, (Arc<TokenState>, Which)> {
    let mut map = HashMap::new();
    for token in tokens {
        let previous = token.row.previous_hash.as_deref();
        for (hash, which) in [
            (Some(token.row.hash.as_slice()), Which::Current),
            (previous, Which::BeforeRotation),
        ] {
            if let Some(hash) = hash.and_then(|hash| Hash::try_from(hash).ok()) {
                map.insert(hash, (token.clone(), which));
            }
        }
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &str, tenant: &str, hash: u8) -> TokenRow {
        TokenRow {
            token: id.into(),
            tenant: tenant.into(),
            name: "n".into(),
            scope: "job".into(),
            hash: vec![hash; 32],
            previous_hash: Some(vec![hash + 100; 32]),
            previous_until_us: Some(50),
            created_at_us: 1,
            expires_at_us: Some(100),
            revoked_at_us: None,
            last_used_at_us: None,
        }
    }

    #[test]
    fn secrets_are_good_until_their_time_is_over() {
        let revoked = TokenRow {
            revoked_at_us: Some(1),
            ..row("r", "default", 2)
        };
        let orphan = row("o", "nobody", 3);
        let rows = vec![row("t", "default", 1), revoked, orphan];
        let directory = Directory::new(Vec::new(), rows, None, None);
        let at = |byte: u8, now: u64| directory.principal(&[byte; 32], now).map(|p| p.scope);
        let good = Ok(Some(Scope::Job));
        assert_eq!(at(1, 99), good);
        assert_eq!(at(1, 100), Err(Refused::Expired));
        assert_eq!(at(101, 49), good);
        assert_eq!(at(101, 50), Err(Refused::Expired));
        for unknown in [2, 3, 4] {
            assert_eq!(at(unknown, 0), Err(Refused::Unknown));
        }
        let named = |byte: u8, now: u64| directory.named(&identity::name(&[byte; 32]), now);
        assert_eq!(named(1, 99), Some(&[1; 32]));
        for bad in [named(1, 100), named(101, 50), named(2, 0), named(4, 0)] {
            assert_eq!(bad, None);
        }
    }

    #[test]
    fn uses_are_noted_by_the_minute_and_survive_a_change() {
        let lasting = || TokenRow {
            expires_at_us: None,
            ..row("t", "default", 1)
        };
        let rows = || vec![lasting()];
        let first = Directory::new(Vec::new(), rows(), None, None);
        let use_at = |directory: &Directory, now| {
            let _ = directory.principal(&[1; 32], now);
            directory.uses()
        };
        let minute = USE_NOTED_US;
        assert_eq!(use_at(&first, minute), [("t".to_owned(), minute)]);
        assert_eq!(use_at(&first, minute + 1), [("t".to_owned(), minute)]);
        let second = Directory::new(Vec::new(), rows(), None, Some(&first));
        assert_eq!(second.uses(), [("t".to_owned(), minute)]);
        assert!(second.generation > first.generation);
    }

    #[test]
    fn a_change_of_other_tenants_leaves_a_bucket_as_it_is() {
        let tenant = |name: &str, limits: &str| TenantRow {
            tenant: name.into(),
            created_at_us: 1,
            limits: limits.into(),
        };
        let limits = r#"{"requests_per_s":5}"#;
        let first = Directory::new(vec![tenant("a", limits)], Vec::new(), None, None);
        let rows = vec![tenant("a", limits), tenant("b", "{}")];
        let second = Directory::new(rows, Vec::new(), None, Some(&first));
        assert!(Arc::ptr_eq(&first.tenants["a"], &second.tenants["a"]));
        let rows = vec![tenant("a", r#"{"requests_per_s":6}"#)];
        let third = Directory::new(rows, Vec::new(), None, Some(&second));
        assert!(!Arc::ptr_eq(&first.tenants["a"], &third.tenants["a"]));
        assert!(third.tenants.contains_key(DEFAULT_TENANT));
    }

    #[test]
    #[ignore = "a measurement: cargo test --release -- --ignored --nocapture what_a_request_costs"]
    fn what_a_request_costs() {
        let secret = crate::secret::new_secret().unwrap();
        let token = TokenRow {
            hash: crate::secret::hash(&secret).to_vec(),
            expires_at_us: None,
            ..row("t", "default", 1)
        };
        let directory = Directory::new(Vec::new(), vec![token], None, None);
        let rate = Rate::new(Some(u32::MAX));
        let rounds = 1_000_000_u32;
        let began = std::time::Instant::now();
        for _ in 0..rounds {
            let hash = crate::secret::hash(std::hint::black_box(&secret));
            let known = directory.principal(&hash, crate::now_us());
            assert!(known.is_ok());
            let _ = std::hint::black_box(rate.take());
        }
        println!("{:?} for one request", began.elapsed() / rounds);
    }
}
