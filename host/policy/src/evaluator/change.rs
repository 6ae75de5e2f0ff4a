//! Changing bindings: between two decisions, never within one.

use super::PolicyDesk;
use super::bindings::{Canary, Scope};
use super::native_policy;
use super::panel::Judge;
use super::seat::{BoundPolicy, Seat};
use super::shadow::ShadowReport;
use super::trial::Trial;
use serde::Serialize;
use std::time::Instant;
use treadle_core::Core;
use treadle_model::{PolicyRef, ProgramId, World};

/// What a policy does in a binding.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It answers.
    Active,
    /// It answers for a share of the programs.
    Canary,
    /// It is asked and compared, never obeyed.
    Shadow,
    /// It answered before.
    Previous,
}

impl Role {
    /// The role's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Canary => "canary",
            Self::Shadow => "shadow",
            Self::Previous => "previous",
        }
    }

    /// All roles.
    pub const ALL: [Self; 4] = [Self::Active, Self::Canary, Self::Shadow, Self::Previous];

    /// From its name, if it is one that can be asked for.
    pub fn from_word(word: &str) -> Option<Self> {
        let mut roles = Self::ALL.into_iter().filter(|role| *role != Self::Previous);
        roles.find(|role| role.as_str() == word)
    }
}

/// A change of a binding.
pub enum Change {
    /// The policy answers from the next decision on; `None` is the built-in
    /// default. A canary in the same binding ends.
    Activate(Option<BoundPolicy>),
    /// The policy answers for a share of the programs, in millionths.
    StartCanary(BoundPolicy, u32),
    /// The policy is asked and compared.
    StartShadow(BoundPolicy),
    /// A policy is taken out of its role.
    Withdraw(Role),
    /// The policy before the present one answers again; a canary ends.
    RollBack,
}

impl Change {
    /// Who gets a role.
    fn subject(&self) -> Option<PolicyRef> {
        match self {
            Self::Activate(policy) => policy.as_ref().map(|bound| bound.policy.clone()),
            Self::StartCanary(bound, _) | Self::StartShadow(bound) => Some(bound.policy.clone()),
            Self::Withdraw(_) | Self::RollBack => None,
        }
    }
}

/// Why a binding can't be changed so.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ChangeError {
    /// Nothing was bound before.
    #[error("nothing was bound here before; bind the policy that should answer")]
    NoPrevious,
    /// Nobody has this role.
    #[error("this binding has no {}", .0.as_str())]
    Vacant(Role),
}

/// A binding before and after a change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Changed {
    /// Who answered before.
    pub before: PolicyRef,
    /// Who answers now.
    pub after: PolicyRef,
    /// Who got a role; who answers now where nobody did.
    pub subject: PolicyRef,
    /// For how long decisions were held up, in microseconds.
    pub held_up_us: u64,
}

/// What the desk did by itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeKind {
    /// The active policy gave way to the one before it.
    RolledBack,
    /// The canary was taken out.
    CanaryEnded,
}

/// A binding that the desk changed by itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Notice {
    /// What.
    pub kind: NoticeKind,
    /// Of which world.
    pub world: World,
    /// Of which binding.
    pub scope: Scope,
    /// Who lost his role.
    pub policy: PolicyRef,
    /// Who answers now.
    pub after: PolicyRef,
    /// Why.
    pub reason: String,
}

/// What the active policy of a binding has stored.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptState {
    /// Of which world.
    pub world: World,
    /// Of which binding.
    pub scope: Scope,
    /// Its keys and values, in the runtime's form.
    pub entries: Vec<u8>,
    /// What it has learnt, in its own form.
    pub snapshot: Vec<u8>,
}

/// What stands in one binding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BindingView {
    /// Of which world.
    pub world: World,
    /// For which job; `*` for all without their own.
    pub job: Scope,
    /// Who answers.
    pub policy: PolicyRef,
    /// Who answered before, if that is known.
    pub previous: Option<PolicyRef>,
    /// Who is on trial.
    pub canary: Option<CanaryView>,
    /// Who is compared.
    pub shadow: Option<ShadowReport>,
}

