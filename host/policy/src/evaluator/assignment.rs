//! Which policy evaluates which row of a question.

use super::bindings::{Bindings, Scope};
use treadle_core::Core;
use treadle_core::programs::Purpose;
use treadle_model::{ProgramId, World};

/// Maximum number of policies that share one question; further ones leave their rows to the first.
const ASSIGNEES_MAX: usize = 255;

/// One of the policies that share a question.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Assignee {
    /// Its world.
    pub(super) world: World,
    /// The scope of its binding.
    pub(super) scope: Scope,
    /// Whether it is the binding's canary instead of its active policy.
    pub(super) canary: bool,
}

/// The assignment of one question's rows to policies.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Assignment {
    /// At least one assignee.
    pub(super) assignees: Vec<Assignee>,
    /// The assignee of each row; empty if the first evaluates all.
    assignee_of: Vec<u8>,
}

impl Assignment {
    /// The assignment for these programs. The waiting queue is ordered by the priority policy of a
    /// program's job if it has one; all other questions, and programs without one, go to its
    /// eviction policy. The priority policy decides how urgent steps are; their location is decided
    /// separately.
    pub(super) fn of(
        bindings: &Bindings,
        core: &Core,
        purpose: Purpose,
        programs: &[ProgramId],
    ) -> Self {
        let worlds: &[World] = match purpose {
            Purpose::Restore => &[World::Priority, World::Eviction],
            Purpose::Weigh { .. } | Purpose::Pause { .. } | Purpose::Retain { .. } => {
                &[World::Eviction]
            }
            Purpose::Route { .. } | Purpose::Preempt { .. } => &[World::Priority],
            Purpose::Migrate => &[World::Placement],
        };
        let last = worlds.last().copied().unwrap_or(World::Eviction);
        let plain = |world: &World| bindings.world(*world).is_one_for_all();
        if worlds.iter().all(plain) {
            let bound = |world: &&World| bindings.world(**world).everyone.is_bound();
            let world = worlds.iter().find(bound).copied();
            return Self::single(world.unwrap_or(last));
        }
        let mut assignment = Self {
            assignees: Vec::new(),
            assignee_of: Vec::with_capacity(programs.len()),
        };
        for program in programs {
            let assignee = assignee(bindings, core, worlds, *program);
            assignment.assign(assignee);
        }
        if assignment.assignees.len() <= 1 {
            assignment.assignee_of.clear();
        }
        if assignment.assignees.is_empty() {
            return Self::single(last);
        }
        assignment
    }

    fn single(world: World) -> Self {
        Self {
            assignees: vec![Assignee {
                world,
                scope: Scope::Everyone,
                canary: false,
            }],
            assignee_of: Vec::new(),
        }
    }

    fn assign(&mut self, assignee: Assignee) {
        let known = self.assignees.iter().position(|j| *j == assignee);
        let index = known.unwrap_or_else(|| {
            if self.assignees.len() >= ASSIGNEES_MAX {
                return 0;
            }
            self.assignees.push(assignee);
            self.assignees.len() - 1
        });
        self.assignee_of.push(index as u8);
    }

    /// The assignee of each row, empty if the first evaluates all.
    pub(super) fn assignee_of(&self) -> &[u8] {
        &self.assignee_of
    }

    /// The rows of one assignee, out of `rows`.
    pub(super) fn rows_of(&self, assignee: usize, rows: usize) -> Vec<usize> {
        if self.assignee_of.is_empty() {
            return (0..rows).collect();
        }
        let of_assignee = |(_, j): &(usize, &u8)| usize::from(**j) == assignee;
        let rows = self.assignee_of.iter().enumerate().filter(of_assignee);
        rows.map(|(row, _)| row).collect()
    }
}

/// The assignee of a program: the first of these worlds for which its job has a binding, otherwise
/// the last.
pub(super) fn assignee(
    bindings: &Bindings,
    core: &Core,
    worlds: &[World],
    program: ProgramId,
) -> Assignee {
    let job = core.programs().live.get(&program).map_or("", |p| &*p.job);
    for world in worlds {
        let (scope, binding) = bindings.world(*world).of_job(job);
        if binding.is_bound() || worlds.last() == Some(world) {
            return Assignee {
                world: *world,
                scope,
                canary: binding.is_canary(program),
            };
        }
    }
    Assignee {
        world: World::Eviction,
        scope: Scope::Everyone,
        canary: false,
    }
}
