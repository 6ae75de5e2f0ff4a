//! Answers of shaping policies, and the core's own if none came or one is not feasible.

use super::ask::in_order;
use crate::command::TrainingCommand;
use crate::group::{End, Place};
use crate::job::Job;
use crate::shape::{Curtailed, OpenAsk, Selection, ShapingAnswer, ShapingPurpose};
use std::collections::{BTreeMap, BTreeSet};
use treadle_model::{AskId, Timestamp};

impl Job {
    /// Carries an answer out, unless its question is gone.
    pub(crate) fn shaping_answered(
        &mut self,
        name: &str,
        ask: AskId,
        answer: &ShapingAnswer,
    ) -> Vec<TrainingCommand> {
        match self.shaping.ask.take_if(|open| open.ask == ask) {
            Some(open) => self.shape(name, &open, answer),
            None => Vec::new(),
        }
    }

    /// No answer came in time: the core answers itself.
    pub(crate) fn shaping_expired(&mut self, name: &str, now: Timestamp) -> Vec<TrainingCommand> {
        match self.shaping.ask.take_if(|open| open.deadline <= now) {
            Some(open) => self.shape(name, &open, &ShapingAnswer::Sizes(Vec::new())),
            None => Vec::new(),
        }
    }

    fn shape(
        &mut self,
        name: &str,
        open: &OpenAsk,
        answer: &ShapingAnswer,
    ) -> Vec<TrainingCommand> {
        match open.purpose {
            ShapingPurpose::Size => {
                self.set_sizes(&open.groups, answer);
                Vec::new()
            }
            ShapingPurpose::Curtail => match answer {
                ShapingAnswer::Curtailed(members) => self.curtail(name, &open.groups, members),
                _ => Vec::new(),
            },
            ShapingPurpose::Select => match answer {
                ShapingAnswer::Selected(groups) => self.select(&open.groups, groups),
                _ => self.select(&open.groups, &[]),
            },
        }
    }

    fn set_sizes(&mut self, asked: &[Box<str>], answer: &ShapingAnswer) {
        let given = match answer {
            ShapingAnswer::Sizes(sizes) => sizes.as_slice(),
            _ => &[],
        };
        let given: BTreeMap<&str, u16> = given.iter().map(|of| (&*of.group, of.members)).collect();
        for key in asked {
            let group = self.groups.get(key);
            let Some(group) = group.filter(|group| self.is_unsized(group)) else {
                continue;
            };
            let given = given.get(&**key).copied().unwrap_or(group.size);
            let sampled = given.clamp(group.size, self.size_max(group));
            self.withdraw(key);
            if let Some(group) = self.groups.get_mut(key) {
                group.shape.set_sampled(sampled);
                group.shape.by_policy = true;
            }
            self.file(key);
        }
    }

    fn curtail(
        &mut self,
        name: &str,
        asked: &[Box<str>],
        members: &[Curtailed],
    ) -> Vec<TrainingCommand> {
        let asked: BTreeSet<&str> = asked.iter().map(|key| &**key).collect();
        let mut of_group: BTreeMap<&str, Vec<&Curtailed>> = BTreeMap::new();
        for member in members {
            if asked.contains(&*member.group) {
                of_group.entry(&member.group).or_default().push(member);
            }
        }
        let mut commands = Vec::new();
        for (key, members) in of_group {
            self.withdraw(key);
            self.curtail_group(key, &members, &mut commands);
            self.file(key);
            commands.extend(self.wants_after_loss(name, key));
        }
        commands
    }

    fn curtail_group(
        &mut self,
        key: &str,
        members: &[&Curtailed],
        commands: &mut Vec<TrainingCommand>,
    ) {
        let starved_after = self.settings.starved_after;
        let (mut is_curtailed, mut is_postponed) = (false, false);
        for told in members {
            let Some(group) = self.groups.get_mut(key) else {
                return;
            };
            let is_open = group.is_open_to_policy();
            let Some(member) = group.members.get(&told.program).filter(|_| is_open) else {
                continue;
            };
            let runs = member.end.is_none();
            let is_spare = group.members.len() > usize::from(group.size);
            let end = match told.again {
                true if group.shape.postponed < starved_after => End::Postponed,
                false if runs && is_spare => End::Curtailed,
                _ => continue,
            };
            let Some(mut member) = group.members.remove(&told.program) else {
                continue;
            };
            if runs {
                (member.tokens, member.turns) = (told.tokens, told.turns);
            }
            is_curtailed |= end == End::Curtailed;
            is_postponed |= end == End::Postponed;
            commands.push(self.drop_member(key, &told.program, &member, end, None));
        }
        if let Some(group) = self.groups.get_mut(key).filter(|_| is_curtailed) {
            let left = u16::try_from(group.members.len()).unwrap_or(u16::MAX);
            group.shape.target = left.max(group.size);
        }
        if is_postponed {
            self.postpone(key);
        }
    }

    /// Members of a group were put off. Without any left, it goes to the end of the queue.
    fn postpone(&mut self, key: &str) {
        let number = self.next_place();
        let Some(group) = self.groups.get_mut(key) else {
            return;
        };
        group.shape.postponed += 1;
        if group.members.is_empty() {
            group.shape.clear();
            group.failures = 0;
            let fresh = true;
            group.place = Place { fresh, number };
        }
    }

    fn select(&mut self, asked: &[Box<str>], given: &[Selection]) -> Vec<TrainingCommand> {
        let given: BTreeMap<&str, &Selection> = given.iter().map(|of| (&*of.group, of)).collect();
        let mut commands = Vec::new();
        for key in asked {
            let group = self.groups.get(key);
            let Some(group) = group.filter(|group| self.needs_selection(group)) else {
                continue;
            };
            let size = usize::from(group.size);
            let named = given.get(&**key).map(|of| of.programs.iter().cloned());
            let named: BTreeSet<Box<str>> = named.into_iter().flatten().collect();
            let are_members = named
                .iter()
                .all(|program| group.members.contains_key(program));
            let chosen = if are_members && named.len() == size {
                named
            } else {
                let first = in_order(group).into_iter().take(size);
                first.map(|(program, _)| Box::from(program)).collect()
            };
            self.withdraw(key);
            commands.extend(self.keep_only(key, &chosen));
            self.file(key);
        }
        commands
    }

    fn keep_only(&mut self, key: &str, chosen: &BTreeSet<Box<str>>) -> Vec<TrainingCommand> {
        let Some(group) = self.groups.get_mut(key) else {
            return Vec::new();
        };
        group.shape.selected = true;
        group.shape.target = group.size;
        let members = std::mem::take(&mut group.members);
        let (kept, others) = members
            .into_iter()
            .partition(|(program, _)| chosen.contains(program));
        group.members = kept;
        let others: BTreeMap<_, _> = others;
        let dropped = others
            .iter()
            .map(|(program, member)| self.drop_member(key, program, member, End::Unselected, None));
        dropped.collect()
    }
}
