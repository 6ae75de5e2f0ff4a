//! Rows for authentication and authorisation, and filters for reading them.

use treadle_model::tenant::{MARK, Tenant};

/// A tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantRow {
    /// Its name.
    pub tenant: String,
    /// When it was created.
    pub created_at_us: u64,
    /// Its limits, as JSON.
    pub limits: String,
}

/// An API token. The store holds only the hash of its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRow {
    /// Its id, which is not secret.
    pub token: String,
    /// Tenant that it acts for; `*` for the whole daemon.
    pub tenant: String,
    /// A label for people.
    pub name: String,
    /// Its permissions.
    pub scope: String,
    /// SHA-256 of its secret, 32 bytes.
    pub hash: Vec<u8>,
    /// SHA-256 of the secret before the last rotation.
    pub previous_hash: Option<Vec<u8>>,
    /// Until when the secret before the last rotation is valid.
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

/// An entry of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// Its number, rising; the store chooses it when the row is added.
    pub id: u64,
    /// Time of the change.
    pub at_us: u64,
    /// Tenant in which the change was made.
    pub tenant: String,
    /// The caller who made the change.
    pub who: String,
    /// What was done, such as `token.created`.
    pub action: String,
    /// The changed object.
    pub target: String,
    /// The object before the change, as JSON.
    pub before: String,
    /// The object after the change, as JSON.
    pub after: String,
    /// Id of the request.
    pub request_id: String,
    /// Client address of the request.
    pub address: Option<String>,
}

/// Filter for entries of the audit log, newest first unless `ascending` is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditPage {
    /// Only those of this tenant.
    pub tenant: Option<String>,
    /// Only this action.
    pub action: Option<String>,
    /// Only those to this target.
    pub target: Option<String>,
    /// Only changes made by this caller.
    pub who: Option<String>,
    /// Only changes at or after this time, in microseconds.
    pub since_us: Option<u64>,
    /// Only entries with a smaller id, which are older.
    pub before: Option<u64>,
    /// Only entries with a greater id, which are newer.
    pub after: Option<u64>,
    /// Whether the oldest come first.
    pub ascending: bool,
    /// Most rows; at most [`crate::PAGE_ROWS_MAX`].
    pub limit: u32,
}

/// The names that a reader may see, selected by their prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Names {
    /// All names.
    #[default]
    Any,
    /// Names with this prefix.
    With(String),
    /// Names without this prefix.
    Without(String),
}

impl From<&Tenant> for Names {
    /// The names of a tenant.
    fn from(tenant: &Tenant) -> Self {
        if tenant.prefix().is_empty() {
            Self::Without(MARK.to_string())
        } else {
            Self::With(tenant.prefix().to_owned())
        }
    }
}
