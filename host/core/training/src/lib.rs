//! The machine of training runs: which programs are sampled for which batch, and how old their
//! tokens may be. It holds ids, counts and versions; tokens and prompts are stored elsewhere, under
//! digests, before an event names them.
//!
//! A *job* declares its run ([`JobSettings`]). A *group* is a prompt that several programs sample,
//! its *members*. Ready groups form *batches*, numbered from 1 without gaps: a batch is cut when
//! the trainer first asks for it, and never changes. Version `n` of the weights is what training
//! on batch `n` made.
//!
//! # Staleness
//!
//! The *lag* of a group in batch `k` is `k - 1` less the version at the oldest first token of its
//! members: by how many steps the version on which it is trained is newer. For a bound of `L`:
//!
//! 1. No group older than `k - 1 - L`, the *floor* of `k`, is put into batch `k`.
//! 2. No program begins while engines have an older version than the floor of the next batch.
//! 3. When a batch is cut, groups below the next floor are cut, run on, or were waited for
//!    ([`Stale`]).
//! 4. At most `(pipeline + 1) * batch_groups` groups have begun and are in no batch, and only as
//!    many as fit into the batches for which tokens that are sampled now are young enough. One that
//!    has begun gets all its members.
//! 5. A prompt whose group was cut returns to the head of the queue; after some returns it is
//!    waited for.
//! 6. Older groups are served first.

mod account;
mod affinity;
mod batches;
mod check;
mod command;
mod error;
mod event;
mod finished;
mod group;
mod invariants;
mod job;
mod lost;
mod notices;
mod settings;
mod shape;
mod shaping;
mod state;
mod wanted;

pub use account::{Account, OTHER, Outcomes, Tally};
pub use affinity::{AFFINITY_DOMAINS_MAX, Affinity, Auto, DEFAULT_DOMAIN};
pub use command::{ServedGroup, TrainingCommand};
pub use error::{DOMAIN_BYTES_MAX, TrainingError};
pub use event::{MemberRef, TrainingEvent};
pub use finished::Finished;
pub use group::{CAPTURED_MAX, End, Group, Member, Place, Report, Reward};
pub use job::{Batch, Job, Wait};
pub use lost::Lost;
pub use settings::{
    BATCH_GROUPS_MAX, Capture, GROUP_SIZE_MAX, History, JobSettings, LAG_MAX, MEMBER_TIMEOUT_MAX_S,
    REDUNDANCY_MOST, Stale,
};
pub use shape::{
    Curtailed, GroupSize, OpenAsk, Selection, Shape, ShapedGroups, ShapedMembers, Shaping,
    ShapingAnswer, ShapingPurpose, ShapingQuestion,
};
pub use state::{Begun, HeldProgram, State};

use std::collections::{BTreeSet, VecDeque};
use treadle_machine::DaemonEvent;
use treadle_machine::{BoundJobs, Machine, Notice};
use treadle_model::{Span, Timestamp};

/// Programs of a job that are remembered once they are in a batch, and once they are dropped.
const PROGRAMS_MAX: usize = 100_000;

/// What training runs read of programs.
pub trait LivePrograms {
    /// Whether this program is live.
    fn is_live(&self, program: &str) -> bool;

    /// Tokens that a live program has sampled so far, and its finished steps.
    fn sampled(&self, program: &str) -> Option<(u64, u32)>;
}

/// The machine.
#[derive(Clone, Debug, Default)]
pub struct Training {
    state: State,
    now: Timestamp,
    commands: VecDeque<TrainingCommand>,
    notices: VecDeque<Notice>,
    /// Jobs that something happened to.
    touched: BTreeSet<Box<str>>,
    /// The daemon restarted with this event.
    restarted: bool,
    /// Jobs with a shaping policy.
    shaped: BoundJobs,
    /// When a shaping policy is late, or running members are looked at again.
    shaping_due: Option<Timestamp>,
}

