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
//! 4. At most `(pipeline + 1) * batch_groups * group_size` programs are begun and in no batch.
//! 5. A prompt whose group was cut returns to the head of the queue; after some returns it is
//!    waited for.
//! 6. Older groups are served first.

mod account;
mod check;
mod command;
mod event;
mod group;
mod invariants;
mod job;
mod settings;
mod state;

pub use account::{Account, Tally};
pub use check::TrainingError;
pub use command::{ServedGroup, TrainingCommand};
pub use event::{MemberRef, TrainingEvent};
pub use group::{End, Group, Member, Place, Reward};
pub use job::{Batch, Job, Wait};
pub use settings::{BATCH_GROUPS_MAX, GROUP_SIZE_MAX, JobSettings, LAG_MAX, Stale};
pub use state::{Held, State};

use crate::daemon::DaemonEvent;
use crate::machine::{Machine, Notice, Notified};
use std::collections::{BTreeSet, VecDeque};
use treadle_model::Timestamp;

/// The machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Training {
    state: State,
    commands: VecDeque<TrainingCommand>,
    notices: VecDeque<Notice>,
    /// Jobs that something happened to.
    touched: BTreeSet<Box<str>>,
}

impl Training {
    pub(crate) fn with_state(state: State) -> Self {
        Self {
            state,
            ..Self::default()
        }
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    fn over(&mut self, program: &str) {
        let Some((job, group)) = self.state.members.get(program).cloned() else {
            return;
        };
        let run = self.state.jobs.get(&job);
        let member = run.and_then(|r| r.groups.get(&group)?.members.get(program));
        if member.is_some_and(|m| m.end.is_none()) {
            self.end(&job, &group, program, End::Aborted);
        }
    }

    fn end(&mut self, job: &str, group: &str, program: &str, end: End) {
        let Some(run) = self.state.jobs.get_mut(job) else {
            return;
        };
        if end.is_trained() {
            run.change(group, program, |member| {
                member.end.get_or_insert(end);
            });
            run.drop_finished();
        } else {
            let commands = run.lose(group, program, end);
            self.state.members.remove(program);
            self.carry(commands);
        }
        self.touched.insert(job.into());
    }

    fn first_token(&mut self, program: &str) {
        let Some((job, group)) = self.state.members.get(program).cloned() else {
            return;
        };
        if let Some(run) = self.state.jobs.get_mut(&job)
            && let Some(version) = run.version
        {
            run.change(&group, program, |member| member.version = version);
        }
    }

    /// Passes commands on, and forgets the members that they drop.
    fn carry(&mut self, commands: Vec<TrainingCommand>) {
        for command in commands {
            if let TrainingCommand::DropMember { program, running } = &command {
                self.state.members.remove(program);
                if *running {
                    let program = program.clone();
                    self.notices.push_back(Notice::ProgramCut { program });
                }
            }
            if let TrainingCommand::ServeBatch { groups, .. } = &command {
                for program in groups.iter().flat_map(|group| &group.programs) {
                    self.state.members.remove(program);
                }
            }
            self.commands.push_back(command);
        }
    }

    fn settle_job(&mut self, name: &str) {
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        let commands = job.cut(name);
        self.carry(commands);
        let admitted = self.state.admit(name);
        self.commands.extend(admitted);
    }

    fn transition(&mut self, event: &TrainingEvent) {
        let job = event.job();
        if let TrainingEvent::JobDeclared { settings, .. } = event {
            let settings = settings.as_ref().clone().within_bounds();
            self.state.declare(job, settings);
        }
        let Some(run) = self.state.jobs.get_mut(job) else {
            return;
        };
        self.touched.insert(job.into());
        match event {
            TrainingEvent::JobDeclared { .. } => {}
            TrainingEvent::GroupSubmitted {
                group,
                size,
                content,
                ..
            } => run.submit(group, *size, content.clone()),
            TrainingEvent::MemberArrived { member } => {
                run.submit(&member.group, None, None);
                self.state.hold(member);
            }
            TrainingEvent::MemberLeft { member } => {
                self.state.held.remove(&member.program);
            }
            TrainingEvent::MemberEnded {
                member,
                end,
                tokens,
                turns,
            } => {
                run.change(&member.group, &member.program, |m| {
                    (m.tokens, m.turns) = (*tokens, *turns);
                });
                self.end(job, &member.group, &member.program, *end);
            }
            TrainingEvent::SampleStored {
                member,
                sample,
                tokens,
                version,
            } => run.change(&member.group, &member.program, |m| {
                m.sample = Some(sample.clone());
                m.tokens = *tokens;
                m.version = version.map_or(m.version, |v| v.min(m.version));
            }),
            TrainingEvent::RewardGiven { member, reward } => {
                run.change(&member.group, &member.program, |m| m.reward = Some(*reward));
            }
            TrainingEvent::RewardFailed { member, .. } => {
                self.end(job, &member.group, &member.program, End::RewardFailed);
            }
            TrainingEvent::BatchRequested { batch, .. } => run.requested = *batch,
            TrainingEvent::BatchTrained { batch, .. } => run.trained(*batch),
            TrainingEvent::VersionTold { version, .. } => run.version = Some(*version),
            TrainingEvent::Checkpointed { batch, .. } => run.checkpoint(*batch),
            TrainingEvent::RolledBack { batch, .. } => {
                let commands = run.roll_back(*batch);
                self.carry(commands);
            }
        }
    }
}

impl Machine for Training {
    type Event = TrainingEvent;
    type Command = TrainingCommand;
    type View = ();

    fn advance(&mut self, _: Timestamp) {}

    fn apply(&mut self, event: &TrainingEvent, (): &()) {
        self.transition(event);
    }

    /// The requests of waiting programs were lost with the daemon that held them; their clients ask
    /// again.
    fn daemon(&mut self, event: &DaemonEvent) {
        if matches!(event, DaemonEvent::DaemonRestarted) {
            self.state.held.clear();
        }
    }

    fn settle(&mut self, (): &()) {
        while let Some(job) = self.touched.pop_first() {
            self.settle_job(&job);
        }
    }

    fn poll_command(&mut self) -> Option<TrainingCommand> {
        self.commands.pop_front()
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        None
    }

    fn assert_invariants(&self) {
        self.check_invariants();
    }
}

impl Notified for Training {
    fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    fn notice(&mut self, notice: &Notice) {
        match notice {
            Notice::FirstToken { program } => self.first_token(program),
            Notice::ProgramOver { program } => self.over(program),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
