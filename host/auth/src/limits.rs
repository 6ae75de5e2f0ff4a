//! Limits of tenants.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A tenant's limits; `None` is no limit beyond those of the daemon. With several tenants, `None`
/// means an equal share for all limits below except `plugins`, `plugin_bytes`, `body_bytes` and
/// `requests_per_s`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TenantLimits {
    /// Stored plugins.
    pub plugins: Option<u64>,
    /// Bytes of all its plugins together.
    pub plugin_bytes: Option<u64>,
    /// Largest body of a request, in bytes.
    pub body_bytes: Option<u64>,
    /// Requests per second, which is also the largest burst.
    pub requests_per_s: Option<u32>,
    /// Live programs.
    pub live_programs: Option<u64>,
    /// Concurrent steps, waiting and running, at each daemon.
    pub steps: Option<u64>,
    /// Bytes of its request bodies in memory at each daemon.
    pub bodies_bytes: Option<u64>,
    /// Concurrent sandboxes, including paused ones, on each machine that runs any.
    pub sandboxes: Option<u64>,
    /// Bytes of its sandboxes' files, on each machine that runs any.
    pub sandbox_bytes: Option<u64>,
    /// Bytes of its snapshots and of other copies of sandboxes' files, on each machine that has
    /// any.
    pub snapshot_bytes: Option<u64>,
    /// Bytes stored for its actions and steps: descriptions, outputs, requests and responses.
    pub kept_bytes: Option<u64>,
    /// Percentage of each resource of actions (cores, memory, devices, quotas) that its started
    /// actions may hold, and of the places of waiting actions.
    pub action_percent: Option<u64>,
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
            sandboxes: None,
            sandbox_bytes: None,
            snapshot_bytes: None,
            kept_bytes: None,
            action_percent: None,
            unsigned_plugins: true,
        }
    }
}

/// A tenant's part of the total `all`: its limit if it has one, else an equal share, so that no
/// tenant starves the others.
pub fn share(own: Option<u64>, all: u64, tenants: usize) -> u64 {
    own.unwrap_or_else(|| (all / tenants.max(1) as u64).max(1))
}

impl TenantLimits {
    /// Whether these allow nothing that `other` does not. No number is known to be less than an
    /// unset limit that means a share.
    pub fn are_within(&self, other: &Self) -> bool {
        let within = |ours: Option<u64>, theirs: Option<u64>| match (ours, theirs) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(ours), Some(theirs)) => ours <= theirs,
        };
        let shares = self.shares().into_iter().zip(other.shares());
        let mut shares = shares.filter(|(ours, theirs)| ours != theirs);
        within(self.plugins, other.plugins)
            && within(self.plugin_bytes, other.plugin_bytes)
            && within(self.body_bytes, other.body_bytes)
            && within(
                self.requests_per_s.map(u64::from),
                other.requests_per_s.map(u64::from),
            )
            && shares.all(|(ours, theirs)| theirs.is_some() && within(ours, theirs))
            && self.unsigned_plugins <= other.unsigned_plugins
    }

    /// The limits that mean an equal share if unset.
    fn shares(&self) -> [Option<u64>; 8] {
        [
            self.live_programs,
            self.steps,
            self.bodies_bytes,
            self.sandboxes,
            self.sandbox_bytes,
            self.snapshot_bytes,
            self.kept_bytes,
            self.action_percent,
        ]
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
        // A number may be larger than the share that it replaces.
        let with = |sandboxes| TenantLimits {
            sandboxes,
            ..base.clone()
        };
        assert!(!with(Some(5)).are_within(&base) && !base.are_within(&with(Some(5))));
        assert!(with(Some(4)).are_within(&with(Some(5))));
    }
}
