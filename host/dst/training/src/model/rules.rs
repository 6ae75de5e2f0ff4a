//! The rules: what each command may do, and what must hold after each event.

use super::Model;
use super::facts::{self, Group, Job, Member};
use std::collections::BTreeMap;
use treadle_core::training::{self, MemberRef, ServedGroup, TrainingCommand};
use treadle_dst_outcome::{Checked, broken};
use treadle_model::Timestamp;

impl Model {
    /// A command that the present event has led to, and the state that answers come from.
    pub(crate) fn command(
        &mut self,
        command: &TrainingCommand,
        answers: &training::State,
    ) -> Checked {
        match command {
            TrainingCommand::AdmitMember { program, surplus } => {
                self.admitted(program, *surplus, answers)
            }
            TrainingCommand::DropMember { program, .. } => self.dropped(program),
            TrainingCommand::Record { .. } => Ok(()),
            TrainingCommand::ServeBatch { job, batch, groups } => {
                let answer = answers.jobs.get(job).and_then(|job| job.batches.get(batch));
                let Some(answer) = answer else {
                    return broken("batches", format!("{batch} is served, and not there"));
                };
                self.served(job, *batch, groups, answer)
            }
            TrainingCommand::AskShaping {
                ask,
                question,
                deadline,
            } => self.asked(*ask, question, *deadline),
            TrainingCommand::ScoreMember { member }
            | TrainingCommand::AssembleMember { member } => {
                if !self.members.contains_key(&member.program) {
                    return broken("members", format!("{} is no member", member.program));
                }
                Ok(())
            }
        }
    }

    fn admitted(&mut self, program: &str, surplus: bool, answers: &training::State) -> Checked {
        let mut jobs = self.jobs.iter_mut();
        let found = jobs.find_map(|(name, job)| Some((name, job.held.remove(program)?, job)));
        let Some((name, held, job)) = found else {
            // A job that was removed lets everyone go on.
            if surplus && self.anything_goes {
                return Ok(());
            }
            return broken("members", format!("{program} did not wait"));
        };
        let key = held.group;
        let floor = job.floor(job.next_batch);
        let is_full = job.is_full();
        let known = job.groups.get(&key);
        let takes = known.is_some_and(|g| !g.stale && g.members.len() < g.target());
        let has_begun = known.is_some_and(|g| !g.members.is_empty());
        let is_unsized = !has_begun && known.is_some_and(|g| g.target.is_none());
        let is_over = job.over.contains(program);
        if surplus {
            // A group that is given up lets all go that wait for it.
            let answered = answers.jobs.get(name);
            let is_there = answered.is_some_and(|job| job.groups.contains_key(&key));
            if takes && is_there && !is_over {
                return broken(
                    "members",
                    format!("{program} is surplus, but {key} needs it"),
                );
            }
            if !is_over {
                job.sums.surplus += u64::from(known.is_some() && is_there);
                job.over.insert(program.into());
            }
            return Ok(());
        }
        if !takes || is_over {
            return broken(
                "members",
                format!("{program} is a member of {key}, which is full"),
            );
        }
        let Some(version) = job.version.filter(|version| *version >= floor) else {
            let version = job.version;
            let what = format!("{program} begins at {version:?}, the floor is {floor}");
            return broken("start", what);
        };
        if is_full && !has_begun {
            let others = job.begun();
            return broken("pace", format!("{key} begins after {others} others"));
        }
        if is_unsized && self.shaped.contains(name) {
            return broken("sized", format!("{program} begins before {key} is sized"));
        }
        let timeout_us = job.settings.member_timeout_s * 1_000_000;
        // A program has this long to come to a step.
        let due_us =
            Some(self.now_us + timeout_us).filter(|_| held.direct || !self.live.contains(program));
        let member = Member::begun(version, held.direct, due_us);
        job.sums.begun += 1;
        if let Some(group) = job.groups.get_mut(&key) {
            group.members.insert(program.into(), member);
            group.target.get_or_insert(group.size);
        }
        let at = MemberRef {
            job: name.clone(),
            group: key,
            program: program.into(),
        };
        self.members.insert(program.into(), at);
        Ok(())
    }

    fn dropped(&mut self, program: &str) -> Checked {
        let Some(at) = self.members.remove(program) else {
            return broken("drops", format!("{program} is no member"));
        };
        let was_lost = self.lost.remove(program);
        let Some(job) = self.jobs.get_mut(&at.job) else {
            return Ok(());
        };
        let floor = job.floor(job.next_batch);
        let Some(group) = job.groups.get_mut(&at.group) else {
            return broken("drops", format!("{program} is of no group"));
        };
        let is_old = group.version().is_some_and(|v| v < floor);
        let has_other_reason = was_lost
            || is_old
            || group.stale
            || self.anything_goes
            || self.weakened.contains(&at.group)
            || self.aged.contains(&at.group);
        let is_let_go = !was_lost && group.lets_go(program, has_other_reason)?;
        let has_reason = has_other_reason || is_let_go;
        if !has_reason {
            return broken("drops", format!("{program} of {} for no reason", at.group));
        }
        group.dropped += 1;
        let Some(member) = group.members.remove(program) else {
            return broken("drops", format!("{program} is dropped twice"));
        };
        group.shrink(was_lost);
        if group.members.is_empty() {
            group.aged = false;
        }
        if member.has_ended_well() {
            facts::add(&mut job.sums.finished, &member);
        }
        facts::add(&mut job.sums.lost, &member);
        job.over.insert(program.into());
        Ok(())
    }

