//! Bindings as journaled state: which policy has which role in which scope.
//!
//! Policies are loaded and called outside the core. Decisions about them are kept here, so that a
//! replay of the journal reproduces them.

mod machine;

pub use treadle_machine::{BoundJobs, EVERYONE};

pub(crate) use machine::BindingMachine;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use treadle_machine::kinds;
use treadle_model::tenant::{all_jobs_of, prefix_of};
use treadle_model::{PolicyRef, Role, Timestamp, World};

/// Maximum number of scopes with bindings of one world.
pub const SCOPES_MAX: usize = 1_000;
/// Maximum number of those scopes for one tenant.
pub const TENANT_SCOPES_MAX: usize = SCOPES_MAX / 4;
/// Largest configuration of a policy, in bytes.
pub const CONFIG_BYTES_MAX: usize = 64 << 10;
/// The digest of a world's built-in default.
pub const BUILT_IN: &str = "native";

/// A policy in a role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BoundPolicy {
    /// Distinguishes this binding from all others of this journal, including those of the same
    /// policy.
    pub id: u64,
    /// Its name, version and digest, as decisions name it.
    pub policy: PolicyRef,
    /// The digest of the upload, or [`BUILT_IN`].
    pub digest: Box<str>,
    /// Its configuration, a JSON object.
    pub config: Box<str>,
    /// A canary's share of the programs, in millionths.
    pub share_ppm: u32,
    /// Nobody requested it: treadle bound it because nothing else was bound.
    #[serde(default, skip_serializing_if = "treadle_model::is_default")]
    pub by_default: bool,
    /// When it was bound.
    pub since: Timestamp,
}

/// The policies of one scope of a world.
pub type Roles = BTreeMap<Role, BoundPolicy>;

/// A change of a binding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum BindingEvent {
    /// A policy got a role. The active one before it becomes the previous one, and a canary ends
    /// with the policy that it was compared with.
    PolicyBound {
        /// The world.
        world: World,
        /// A job, or `*` for all jobs without a binding of their own.
        scope: Box<str>,
        /// The role.
        role: Role,
        /// The policy's name, version and digest.
        policy: PolicyRef,
        /// The digest of the upload, or [`BUILT_IN`].
        digest: Box<str>,
        /// Its configuration, a JSON object.
        config: Box<str>,
        /// A canary's share of the programs, in millionths.
        share_ppm: u32,
        /// Nobody requested it: treadle bound it because nothing else was bound.
        #[serde(default, skip_serializing_if = "treadle_model::is_default")]
        by_default: bool,
    },
    /// A policy was removed from its role; an active one becomes the previous one.
    PolicyUnbound {
        /// The world.
        world: World,
        /// The scope.
        scope: Box<str>,
        /// The role.
        role: Role,
    },
    /// A canary was ended; without a canary, active and previous policy were swapped.
    PolicyRolledBack {
        /// The world.
        world: World,
        /// The scope.
        scope: Box<str>,
    },
    /// A policy failed permanently and lost its role. A rollback does not restore it.
    PolicyFailed {
        /// The world.
        world: World,
        /// The scope.
        scope: Box<str>,
        /// The binding that failed; another one may have taken its role by now.
        id: u64,
        /// The reason, in words.
        reason: Box<str>,
    },
}

kinds! {
    BindingEvent {
        PolicyBound = "policy_bound",
        PolicyUnbound = "policy_unbound",
        PolicyRolledBack = "policy_rolled_back",
        PolicyFailed = "policy_failed",
    }
}

impl BindingEvent {
    /// World and scope of the binding.
    pub fn target(&self) -> (World, &str) {
        match self {
            Self::PolicyBound { world, scope, .. }
            | Self::PolicyUnbound { world, scope, .. }
            | Self::PolicyRolledBack { world, scope }
            | Self::PolicyFailed { world, scope, .. } => (*world, scope),
        }
    }
}

