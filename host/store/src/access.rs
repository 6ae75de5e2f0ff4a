//! Filters for reading the rows of tenants, and the audit log.

use treadle_model::tenant::{MARK, Tenant};

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
