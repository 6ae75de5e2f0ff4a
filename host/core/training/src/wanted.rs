//! What is to be computed of members that ended: samples from captured steps, and rewards.

use crate::command::TrainingCommand;
use crate::event::MemberRef;
use crate::group::Member;
use crate::job::Job;

impl Job {
    /// Whether a member ended well and its reward is to be computed.
    fn needs_score(&self, key: &str, program: &str) -> bool {
        let group = self.groups.get(key);
        let member = group.and_then(|group| group.members.get(program));
        let is_open = |m: &Member| {
            let is_whole = !self.settings.captured() || m.sample.is_some();
            m.has_ended_well() && m.reward.is_none() && is_whole
        };
        self.settings.reward.is_some() && member.is_some_and(is_open)
    }

    /// Whether a member ended well and its sample is to be assembled from its captured steps.
    fn needs_sample(&self, key: &str, program: &str) -> bool {
        let group = self.groups.get(key);
        let member = group.and_then(|group| group.members.get(program));
        self.settings.captured() && member.is_some_and(Member::is_to_be_assembled)
    }

    /// What is to be computed of a member that ended, or of the group that it completes.
    pub(crate) fn wants(&self, at: &MemberRef) -> Option<TrainingCommand> {
        let member = at.clone();
        if self.needs_sample(&at.group, &at.program) {
            return Some(TrainingCommand::AssembleMember { member });
        }
        if self.settings.judged_together {
            return self.wants_of_group(&at.job, &at.group);
        }
        let is_scored = self.needs_score(&at.group, &at.program);
        is_scored.then_some(TrainingCommand::ScoreMember { member })
    }

    /// What is to be computed of a group that lost a member and does not replace it.
    pub(crate) fn wants_after_loss(&self, name: &str, key: &str) -> Option<TrainingCommand> {
        let together = self.settings.judged_together;
        together.then(|| self.wants_of_group(name, key)).flatten()
    }

    /// The first member without a reward stands for all of a group that is judged together, once
    /// all have ended.
    fn wants_of_group(&self, name: &str, key: &str) -> Option<TrainingCommand> {
        let group = self.groups.get(key)?;
        let is_over =
            |m: &Member| m.has_ended_well() && (!self.settings.captured() || m.sample.is_some());
        let is_full = group.members.len() >= usize::from(group.size);
        let is_whole = is_full && group.members.values().all(is_over);
        let mut programs = group.members.keys();
        let program = programs.find(|program| self.needs_score(key, program));
        let program = program.filter(|_| is_whole)?;
        Some(TrainingCommand::ScoreMember {
            member: MemberRef {
                job: name.into(),
                group: key.into(),
                program: program.clone(),
            },
        })
    }

    /// What is to be computed of all members.
    pub(crate) fn wanted_of_members(&self, name: &str) -> Vec<TrainingCommand> {
        if self.settings.reward.is_none() && !self.settings.captured() {
            return Vec::new();
        }
        let members = self.groups.iter().flat_map(|(key, group)| {
            let programs = group.members.keys();
            programs.map(move |program| MemberRef {
                job: name.into(),
                group: key.clone(),
                program: program.clone(),
            })
        });
        let mut wanted: Vec<_> = members.filter_map(|at| self.wants(&at)).collect();
        // Members of a group that is judged together want the same.
        wanted.dedup();
        wanted
    }
}