/// Why a change of a binding is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ChangeError {
    /// Nothing was bound before.
    #[error("no previous policy to roll back to; bind the policy that you want")]
    NoPrevious,
    /// No policy has this role.
    #[error("this binding has no {0}")]
    Vacant(Role),
    /// The configuration is too large.
    #[error(
        "`config` is larger than {CONFIG_BYTES_MAX} bytes; give only what differs from the defaults"
    )]
    ConfigTooLarge,
    /// There are too many bindings.
    #[error("binding limit of this world reached ({SCOPES_MAX}); unbind one")]
    TooMany,
    /// The tenant has too many bindings.
    #[error(
        "binding limit of this tenant and world reached ({TENANT_SCOPES_MAX}); unbind one, or bind one policy for all jobs"
    )]
    TooManyOfTenant,
}

/// All bindings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bindings {
    worlds: BTreeMap<World, BTreeMap<Box<str>, Roles>>,
    last_id: u64,
}

impl Bindings {
    /// True if nothing was ever bound.
    pub fn is_unused(&self) -> bool {
        self.last_id == 0
    }

    /// The policies of a scope's own binding, if it has one.
    pub fn roles(&self, world: World, scope: &str) -> Option<&Roles> {
        self.worlds.get(&world)?.get(scope)
    }

    /// The active policy for a job, and its scope: the job's own binding decides, otherwise its
    /// tenant's, otherwise everyone's.
    pub fn active_of(&self, world: World, job: &str) -> Option<(&str, &BoundPolicy)> {
        let scopes = self.worlds.get(&world)?;
        let of_tenant = || scopes.get_key_value(all_jobs_of(job)?.as_str());
        let own = scopes.get_key_value(job).or_else(of_tenant);
        let (scope, roles) = own.or_else(|| scopes.get_key_value(EVERYONE))?;
        Some((scope, roles.get(&Role::Active)?))
    }

    /// Jobs with a policy of this world that is not its built-in default.
    pub fn jobs_of(&self, world: World) -> BoundJobs {
        let is_bound = |roles: &Roles| {
            let active = roles.get(&Role::Active);
            active.is_some_and(|bound| &*bound.digest != BUILT_IN)
        };
        let scopes = self.worlds.get(&world).into_iter().flatten();
        BoundJobs {
            scopes: scopes
                .map(|(scope, roles)| (scope.clone(), is_bound(roles)))
                .collect(),
        }
    }

    /// All bindings, by world and scope.
    pub fn iter(&self) -> impl Iterator<Item = (World, &str, &Roles)> {
        let worlds = self.worlds.iter();
        worlds.flat_map(|(world, scopes)| {
            scopes
                .iter()
                .map(|(scope, roles)| (*world, &**scope, roles))
        })
    }

    /// Checks that an event changes a binding as its sender intends.
    ///
    /// # Errors
    /// [`ChangeError`] if it would change nothing or exceed a limit.
    pub fn check(&self, event: &BindingEvent) -> Result<(), ChangeError> {
        let (world, scope) = event.target();
        let roles = self.roles(world, scope);
        let has = |role| roles.is_some_and(|roles| roles.contains_key(&role));
        match event {
            BindingEvent::PolicyBound { config, .. } => {
                if config.len() > CONFIG_BYTES_MAX {
                    return Err(ChangeError::ConfigTooLarge);
                }
                if roles.is_none() {
                    self.check_room(world, scope)?;
                }
            }
            BindingEvent::PolicyUnbound { role, .. } => {
                // The built-in default can't be removed from its role.
                let bound = roles.and_then(|roles| roles.get(role));
                if bound.is_none_or(|bound| &*bound.digest == BUILT_IN) {
                    return Err(ChangeError::Vacant(*role));
                }
            }
            BindingEvent::PolicyRolledBack { .. } => {
                if !has(Role::Canary) && !has(Role::Previous) {
                    return Err(ChangeError::NoPrevious);
                }
            }
            BindingEvent::PolicyFailed { .. } => {}
        }
        Ok(())
    }

