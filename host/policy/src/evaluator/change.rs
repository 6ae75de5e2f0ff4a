//! Changing bindings: between two decisions, never within one.

use super::PolicyEvaluator;
use super::assignment::Assignee;
use super::bindings::{Canary, Scope};
use super::native_policy;
use super::shadow::ShadowReport;
use super::slot::{BoundPolicy, PolicySlot};
use super::trial::Trial;
use serde::Serialize;
use std::time::Instant;
use treadle_core::Core;
use treadle_core::bindings::{BindingEvent, ChangeError};
use treadle_model::{PolicyRef, ProgramId, Role, World};
use utoipa::ToSchema;

/// A change of a binding.
pub enum Change {
    /// The policy answers from the next decision on; `None` is the built-in default. A canary of
    /// the same binding ends.
    Activate(Option<BoundPolicy>),
    /// The policy answers for a share of the programs, in millionths.
    StartCanary(BoundPolicy, u32),
    /// The policy gets the same questions, and its answers are compared.
    StartShadow(BoundPolicy),
    /// A policy is removed from its role.
    Withdraw(Role),
    /// The previous policy becomes active again; a canary ends.
    RollBack,
}

impl Change {
    /// The change for an event on record; none for a failure, which the evaluator itself reported.
    fn of(event: &BindingEvent, loaded: Option<BoundPolicy>) -> Option<Self> {
        match event {
            BindingEvent::PolicyBound {
                role, share_ppm, ..
            } => Self::to_give(*role, loaded, *share_ppm),
            BindingEvent::PolicyUnbound { role, .. } => Some(Self::Withdraw(*role)),
            BindingEvent::PolicyRolledBack { .. } => Some(Self::RollBack),
            BindingEvent::PolicyFailed { .. } => None,
        }
    }

    /// The change that gives a policy a role. The built-in default can only be active.
    pub fn to_give(role: Role, policy: Option<BoundPolicy>, share_ppm: u32) -> Option<Self> {
        match (role, policy) {
            (Role::Active | Role::Previous, policy) => Some(Self::Activate(policy)),
            (Role::Canary, Some(policy)) => Some(Self::StartCanary(policy, share_ppm)),
            (Role::Shadow, Some(policy)) => Some(Self::StartShadow(policy)),
            (Role::Canary | Role::Shadow, None) => None,
        }
    }

    /// The policy that gets a role.
    fn subject(&self) -> Option<PolicyRef> {
        match self {
            Self::Activate(policy) => policy.as_ref().map(|bound| bound.policy.clone()),
            Self::StartCanary(bound, _) | Self::StartShadow(bound) => Some(bound.policy.clone()),
            Self::Withdraw(_) | Self::RollBack => None,
        }
    }
}

/// The result of a change of a binding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Changed {
    /// The policy that answered before.
    pub before: PolicyRef,
    /// The policy that answers now.
    pub after: PolicyRef,
    /// The policy that got a role; the one that answers now if none did.
    pub subject: PolicyRef,
    /// How long decisions were delayed, in microseconds.
    pub held_up_us: u64,
}

/// What the evaluator did by itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeKind {
    /// The active policy was rolled back to the previous one.
    RolledBack,
    /// The canary was removed.
    CanaryEnded,
}

/// A binding that the evaluator changed by itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Notice {
    /// Its kind.
    pub kind: NoticeKind,
    /// The world.
    pub world: World,
    /// The scope.
    pub scope: Scope,
    /// The id of the failed binding.
    pub id: u64,
    /// The policy that lost its role.
    pub policy: PolicyRef,
    /// The policy that answers now.
    pub after: PolicyRef,
    /// The reason.
    pub reason: String,
}

impl Notice {
    /// The event for the journal.
    pub fn event(&self) -> BindingEvent {
        BindingEvent::PolicyFailed {
            world: self.world,
            scope: self.scope.as_str().into(),
            id: self.id,
            reason: self.reason.as_str().into(),
        }
    }
}

