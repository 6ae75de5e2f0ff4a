//! What is refused before it becomes an event.

use crate::training::event::{MemberRef, TrainingEvent};
use crate::training::job::Job;
use crate::training::state::State;
use crate::training::{GROUP_SIZE_MAX, Training};
use thiserror::Error;

/// Declared jobs.
const JOBS_MAX: usize = 1_024;
/// Groups of a job that are in no batch.
const GROUPS_MAX: usize = 1_000_000;
/// Programs of all jobs that may not begin yet.
const HELD_MAX: usize = 100_000;
/// Batches of a job since its last checkpoint.
const BATCHES_MAX: usize = 10_000;

/// Why something can't happen to a training run.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum TrainingError {
    /// No job of this name was declared.
    #[error("no job `{0}` is declared; declare it first")]
    UnknownJob(Box<str>),
    /// No group of this key waits for its end.
    #[error("job `{job}` has no group `{group}` that is in no batch")]
    UnknownGroup {
        /// The job.
        job: Box<str>,
        /// The group.
        group: Box<str>,
    },
    /// The program is not a member.
    #[error("program `{program}` is not a member of group `{group}`; it may have been replaced")]
    UnknownMember {
        /// The group.
        group: Box<str>,
        /// The program.
        program: Box<str>,
    },
    /// A member ends once.
    #[error("program `{0}` has ended already")]
    Ended(Box<str>),
    /// The program was a member and is not trained any more.
    #[error("program `{0}` is over: it was cut, replaced or put into a batch; begin another one")]
    Dropped(Box<str>),
    /// The program belongs to another group.
    #[error("program `{program}` is a member of group `{group}`; it can't be one of another")]
    OtherGroup {
        /// The program.
        program: Box<str>,
        /// Its group.
        group: Box<str>,
    },
    /// Too many programs wait.
    #[error("{HELD_MAX} programs wait until they may begin, which is the limit; begin fewer")]
    Held,
    /// Too many batches since the last checkpoint.
    #[error(
        "{BATCHES_MAX} batches are kept for a rollback, which is the limit; report a checkpoint"
    )]
    Batches,
    /// The trainer went back to a checkpoint since.
    #[error("lineage {named} is over; the job is in lineage {current}")]
    Lineage {
        /// The lineage that was named.
        named: u32,
        /// The job's.
        current: u32,
    },
    /// Too many jobs.
    #[error("{JOBS_MAX} jobs are declared, which is the limit; remove one")]
    Jobs,
    /// Too many groups.
    #[error(
        "{GROUPS_MAX} groups of the job are in no batch, which is the limit; take batches first"
    )]
    Groups,
    /// A group's size is out of bounds.
    #[error("a group has 1 to {GROUP_SIZE_MAX} members, not {0}")]
    GroupSize(u16),
    /// A batch was asked for before those before it.
    #[error("batch {batch} does not exist; the next is {next}")]
    BatchAhead {
        /// The batch.
        batch: u64,
        /// The next batch.
        next: u64,
    },
    /// A batch was released by a checkpoint.
    #[error("batch {batch} was released by the checkpoint at {checkpoint}")]
    Released {
        /// The batch.
        batch: u64,
        /// The last batch in the checkpoint.
        checkpoint: u64,
    },
    /// A version that is older than the one in service.
    #[error("version {told} is older than {current}; use resume to go back to a checkpoint")]
    VersionFalls {
        /// The version that was told.
        told: u64,
        /// The version in service.
        current: u64,
    },
    /// A version that no batch can have made.
    #[error("version {told} comes after training on batch {told}; the last batch is {last}")]
    VersionAhead {
        /// The version that was told.
        told: u64,
        /// The last batch that was cut.
        last: u64,
    },
}

impl Training {
    /// Checks whether an event may be handled.
    pub(crate) fn check(&self, event: &TrainingEvent) -> Result<(), TrainingError> {
        self.state.check(event)
    }
}

