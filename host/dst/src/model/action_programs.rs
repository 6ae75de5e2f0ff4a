//! Actions of programs: actions end with their program, an open action keeps its program, and what
//! a program is told about its actions is correct.

use super::Model;
use super::actions::{ActionFacts, Attempt};
use super::facts::Ending;
use std::collections::BTreeMap;
use treadle_core::Core;
use treadle_core::actions::Outcome;
use treadle_core::programs::{Action, Program, SUBAGENT};
use treadle_dst_outcome::{Checked, broken};
use treadle_model::{ActionId, ProgramId, StepId, Timestamp};

/// A program's ended actions.
#[derive(Clone, Debug, Default)]
struct Over {
    last_ok: Option<bool>,
    failed: u32,
    last_at: Timestamp,
}

/// Ended calls of a tool: their number, the number of failures, and their total and longest time,
/// in microseconds.
type Calls = (u64, u64, u64, u64);

/// The actions of programs.
#[derive(Clone, Debug, Default)]
pub(super) struct ProgramsActions {
    over: BTreeMap<ProgramId, Over>,
    /// Calls by job and tool.
    calls: BTreeMap<(Box<str>, Box<str>), Calls>,
}

impl Model {
    /// Whether the program is live.
    pub(crate) fn is_live(&self, program: &str) -> bool {
        self.keys.contains_key(program)
    }

    /// Whether an action of the program is open.
    pub(super) fn is_kept_by_action(&self, program: ProgramId) -> bool {
        let mut open = self.actions.open.values();
        open.any(|action| action.program == Some(program))
    }

    /// An engine failed a step finally, or rejected its request.
    pub(super) fn end_failed(&mut self, step: StepId, rejected: bool) -> Checked {
        let program = self.steps.get(&step).map(|step| step.program);
        self.end(step, Ending::Failed)?;
        if let Some(program) = program.filter(|_| rejected) {
            self.close_unborn(program);
        }
        Ok(())
    }

    /// A rejected request ends a program none of whose steps ran.
    pub(super) fn close_unborn(&mut self, program: ProgramId) {
        let p = self.programs.get(&program);
        let is_unborn = p.is_some_and(|p| p.steps_finished == 0 && p.steps.is_empty());
        if is_unborn && !self.is_kept_by_action(program) {
            self.close(program);
        }
    }

    /// The program has ended: removes its actions.
    pub(super) fn close(&mut self, program: ProgramId) {
        if let Some(p) = self.programs.remove(&program) {
            self.keys.remove(&p.key);
            self.actions.program_over(&p.key);
            self.closed.insert(program);
        }
    }

    /// Time at which the last action of a program ended.
    pub(super) fn last_action_at(&self, program: ProgramId) -> Timestamp {
        let over = self.actions.of_programs.over.get(&program);
        over.map_or(Timestamp(0), |over| over.last_at)
    }

    /// An action has ended, with its last attempt unless that ended before. If its program was
    /// never told about the action, neither is it about the end.
    pub(super) fn action_over(&mut self, action: &ActionFacts, last: Option<&(Attempt, Outcome)>) {
        let program = action.program.filter(|_| action.told);
        let Some((id, p)) = program.and_then(|id| Some((id, self.programs.get(&id)?))) else {
            return;
        };
        let ok = last.is_some_and(|(attempt, outcome)| {
            *outcome == Outcome::Exited { code: 0 } && attempt.exits_count
        });
        let now = self.now;
        let facts = &mut self.actions.of_programs;
        let over = facts.over.entry(id).or_default();
        over.last_ok = Some(ok);
        over.failed += u32::from(!ok);
        over.last_at = now;
        let Some(begun) = last.and_then(|(attempt, _)| attempt.begun) else {
            return;
        };
        let since = if self.config.actions.joint_retention {
            begun
        } else {
            action.submitted
        };
        let took_us = now.since(since).micros();
        let key = (p.job.clone(), action.spec.kind.clone());
        let calls = facts.calls.entry(key).or_default();
        calls.0 += 1;
        calls.1 += u64::from(!ok);
        calls.2 += took_us;
        calls.3 = calls.3.max(took_us);
    }

    /// Compares programs' views of their actions, and the learnt times of their tools.
    pub(super) fn check_actions_of_programs(&self, core: &Core) -> Checked {
        let mut of_programs: BTreeMap<ProgramId, Vec<(ActionId, &ActionFacts)>> = BTreeMap::new();
        for (id, action) in &self.actions.open {
            let program = action.program.filter(|id| self.programs.contains_key(id));
            if let Some(program) = program {
                of_programs.entry(program).or_default().push((*id, action));
            }
        }
        for program in core.programs().live.values() {
            let open = of_programs.remove(&program.id).unwrap_or_default();
            self.check_known_to(program, &open)?;
        }
        let mut calls = BTreeMap::new();
        for (job, tools) in core.programs().estimates.tools() {
            for (tool, known) in tools.iter().filter(|(tool, _)| &***tool != SUBAGENT) {
                let (total, longest) = (known.total_us, known.longest_us);
                let key = (job.clone(), tool.clone());
                calls.insert(key, (known.finished, known.failed, total, longest));
            }
        }
        let learnt = &self.actions.of_programs.calls;
        if calls == *learnt {
            return Ok(());
        }
        broken(
            "tools",
            format!("known are {learnt:?}, the core has {calls:?}"),
        )
    }

    fn check_known_to(&self, program: &Program, open: &[(ActionId, &ActionFacts)]) -> Checked {
        let over = self.actions.of_programs.over.get(&program.id);
        let ends = over.map_or((None, 0), |over| (over.last_ok, over.failed));
        let known = (program.last_action_ok, program.actions_failed);
        if ends != known {
            return broken(
                "action-programs",
                format!("{}: ended are {ends:?}, known {known:?}", program.id),
            );
        }
        let is_right = |(id, facts): &(ActionId, &ActionFacts)| {
            let known = program.actions.get(&*format!("treadle/{id}"));
            known.is_some_and(|known| self.is_expected(facts, known))
        };
        if open.len() == program.actions.len() && open.iter().all(is_right) {
            return Ok(());
        }
        broken(
            "action-programs",
            format!(
                "{} knows {:?} in place of {open:?}",
                program.id, program.actions
            ),
        )
    }

    /// Whether a program knows when its action began, or expects no earlier time than possible.
    fn is_expected(&self, facts: &ActionFacts, known: &Action) -> bool {
        if known.tool != facts.spec.kind {
            return false;
        }
        if !self.config.actions.joint_retention {
            return known.since == facts.submitted && known.ends.is_none();
        }
        let key = &facts.spec.demands[facts.spec.key_demand()];
        let granted = facts.runs.iter().flat_map(|runs| &runs.grants);
        let granted = granted.filter(|grant| grant.resource == key.resource);
        let units = granted.map(|grant| grant.units).next();
        let option = units.and_then(|units| key.options.iter().position(|o| *o == units));
        let declared = facts.spec.durations.get(option.unwrap_or(0));
        let since_is_right = match &facts.runs {
            None => known.since >= facts.waits_since,
            Some(runs) => match runs.begun.filter(|_| !runs.began_late) {
                Some(begun) => known.since == begun,
                None => known.since >= runs.since,
            },
        };
        since_is_right && known.ends == declared.map(|declared| known.since + *declared)
    }
}