/// The stored state of a binding's active policy.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyState {
    /// The world.
    pub world: World,
    /// The scope.
    pub scope: Scope,
    /// Its keys and values, in the runtime's serialized form.
    pub entries: Vec<u8>,
    /// Its learnt state, in its own form.
    pub snapshot: Vec<u8>,
}

/// A binding with the statistics of its policies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BindingView {
    /// The world.
    pub world: World,
    /// The job; `*` for all jobs without their own.
    pub job: Scope,
    /// The policy that answers.
    pub policy: PolicyRef,
    /// The policy that answered before, if known.
    pub previous: Option<PolicyRef>,
    /// The canary.
    pub canary: Option<CanaryView>,
    /// The shadow.
    pub shadow: Option<ShadowReport>,
}

/// A canary and its results.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = Canary)]
pub struct CanaryView {
    /// The policy.
    #[schema(value_type = String)]
    pub policy: PolicyRef,
    /// Its share of the programs.
    pub share: f64,
    /// How much longer its steps take, as a share of the incumbent's.
    pub regret: f64,
    /// Steps of both shares, in milliseconds.
    pub trial: Trial,
}

impl PolicyEvaluator {
    /// Applies a change of a binding that is on record. `loaded` is the policy that got a role,
    /// with its binding's id; `None` for the built-in default.
    pub fn follow(
        &mut self,
        event: &BindingEvent,
        loaded: Option<BoundPolicy>,
        now_ms: u64,
    ) -> Changed {
        let (world, scope) = event.target();
        let (scope, before) = (Scope::of(scope), self.active(world, &Scope::of(scope)));
        let change = Change::of(event, loaded);
        let changed = change.map(|change| self.change(world, &scope, change, now_ms));
        match changed {
            Some(Ok(changed)) => changed,
            // A policy that could not be loaded at the start is bound, but has no slot.
            Some(Err(_)) | None => Changed {
                subject: before.clone(),
                after: before.clone(),
                before,
                held_up_us: 0,
            },
        }
    }

    /// The next binding that the evaluator changed by itself, if any.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Changes a binding.
    pub fn change(
        &mut self,
        world: World,
        scope: &Scope,
        change: Change,
        now_ms: u64,
    ) -> Result<Changed, ChangeError> {
        let started = Instant::now();
        let before = self.active(world, scope);
        let subject = change.subject();
        match change {
            Change::Activate(policy) => self.activate(world, scope, policy, now_ms),
            Change::StartCanary(policy, share_ppm) => {
                let slot = PolicySlot::new(policy, self.limits.breaker.clone());
                self.start_canary(world, scope, slot, share_ppm, now_ms);
            }
            Change::StartShadow(policy) => {
                let slot = PolicySlot::new(policy, self.limits.breaker.clone());
                self.bindings.world_mut(world).entry(scope).has_shadow = true;
                self.shadows.install(world, scope.clone(), slot);
            }
            Change::Withdraw(role) => self.withdraw(world, scope, role)?,
            Change::RollBack => self.roll_back(world, scope)?,
        }
        self.bindings.world_mut(world).prune_empty(scope);
        let held_up_us = started.elapsed().as_micros() as u64;
        self.statistics.slowest_swap_us = self.statistics.slowest_swap_us.max(held_up_us);
        let after = self.active(world, scope);
        Ok(Changed {
            before,
            subject: subject.unwrap_or_else(|| after.clone()),
            after,
            held_up_us,
        })
    }

    /// The active policy of a scope's own binding.
    pub fn active(&self, world: World, scope: &Scope) -> PolicyRef {
        let mut bindings = self.bindings.world(world).iter();
        let own = bindings.find(|(known, _)| known == scope);
        let slot = own.and_then(|(_, binding)| binding.active.as_ref());
        slot.map_or_else(|| native_policy(world), |slot| slot.policy.clone())
    }

