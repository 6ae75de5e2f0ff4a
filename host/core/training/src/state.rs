//! The state of the machine of training runs.

use crate::command::TrainingCommand;
use crate::error::TrainingError;
use crate::event::MemberRef;
use crate::group::{End, Group, Member};
use crate::job::Job;
use crate::settings::JobSettings;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use treadle_model::{Span, Timestamp};

/// A program that may not begin yet.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct HeldProgram {
    /// Its job.
    pub job: Box<str>,
    /// Its group.
    pub group: Box<str>,
    /// Order of arrival.
    pub number: u64,
    /// Its client samples it.
    pub direct: bool,
}

/// What a group is for a program that began.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Begun {
    /// The program is a member.
    Member,
    /// The group has all its members: the program is not trained.
    Surplus,
}

/// All training runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// Declared jobs.
    pub jobs: BTreeMap<Box<str>, Job>,
    /// Job and group of each program that is a member of a group in no batch.
    pub members: BTreeMap<Box<str>, (Box<str>, Box<str>)>,
    /// Programs that may not begin yet.
    pub held: BTreeMap<Box<str>, HeldProgram>,
    /// Programs that arrived.
    pub arrivals: u64,
    /// Number of the next question to a shaping policy.
    pub next_ask: u64,
    /// When members are lost that their clients sample, or that did not come to a step; those that
    /// ended before are still here.
    pub deadlines: BTreeSet<(Timestamp, Box<str>)>,
}

impl State {
    /// Members that lack something by the new settings get a deadline for it.
    pub(crate) fn declare(&mut self, name: &str, settings: JobSettings, now: Timestamp) {
        let due = now + Span::from_secs(settings.member_timeout_s);
        match self.jobs.get_mut(name) {
            Some(job) => {
                let late = job.declare(settings, due);
                self.deadlines
                    .extend(late.into_iter().map(|program| (due, program)));
            }
            None => drop(self.jobs.insert(name.into(), Job::new(settings, now))),
        }
    }

    /// A program begins once: it waits for that now, unless its group has all its members.
    pub(crate) fn arrive(&mut self, member: &MemberRef, direct: bool) -> Option<TrainingCommand> {
        let program = &member.program;
        let is_known = self.members.contains_key(program) || self.held.contains_key(program);
        let job = self.jobs.get_mut(&member.job).filter(|_| !is_known)?;
        if !job.has_group(&member.group) {
            job.submit(&member.group, None, None, None);
            if let Some(group) = job.groups.get_mut(&member.group) {
                group.implicit = true;
            }
        }
        let group = job.groups.get_mut(&member.group);
        let is_over = job.served.contains(program);
        let takes = |g: &&mut Group| g.takes_members() && !g.surplus.contains(program);
        if !is_over && group.as_ref().is_some_and(takes) {
            self.arrivals += 1;
            let queue = job.held.entry(member.group.clone()).or_default();
            queue.insert(self.arrivals, program.clone());
            let held = HeldProgram {
                job: member.job.clone(),
                group: member.group.clone(),
                number: self.arrivals,
                direct,
            };
            self.held.insert(program.clone(), held);
            return None;
        }
        if let Some(group) = group.filter(|g| !is_over && !g.surplus.contains(program)) {
            group.leave_out(program);
            job.account.surplus += 1;
        }
        Some(TrainingCommand::AdmitMember {
            program: program.clone(),
            surplus: true,
        })
    }

    /// The client of a program left before it came to a step.
    pub(crate) fn leave(&mut self, program: &str) -> Vec<TrainingCommand> {
        if let Some(held) = self.unhold(program) {
            let Some(job) = self.jobs.get_mut(&held.job) else {
                return Vec::new();
            };
            let is_waited_for = job.held.contains_key(&held.group);
            let group = job.groups.get(&held.group);
            let is_empty = group.is_some_and(|g| g.implicit && g.members.is_empty());
            if is_empty && !is_waited_for {
                job.withdraw(&held.group);
                job.groups.remove(&held.group);
            }
            return Vec::new();
        }
        let Some((job, group)) = self.members.get(program) else {
            return Vec::new();
        };
        let Some(job) = self.jobs.get_mut(job) else {
            return Vec::new();
        };
        let member = job.groups.get(group).and_then(|g| g.members.get(program));
        if !member.is_some_and(Member::is_unopened) {
            return Vec::new();
        }
        let commands = job.forget(group, program);
        self.members.remove(program);
        commands
    }

    /// A member of a group that is in no batch.
    pub fn member(&self, at: &MemberRef) -> Option<&Member> {
        let group = self.jobs.get(&at.job)?.groups.get(&at.group)?;
        group.members.get(&at.program)
    }

    /// Whether the steps of a program are captured: it is a member that its client does not sample.
    pub fn captures(&self, at: &MemberRef) -> bool {
        let job = self.jobs.get(&at.job);
        let member = self.member(at);
        let runs = |member: &Member| member.end.is_none() && !member.is_direct();
        job.is_some_and(|job| job.settings.captured()) && member.is_some_and(runs)
    }