impl Training {
    /// The machine as a snapshot has it, with the jobs that have a shaping policy.
    pub fn with_state(state: State, shaped: BoundJobs) -> Self {
        let shaping_due = state.shaping_due();
        Self {
            state,
            shaped,
            shaping_due,
            ..Self::default()
        }
    }

    /// Its state, as a snapshot has it.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// A program that is a member of a group and has not ended.
    fn running(&self, program: &str) -> Option<MemberRef> {
        let (job, group) = self.state.members.get(program)?;
        let groups = &self.state.jobs.get(job)?.groups;
        let member = groups.get(group)?.members.get(program)?;
        member.end.is_none().then(|| MemberRef {
            job: job.clone(),
            group: group.clone(),
            program: program.into(),
        })
    }

    fn end(&mut self, at: &MemberRef, report: &Report) {
        let Some(job) = self.state.jobs.get_mut(&at.job) else {
            return;
        };
        let (newest, now) = (job.version.unwrap_or(u64::MAX), self.now);
        let timeout = Span::from_secs(job.settings.member_timeout_s);
        let (rewarded, captured) = (job.settings.rewarded, job.settings.captured());
        let end = report.end;
        let (mut deadline, mut merged) = (None, false);
        let mut commands = job.change(&at.group, &at.program, |member| {
            let is_first = member.end.is_none();
            if is_first {
                (member.tokens, member.turns) = (report.tokens, report.turns);
                member.ended = Some(now);
                member.newest = newest;
                member.end = end.is_trained().then_some(end);
            }
            if report.sample.is_some() && member.sample.is_none() {
                merged = true;
                member.sample.clone_from(&report.sample);
                member.tokens = report.tokens;
                member.version = report
                    .version
                    .map_or(member.version, |v| v.min(member.version));
            }
            member.reward = member.reward.or(report.reward);
            member.info = member.info.take().or_else(|| report.info.clone());
            // What comes later does not put it off.
            if is_first && member.lacks(rewarded, captured) {
                deadline = Some(now + timeout);
                member.deadline = deadline;
            }
        });
        if merged {
            job.account.merged(&report.breaks);
        }
        let due = deadline.map(|deadline| (deadline, at.program.clone()));
        self.state.deadlines.extend(due);
        if end.is_trained() {
            commands.extend(job.wants(at));
        } else {
            commands.extend(job.lose(&at.group, &at.program, end, None));
            commands.extend(job.wants_after_loss(&at.job, &at.group));
        }
        self.carry(commands);
        self.touched.insert(at.job.clone());
    }

    /// Passes commands on, and forgets the members that they are about.
    fn carry(&mut self, commands: Vec<TrainingCommand>) {
        for command in commands {
            match &command {
                TrainingCommand::DropMember {
                    program,
                    running,
                    lost,
                } => {
                    if let Some((job, _)) = self.state.members.remove(program) {
                        if let Some(job) = self.state.jobs.get_mut(&job) {
                            job.dropped.insert(program, PROGRAMS_MAX);
                        }
                        let outcome = lost.as_deref();
                        let outcome = outcome.map(|l| TrainingCommand::record_lost(job, l));
                        self.commands.extend(outcome);
                    }
                    if *running {
                        let program = program.clone();
                        self.notices.push_back(Notice::ProgramCut { program });
                    }
                }
                TrainingCommand::ServeBatch { job, batch, groups } => {
                    let outcome = TrainingEvent::BatchCut {
                        job: job.clone(),
                        batch: *batch,
                    };
                    self.commands.push_back(outcome.into());
                    let mut job = self.state.jobs.get_mut(job);
                    for program in groups.iter().flat_map(|group| &group.programs) {
                        self.state.members.remove(program);
                        if let Some(job) = &mut job {
                            job.served.insert(program, PROGRAMS_MAX);
                        }
                    }
                }
                TrainingCommand::AskShaping { .. }
                | TrainingCommand::AdmitMember { .. }
                | TrainingCommand::AssembleMember { .. }
                | TrainingCommand::ScoreMember { .. }
                | TrainingCommand::Record { .. } => {}
            }
            self.commands.push_back(command);
        }
    }

