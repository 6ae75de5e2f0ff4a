//! Bindings as they are stored: for each world and job, which upload with which
//! configuration has which role.

use super::unix_us;
use std::collections::BTreeMap;
use treadle_model::{PolicyRef, World};
use treadle_policy::evaluator::{ChangeError, Role};
use treadle_store::BindingRow;

/// Characters of a digest in the name of a policy.
pub(super) const DIGEST_SHORT: usize = 12;

/// An upload with its configuration.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BoundUpload {
    /// Its digest, or `native`.
    pub(super) digest: String,
    /// Its configuration, a JSON object.
    pub(super) config: String,
    /// A canary's share of the programs, in millionths.
    pub(super) share_ppm: u32,
    since_us: u64,
}

impl BoundUpload {
    pub(super) fn new(digest: String, config: String, share_ppm: u32) -> Self {
        Self {
            digest,
            config,
            share_ppm,
            since_us: unix_us(),
        }
    }

    /// Whether this is the upload that a policy's name in the journal ends with.
    fn is(&self, policy: &PolicyRef) -> bool {
        let short = self.digest.get(..DIGEST_SHORT).unwrap_or(&self.digest);
        policy
            .0
            .strip_suffix(short)
            .is_some_and(|name| name.ends_with('+'))
    }
}

/// The roles of one binding.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Roles {
    bound: BTreeMap<Role, BoundUpload>,
}

impl Roles {
    pub(super) fn get(&self, role: Role) -> Option<&BoundUpload> {
        self.bound.get(&role)
    }

    /// Gives a role. The one that was active before becomes the previous one,
    /// and a canary ends with the policy that it was compared with.
    pub(super) fn give(&mut self, role: Role, bound: BoundUpload) {
        if role == Role::Active {
            self.bound.remove(&Role::Canary);
            let before = self.bound.remove(&Role::Active);
            let native = || BoundUpload::new(super::NATIVE.into(), "{}".into(), 0);
            self.bound
                .insert(Role::Previous, before.unwrap_or_else(native));
        }
        self.bound.insert(role, bound);
    }

    pub(super) fn withdraw(&mut self, role: Role) -> Result<(), ChangeError> {
        let bound = self.bound.get(&role);
        // The built-in default can't be taken out of its role.
        let bound = bound.filter(|bound| bound.digest != super::NATIVE).cloned();
        let gone = bound.ok_or(ChangeError::Vacant(role))?;
        self.bound.remove(&role);
        if role == Role::Active {
            self.bound.insert(Role::Previous, gone);
        }
        Ok(())
    }

    /// Ends a canary, or swaps the active policy with the one before it.
    pub(super) fn roll_back(&mut self) -> Result<(), ChangeError> {
        if self.bound.remove(&Role::Canary).is_some() {
            return Ok(());
        }
        let before = self.bound.remove(&Role::Previous);
        let before = before.ok_or(ChangeError::NoPrevious)?;
        let active = self.bound.insert(Role::Active, before);
        if let Some(active) = active {
            self.bound.insert(Role::Previous, active);
        }
        Ok(())
    }

    /// A policy failed for good while it was active: the one before it answers, and there is no
    /// way back. If another was bound since, that one stays, and nothing comes before it.
    pub(super) fn fail(&mut self, failed: &PolicyRef) {
        let has = |role| {
            self.bound
                .get(&role)
                .is_some_and(|bound: &BoundUpload| bound.is(failed))
        };
        let (is_active, is_previous) = (has(Role::Active), has(Role::Previous));
        if !is_active && !is_previous {
            return;
        }
        let before = self.bound.remove(&Role::Previous);
        if is_active {
            self.bound.remove(&Role::Active);
            self.bound
                .extend(before.map(|before| (Role::Active, before)));
        }
    }

    /// A canary failed for good; another one may have been started since.
    pub(super) fn fail_canary(&mut self, failed: &PolicyRef) {
        if self
            .bound
            .get(&Role::Canary)
            .is_some_and(|bound| bound.is(failed))
        {
            self.bound.remove(&Role::Canary);
        }
    }
}

/// All bindings.
#[derive(Debug, Default)]
pub(super) struct RoleTable {
    bindings: BTreeMap<(World, String), Roles>,
}

impl RoleTable {
    /// From what is stored. Rows of worlds and roles that this version does not
    /// know are left alone.
    pub(super) fn of(rows: Vec<BindingRow>) -> Self {
        let mut table = Self::default();
        for row in rows {
            let role = Role::ALL.into_iter().find(|r| r.as_str() == row.role);
            let (Some(world), Some(role)) = (World::from_name(&row.world), role) else {
                tracing::warn!(world = row.world, role = row.role, "unknown binding");
                continue;
            };
            let bound = BoundUpload {
                digest: row.digest,
                config: row.config,
                share_ppm: row.share_ppm,
                since_us: row.since_us,
            };
            let roles = table.bindings.entry((world, row.job)).or_default();
            roles.bound.insert(role, bound);
        }
        table
    }

