//! What shaping policies may do: the model follows their questions and answers.

use super::Model;
use super::facts::{Group, Job};
use std::collections::{BTreeMap, BTreeSet};
use treadle_core::bindings::BindingEvent;
use treadle_core::training::{
    Curtailed, JobSettings, Selection, ShapingAnswer, ShapingPurpose, ShapingQuestion,
    TrainingEvent,
};
use treadle_dst_outcome::{Checked, broken};
use treadle_model::{AskId, Timestamp, World};

/// A question that is not answered yet.
#[derive(Clone, Debug)]
pub(super) struct Open {
    ask: AskId,
    purpose: ShapingPurpose,
    groups: Vec<Box<str>>,
    pub(super) deadline_us: u64,
}

/// What the present event lets happen to the members of a group.
#[derive(Clone, Debug, Default)]
pub(super) struct Shaped {
    /// Programs that are ended, or put off.
    ended: BTreeMap<Box<str>, bool>,
    /// The members that are trained; `None` if any may be.
    kept: Option<BTreeSet<Box<str>>>,
    /// Its members are selected.
    selects: bool,
}

impl Model {
    pub(super) fn bound(&mut self, event: &BindingEvent) {
        let (world, scope) = event.target();
        if world == World::Shaping {
            match event {
                BindingEvent::PolicyBound { .. } => drop(self.shaped.insert(scope.into())),
                _ => drop(self.shaped.remove(scope)),
            }
        }
    }

    /// A policy is asked: one question at a time.
    pub(super) fn asked(
        &mut self,
        ask: AskId,
        question: &ShapingQuestion,
        deadline: Timestamp,
    ) -> Checked {
        let Some(job) = self.jobs.get_mut(&question.job) else {
            return broken("questions", format!("about {}", question.job));
        };
        if let Some(open) = &job.open {
            return broken("questions", format!("{ask:?} while {open:?} is open"));
        }
        job.open = Some(Open {
            ask,
            purpose: question.purpose,
            groups: question.groups.key.clone(),
            deadline_us: deadline.0,
        });
        Ok(())
    }

    pub(super) fn shaping_answered(&mut self, event: &TrainingEvent) {
        let TrainingEvent::ShapingAnswered {
            job, ask, answer, ..
        } = event
        else {
            return;
        };
        let is_shaped = self.shaped.contains(job);
        let job = self.jobs.get_mut(job);
        if let Some(job) = job
            && let Some(open) = job.open.take_if(|open| open.ask == *ask)
        {
            job.shape(&open, Some(answer), is_shaped, &BTreeSet::new());
        }
    }

    /// Questions that were not answered in time.
    pub(super) fn expire_questions(&mut self) {
        for (name, job) in &mut self.jobs {
            let is_shaped = self.shaped.contains(name);
            if let Some(open) = job.open.take_if(|open| open.deadline_us <= self.now_us) {
                // Members that are lost with this event are lost before.
                job.shape(&open, None, is_shaped, &self.lost);
            }
        }
    }
}

impl Job {
    fn shape(
        &mut self,
        open: &Open,
        answer: Option<&ShapingAnswer>,
        is_shaped: bool,
        lost: &BTreeSet<Box<str>>,
    ) {
        let settings = self.settings.clone();
        let factor = usize::from(settings.redundancy_max);
        for key in &open.groups {
            let Some(group) = self.groups.get_mut(key) else {
                continue;
            };
            match (open.purpose, answer) {
                (ShapingPurpose::Size, _) if is_shaped => {
                    let named = match answer {
                        Some(ShapingAnswer::Sizes(sizes)) => {
                            sizes.iter().rev().find(|of| of.group == *key)
                        }
                        _ => None,
                    };
                    let named = named.map_or(group.size, |of| usize::from(of.members));
                    if group.members.is_empty() && group.target.is_none() {
                        group.target = Some(named.clamp(group.size, group.size * factor));
                        group.asked = true;
                    }
                }
                (ShapingPurpose::Curtail, Some(ShapingAnswer::Curtailed(members))) => {
                    group.curtailed(key, members, settings.starved_after);
                }
                (ShapingPurpose::Select, _) if group.is_selectable(&settings, lost) => {
                    let named = match answer {
                        Some(ShapingAnswer::Selected(groups)) => {
                            groups.iter().rev().find(|of| of.group == *key)
                        }
                        _ => None,
                    };
                    group.select(named);
                }
                _ => {}
            }
        }
    }
}