    /// The active policy of the binding that applies to a job.
    pub fn active_for(&self, world: World, job: &str) -> PolicyRef {
        let (_, binding) = self.bindings.world(world).of_job(job);
        let active = binding.active.as_ref();
        active.map_or_else(|| native_policy(world), |slot| slot.policy.clone())
    }

    /// All bindings of a world, everyone's first.
    pub fn views(&self, world: World) -> Vec<BindingView> {
        let bindings = self.bindings.world(world).iter();
        let name = |slot: &Option<PolicySlot>| slot.as_ref().map(|slot| slot.policy.clone());
        bindings
            .map(|(job, binding)| BindingView {
                world,
                policy: name(&binding.active).unwrap_or_else(|| native_policy(world)),
                previous: binding
                    .has_previous
                    .then(|| name(&binding.previous).unwrap_or_else(|| native_policy(world))),
                canary: binding.canary.as_ref().map(|canary| CanaryView {
                    policy: canary.slot.policy.clone(),
                    share: f64::from(canary.share_ppm) / 1e6,
                    regret: canary.trial.regret(),
                    trial: canary.trial.clone(),
                }),
                shadow: self.shadows.report(world, &job),
                job,
            })
            .collect()
    }

    /// The stored and learnt state of the active policies, if any.
    pub fn states(&mut self, now_ms: u64) -> Vec<PolicyState> {
        let mut kept = Vec::new();
        for world in World::ALL {
            for (scope, binding) in self.bindings.world_mut(*world).iter_mut() {
                let Some(slot) = &mut binding.active else {
                    continue;
                };
                let Some((state, snapshot)) = slot.kept(now_ms) else {
                    continue;
                };
                if !state.is_empty() || !snapshot.is_empty() {
                    kept.push(PolicyState {
                        world: *world,
                        scope,
                        entries: state.to_bytes(),
                        snapshot,
                    });
                }
            }
        }
        kept
    }

    /// Records the duration of a program's step; canaries are evaluated by it. A canary of
    /// `allocation` or `shaping` decides for no program.
    pub fn observe_step(&mut self, core: &Core, program: ProgramId, step_ms: f64) {
        let decides = |world: &&World| !matches!(world, World::Allocation | World::Shaping);
        for world in World::ALL.iter().filter(decides) {
            if self
                .bindings
                .world(*world)
                .iter()
                .all(|(_, b)| b.canary.is_none())
            {
                continue;
            }
            let job = core.programs().live.get(&program).map_or("", |p| &*p.job);
            let (scope, binding) = self.bindings.world(*world).of_job(job);
            let of_canary = binding.is_canary(program);
            let entry = self.bindings.world_mut(*world).get_mut(&scope);
            let Some(canary) = entry.and_then(|binding| binding.canary.as_mut()) else {
                continue;
            };
            canary.trial.add(of_canary, step_ms);
            if canary.trial.has_failed(&self.limits.trial) {
                let (trial, assignee) = (
                    canary.trial.clone(),
                    Assignee {
                        world: *world,
                        scope,
                        canary: true,
                    },
                );
                let reason = format!(
                    "its steps took {:.0} ms, those of the bound policy {:.0} ms",
                    trial.canary.mean, trial.incumbent.mean
                );
                self.give_up(&assignee, &reason);
            }
        }
    }

    fn activate(&mut self, world: World, scope: &Scope, policy: Option<BoundPolicy>, now_ms: u64) {
        let limits = self.limits.breaker.clone();
        let binding = self.bindings.world_mut(world).entry(scope);
        let mut slot = policy.map(|policy| PolicySlot::new(policy, limits));
        if let (Some(slot), Some(old)) = (&mut slot, &mut binding.active) {
            slot.inherit(old, now_ms);
        }
        let replaced = std::mem::replace(&mut binding.previous, binding.active.take());
        binding.active = slot;
        binding.has_previous = true;
        let canary = binding.canary.take().map(|canary| canary.slot);
        for slot in replaced.into_iter().chain(canary) {
            self.shadows.dispose(slot);
        }
        self.statistics.swaps += 1;
    }