/// A canary and how it fares.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CanaryView {
    /// The policy.
    pub policy: PolicyRef,
    /// Its share of the programs.
    pub share: f64,
    /// How much longer its steps take, as a share of the incumbent's.
    pub regret: f64,
    /// Steps of both shares.
    pub trial: Trial,
}

impl PolicyDesk {
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
                let seat = Seat::new(policy, self.limits.breaker.clone());
                self.start_canary(world, scope, seat, share_ppm, now_ms);
            }
            Change::StartShadow(policy) => {
                let seat = Seat::new(policy, self.limits.breaker.clone());
                self.bindings.world_mut(world).entry(scope).has_shadow = true;
                self.shadows.seat(world, scope.clone(), seat);
            }
            Change::Withdraw(role) => self.withdraw(world, scope, role)?,
            Change::RollBack => self.roll_back(world, scope)?,
        }
        self.bindings.world_mut(world).tidy(scope);
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

    /// Who answers for a scope, by its own binding.
    pub fn active(&self, world: World, scope: &Scope) -> PolicyRef {
        let mut bindings = self.bindings.world(world).iter();
        let own = bindings.find(|(known, _)| known == scope);
        let seat = own.and_then(|(_, binding)| binding.active.as_ref());
        seat.map_or_else(|| native_policy(world), |seat| seat.policy.clone())
    }

    /// All bindings of a world, everyone's first.
    pub fn views(&self, world: World) -> Vec<BindingView> {
        let bindings = self.bindings.world(world).iter();
        let name = |seat: &Option<Seat>| seat.as_ref().map(|seat| seat.policy.clone());
        bindings
            .map(|(job, binding)| BindingView {
                world,
                policy: name(&binding.active).unwrap_or_else(|| native_policy(world)),
                previous: binding
                    .has_previous
                    .then(|| name(&binding.previous).unwrap_or_else(|| native_policy(world))),
                canary: binding.canary.as_ref().map(|canary| CanaryView {
                    policy: canary.seat.policy.clone(),
                    share: f64::from(canary.share_ppm) / 1e6,
                    regret: canary.trial.regret(),
                    trial: canary.trial.clone(),
                }),
                shadow: self.shadows.report(world, &job),
                job,
            })
            .collect()
    }

    /// What the active policies have stored and learnt, if anything.
    pub fn states(&mut self, now_ms: u64) -> Vec<KeptState> {
        let mut kept = Vec::new();
        for world in World::ALL {
            for (scope, binding) in self.bindings.world_mut(*world).iter_mut() {
                let Some(seat) = &mut binding.active else {
                    continue;
                };
                let Some((state, snapshot)) = seat.kept(now_ms) else {
                    continue;
                };
                if !state.is_empty() || !snapshot.is_empty() {
                    kept.push(KeptState {
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

    /// A step of a program ended after so long; canaries are judged by it.
    pub fn observe_step(&mut self, core: &Core, program: ProgramId, step_ms: f64) {
        for world in World::ALL {
            if self
                .bindings
                .world(*world)
                .iter()
                .all(|(_, b)| b.canary.is_none())
            {
                continue;
            }
            let job = core.state().programs.get(&program).map_or("", |p| &*p.job);
            let (scope, binding) = self.bindings.world(*world).of_job(job);
            let of_canary = binding.is_canary(program);
            let entry = self.bindings.world_mut(*world).get_mut(&scope);
            let Some(canary) = entry.and_then(|binding| binding.canary.as_mut()) else {
                continue;
            };
            canary.trial.add(of_canary, step_ms);
            if canary.trial.has_failed(&self.limits.trial) {
                let (trial, judge) = (
                    canary.trial.clone(),
                    Judge {
                        world: *world,
                        scope,
                        canary: true,
                    },
                );
                let reason = format!(
                    "its steps took {:.0} ms, those of the bound policy {:.0} ms",
                    trial.canary.mean, trial.incumbent.mean
                );
                self.give_up(&judge, &reason);
            }
        }
    }

    fn activate(&mut self, world: World, scope: &Scope, policy: Option<BoundPolicy>, now_ms: u64) {
        let limits = self.limits.breaker.clone();
        let binding = self.bindings.world_mut(world).entry(scope);
        let mut seat = policy.map(|policy| Seat::new(policy, limits));
        if let (Some(seat), Some(old)) = (&mut seat, &mut binding.active) {
            seat.inherit(old, now_ms);
        }
        let replaced = std::mem::replace(&mut binding.previous, binding.active.take());
        binding.active = seat;
        binding.has_previous = true;
        let canary = binding.canary.take().map(|canary| canary.seat);
        for seat in replaced.into_iter().chain(canary) {
            self.shadows.dispose(seat);
        }
        self.statistics.swaps += 1;
    }

    fn start_canary(
        &mut self,
        world: World,
        scope: &Scope,
        mut seat: Seat,
        share_ppm: u32,
        now_ms: u64,
    ) {
        let binding = self.bindings.world_mut(world).entry(scope);
        if let Some(active) = &mut binding.active {
            seat.inherit(active, now_ms);
        }
        let canary = Canary {
            seat,
            share_ppm,
            trial: Trial::default(),
        };
        if let Some(old) = binding.canary.replace(canary) {
            self.shadows.dispose(old.seat);
        }
    }

    fn withdraw(&mut self, world: World, scope: &Scope, role: Role) -> Result<(), ChangeError> {
        let vacant = ChangeError::Vacant(role);
        let binding = self
            .bindings
            .world_mut(world)
            .get_mut(scope)
            .ok_or(vacant)?;
        let seat = match role {
            Role::Active => {
                let seat = binding.active.take().ok_or(vacant)?;
                let old = binding.previous.replace(seat);
                binding.has_previous = true;
                self.statistics.swaps += 1;
                old
            }
            Role::Canary => Some(binding.canary.take().ok_or(vacant)?.seat),
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
        if let Some(seat) = seat {
            self.shadows.dispose(seat);
        }
        Ok(())
    }

    fn roll_back(&mut self, world: World, scope: &Scope) -> Result<(), ChangeError> {
        let limits = self.limits.breaker.clone();
        let binding = self.bindings.world_mut(world).get_mut(scope);
        let binding = binding.filter(|b| b.has_previous || b.canary.is_some());
        let binding = binding.ok_or(ChangeError::NoPrevious)?;
        if let Some(canary) = binding.canary.take() {
            // What a canary decided is undone by ending it.
            self.shadows.dispose(canary.seat);
            return Ok(());
        }
        std::mem::swap(&mut binding.active, &mut binding.previous);
        if let Some(seat) = &mut binding.active {
            seat.forgive(limits);
        }
        self.statistics.swaps += 1;
        Ok(())
    }

    /// Takes a policy out of its role for good reason, and tells of it.
    pub(super) fn give_up(&mut self, judge: &Judge, reason: &str) {
        let policy = {
            let binding = self.bindings.world_mut(judge.world).get_mut(&judge.scope);
            let seat = binding.and_then(|binding| binding.seat_mut(judge.canary));
            seat.map_or_else(|| native_policy(judge.world), |seat| seat.policy.clone())
        };
        let kind = if judge.canary {
            let _ = self.withdraw(judge.world, &judge.scope, Role::Canary);
            NoticeKind::CanaryEnded
        } else {
            let binding = self.bindings.world_mut(judge.world).entry(&judge.scope);
            let failed = binding.active.take();
            binding.active = binding.previous.take();
            binding.has_previous = false;
            if let Some(seat) = &mut binding.active {
                seat.forgive(self.limits.breaker.clone());
            }
            if let Some(seat) = failed {
                self.shadows.dispose(seat);
            }
            NoticeKind::RolledBack
        };
        self.statistics.rollbacks += 1;
        let after = self.active(judge.world, &judge.scope);
        self.bindings.world_mut(judge.world).tidy(&judge.scope);
        tracing::error!(%policy, now = %after, reason, "the policy was given up");
        if let Some(notices) = &self.notices {
            let _ = notices.send(Notice {
                kind,
                world: judge.world,
                scope: judge.scope.clone(),
                policy,
                after,
                reason: reason.to_owned(),
            });
        }
    }
}
