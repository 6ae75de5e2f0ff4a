//! What is refused before it becomes an event.

use crate::error::{BATCHES_MAX, DOMAIN_BYTES_MAX, GROUPS_MAX, HELD_MAX, JOBS_MAX, TrainingError};
use crate::event::{MemberRef, TrainingEvent};
use crate::job::Job;
use crate::state::State;
use crate::{GROUP_SIZE_MAX, Training};

impl Training {
    /// Checks whether an event may be handled.
    pub fn check(&self, event: &TrainingEvent) -> Result<(), TrainingError> {
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
            TrainingEvent::GroupSubmitted {
                group,
                size,
                domain,
                ..
            } => {
                if let Some(size) = size.filter(|size| !(1..=GROUP_SIZE_MAX).contains(size)) {
                    return Err(TrainingError::GroupSize(size));
                }
                let length = domain.as_ref().map(|domain| domain.len());
                if let Some(length) = length.filter(|n| !(1..=DOMAIN_BYTES_MAX).contains(n)) {
                    return Err(TrainingError::Domain(length));
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
            TrainingEvent::BatchTrained { batch, lineage, .. }
            | TrainingEvent::Checkpointed { batch, lineage, .. } => {
                job.check_lineage(*lineage)?;
                job.check_exists(*batch)
            }
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
            TrainingEvent::MemberLeft { .. }
            | TrainingEvent::MemberDeleted { .. }
            | TrainingEvent::ShapingAnswered { .. }
            | TrainingEvent::MemberDropped { .. }
            | TrainingEvent::BatchCut { .. }
            | TrainingEvent::VersionServed { .. }
            | TrainingEvent::JobRemoved { .. } => Ok(()),
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
            TrainingEvent::MemberEnded { report, .. } if !found.admits(report) => {
                Err(TrainingError::Ended(member.program.clone()))
            }
            // What it sampled after that is not trained.
            TrainingEvent::StepCaptured { .. } | TrainingEvent::CaptureFailed { .. }
                if found.sample.is_some() =>
            {
                Err(TrainingError::Ended(member.program.clone()))
            }
            _ => Ok(()),
        }
    }
}
