//! What a token may do, as one of four scopes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a token may do; each scope includes the ones before it.
#[derive(
    Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Look at everything of its tenant.
    Viewer,
    /// Run programs.
    Job,
    /// Change engines, plugins and bindings.
    Operator,
    /// Make tokens, change the tenant's settings, read the audit log.
    Admin,
}

impl Scope {
    /// All of them, rising.
    pub const ALL: [Self; 4] = [Self::Viewer, Self::Job, Self::Operator, Self::Admin];

    /// The scope's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Job => "job",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// The scope of a name.
    pub fn from_name(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_ordered_and_keep_their_names() {
        assert!(Scope::ALL.is_sorted());
        for scope in Scope::ALL {
            assert_eq!(Scope::from_name(scope.as_str()), Some(scope));
        }
        assert_eq!(Scope::from_name("root"), None);
    }
}
