//! Rows about authentication and authorisation, and which part of them to read.

use treadle_model::tenant::{MARK, Tenant};

/// A tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantRow {
    /// Its name.
    pub tenant: String,
    /// When it was created.
    pub created_at_us: u64,
    /// What it may use, as JSON.
    pub limits: String,
}

/// An API token. Of its secret the store knows the hash alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRow {
    /// Its id, which is not secret.
    pub token: String,
    /// Tenant that it acts for; `*` for the whole daemon.
    pub tenant: String,
    /// What people call it.
    pub name: String,
    /// What it may do.
    pub scope: String,
    /// SHA-256 of its secret, 32 bytes.
    pub hash: Vec<u8>,
    /// SHA-256 of the secret before the last rotation.
    pub previous_hash: Option<Vec<u8>>,
    /// Until when that one is good.
    pub previous_until_us: Option<u64>,
    /// When it was created.
    pub created_at_us: u64,
    /// When it expires.
    pub expires_at_us: Option<u64>,
    /// When it was revoked.
    pub revoked_at_us: Option<u64>,
    /// When it was last used, to the minute.
    pub last_used_at_us: Option<u64>,
}

/// A change, and who made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// Its number, rising; the store chooses it when the row is added.
    pub id: u64,
    /// When.
    pub at_us: u64,
    /// Tenant that it happened in.
    pub tenant: String,
    /// Who.
    pub who: String,
    /// What was done, such as `token.created`.
    pub action: String,
    /// What it was done to.
    pub target: String,
    /// How that was before, as JSON.
    pub before: String,
    /// How it was after, as JSON.
    pub after: String,
    /// Id of the request.
    pub request_id: String,
    /// Address that the request came from.
    pub address: Option<String>,
}

/// Which changes to read, newest first unless the oldest are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditPage {
    /// Only those of this tenant.
    pub tenant: Option<String>,
    /// Only this action.
    pub action: Option<String>,
    /// Only those to this target.
    pub target: Option<String>,
    /// Only those by this one.
    pub who: Option<String>,
    /// Only those at this time or later, in microseconds.
    pub since_us: Option<u64>,
    /// Only those with a smaller number, that is older ones.
    pub before: Option<u64>,
    /// Only those with a greater number, that is newer ones.
    pub after: Option<u64>,
    /// Whether the oldest come first.
    pub ascending: bool,
    /// Most rows; at most [`crate::PAGE_ROWS_MAX`].
    pub limit: u32,
}

/// Which names a reader may see, by how they begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Names {
    /// All.
    #[default]
    Any,
    /// Those that begin with this.
    With(String),
    /// Those that don't begin with this.
    Without(String),
}

impl From<&Tenant> for Names {
    /// Those of a tenant.
    fn from(tenant: &Tenant) -> Self {
        if tenant.prefix().is_empty() {
            Self::Without(MARK.to_string())
        } else {
            Self::With(tenant.prefix().to_owned())
        }
    }
}
