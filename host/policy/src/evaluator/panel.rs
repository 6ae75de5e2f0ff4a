//! Who judges which row of a question.

use super::bindings::{Bindings, Scope};
use treadle_core::{Core, Purpose};
use treadle_model::{ProgramId, World};

/// Policies that may share one question; further ones leave their rows to the
/// first.
const JUDGES_MAX: usize = 255;

/// One of the policies that share a question.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Judge {
    /// Of which world.
    pub(super) world: World,
    /// Of which binding.
    pub(super) scope: Scope,
    /// The binding's canary rather than its active policy.
    pub(super) canary: bool,
}

/// The judges of one question.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Panel {
    /// At least one.
    pub(super) judges: Vec<Judge>,
    /// The judge of each row; empty if the first judges all.
    judge_of: Vec<u8>,
}

impl Panel {
    /// Who judges these programs. The order of the waiting queue is for the
    /// priority policy of a program's job if it has one, else, like all other
    /// questions, for its eviction policy. In rollouts the priority policy says
    /// how urgent steps are; where they are is settled apart.
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
            Purpose::Assign | Purpose::Route { .. } | Purpose::Preempt { .. } => &[World::Priority],
            Purpose::Migrate => &[World::Placement],
        };
        let last = worlds.last().copied().unwrap_or(World::Eviction);
        let plain = |world: &World| bindings.world(*world).is_one_for_all();
        if worlds.iter().all(plain) {
            let bound = |world: &&World| bindings.world(**world).everyone.is_bound();
            let world = worlds.iter().find(bound).copied();
            return Self::single(world.unwrap_or(last));
        }
        let mut panel = Self {
            judges: Vec::new(),
            judge_of: Vec::with_capacity(programs.len()),
        };
        for program in programs {
            let judge = judge(bindings, core, worlds, *program);
            panel.seat(judge);
        }
        if panel.judges.len() <= 1 {
            panel.judge_of.clear();
        }
        if panel.judges.is_empty() {
            return Self::single(last);
        }
        panel
    }

    fn single(world: World) -> Self {
        Self {
            judges: vec![Judge {
                world,
                scope: Scope::Everyone,
                canary: false,
            }],
            judge_of: Vec::new(),
        }
    }

    fn seat(&mut self, judge: Judge) {
        let known = self.judges.iter().position(|j| *j == judge);
        let index = known.unwrap_or_else(|| {
            if self.judges.len() >= JUDGES_MAX {
                return 0;
            }
            self.judges.push(judge);
            self.judges.len() - 1
        });
        self.judge_of.push(index as u8);
    }

    /// The judge of each row, empty if the first judges all.
    pub(super) fn judge_of(&self) -> &[u8] {
        &self.judge_of
    }

    /// The rows of one judge, of `rows` in all.
    pub(super) fn rows_of(&self, judge: usize, rows: usize) -> Vec<usize> {
        if self.judge_of.is_empty() {
            return (0..rows).collect();
        }
        let of_judge = |(_, j): &(usize, &u8)| usize::from(**j) == judge;
        let rows = self.judge_of.iter().enumerate().filter(of_judge);
        rows.map(|(row, _)| row).collect()
    }
}

/// Who judges a program: the first of these worlds for which its job has a
/// binding, else the last.
pub(super) fn judge(
    bindings: &Bindings,
    core: &Core,
    worlds: &[World],
    program: ProgramId,
) -> Judge {
    let job = core.state().programs.get(&program).map_or("", |p| &*p.job);
    for world in worlds {
        let (scope, binding) = bindings.world(*world).of_job(job);
        if binding.is_bound() || worlds.last() == Some(world) {
            return Judge {
                world: *world,
                scope,
                canary: binding.is_canary(program),
            };
        }
    }
    Judge {
        world: World::Eviction,
        scope: Scope::Everyone,
        canary: false,
    }
}