    fn served(
        &mut self,
        name: &str,
        batch: u64,
        served: &[ServedGroup],
        answer: &training::Batch,
    ) -> Checked {
        let Some(job) = self.jobs.get_mut(name) else {
            return broken("batches", format!("{batch} of no job"));
        };
        if batch != job.next_batch || job.requested < batch {
            let next = job.next_batch;
            return broken("batches", format!("{batch} is cut, the next is {next}"));
        }
        if served.len() != job.settings.batch_groups as usize {
            let what = format!("{batch} has {} groups", served.len());
            return broken("batch-size", what);
        }
        let mut groups = BTreeMap::new();
        for one in served {
            let group = job.take(batch, one)?;
            groups.insert(one.group.clone(), group);
        }
        job.check_order(batch, &groups)?;
        check_answer(batch, &groups, answer)?;
        let text = serde_json::to_string(&answer.groups);
        job.batches.insert(batch, text.unwrap_or_default());
        job.next_batch += 1;
        for (key, group) in groups {
            job.served.insert(key);
            for (program, member) in group.members {
                facts::add(&mut job.sums.finished, &member);
                facts::add(&mut job.sums.served, &member);
                self.members.remove(&program);
                job.over.insert(program);
            }
        }
        let next = job.next_batch;
        let waited_for = job.groups.iter().find(|(_, group)| {
            let is_starved = group.returned >= job.settings.starved_after;
            let waits = is_starved || job.settings.stale == training::Stale::Wait;
            let is_old = group.version().is_some_and(|v| v < job.floor(next));
            let runs = group.members.values().any(|m| m.end.is_none());
            waits && is_old && runs && group.has_begun()
        });
        if let Some((key, _)) = waited_for {
            return broken("waited", format!("{batch} does not wait for {key}"));
        }
        self.age();
        Ok(())
    }

    /// What must hold after each event and its commands.
    pub(crate) fn settled(
        &mut self,
        answers: &training::State,
        wakes_at: Option<Timestamp>,
    ) -> Checked {
        if let Some(program) = self.lost.first() {
            return broken("drops", format!("{program} is lost, and not dropped"));
        }
        let mut first_due = None;
        for (name, job) in &mut self.jobs {
            let Some(answered) = answers.jobs.get(name) else {
                return broken("answers", format!("there is no {name}"));
            };
            job.settled(answered, self.shaped.contains(name))?;
            let members = job.groups.values().flat_map(|g| g.members.values());
            let open = members.filter(|m| m.is_open(&job.settings));
            let due = open.filter_map(|m| m.due_us).min();
            let late = job.open.as_ref().map(|open| open.deadline_us);
            first_due = [first_due, due, late].into_iter().flatten().min();
        }
        if let Some(due) = first_due
            && wakes_at.is_none_or(|at| at.0 > due)
        {
            return broken("deadlines", format!("{due} is due, not {wakes_at:?}"));
        }
        Ok(())
    }

    /// A batch, as it is answered now.
    pub(crate) fn answer(&self, job: &str, batch: u64, answer: &training::Batch) -> Checked {
        let known = self.jobs.get(job).and_then(|job| job.batches.get(&batch));
        let text = serde_json::to_string(&answer.groups).unwrap_or_default();
        if known.is_some_and(|known| *known == text) {
            return Ok(());
        }
        broken("batches", format!("{batch} has changed"))
    }
}

impl Job {
    /// A group is served.
    fn take(&mut self, batch: u64, served: &ServedGroup) -> Checked<Group> {
        let key = &served.group;
        if self.served.contains(key) {
            return broken(
                "served-once",
                format!("{key} is in {batch} and an earlier one"),
            );
        }
        let Some(group) = self.groups.remove(key) else {
            return broken("served-once", format!("{key} is not there"));
        };
        let programs: Vec<_> = group.members.keys().cloned().collect();
        if programs != served.programs || programs.len() != group.size {
            let (size, is) = (group.size, served.programs.len());
            return broken("group-size", format!("{key} has {is} members, not {size}"));
        }
        for (program, member) in &group.members {
            if !member.has_ended_well() || member.lacks(&self.settings) {
                let (end, reward) = (member.end, member.reward);
                return broken("failures", format!("{program}: {end:?}, {reward:?}"));
            }
            if member.abandoned {
                return broken("lineage", format!("{program} has abandoned tokens"));
            }
        }
        let lag = (batch - 1).saturating_sub(group.version().unwrap_or_default());
        if lag > self.settings.lag_max || group.stale {
            return broken("lag", format!("{key} has lag {lag} in {batch}"));
        }
        self.sums.lag = self.sums.lag.max(lag);
        Ok(group)
    }