    /// Whether another scope of a world may be bound.
    fn check_room(&self, world: World, scope: &str) -> Result<(), ChangeError> {
        let Some(scopes) = self.worlds.get(&world) else {
            return Ok(());
        };
        if scopes.len() >= SCOPES_MAX {
            return Err(ChangeError::TooMany);
        }
        let own = scopes
            .keys()
            .filter(|other| prefix_of(other) == prefix_of(scope));
        if own.count() >= TENANT_SCOPES_MAX {
            return Err(ChangeError::TooManyOfTenant);
        }
        Ok(())
    }

    /// The id of the binding that an event created, if it is the event handled last; 0 if it
    /// created none.
    pub fn made_by(&self, event: &BindingEvent) -> u64 {
        let BindingEvent::PolicyBound { role, .. } = event else {
            return 0;
        };
        let (world, scope) = event.target();
        let bound = self.roles(world, scope).and_then(|roles| roles.get(role));
        bound.map_or(0, |bound| bound.id)
    }

    /// Changes a binding. An event that [`Self::check`] refuses changes nothing.
    pub(crate) fn apply(&mut self, now: Timestamp, event: &BindingEvent) {
        if self.check(event).is_err() {
            return;
        }
        let (world, scope) = event.target();
        let mut roles = self.roles(world, scope).cloned().unwrap_or_default();
        match event {
            BindingEvent::PolicyBound {
                role,
                policy,
                digest,
                config,
                share_ppm,
                by_default,
                ..
            } => {
                let bound = BoundPolicy {
                    id: self.next_id(),
                    policy: policy.clone(),
                    digest: digest.clone(),
                    config: config.clone(),
                    share_ppm: *share_ppm,
                    by_default: *by_default,
                    since: now,
                };
                let built_in = |id| BoundPolicy {
                    id,
                    policy: PolicyRef(BUILT_IN.into()),
                    digest: BUILT_IN.into(),
                    config: "{}".into(),
                    share_ppm: 0,
                    by_default: false,
                    since: now,
                };
                if *role == Role::Active {
                    roles.remove(&Role::Canary);
                    let before = roles.remove(&Role::Active);
                    let before = before.unwrap_or_else(|| built_in(self.next_id()));
                    roles.insert(Role::Previous, before);
                }
                roles.insert(*role, bound);
            }
            BindingEvent::PolicyUnbound { role, .. } => {
                let gone = roles.remove(role);
                if *role == Role::Active {
                    roles.extend(gone.map(|gone| (Role::Previous, gone)));
                }
            }
            BindingEvent::PolicyRolledBack { .. } => roll_back(&mut roles),
            BindingEvent::PolicyFailed { id, .. } => fail(&mut roles, *id),
        }
        self.put(world, scope, roles);
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn put(&mut self, world: World, scope: &str, roles: Roles) {
        let scopes = self.worlds.entry(world).or_default();
        if roles.is_empty() {
            scopes.remove(scope);
        } else {
            scopes.insert(scope.into(), roles);
        }
    }
}

/// Ends a canary, or swaps active and previous policy.
fn roll_back(roles: &mut Roles) {
    if roles.remove(&Role::Canary).is_some() {
        return;
    }
    let (active, before) = (roles.remove(&Role::Active), roles.remove(&Role::Previous));
    roles.extend(before.map(|before| (Role::Active, before)));
    roles.extend(active.map(|active| (Role::Previous, active)));
}

/// Removes the policy that failed. The previous policy becomes active again; a policy that was
/// bound since stays.
fn fail(roles: &mut Roles, id: u64) {
    let failed = roles.iter().find(|(_, bound)| bound.id == id);
    let Some(role) = failed.map(|(role, _)| *role) else {
        return;
    };
    roles.remove(&role);
    if role == Role::Active {
        let before = roles.remove(&Role::Previous);
        roles.extend(before.map(|before| (Role::Active, before)));
    }
}

#[cfg(test)]
mod tests;
