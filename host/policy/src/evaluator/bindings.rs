//! Which policies answer for which jobs: per world one binding for everyone, and bindings of jobs
//! that take precedence over it.

use super::slot::PolicySlot;
use super::trial::Trial;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use treadle_model::tenant::{all_jobs_of, prefix_of};
use treadle_model::{ProgramId, World};

/// The scope name of everyone's binding.
pub use treadle_core::bindings::EVERYONE;

/// The scope of a binding.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(into = "String")]
pub enum Scope {
    /// All jobs without a binding of their own.
    Everyone,
    /// One job, or all jobs of a tenant.
    Job(Arc<str>),
}

impl Scope {
    /// Parses a job's name or `*`.
    pub fn of(job: &str) -> Self {
        if job == EVERYONE {
            Self::Everyone
        } else {
            Self::Job(job.into())
        }
    }

    /// The name prefix of its tenant; empty for the default tenant and for everyone.
    pub fn tenant_prefix(&self) -> &str {
        prefix_of(self.as_str())
    }

    /// The job's name or `*`.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Everyone => EVERYONE,
            Self::Job(job) => job,
        }
    }
}

impl From<Scope> for String {
    fn from(scope: Scope) -> Self {
        scope.as_str().to_owned()
    }
}

/// A policy on trial for a share of the programs.
pub(super) struct Canary {
    /// Its policy.
    pub(super) slot: PolicySlot,
    /// Its share of programs, in millionths.
    pub(super) share_ppm: u32,
    /// The results of its programs.
    pub(super) trial: Trial,
}

/// One world's policies for one scope.
#[derive(Default)]
pub(super) struct Binding {
    /// The policy that answers; `None` for the built-in default.
    pub(super) active: Option<PolicySlot>,
    /// The policy that answered before; for a rollback.
    pub(super) previous: Option<PolicySlot>,
    /// Whether there is a previous policy: with `previous` empty it is the built-in default.
    pub(super) has_previous: bool,
    /// A policy on trial for a share of the programs.
    pub(super) canary: Option<Canary>,
    /// Whether the shadow evaluator holds a policy for this binding.
    pub(super) has_shadow: bool,
}

impl Binding {
    /// True if a policy other than the built-in default answers for someone.
    pub(super) fn is_bound(&self) -> bool {
        self.active.is_some() || self.canary.is_some()
    }

    /// True if the canary decides for this program. A program keeps its version unless the share
    /// shrinks.
    pub(super) fn is_canary(&self, program: ProgramId) -> bool {
        let share = self.canary.as_ref().map_or(0, |c| c.share_ppm);
        share > 0 && spread(program.0) % 1_000_000 < u64::from(share)
    }

    /// The slot of the deciding policy.
    pub(super) fn slot_mut(&mut self, canary: bool) -> Option<&mut PolicySlot> {
        if canary {
            return self.canary.as_mut().map(|c| &mut c.slot);
        }
        self.active.as_mut()
    }
}

/// A program's number, hashed so that any share of it is a fair sample.
fn spread(program: u64) -> u64 {
    treadle_plugin::random::SplitMix64::new(program).next_u64()
}

/// One world's bindings.
#[derive(Default)]
pub(super) struct WorldBindings {
    /// The binding of jobs without their own.
    pub(super) everyone: Binding,
    by_job: BTreeMap<Arc<str>, Binding>,
}

impl WorldBindings {
    /// True if one policy answers for all programs.
    pub(super) fn is_one_for_all(&self) -> bool {
        self.by_job.is_empty() && self.everyone.canary.is_none()
    }

    /// The binding for a job: its own, that of all jobs of its tenant, or everyone's.
    pub(super) fn of_job(&self, job: &str) -> (Scope, &Binding) {
        if self.by_job.is_empty() {
            return (Scope::Everyone, &self.everyone);
        }
        let own = self.by_job.get_key_value(job);
        let found = own.or_else(|| {
            let all = all_jobs_of(job)?;
            self.by_job.get_key_value(all.as_str())
        });
        found.map_or((Scope::Everyone, &self.everyone), |(job, binding)| {
            (Scope::Job(job.clone()), binding)
        })
    }

    /// A scope's own binding.
    pub(super) fn get_mut(&mut self, scope: &Scope) -> Option<&mut Binding> {
        match scope {
            Scope::Everyone => Some(&mut self.everyone),
            Scope::Job(job) => self.by_job.get_mut(job),
        }
    }

    /// A scope's own binding, created if it has none.
    pub(super) fn entry(&mut self, scope: &Scope) -> &mut Binding {
        match scope {
            Scope::Everyone => &mut self.everyone,
            Scope::Job(job) => self.by_job.entry(job.clone()).or_default(),
        }
    }

    /// Removes a job's binding if it is empty.
    pub(super) fn prune_empty(&mut self, scope: &Scope) {
        let Scope::Job(job) = scope else { return };
        let is_empty = |b: &Binding| !b.is_bound() && !b.has_shadow && !b.has_previous;
        if self.by_job.get(job).is_some_and(is_empty) {
            self.by_job.remove(job);
        }
    }

    /// All bindings, mutably.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Scope, &mut Binding)> {
        let jobs = self.by_job.iter_mut();
        std::iter::once((Scope::Everyone, &mut self.everyone))
            .chain(jobs.map(|(job, binding)| (Scope::Job(job.clone()), binding)))
    }

    /// All bindings, everyone's first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Scope, &Binding)> {
        let jobs = self.by_job.iter();
        std::iter::once((Scope::Everyone, &self.everyone))
            .chain(jobs.map(|(job, binding)| (Scope::Job(job.clone()), binding)))
    }
}

/// The bindings of all worlds.
#[derive(Default)]
pub(super) struct Bindings {
    worlds: [WorldBindings; World::ALL.len()],
}

impl Bindings {
    /// The bindings of one world.
    pub(super) fn world(&self, world: World) -> &WorldBindings {
        &self.worlds[world as usize]
    }

    /// The bindings of one world, mutably.
    pub(super) fn world_mut(&mut self, world: World) -> &mut WorldBindings {
        &mut self.worlds[world as usize]
    }
}
