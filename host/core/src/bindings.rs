//! Bindings as journaled state: which policy has which role in which scope.
//!
//! Policies are loaded and asked outside the core. What was decided about them is here, so that a
//! replay of the journal gives it back.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use treadle_model::tenant::prefix_of;
use treadle_model::{PolicyRef, Role, Timestamp, World};

/// Bindings of one world that a daemon holds at most.
pub const SCOPES_MAX: usize = 1_000;
/// Of these, scopes of one tenant.
pub const TENANT_SCOPES_MAX: usize = SCOPES_MAX / 4;
/// Largest configuration of a policy, in bytes.
pub const CONFIG_BYTES_MAX: usize = 64 << 10;
/// The digest of a world's built-in default.
pub const BUILT_IN: &str = "native";

/// A policy in a role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BoundPolicy {
    /// Distinguishes this binding from all others of this journal, those of the same policy too.
    pub id: u64,
    /// Its name, version and digest, as decisions name it.
    pub policy: PolicyRef,
    /// The digest of the upload, or [`BUILT_IN`].
    pub digest: Box<str>,
    /// Its configuration, a JSON object.
    pub config: Box<str>,
    /// A canary's share of the programs, in millionths.
    pub share_ppm: u32,
    /// Nobody asked for it: treadle bound it because nothing else was.
    #[serde(default, skip_serializing_if = "is_false")]
    pub by_default: bool,
    /// Since when.
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
        /// Of which world.
        world: World,
        /// A job, or `*` for all without their own.
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
        /// Nobody asked for it: treadle bound it because nothing else was.
        #[serde(default, skip_serializing_if = "is_false")]
        by_default: bool,
    },
    /// A policy was taken out of its role; an active one becomes the previous one.
    PolicyUnbound {
        /// Of which world.
        world: World,
        /// Of which scope.
        scope: Box<str>,
        /// The role.
        role: Role,
    },
    /// A canary was ended; without one, active and previous policy changed places.
    PolicyRolledBack {
        /// Of which world.
        world: World,
        /// Of which scope.
        scope: Box<str>,
    },
    /// A policy failed for good and lost its role. There is no way back to it.
    PolicyFailed {
        /// Of which world.
        world: World,
        /// Of which scope.
        scope: Box<str>,
        /// The binding that failed; another one may have taken its role by now.
        id: u64,
        /// Why, for people.
        reason: Box<str>,
    },
}

impl BindingEvent {
    /// The event's name, as it is in the journal.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::PolicyBound { .. } => "policy_bound",
            Self::PolicyUnbound { .. } => "policy_unbound",
            Self::PolicyRolledBack { .. } => "policy_rolled_back",
            Self::PolicyFailed { .. } => "policy_failed",
        }
    }

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

/// Why a binding can't be changed so.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ChangeError {
    /// Nothing was bound before.
    #[error("nothing was bound here before; bind the policy that should answer")]
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
    #[error(
        "this world has {SCOPES_MAX} bindings, which is the most; withdraw one that is not needed"
    )]
    TooMany,
    /// The tenant has too many bindings.
    #[error(
        "this tenant has {TENANT_SCOPES_MAX} bindings of this world, which is the most; withdraw one that is not needed, or bind one policy for all jobs"
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

    /// The policies of a scope by its own binding, if it has one.
    pub fn roles(&self, world: World, scope: &str) -> Option<&Roles> {
        self.worlds.get(&world)?.get(scope)
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

    /// Whether an event changes a binding as its sender means it to.
    ///
    /// # Errors
    /// [`ChangeError`] if it would change nothing, or go beyond a bound.
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
                // The built-in default can't be taken out of its role.
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
        let is_own = |other: &&Box<str>| prefix_of(other) == prefix_of(scope);
        if scopes.keys().filter(is_own).count() >= TENANT_SCOPES_MAX {
            return Err(ChangeError::TooManyOfTenant);
        }
        Ok(())
    }

    /// The number of the binding that an event made, the latest one handled; 0 if it made none.
    pub fn made_by(&self, event: &BindingEvent) -> u64 {
        let BindingEvent::PolicyBound { role, .. } = event else {
            return 0;
        };
        let (world, scope) = event.target();
        let bound = self.roles(world, scope).and_then(|roles| roles.get(role));
        bound.map_or(0, |bound| bound.id)
    }

    /// Changes a binding. What [`Self::check`] refuses changes nothing.
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