    /// No group that is ready is older than one that is served.
    fn check_order(&self, batch: u64, served: &BTreeMap<Box<str>, Group>) -> Checked {
        // Those that returned go first; which of them is left to the core.
        let place = |group: &Group| (group.version(), group.number);
        let ready = self.groups.iter();
        for (left, group) in ready.filter(|(_, group)| group.is_ready(&self.settings)) {
            let younger = served.iter().find(|(_, served)| {
                let is_comparable = group.dropped + served.dropped == 0;
                let is_older = group.version() < served.version();
                is_older || (is_comparable && place(group) < place(served))
            });
            if let Some((key, _)) = younger {
                let what = format!("{key} is in {batch}, {left} is older");
                return broken("order", what);
            }
        }
        Ok(())
    }

    fn settled(&mut self, answered: &training::Job, is_shaped: bool) -> Checked {
        for (key, group) in &mut self.groups {
            group.settle_shape(key)?;
        }
        let known = (self.next_batch, self.checkpoint, self.lineage, self.version);
        let told = (
            answered.next_batch,
            answered.checkpoint,
            answered.lineage,
            answered.version,
        );
        if known != told {
            return broken("answers", format!("{told:?}, not {known:?}"));
        }
        let floor = self.floor(self.next_batch);
        let is_old = |g: &&Group| !g.stale && g.version().is_some_and(|v| v < floor);
        if let Some(group) = self.groups.values().find(is_old) {
            let version = group.version();
            return broken("cut", format!("{version:?} is older than {floor}"));
        }
        self.check_waits(is_shaped)?;
        self.compare(answered)?;
        self.check_groups(answered)
    }

    /// Whoever waits has a reason.
    fn check_waits(&self, is_shaped: bool) -> Checked {
        let floor = self.floor(self.next_batch);
        let is_old = self.version.is_none_or(|version| version < floor);
        let is_full = self.is_full();
        for (program, held) in &self.held {
            let key = &held.group;
            let group = self.groups.get(key);
            let has_begun = group.is_some_and(|g| !g.members.is_empty());
            let takes = group.is_some_and(|g| !g.stale && g.members.len() < g.target());
            let is_unsized = !has_begun && group.is_some_and(|g| g.target.is_none());
            let is_asked = is_shaped && is_unsized && self.open.is_some();
            if !takes || !(is_old || is_full && !has_begun || is_asked) {
                return broken("waits", format!("{program} of {key} for nothing"));
            }
        }
        let is_due = self.requested == self.next_batch;
        let has_enough = self.ready() >= self.settings.batch_groups as usize;
        let is_blocked = || self.groups.values().any(|group| self.waits_for(group));
        if is_due && has_enough && !is_blocked() {
            let batch = self.next_batch;
            return broken("waits", format!("for {batch}, which could be cut"));
        }
        Ok(())
    }

    /// Each group that was submitted is served, given up or there.
    fn check_groups(&mut self, answered: &training::Job) -> Checked {
        let known = self.groups.keys().cloned();
        let gone: Vec<Box<str>> = known
            .filter(|key| !answered.groups.contains_key(key))
            .collect();
        for key in gone {
            let group = self.groups.remove(&key).unwrap_or_default();
            if !group.members.is_empty() {
                return broken("groups", format!("{key} is gone, with members"));
            }
            self.given_up.insert(key);
        }
        let given_up = self.given_up.len() as u64;
        if given_up != answered.account.never_served {
            let told = answered.account.never_served;
            return broken("groups", format!("{given_up} were given up, not {told}"));
        }
        let mut told = answered.groups.keys();
        match told.find(|key| !self.groups.contains_key(&***key)) {
            Some(key) => broken("groups", format!("{key} was not submitted")),
            None => Ok(()),
        }
    }
}

/// What is answered of a batch is what was reported of its members.
fn check_answer(
    batch: u64,
    groups: &BTreeMap<Box<str>, Group>,
    answer: &training::Batch,
) -> Checked {
    for (key, group) in groups {
        for (program, member) in &group.members {
            let found = answer.groups.get(key);
            let found = found.and_then(|found| found.members.get(program));
            let Some(found) = found else {
                return broken("batches", format!("{batch} lacks {program}"));
            };
            let is_same = found.end == member.end
                && found.reward == member.reward
                && found.sample == member.sample;
            if !is_same {
                return broken("failures", format!("{found:?}, not {member:?}"));
            }
            if found.version != member.version {
                let (told, known) = (found.version, member.version);
                return broken("versions", format!("{program}: {told}, not {known}"));
            }
        }
    }
    Ok(())
}

impl Member {
    fn begun(version: u64, direct: bool, due_us: Option<u64>) -> Self {
        Self {
            version,
            sampled: false,
            direct,
            end: None,
            reward: None,
            sample: None,
            captured: Some(0),
            tokens: 0,
            turns: 0,
            tokens_if_cut: 0,
            turns_if_cut: 0,
            due_us,
            abandoned: false,
            newest: version,
        }
    }
}
