//! A model of training runs that is independent of the core: it follows events, commands and
//! answers, and checks what `docs/training.md` promises. It does not work out what the core decides.

mod facts;
mod rules;
mod shaping;

use facts::{Job, Member};
use std::collections::{BTreeMap, BTreeSet};
use treadle_core::programs::Program;
use treadle_core::programs::ProgramEvent;
use treadle_core::training::{Capture, End, JobSettings, MemberRef, Report, Reward, TrainingEvent};
use treadle_core::{DaemonEvent, Event};
use treadle_dst_outcome::{Checked, broken};
use treadle_model::StepId;

/// The model.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    jobs: BTreeMap<Box<str>, Job>,
    /// Job and group of each member.
    members: BTreeMap<Box<str>, MemberRef>,
    /// Programs with a step, until they are over.
    live: BTreeSet<Box<str>>,
    steps: BTreeMap<StepId, Box<str>>,
    /// Jobs with a shaping policy.
    shaped: BTreeSet<Box<str>>,
    now_us: u64,
    /// Of the present event: members that have to be dropped, groups that lost one, groups that
    /// became too old, and whether anything may be dropped.
    lost: BTreeSet<Box<str>>,
    weakened: BTreeSet<Box<str>>,
    aged: BTreeSet<Box<str>>,
    anything_goes: bool,
}

/// How a program ended, as its client knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProgramEnd {
    /// Its last step was answered before its client released it.
    pub(super) whole: bool,
}

impl Model {
    /// An event that was accepted, before its commands.
    pub(super) fn event(&mut self, now_us: u64, event: &Event) {
        self.now_us = now_us;
        self.lost.clear();
        self.weakened.clear();
        self.aged.clear();
        self.anything_goes = false;
        match event {
            Event::Training(event) => self.training_event(event),
            Event::Program(event) => self.program_event(event),
            Event::Binding(event) => self.bound(event),
            Event::Daemon(DaemonEvent::DaemonRestarted) => self.restarted(),
            _ => {}
        }
        self.find_due();
        self.expire_questions();
        self.age();
    }

    fn training_event(&mut self, event: &TrainingEvent) {
        if let TrainingEvent::JobDeclared { job, settings } = event {
            return self.declared(job, settings);
        }
        self.shaping_answered(event);
        if let Some(member) = event.member() {
            return self.member_event(member, event);
        }
        let Some(job) = self.jobs.get_mut(event.job()) else {
            return;
        };
        match event {
            TrainingEvent::GroupSubmitted { group, size, .. }
                if !job.groups.contains_key(group) && !job.is_over(group) =>
            {
                job.submit(group, *size, false);
            }
            TrainingEvent::BatchRequested { batch, .. } => {
                job.requested = job.requested.max(*batch);
            }
            TrainingEvent::VersionTold { version, .. } => {
                (job.version, job.last_version) = (Some(*version), *version);
            }
            TrainingEvent::Checkpointed { batch, .. } => {
                job.checkpoint = job.checkpoint.max(*batch);
                job.batches.retain(|batch, _| *batch > job.checkpoint);
            }
            TrainingEvent::RolledBack { batch, .. } => {
                self.anything_goes = true;
                job.roll_back(*batch);
            }
            TrainingEvent::JobRemoved { job } => {
                self.anything_goes = true;
                self.jobs.remove(job);
            }
            _ => {}
        }
    }

    fn declared(&mut self, name: &str, settings: &JobSettings) {
        let due_us = self.now_us + settings.member_timeout_s * 1_000_000;
        let Some(job) = self.jobs.get_mut(name) else {
            self.jobs.insert(name.into(), Job::new(settings.clone()));
            return;
        };
        let before = std::mem::replace(&mut job.settings, settings.clone());
        let members = job.groups.values_mut().flat_map(|g| g.members.values_mut());
        for member in members {
            // What is missing by the new settings only is due later.
            if member.lacks(settings) && !member.lacks(&before) {
                member.due_us = Some(due_us);
            }
        }
    }