impl Group {
    /// Members that it may have.
    pub(super) fn target(&self) -> usize {
        self.target.unwrap_or(self.size)
    }

    /// A policy may still end members.
    fn is_open(&self) -> bool {
        self.asked && !self.selected && !self.stale
    }

    /// Whether all members have ended well, apart from those that are lost.
    fn is_selectable(&self, settings: &JobSettings, lost: &BTreeSet<Box<str>>) -> bool {
        let left = self.members.iter().filter(|(p, _)| !lost.contains(*p));
        let (left, is_whole) = left.fold((0, true), |(left, is_whole), (_, member)| {
            let is_one = member.has_ended_well() && !member.lacks(settings);
            (left + 1, is_whole && is_one)
        });
        let gone = self.members.len() - left;
        let is_open = self.asked && !self.stale && (gone > 0 || !self.selected);
        is_open && is_whole && left >= self.size
    }

    fn curtailed(&mut self, key: &str, named: &[Curtailed], starved_after: u32) {
        if !self.is_open() {
            return;
        }
        let may_wait = self.postponed < starved_after;
        for told in named.iter().filter(|told| *told.group == *key) {
            let Some(member) = self.members.get_mut(&told.program) else {
                continue;
            };
            let runs = member.end.is_none();
            if told.again && may_wait || !told.again && runs {
                self.now.ended.insert(told.program.clone(), told.again);
            }
            if runs && self.now.ended.contains_key(&told.program) {
                (member.tokens_if_cut, member.turns_if_cut) = (told.tokens, told.turns);
            }
        }
    }

    fn select(&mut self, named: Option<&Selection>) {
        let named = named.map(|of| of.programs.iter().cloned().collect::<BTreeSet<_>>());
        let is_valid = |of: &BTreeSet<Box<str>>| {
            of.len() == self.size && of.iter().all(|program| self.members.contains_key(program))
        };
        self.now.kept = named.filter(is_valid);
        self.now.selects = true;
        self.selected = true;
        self.target = Some(self.size);
    }

    /// Whether the present event lets this member go; true for one that ends for good or later, and
    /// false for one that is not selected.
    pub(super) fn lets_go(&mut self, program: &str, has_other_reason: bool) -> Checked<bool> {
        if let Some(again) = self.now.ended.get(program).copied() {
            if !again && self.members.len() <= self.size {
                if has_other_reason {
                    return Ok(false);
                }
                return broken("spares", format!("{program} ends, and too few are left"));
            }
            self.is_curtailed |= !again;
            self.is_postponed |= again;
            let member = self.members.get_mut(program);
            if let Some(member) = member.filter(|member| member.end.is_none()) {
                (member.tokens, member.turns) = (member.tokens_if_cut, member.turns_if_cut);
            }
            return Ok(true);
        }
        let is_kept = self
            .now
            .kept
            .as_ref()
            .is_some_and(|kept| kept.contains(program));
        if self.now.selects && is_kept && !has_other_reason {
            return broken("selection", format!("{program} is selected, and dropped"));
        }
        Ok(self.now.selects)
    }

    /// After the commands of an event.
    pub(super) fn settle_shape(&mut self, key: &str) -> Checked {
        self.is_curtailed = false;
        if std::mem::take(&mut self.is_postponed) {
            self.postponed += 1;
        }
        let now = std::mem::take(&mut self.now);
        let size = self.members.len();
        if now.selects && self.selected && size != self.size {
            return broken("selection", format!("{size} of {key} are left"));
        }
        if size > self.target() {
            return broken("members", format!("{size} members of {key}"));
        }
        Ok(())
    }

    /// A member left the group: for a failure it is replaced only below the size.
    pub(super) fn shrink(&mut self, has_failed: bool) {
        if has_failed {
            self.selected = false;
            self.target = self.target.map(|target| (target - 1).max(self.size));
        }
        if self.is_curtailed {
            // Others that have not begun need not, either.
            self.target = Some(self.members.len().max(self.size));
        }
        if self.members.is_empty() {
            (self.target, self.asked, self.selected) = (None, false, false);
        }
    }
}