impl State {
    fn check(&self, event: &TrainingEvent) -> Result<(), TrainingError> {
        let name = event.job();
        let job = self.jobs.get(name);
        if let TrainingEvent::JobDeclared { .. } = event {
            let is_full = job.is_none() && self.jobs.len() >= JOBS_MAX;
            return if is_full {
                Err(TrainingError::Jobs)
            } else {
                Ok(())
            };
        }
        let job = job.ok_or_else(|| TrainingError::UnknownJob(name.into()))?;
        match event {
            TrainingEvent::GroupSubmitted { group, size, .. } => {
                if let Some(size) = size.filter(|size| !(1..=GROUP_SIZE_MAX).contains(size)) {
                    return Err(TrainingError::GroupSize(size));
                }
                let is_full = job.groups.len() >= GROUPS_MAX && !job.has_group(group);
                if is_full {
                    Err(TrainingError::Groups)
                } else {
                    Ok(())
                }
            }
            TrainingEvent::BatchRequested { batch, .. } => job.check_request(*batch),
            // An event that comes again after a checkpoint changes nothing.
            TrainingEvent::BatchTrained { batch, .. }
            | TrainingEvent::Checkpointed { batch, .. } => job.check_exists(*batch),
            TrainingEvent::RolledBack { batch, lineage, .. } => {
                job.check_lineage(*lineage)?;
                job.check_checkpoint(*batch)
            }
            TrainingEvent::VersionTold {
                version, lineage, ..
            } => {
                job.check_lineage(*lineage)?;
                job.check_version(*version)
            }
            TrainingEvent::MemberArrived { member, .. } => self.check_arrival(job, member),
            TrainingEvent::MemberLeft { .. } | TrainingEvent::JobRemoved { .. } => Ok(()),
            _ => job.check_member(event),
        }
    }

    fn check_arrival(&self, job: &Job, member: &MemberRef) -> Result<(), TrainingError> {
        let program = &member.program;
        let held = self.held.get(program).map(|held| (&held.job, &held.group));
        let known = self.members.get(program).map(|(job, group)| (job, group));
        if let Some((of, group)) = known.or(held) {
            let is_same = *of == member.job && *group == member.group;
            let other = || TrainingError::OtherGroup {
                program: program.clone(),
                group: group.clone(),
            };
            return if is_same { Ok(()) } else { Err(other()) };
        }
        let group = job.groups.get(&member.group);
        if job.dropped.contains(program) {
            return Err(TrainingError::Dropped(program.clone()));
        }
        if group.is_none() && job.groups.len() >= GROUPS_MAX && !job.has_group(&member.group) {
            return Err(TrainingError::Groups);
        }
        if self.held.len() >= HELD_MAX {
            return Err(TrainingError::Held);
        }
        Ok(())
    }
}

impl Job {
    fn check_exists(&self, batch: u64) -> Result<(), TrainingError> {
        let next = self.next_batch;
        if batch >= next {
            return Err(TrainingError::BatchAhead { batch, next });
        }
        Ok(())
    }

    fn check_request(&self, batch: u64) -> Result<(), TrainingError> {
        let (next, checkpoint) = (self.next_batch, self.checkpoint);
        if batch > next {
            return Err(TrainingError::BatchAhead { batch, next });
        }
        if batch <= checkpoint {
            return Err(TrainingError::Released { batch, checkpoint });
        }
        let is_new = batch == next;
        if is_new && self.batches.len() >= BATCHES_MAX {
            return Err(TrainingError::Batches);
        }
        Ok(())
    }

    fn check_checkpoint(&self, batch: u64) -> Result<(), TrainingError> {
        let checkpoint = self.checkpoint;
        if batch < checkpoint {
            return Err(TrainingError::Released { batch, checkpoint });
        }
        self.check_exists(batch)
    }

    fn check_lineage(&self, named: u32) -> Result<(), TrainingError> {
        let current = self.lineage;
        if named == current {
            return Ok(());
        }
        Err(TrainingError::Lineage { named, current })
    }

    fn check_version(&self, told: u64) -> Result<(), TrainingError> {
        let last = self.next_batch - 1;
        let current = self.version.unwrap_or(self.rolled_back_to);
        if told < current {
            return Err(TrainingError::VersionFalls { told, current });
        }
        if told > last {
            return Err(TrainingError::VersionAhead { told, last });
        }
        Ok(())
    }

    fn check_member(&self, event: &TrainingEvent) -> Result<(), TrainingError> {
        let Some(member) = event.member() else {
            return Ok(());
        };
        let known = self.groups.get(&member.group);
        let group = known.ok_or_else(|| TrainingError::UnknownGroup {
            job: member.job.clone(),
            group: member.group.clone(),
        })?;
        let found = group.members.get(&member.program);
        let found = found.ok_or_else(|| TrainingError::UnknownMember {
            group: member.group.clone(),
            program: member.program.clone(),
        })?;
        match event {
            TrainingEvent::MemberEnded { .. } if found.end.is_some() => {
                Err(TrainingError::Ended(member.program.clone()))
            }
            _ => Ok(()),
        }
    }
}