    fn member_event(&mut self, at: &MemberRef, event: &TrainingEvent) {
        let Some(job) = self.jobs.get_mut(&at.job) else {
            return;
        };
        match event {
            TrainingEvent::MemberArrived { direct, .. } => {
                let is_known =
                    job.held.contains_key(&at.program) || self.members.contains_key(&at.program);
                if is_known {
                    return;
                }
                if !job.groups.contains_key(&at.group) && !job.is_over(&at.group) {
                    job.submit(&at.group, None, true);
                }
                let (group, direct) = (at.group.clone(), *direct);
                let held = facts::Held { group, direct };
                job.held.insert(at.program.clone(), held);
            }
            TrainingEvent::MemberLeft { .. } => self.left(&at.program),
            TrainingEvent::MemberEnded { report, .. } => self.ended(at, report),
            TrainingEvent::RewardGiven { reward, .. } => {
                if let Some(member) = job.member(&at.group, &at.program) {
                    member.reward = Some(*reward);
                }
            }
            TrainingEvent::RewardFailed { .. } => self.lose(at),
            TrainingEvent::StepCaptured { .. } => {
                if let Some(member) = job.member(&at.group, &at.program) {
                    member.captured = member.captured.map(|steps| steps + 1);
                }
            }
            TrainingEvent::CaptureFailed { .. } => {
                let is_captured = job.settings.capture == Capture::Tokens;
                let Some(member) = job.member(&at.group, &at.program) else {
                    return;
                };
                if is_captured && member.end.is_some() && member.sample.is_none() {
                    self.lose(at);
                } else {
                    member.captured = None;
                }
            }
            _ => {}
        }
    }

    /// A member has to be dropped with this event.
    fn lose(&mut self, at: &MemberRef) {
        self.lost.insert(at.program.clone());
        self.weakened.insert(at.group.clone());
    }

    fn ended(&mut self, at: &MemberRef, report: &Report) {
        let Some(job) = self.jobs.get_mut(&at.job) else {
            return;
        };
        let newest = job.version.unwrap_or(job.last_version);
        let settings = job.settings.clone();
        let Some(member) = job.member(&at.group, &at.program) else {
            return;
        };
        let is_first = member.end.is_none();
        if is_first {
            (member.tokens, member.turns) = (report.tokens, report.turns);
            member.newest = newest;
        }
        let is_well = matches!(report.end, End::Completed | End::Truncated);
        if is_first && is_well {
            member.end = Some(report.end);
        }
        if report.sample.is_some() && member.sample.is_none() {
            member.sample.clone_from(&report.sample);
            member.tokens = report.tokens;
            member.version = member.version.min(report.version.unwrap_or(u64::MAX));
        }
        member.reward = member.reward.or(report.reward);
        if is_first {
            member.due_us = Some(self.now_us + settings.member_timeout_s * 1_000_000);
        }
        if !is_well {
            self.lose(at);
        }
    }

    fn left(&mut self, program: &str) {
        for job in self.jobs.values_mut() {
            if let Some(held) = job.held.remove(program) {
                let key = held.group;
                let is_waited_for = job.held.values().any(|other| other.group == key);
                let is_unused = |g: &facts::Group| g.implicit && g.members.is_empty();
                if !is_waited_for && job.groups.get(&key).is_some_and(is_unused) {
                    job.groups.remove(&key);
                }
                return;
            }
        }
        let Some(at) = self.members.get(program).cloned() else {
            return;
        };
        let Some(job) = self.jobs.get_mut(&at.job) else {
            return;
        };
        let is_unopened = |m: &Member| !m.sampled && m.end.is_none() && !m.direct;
        let Some(group) = job.groups.get_mut(&at.group) else {
            return;
        };
        if group.members.get(program).is_some_and(is_unopened) {
            group.members.remove(program);
            group.dropped += 1;
            group.shrink(false);
            job.sums.left += 1;
            self.members.remove(program);
        }
    }