    /// Members that began and whose first step was lost with the daemon are none.
    fn forget_unopened(&mut self, programs: &dyn LivePrograms) {
        let members = self.state.members.keys();
        // Those that their clients sample stay: `leave` changes nothing of them.
        let gone = members.filter(|program| !programs.is_live(program));
        let gone: Vec<Box<str>> = gone.cloned().collect();
        for program in gone {
            let commands = self.state.leave(&program);
            self.carry(commands);
        }
        self.touched.extend(self.state.jobs.keys().cloned());
        for (name, job) in &self.state.jobs {
            self.commands.extend(job.wanted_of_members(name));
        }
    }

    /// Loses members that their clients have sampled for too long, that never came to a step, or
    /// whose rewards or samples did not come, and forgets the deadlines of those that are complete.
    fn expire(&mut self, programs: &dyn LivePrograms) {
        while let Some((deadline, program)) = self.state.deadlines.first().cloned() {
            let is_live = programs.is_live(&program);
            let due = self.state.due(&program, deadline, is_live);
            if due.is_some() && deadline > self.now {
                return;
            }
            self.state.deadlines.pop_first();
            let Some((at, end)) = due else { continue };
            self.lose(&at, end, None);
        }
    }

    fn settle_job(&mut self, name: &str, programs: &dyn LivePrograms) {
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        let mut commands = job.cut(name);
        commands.extend(self.ask_shaping(name, programs));
        self.carry(commands);
        let admitted = self.state.admit(name, self.now);
        self.tell_admitted(&admitted, programs);
        self.commands.extend(admitted);
    }

    fn transition(&mut self, event: &TrainingEvent) {
        if event.is_outcome() {
            return;
        }
        let name = event.job();
        self.touched.insert(name.into());
        match event {
            TrainingEvent::JobDeclared { settings, .. } => {
                let settings = settings.as_ref().clone().within_bounds();
                let before = self.affinity(name);
                self.state.declare(name, settings, self.now);
                if self.affinity(name) != before {
                    self.tell_members(name);
                }
                let job = self.state.jobs.get_mut(name);
                let over = job.map(Job::drop_all_over).unwrap_or_default();
                self.carry(over);
                self.shape_job(name);
                let job = self.state.jobs.get(name);
                let wanted = job.into_iter().flat_map(|job| job.wanted_of_members(name));
                self.commands.extend(wanted);
            }
            TrainingEvent::JobRemoved { .. } => {
                let commands = self.state.remove_job(name);
                self.carry(commands);
                self.notices
                    .push_back(Notice::JobRemoved { job: name.into() });
            }
            TrainingEvent::MemberArrived { member, direct } => {
                let admitted = self.state.arrive(member, *direct);
                self.commands.extend(admitted);
            }
            TrainingEvent::MemberLeft { member } => {
                let commands = self.state.leave(&member.program);
                self.carry(commands);
            }
            TrainingEvent::MemberEnded { member, report } => {
                let known = self.state.member(member);
                if known.is_some_and(|known| known.admits(report)) {
                    self.end(member, report);
                }
            }
            TrainingEvent::MemberDeleted { member } => {
                if self.state.member(member).is_some() {
                    self.lose(
                        member,
                        End::Aborted,
                        Some("what was stored of it is deleted"),
                    );
                } else if let Some(job) = self.state.jobs.get_mut(name) {
                    job.delete_served(member);
                }
            }
            TrainingEvent::RewardFailed { member, cause } => {
                self.lose(member, End::RewardFailed, Some(cause));
            }
            TrainingEvent::CaptureFailed { member, cause } => {
                let known = self.state.member(member);
                let job = self.state.jobs.get(name);
                let captured = job.is_some_and(|job| job.settings.captured());
                if captured && known.is_some_and(|m| m.end.is_some() && m.sample.is_none()) {
                    self.lose(member, End::CaptureFailed, Some(cause));
                } else {
                    self.change_job(name, event);
                }
            }
            _ => self.change_job(name, event),
        }
    }

