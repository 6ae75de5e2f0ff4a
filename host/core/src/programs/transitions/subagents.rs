//! Programs that other programs start. A program that waits for its subagents acts as if it had
//! called a tool: its waits are learnt and expected like those of one.

use crate::Programs;
use crate::programs::Parent;
use crate::programs::action::{ACTIONS_MAX, SUBAGENT};
use crate::programs::program::{Awaited, Program};
use std::collections::BTreeSet;
use treadle_model::{ProgramId, Timestamp, WorkerId};

/// Maximum number of ancestors that a finished step is reported to.
const GENERATIONS_MAX: usize = 16;

impl Programs {
    /// Handles the arrival of a program's step: the program waits for no subagent any more.
    /// `parent` has just started it, and may wait for it. A subagent that outlives a step of its
    /// parent runs in the background.
    pub(crate) fn go_on(&mut self, program: ProgramId, parent: Option<&Parent>) {
        self.end_waiting(program);
        let (now, Some(parent)) = (self.state.now, parent) else {
            return;
        };
        let Some(p) = self.state.live.get_mut(&program) else {
            return;
        };
        if p.key == parent.program {
            return;
        }
        p.parent = Some(parent.program.clone());
        let id = self.state.keys.get(&parent.program).copied();
        self.inherit_class(program, id);
        let of_parent = id.and_then(|id| self.state.live.get_mut(&id));
        if let Some(p) = of_parent.filter(|p| parent.waits && p.is_between_steps()) {
            let awaited = p.awaited.get_or_insert_with(|| Awaited {
                since: now,
                programs: BTreeSet::new(),
                last_step_at: Timestamp::default(),
                blocked_since: None,
            });
            if awaited.programs.len() < ACTIONS_MAX {
                awaited.programs.insert(program);
                awaited.blocked_since.get_or_insert(now);
            }
        }
    }

    /// Learns how long a program has waited for others.
    fn end_waiting(&mut self, program: ProgramId) {
        let now = self.state.now;
        let Some(p) = self.state.live.get_mut(&program) else {
            return;
        };
        p.blocked_total = p.blocked(now);
        if let Some(awaited) = p.awaited.take() {
            let took = now.since(awaited.since);
            self.state
                .estimates
                .call_ended(&p.job, SUBAGENT, took, true);
        }
    }

    /// Handles the end of a program: its parent no longer waits for it.
    pub(super) fn leave_parent(&mut self, ended: &Program) {
        let parent = ended.parent.as_deref();
        let Some(parent) = parent.and_then(|key| self.state.keys.get(key)).copied() else {
            return;
        };
        let Some(p) = self.state.live.get_mut(&parent) else {
            return;
        };
        let blocked = p.blocked(self.state.now);
        if let Some(awaited) = p.awaited.as_mut() {
            awaited.programs.remove(&ended.id);
            if awaited.programs.is_empty() {
                awaited.blocked_since = None;
                p.blocked_total = blocked;
            }
        }
        // Another program may have its parent's name by now.
        if ended.lineage.fork_of == Some(parent)
            && let Some(prefix) = p.fork_ended()
        {
            self.change_prefix(parent, prefix);
        }
    }

    /// Shares a parent's history with a program that it has just started and that may continue it:
    /// engines keep it once, and so it is charged once.
    pub(super) fn share_history(&mut self, fork: ProgramId, is_exact: bool) {
        let Some(f) = self.state.live.get(&fork) else {
            return;
        };
        let parent = f.parent.as_deref().and_then(|key| self.state.program(key));
        let Some(parent) = parent.filter(|parent| parent.is_forked_by(f)) else {
            return;
        };
        let (prefix, histories, goes_on) = parent.forked_prefix(f, is_exact);
        let parent = parent.id;
        self.change_prefix(parent, prefix.clone());
        if let Some(p) = self.state.live.get_mut(&parent) {
            p.was_forked(histories, u32::from(goes_on));
        }
        if goes_on && let Some(f) = self.state.live.get_mut(&fork) {
            f.prefix = prefix;
            f.inherit(parent, histories);
        }
    }

    /// Handles a finished step: programs that wait for its program are not idle. A program whose
    /// subagents make no progress may hold what they need.
    pub(super) fn step_of_family_finished(&mut self, program: ProgramId) {
        let (now, mut id) = (self.state.now, program);
        for _ in 0..GENERATIONS_MAX {
            let parent = self.state.live.get(&id).and_then(|p| p.parent.as_ref());
            let Some(parent) = parent.and_then(|key| self.state.keys.get(key)).copied() else {
                return;
            };
            let p = self.state.live.get_mut(&parent);
            let Some(awaited) = p.and_then(|p| p.awaited.as_mut()) else {
                return;
            };
            if !awaited.programs.contains(&id) {
                return;
            }
            awaited.last_step_at = now;
            id = parent;
        }
    }

    /// The worker of the parent whose history this program continues, as its prompt begins like the
    /// parent's first one.
    pub(crate) fn worker_of_forked(&self, p: &Program) -> Option<WorkerId> {
        let parent = self.state.program(p.parent.as_deref()?)?;
        let place = parent.placement.map(|place| place.worker);
        place
            .or(parent.last_worker)
            .filter(|_| parent.is_forked_by(p))
    }
}
