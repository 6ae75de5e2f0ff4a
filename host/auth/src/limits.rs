//! What a tenant may use.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A tenant's limits; `None` is no limit beyond those of the daemon. Once there are several tenants,
/// `None` for live programs, steps and bytes of bodies is an equal share of what the daemon has.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TenantLimits {
    /// Plugins that it may store.
    pub plugins: Option<u64>,
    /// Bytes of all of them together.
    pub plugin_bytes: Option<u64>,
    /// Largest body of a request, in bytes.
    pub body_bytes: Option<u64>,
    /// Requests in a second; as many may come at once.
    pub requests_per_s: Option<u32>,
    /// Live programs.
    pub live_programs: Option<u64>,
    /// Steps under way at once, waiting and running, at each daemon.
    pub steps: Option<u64>,
    /// Bytes of its requests' bodies that each daemon holds at once.
    pub bodies_bytes: Option<u64>,
    /// Whether it may store unsigned plugins.
    pub unsigned_plugins: bool,
}

impl Default for TenantLimits {
    fn default() -> Self {
        Self {
            plugins: Some(100),
            plugin_bytes: Some(256 << 20),
            body_bytes: None,
            requests_per_s: None,
            live_programs: None,
            steps: None,
            bodies_bytes: None,
            unsigned_plugins: true,
        }
    }
}

impl TenantLimits {
    /// Whether these allow nothing that `other` does not.
    pub fn are_within(&self, other: &Self) -> bool {
        fn within<T: PartialOrd>(ours: Option<&T>, theirs: Option<&T>) -> bool {
            match (ours, theirs) {
                (_, None) => true,
                (None, Some(_)) => false,
                (Some(ours), Some(theirs)) => ours <= theirs,
            }
        }
        within(self.plugins.as_ref(), other.plugins.as_ref())
            && within(self.plugin_bytes.as_ref(), other.plugin_bytes.as_ref())
            && within(self.body_bytes.as_ref(), other.body_bytes.as_ref())
            && within(self.requests_per_s.as_ref(), other.requests_per_s.as_ref())
            && within(self.live_programs.as_ref(), other.live_programs.as_ref())
            && within(self.steps.as_ref(), other.steps.as_ref())
            && within(self.bodies_bytes.as_ref(), other.bodies_bytes.as_ref())
            && self.unsigned_plugins <= other.unsigned_plugins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tightening_is_distinguished_from_loosening() {
        let base = TenantLimits::default();
        let tighter = TenantLimits {
            body_bytes: Some(1),
            unsigned_plugins: false,
            ..base.clone()
        };
        let looser = TenantLimits {
            plugins: None,
            ..base.clone()
        };
        assert!(base.are_within(&base) && tighter.are_within(&base));
        assert!(!base.are_within(&tighter) && !looser.are_within(&base));
    }
}