#[allow(clippy::trivially_copy_pass_by_ref, reason = "what serde asks for")]
fn is_false(value: &bool) -> bool {
    !value
}

/// Ends a canary, or lets active and previous policy change places.
fn roll_back(roles: &mut Roles) {
    if roles.remove(&Role::Canary).is_some() {
        return;
    }
    let (active, before) = (roles.remove(&Role::Active), roles.remove(&Role::Previous));
    roles.extend(before.map(|before| (Role::Active, before)));
    roles.extend(active.map(|active| (Role::Previous, active)));
}

/// Removes the policy that failed. The one before it answers; a policy that was bound since stays.
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
mod tests {
    use super::*;

    const WORLD: World = World::Priority;

    fn bind(role: Role, digest: &str) -> BindingEvent {
        BindingEvent::PolicyBound {
            world: WORLD,
            scope: "run".into(),
            role,
            policy: PolicyRef(format!("p@1.0.0+{digest}")),
            digest: digest.into(),
            config: "{}".into(),
            share_ppm: 0,
            by_default: false,
        }
    }

    fn roll_back() -> BindingEvent {
        BindingEvent::PolicyRolledBack {
            world: WORLD,
            scope: "run".into(),
        }
    }

    fn unbind(role: Role) -> BindingEvent {
        BindingEvent::PolicyUnbound {
            world: WORLD,
            scope: "run".into(),
            role,
        }
    }

    fn fail(id: u64) -> BindingEvent {
        BindingEvent::PolicyFailed {
            world: WORLD,
            scope: "run".into(),
            id,
            reason: "it trapped".into(),
        }
    }

    fn after(events: &[BindingEvent]) -> Bindings {
        let mut bindings = Bindings::default();
        for event in events {
            bindings.apply(Timestamp(1), event);
        }
        bindings
    }

    fn digest(bindings: &Bindings, role: Role) -> Option<&str> {
        Some(&bindings.roles(WORLD, "run")?.get(&role)?.digest)
    }

    fn id(bindings: &Bindings, role: Role) -> u64 {
        bindings.roles(WORLD, "run").expect("it is bound")[&role].id
    }

    #[test]
    fn rolling_back_twice_changes_nothing() {
        let none = Bindings::default();
        assert_eq!(none.check(&roll_back()), Err(ChangeError::NoPrevious));
        let mut bindings = after(&[bind(Role::Active, "a")]);
        assert_eq!(digest(&bindings, Role::Previous), Some(BUILT_IN));
        bindings.apply(Timestamp(2), &bind(Role::Active, "b"));
        bindings.apply(Timestamp(3), &roll_back());
        assert_eq!(digest(&bindings, Role::Active), Some("a"));
        bindings.apply(Timestamp(4), &roll_back());
        assert_eq!(digest(&bindings, Role::Active), Some("b"));
    }

    #[test]
    fn a_canary_goes_first_and_with_the_policy_that_it_was_compared_with() {
        let mut bindings = after(&[
            bind(Role::Active, "a"),
            bind(Role::Canary, "b"),
            roll_back(),
        ]);
        assert_eq!(digest(&bindings, Role::Active), Some("a"));
        assert_eq!(digest(&bindings, Role::Canary), None);
        bindings.apply(Timestamp(1), &bind(Role::Canary, "b"));
        bindings.apply(Timestamp(1), &bind(Role::Active, "c"));
        assert_eq!(digest(&bindings, Role::Canary), None);
        let vacant = Err(ChangeError::Vacant(Role::Canary));
        assert_eq!(bindings.check(&unbind(Role::Canary)), vacant);
    }