    /// The member whose deadline this is, with how it is lost, if anything of it is missing.
    pub(crate) fn due(
        &self,
        program: &str,
        deadline: Timestamp,
        is_live: bool,
    ) -> Option<(MemberRef, End)> {
        let (job, group) = self.members.get(program)?;
        let at = MemberRef {
            job: job.clone(),
            group: group.clone(),
            program: program.into(),
        };
        let member = self.member(&at)?;
        let settings = &self.jobs.get(job)?.settings;
        let lacks = member.lacks(settings.rewarded, settings.captured());
        let is_open = member.end.is_none() || lacks;
        // Its client went away between its admission and its first step.
        let is_unopened = member.is_unopened() && !is_live && member.opens_by == deadline;
        let end = if lacks {
            End::RewardFailed
        } else {
            End::Aborted
        };
        let is_due = is_unopened || is_open && member.deadline == Some(deadline);
        is_due.then_some((at, end))
    }

    /// Where a program of a job belongs that names no group: where it is or waits already, else the
    /// first group that needs a program, if any does.
    ///
    /// # Errors
    /// The program is in a batch, or the job is unknown.
    pub fn place(&self, name: &str, program: &str) -> Result<Option<Box<str>>, TrainingError> {
        let job = self.jobs.get(name);
        let job = job.ok_or_else(|| TrainingError::UnknownJob(name.into()))?;
        if job.served.contains(program) {
            return Err(TrainingError::Dropped(program.into()));
        }
        let known = self.members.get(program).map(|(of, group)| (of, group));
        let held = self.held.get(program).map(|held| (&held.job, &held.group));
        let own = known.or(held).filter(|(of, _)| &***of == name);
        let group = own.map(|(_, group)| &**group);
        Ok(group.or_else(|| job.next_wanted()).map(Box::from))
    }

    /// Whether a program began already, or need not wait: what its group is for it then.
    pub fn begun(&self, member: &MemberRef) -> Option<Begun> {
        let at = self.members.get(&member.program);
        if at.is_some_and(|(job, group)| *job == member.job && *group == member.group) {
            return Some(Begun::Member);
        }
        let job = self.jobs.get(&member.job)?;
        let is_surplus = |group: &Group| group.surplus.contains(&member.program);
        let is_over = job.served.contains(&member.program);
        (is_over || job.groups.get(&member.group).is_some_and(is_surplus)).then_some(Begun::Surplus)
    }

    fn unhold(&mut self, program: &str) -> Option<HeldProgram> {
        let held = self.held.remove(program)?;
        let job = self.jobs.get_mut(&held.job)?;
        if let Some(queue) = job.held.get_mut(&held.group) {
            queue.remove(&held.number);
            if queue.is_empty() {
                job.held.remove(&held.group);
            }
        }
        Some(held)
    }

    /// The requests of held programs were lost with the daemon that had them.
    pub(crate) fn forget_held(&mut self) {
        self.held.clear();
        self.jobs.values_mut().for_each(|job| job.held.clear());
    }

    /// Begins held programs as long as their groups let any begin, in the order of the groups.
    pub(crate) fn admit(&mut self, name: &str, now: Timestamp) -> Vec<TrainingCommand> {
        let Some(job) = self.jobs.get(name) else {
            return Vec::new();
        };
        let place = |key: &str| job.groups.get(key).map(|group| group.place);
        let mut groups: Vec<_> = job
            .held
            .keys()
            .map(|key| (place(key), key.clone()))
            .collect();
        groups.sort_unstable();
        let mut admitted = Vec::new();
        for (_, key) in groups {
            while let Some(command) = self.admit_one(name, &key, now) {
                admitted.push(command);
            }
        }
        admitted
    }

    fn admit_one(&mut self, name: &str, key: &str, now: Timestamp) -> Option<TrainingCommand> {
        let job = self.jobs.get_mut(name)?;
        let program = job.held.get(key)?.values().next()?.clone();
        let takes = job.groups.get(key).is_some_and(Group::takes_members);
        if takes && job.wait(key).is_some() {
            return None;
        }
        if takes {
            let is_direct = self.held.get(&program).is_some_and(|held| held.direct);
            let timeout = Span::from_secs(job.settings.member_timeout_s);
            let deadline = now + timeout;
            job.begin(key, &program, now, deadline, is_direct);
            self.deadlines.insert((deadline, program.clone()));
            let member = (name.into(), key.into());
            self.members.insert(program.clone(), member);
        } else if let Some(group) = job.groups.get_mut(key) {
            group.leave_out(&program);
            job.account.surplus += 1;
        }
        self.unhold(&program);
        Some(TrainingCommand::AdmitMember {
            program,
            surplus: !takes,
        })
    }

    /// Removes a job; its members run on as programs like any others.
    pub(crate) fn remove_job(&mut self, name: &str) -> Vec<TrainingCommand> {
        let waiting = self.held.iter().filter(|(_, held)| &*held.job == name);
        let waiting: Vec<Box<str>> = waiting.map(|(program, _)| program.clone()).collect();
        let mut commands = Vec::new();
        for program in waiting {
            self.held.remove(&program);
            let surplus = true;
            commands.push(TrainingCommand::AdmitMember { program, surplus });
        }
        let job = self.jobs.remove(name);
        let groups = job.into_iter().flat_map(|job| job.groups.into_values());
        let members = groups.flat_map(|group| group.members.into_keys());
        commands.extend(members.map(|program| TrainingCommand::DropMember {
            program,
            running: false,
            lost: None,
        }));
        commands
    }
}