    fn restarted(&mut self) {
        self.steps.clear();
        for job in self.jobs.values_mut() {
            job.held.clear();
        }
        let programs: Vec<Box<str>> = self.members.keys().cloned().collect();
        for program in programs {
            if !self.live.contains(&program) {
                self.left(&program);
            }
        }
    }

    fn program_event(&mut self, event: &ProgramEvent) {
        match event {
            ProgramEvent::StepArrived(arrival) => {
                self.live.insert(arrival.program.clone());
                self.opened(&arrival.program);
                self.steps.insert(arrival.step, arrival.program.clone());
            }
            ProgramEvent::StepFirstToken { step } => {
                let program = self.steps.get(step).cloned();
                if let Some(at) = program.and_then(|program| self.members.get(&program).cloned()) {
                    self.first_token(&at);
                }
            }
            ProgramEvent::ProgramRewarded {
                program,
                reward_millionths,
            } => {
                let Some(at) = self.members.get(program).cloned() else {
                    return;
                };
                let job = self.jobs.get_mut(&at.job);
                if let Some(member) = job.and_then(|job| job.member(&at.group, program)) {
                    member.reward = Reward::new(*reward_millionths as f64 / 1e6);
                }
            }
            _ => {}
        }
    }

    /// A program came to its first step: from now on it ends as programs do.
    fn opened(&mut self, program: &str) {
        let Some(at) = self.members.get(program).cloned() else {
            return;
        };
        let job = self.jobs.get_mut(&at.job);
        let member = job.and_then(|job| job.member(&at.group, program));
        if let Some(member) = member.filter(|m| !m.direct && m.end.is_none()) {
            member.due_us = None;
        }
    }

    fn first_token(&mut self, at: &MemberRef) {
        let Some(job) = self.jobs.get_mut(&at.job) else {
            return;
        };
        let version = job.version;
        if let Some(member) = job.member(&at.group, &at.program)
            && !member.sampled
            && member.end.is_none()
        {
            member.sampled = true;
            member.version = version.unwrap_or(member.version);
        }
    }

    /// A program is over; its client knows how.
    pub(super) fn over(&mut self, program: &Program, end: ProgramEnd) {
        self.live.remove(&program.key);
        let Some(at) = self.members.get(&program.key).cloned() else {
            return;
        };
        let Some(job) = self.jobs.get_mut(&at.job) else {
            return;
        };
        let is_captured = job.settings.capture == Capture::Tokens;
        let Some(member) = job.member(&at.group, &at.program) else {
            return;
        };
        if member.end.is_some() {
            return;
        }
        let is_whole = member
            .captured
            .is_some_and(|steps| member.direct || steps > 0);
        let is_complete = !is_captured || is_whole || member.sample.is_some();
        let end = if end.whole && is_complete {
            End::Completed
        } else {
            End::Aborted
        };
        let report = Report::of(end, program.output_tokens_total, program.steps_finished);
        self.ended(&at, &report);
        self.age();
    }

    /// Members that have to be dropped because they have been open for too long.
    fn find_due(&mut self) {
        for job in self.jobs.values() {
            for (key, group) in &job.groups {
                for (program, member) in &group.members {
                    let is_due = member.due_us.is_some_and(|due| due <= self.now_us);
                    if is_due && member.is_open(&job.settings) {
                        self.lost.insert(program.clone());
                        self.weakened.insert(key.clone());
                    }
                }
            }
        }
    }

    fn age(&mut self) {
        for job in self.jobs.values_mut() {
            self.aged.extend(job.age());
        }
    }
}

/// Whether a call that comes from outside was answered as it has to be.
pub(super) fn answered(what: &str, expected: bool, accepted: bool) -> Checked {
    if expected == accepted {
        return Ok(());
    }
    let answer = if accepted { "accepted" } else { "refused" };
    broken("refusals", format!("{what} is {answer}"))
}