    #[test]
    fn the_built_in_default_is_not_withdrawn() {
        let mut bindings = after(&[bind(Role::Active, "a"), bind(Role::Active, BUILT_IN)]);
        let before = bindings.clone();
        let refused = bindings.check(&unbind(Role::Active));
        assert_eq!(refused, Err(ChangeError::Vacant(Role::Active)));
        bindings.apply(Timestamp(9), &unbind(Role::Active));
        assert_eq!(bindings, before);
    }

    #[test]
    fn a_failed_policy_gives_way_for_good() {
        let mut bindings = after(&[bind(Role::Active, "a"), bind(Role::Active, "b")]);
        let failed = id(&bindings, Role::Active);
        bindings.apply(Timestamp(1), &fail(failed));
        assert_eq!(digest(&bindings, Role::Active), Some("a"));
        assert_eq!(bindings.check(&roll_back()), Err(ChangeError::NoPrevious));
    }

    #[test]
    fn one_tenant_does_not_take_all_bindings() {
        let bind = |scope: String| BindingEvent::PolicyBound {
            world: WORLD,
            scope: scope.into(),
            role: Role::Active,
            policy: PolicyRef("p".into()),
            digest: "a".into(),
            config: "{}".into(),
            share_ppm: 0,
            by_default: false,
        };
        let own = |number: usize| bind(format!("\u{1f}acme\u{1f}{number}"));
        let mut bindings = after(&(0..TENANT_SCOPES_MAX).map(own).collect::<Vec<_>>());
        let more = own(TENANT_SCOPES_MAX);
        assert_eq!(bindings.check(&more), Err(ChangeError::TooManyOfTenant));
        assert_eq!(bindings.check(&own(0)), Ok(()), "it is bound already");
        for of_others in ["run".to_owned(), "\u{1f}b\u{1f}run".to_owned()] {
            assert_eq!(bindings.check(&bind(of_others)), Ok(()));
        }
        bindings.apply(Timestamp(1), &more);
        assert_eq!(bindings.iter().count(), TENANT_SCOPES_MAX);
    }

    #[test]
    fn what_was_bound_before_the_news_of_a_failure_stays() {
        let mut bindings = after(&[bind(Role::Active, "a"), bind(Role::Active, "faulty")]);
        let failed = id(&bindings, Role::Active);
        // The evaluator asks it no more by now; the news is on its way.
        bindings.apply(Timestamp(1), &bind(Role::Active, "c"));
        bindings.apply(Timestamp(1), &bind(Role::Canary, "d"));
        bindings.apply(Timestamp(1), &fail(failed));
        assert_eq!(digest(&bindings, Role::Active), Some("c"));
        assert_eq!(digest(&bindings, Role::Canary), Some("d"));
        assert_eq!(
            digest(&bindings, Role::Previous),
            None,
            "it must not come back"
        );
        let canary = id(&bindings, Role::Canary);
        bindings.apply(Timestamp(1), &fail(canary));
        assert_eq!(digest(&bindings, Role::Canary), None);
    }

    #[test]
    fn the_same_upload_bound_again_is_another_binding() {
        let mut bindings = after(&[bind(Role::Active, "a")]);
        let failed = id(&bindings, Role::Active);
        bindings.apply(Timestamp(1), &bind(Role::Active, "a"));
        bindings.apply(Timestamp(1), &fail(failed));
        assert_eq!(digest(&bindings, Role::Active), Some("a"));
    }

    #[test]
    fn bindings_have_bounds() {
        let mut bindings = Bindings::default();
        let mut event = bind(Role::Active, "a");
        for n in 0..SCOPES_MAX {
            if let BindingEvent::PolicyBound { scope, .. } = &mut event {
                *scope = format!("\u{1f}team-{}\u{1f}job-{n}", n % 5).into();
            }
            assert_eq!(bindings.check(&event), Ok(()));
            bindings.apply(Timestamp(1), &event);
        }
        let one_more = bind(Role::Active, "a");
        assert_eq!(bindings.check(&one_more), Err(ChangeError::TooMany));
        if let BindingEvent::PolicyBound { config, .. } = &mut event {
            *config = "x".repeat(CONFIG_BYTES_MAX + 1).into();
        }
        assert_eq!(bindings.check(&event), Err(ChangeError::ConfigTooLarge));
    }
}