    fn start_canary(
        &mut self,
        world: World,
        scope: &Scope,
        mut slot: PolicySlot,
        share_ppm: u32,
        now_ms: u64,
    ) {
        let binding = self.bindings.world_mut(world).entry(scope);
        if let Some(active) = &mut binding.active {
            slot.inherit(active, now_ms);
        }
        let canary = Canary {
            slot,
            share_ppm,
            trial: Trial::default(),
        };
        if let Some(old) = binding.canary.replace(canary) {
            self.shadows.dispose(old.slot);
        }
    }

    fn withdraw(&mut self, world: World, scope: &Scope, role: Role) -> Result<(), ChangeError> {
        let vacant = ChangeError::Vacant(role);
        let binding = self
            .bindings
            .world_mut(world)
            .get_mut(scope)
            .ok_or(vacant)?;
        let slot = match role {
            Role::Active => {
                let slot = binding.active.take().ok_or(vacant)?;
                let old = binding.previous.replace(slot);
                binding.has_previous = true;
                self.statistics.swaps += 1;
                old
            }
            Role::Canary => Some(binding.canary.take().ok_or(vacant)?.slot),
            Role::Previous => {
                binding.has_previous = false;
                binding.previous.take()
            }
            Role::Shadow => {
                if !std::mem::take(&mut binding.has_shadow) {
                    return Err(vacant);
                }
                self.shadows.leave(world, scope.clone());
                None
            }
        };
        if let Some(slot) = slot {
            self.shadows.dispose(slot);
        }
        Ok(())
    }

    fn roll_back(&mut self, world: World, scope: &Scope) -> Result<(), ChangeError> {
        let limits = self.limits.breaker.clone();
        let binding = self.bindings.world_mut(world).get_mut(scope);
        let binding = binding.filter(|b| b.has_previous || b.canary.is_some());
        let binding = binding.ok_or(ChangeError::NoPrevious)?;
        if let Some(canary) = binding.canary.take() {
            // A canary's decisions are undone by ending it.
            self.shadows.dispose(canary.slot);
            return Ok(());
        }
        std::mem::swap(&mut binding.active, &mut binding.previous);
        if let Some(slot) = &mut binding.active {
            slot.forgive(limits);
        }
        self.statistics.swaps += 1;
        Ok(())
    }

    /// Removes a policy from its role for a reason, and reports that.
    pub(super) fn give_up(&mut self, assignee: &Assignee, reason: &str) {
        let binding = self
            .bindings
            .world_mut(assignee.world)
            .get_mut(&assignee.scope);
        let slot = binding.and_then(|binding| binding.slot_mut(assignee.canary));
        let Some((id, policy)) = slot.map(|slot| (slot.id, slot.policy.clone())) else {
            return;
        };
        let kind = if assignee.canary {
            let _ = self.withdraw(assignee.world, &assignee.scope, Role::Canary);
            NoticeKind::CanaryEnded
        } else {
            let binding = self
                .bindings
                .world_mut(assignee.world)
                .entry(&assignee.scope);
            let failed = binding.active.take();
            binding.active = binding.previous.take();
            binding.has_previous = false;
            if let Some(slot) = &mut binding.active {
                slot.forgive(self.limits.breaker.clone());
            }
            if let Some(slot) = failed {
                self.shadows.dispose(slot);
            }
            NoticeKind::RolledBack
        };
        self.statistics.rollbacks += 1;
        let after = self.active(assignee.world, &assignee.scope);
        self.bindings
            .world_mut(assignee.world)
            .prune_empty(&assignee.scope);
        tracing::error!(%policy, now = %after, reason, "the policy was removed from its role");
        self.notices.push_back(Notice {
            kind,
            world: assignee.world,
            scope: assignee.scope.clone(),
            id,
            policy,
            after,
            reason: reason.to_owned(),
        });
    }
}