    pub(super) fn roles(&self, world: World, job: &str) -> Roles {
        let key = (world, job.to_owned());
        self.bindings.get(&key).cloned().unwrap_or_default()
    }

    pub(super) fn set(&mut self, world: World, job: &str, roles: Roles) {
        let key = (world, job.to_owned());
        if roles.bound.is_empty() {
            self.bindings.remove(&key);
        } else {
            self.bindings.insert(key, roles);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (World, &str, &Roles)> {
        let bindings = self.bindings.iter();
        bindings.map(|((world, job), roles)| (*world, job.as_str(), roles))
    }
}

/// The rows of one binding.
pub(super) fn rows(world: World, job: &str, roles: &Roles) -> Vec<BindingRow> {
    let row = |(role, bound): (&Role, &BoundUpload)| BindingRow {
        job: job.to_owned(),
        world: world.as_str().to_owned(),
        role: role.as_str().to_owned(),
        digest: bound.digest.clone(),
        config: bound.config.clone(),
        share_ppm: bound.share_ppm,
        since_us: bound.since_us,
    };
    roles.bound.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(digest: &str) -> BoundUpload {
        BoundUpload::new(digest.into(), "{}".into(), 0)
    }

    fn digest(roles: &Roles, role: Role) -> Option<&str> {
        roles.get(role).map(|bound| bound.digest.as_str())
    }

    #[test]
    fn rolling_back_twice_changes_nothing() {
        let mut roles = Roles::default();
        assert_eq!(roles.roll_back(), Err(ChangeError::NoPrevious));
        roles.give(Role::Active, bound("a"));
        assert_eq!(digest(&roles, Role::Previous), Some("native"));
        roles.give(Role::Active, bound("b"));
        roles.roll_back().unwrap();
        assert_eq!(digest(&roles, Role::Active), Some("a"));
        roles.roll_back().unwrap();
        assert_eq!(digest(&roles, Role::Active), Some("b"));
    }

    #[test]
    fn a_canary_goes_first_and_with_the_policy_that_it_was_compared_with() {
        let mut roles = Roles::default();
        roles.give(Role::Active, bound("a"));
        roles.give(Role::Canary, bound("b"));
        roles.roll_back().unwrap();
        assert_eq!(digest(&roles, Role::Active), Some("a"));
        assert_eq!(digest(&roles, Role::Canary), None);
        roles.give(Role::Canary, bound("b"));
        roles.give(Role::Active, bound("c"));
        assert_eq!(digest(&roles, Role::Canary), None);
        assert_eq!(
            roles.withdraw(Role::Canary),
            Err(ChangeError::Vacant(Role::Canary))
        );
    }

    #[test]
    fn the_built_in_default_is_not_withdrawn() {
        let mut roles = Roles::default();
        roles.give(Role::Active, bound("a"));
        roles.give(Role::Active, bound(super::super::NATIVE));
        let before = roles.clone();
        let refused = roles.withdraw(Role::Active);
        assert_eq!(refused, Err(ChangeError::Vacant(Role::Active)));
        assert_eq!(roles, before);
    }

    #[test]
    fn what_is_stored_is_read_back() {
        let mut roles = Roles::default();
        roles.give(Role::Active, bound("a"));
        roles.give(
            Role::Canary,
            BoundUpload::new("b".into(), "{\"k\":1}".into(), 250_000),
        );
        let table = RoleTable::of(rows(World::Priority, "run", &roles));
        assert_eq!(table.roles(World::Priority, "run"), roles);
        assert_eq!(table.iter().count(), 1);
    }

    #[test]
    fn a_failed_policy_gives_way_for_good() {
        let mut roles = Roles::default();
        roles.give(Role::Active, bound("a"));
        roles.give(Role::Active, bound("b"));
        roles.fail(&policy("b"));
        assert_eq!(digest(&roles, Role::Active), Some("a"));
        assert_eq!(roles.roll_back(), Err(ChangeError::NoPrevious));
    }

    fn policy(digest: &str) -> PolicyRef {
        PolicyRef(format!("p@1.0.0+{digest}"))
    }

    #[test]
    fn what_was_bound_before_the_news_of_a_failure_stays() {
        let mut roles = Roles::default();
        roles.give(Role::Active, bound("a"));
        roles.give(Role::Active, bound("faulty"));
        // The evaluator has rolled back by now; its notice is on its way.
        roles.give(Role::Active, bound("c"));
        roles.give(Role::Canary, bound("d"));
        roles.fail(&policy("faulty"));
        roles.fail_canary(&policy("faulty"));
        assert_eq!(digest(&roles, Role::Active), Some("c"));
        assert_eq!(digest(&roles, Role::Canary), Some("d"));
        assert_eq!(
            digest(&roles, Role::Previous),
            None,
            "it must not come back"
        );
        roles.fail_canary(&policy("d"));
        assert_eq!(digest(&roles, Role::Canary), None);
    }
}