    fn lose(&mut self, at: &MemberRef, end: End, cause: Option<&str>) {
        let Some(job) = self.state.jobs.get_mut(&at.job) else {
            return;
        };
        let mut lost = job.lose(&at.group, &at.program, end, cause);
        lost.extend(job.wants_after_loss(&at.job, &at.group));
        self.carry(lost);
        self.touched.insert(at.job.clone());
    }

    fn change_job(&mut self, name: &str, event: &TrainingEvent) {
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        let mut commands = Vec::new();
        match event {
            TrainingEvent::GroupSubmitted {
                group,
                size,
                content,
                domain,
                ..
            } => job.submit(group, *size, content.clone(), domain.clone()),
            TrainingEvent::RewardGiven { member, reward } => {
                commands = job.change(&member.group, &member.program, |m| {
                    m.reward = Some(*reward);
                });
                commands.extend(job.wants(member));
            }
            TrainingEvent::StepCaptured { member, step, .. } => {
                commands = job.change(&member.group, &member.program, |m| m.captured(*step));
                // Its client may have reported its end already.
                commands.extend(job.wants(member));
            }
            TrainingEvent::CaptureFailed { member, cause } => {
                commands = job.change(&member.group, &member.program, |m| m.lacks_step(cause));
            }
            TrainingEvent::BatchRequested { batch, .. } => {
                job.requested = job.requested.max(*batch);
            }
            TrainingEvent::BatchTrained { batch, .. } => job.trained(*batch),
            TrainingEvent::VersionTold {
                version, digest, ..
            } => {
                job.weights_changed(*version);
                job.digest.clone_from(digest);
            }
            TrainingEvent::ShapingAnswered { ask, answer, .. } => {
                commands = job.shaping_answered(name, *ask, answer);
            }
            TrainingEvent::Checkpointed { batch, .. } => job.checkpoint(*batch),
            TrainingEvent::RolledBack { batch, .. } => {
                commands = job.roll_back(*batch);
                self.notices
                    .push_back(Notice::RunWentBack { job: name.into() });
            }
            _ => {}
        }
        self.carry(commands);
    }
}

impl Machine for Training {
    type Event = TrainingEvent;
    type Command = TrainingCommand;
    type View = dyn LivePrograms;

    fn advance(&mut self, now: Timestamp) {
        self.now = now;
    }

    fn apply(&mut self, event: &TrainingEvent, _: &Self::View) {
        self.transition(event);
    }

    fn daemon(&mut self, event: &DaemonEvent) {
        if matches!(event, DaemonEvent::DaemonRestarted) {
            self.state.forget_held();
            self.restarted = true;
        }
    }

    fn settle(&mut self, programs: &Self::View) {
        if std::mem::take(&mut self.restarted) {
            self.forget_unopened(programs);
        }
        // Members that a batch cuts have deadlines.
        self.expire(programs);
        self.keep_shaping();
        let is_touched = !self.touched.is_empty();
        while let Some(job) = self.touched.pop_first() {
            self.settle_job(&job, programs);
            self.expire(programs);
        }
        if is_touched {
            self.shaping_due = self.state.shaping_due();
        }
    }

    fn poll_command(&mut self) -> Option<TrainingCommand> {
        self.commands.pop_front()
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        let of_members = self.state.deadlines.first().map(|(at, _)| *at);
        of_members.into_iter().chain(self.shaping_due).min()
    }

    fn assert_invariants(&self) {
        self.check_invariants();
    }
}

#[cfg(test)]
mod tests;
