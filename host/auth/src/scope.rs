//! The four scopes of tokens.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a token may do; each scope includes the ones before it.
#[derive(
    Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Read everything of its tenant.
    Viewer,
    /// Run programs.
    Job,
    /// Change engines, plugins and bindings.
    Operator,
    /// Create tokens, change the tenant's settings, read the audit log.
    Admin,
}

impl Scope {
    /// All scopes, in ascending order.
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
