//! What goes wrong on purpose: calls that come again or must be refused, other settings, removed
//! jobs, and daemons that are killed.

use super::clients::Doing;
use super::model::answered;
use super::plan::SECOND_US;
use super::trainers::Trainer;
use super::{Due, Simulation};
use treadle_core::training::{End, Job, MemberRef, Report, TrainingEvent};
use treadle_dst_outcome::{Checked, broken};

impl Simulation {
    /// A call comes again at once, which changes nothing, or later.
    pub(super) fn call_again(&mut self, event: TrainingEvent) -> Checked {
        if self.draws.percent(40) && !matches!(event, TrainingEvent::MemberArrived { .. }) {
            let delay_us = self.draws.between_low(1_000, 60 * SECOND_US);
            let is_of_job = matches!(
                event,
                TrainingEvent::JobDeclared { .. } | TrainingEvent::JobRemoved { .. }
            );
            if !is_of_job {
                self.after(delay_us, Due::Call(Box::new(event)));
            }
            return Ok(());
        }
        if self.daemon.check(&event).is_err() {
            return Ok(());
        }
        if let TrainingEvent::MemberArrived { member, .. } = &event
            && self.daemon.jobs().begun(member).is_some()
        {
            return Ok(());
        }
        if matches!(event, TrainingEvent::StepCaptured { .. }) {
            // Gateways number what they relay.
            return Ok(());
        }
        let before = self.daemon.jobs().clone();
        self.handle(event.clone().into())?;
        self.counts.count("again");
        if *self.daemon.jobs() == before {
            return Ok(());
        }
        broken("repeated", format!("{event:?} changes something again"))
    }

    pub(super) fn declare_again(&mut self, job: usize, index: usize) -> Checked {
        let settings = self.plan.jobs[job].declared_again[index].settings.clone();
        self.declare(job, &settings)
    }

    /// A job is removed with everything that it has, and begins anew.
    pub(super) fn remove(&mut self, job: usize) -> Checked {
        let name = self.plan.jobs[job].name.clone();
        // The new run has another trainer. Clients of the old one still report.
        self.calendar.retain(|_, due| match due {
            Due::Call(event) => event.job() != &*name || event.member().is_some(),
            _ => true,
        });
        self.call(TrainingEvent::JobRemoved { job: name })?;
        let settings = self.plan.jobs[job].settings.clone();
        self.declare(job, &settings)?;
        let epoch = self.trainers[job].epoch + 1;
        self.trainers[job] = Trainer {
            epoch,
            progress_us: self.now_us,
            ..Trainer::default()
        };
        self.after(0, Due::Trainer { job, epoch });
        Ok(())
    }

    /// The daemon is killed and started again. Clients that waited ask again, steps are lost.
    pub(super) fn restart(&mut self) -> Checked {
        self.counts.count("restarts");
        let restarted = self.daemon.restart()?;
        self.handle(restarted)?;
        let lost: Vec<_> = self.steps.keys().copied().collect();
        for step in lost {
            self.step_over(step, false);
        }
        for client in 0..self.clients.len() {
            if self.clients[client].doing == Doing::Waits {
                let delay_us = self.draws.between_low(1_000, 5 * SECOND_US);
                self.turn(client, Doing::WaitsAgain, delay_us);
            }
        }
        self.check_all_batches()
    }

    /// A call that must be refused.
    pub(super) fn bad_call(&mut self, job: usize) -> Checked {
        let pause_us = self.draws.between(SECOND_US, 10 * SECOND_US);
        self.after(pause_us, Due::BadCall(job));
        let name = self.plan.jobs[job].name.clone();
        let number = self.draws.below(9);
        let Some(found) = self.job(job) else {
            return Ok(());
        };
        let event = of_trainer(number, &name, found).or_else(|| of_client(number, &name, found));
        let Some(event) = event else {
            return Ok(());
        };
        self.counts.count("bad-calls");
        let accepted = self.daemon.check(&event).is_ok();
        answered(&format!("{event:?}"), false, accepted)
    }
}

/// A trainer that is of another lineage, or ahead of its job, or behind it.
fn of_trainer(number: u64, name: &str, found: &Job) -> Option<TrainingEvent> {
    let (job, next) = (Box::from(name), found.next_batch);
    let lineage = found.lineage;
    let told = |lineage: u32, version: u64| TrainingEvent::VersionTold {
        job: name.into(),
        lineage,
        version,
        digest: None,
    };
    let event = match number {
        0 => told(lineage.checked_sub(1)?, found.version?),
        1 => told(lineage, next),
        2 => told(lineage, found.version?.checked_sub(1)?),
        3 => TrainingEvent::BatchRequested {
            job,
            batch: next + 1,
        },
        4 => TrainingEvent::BatchRequested {
            job,
            batch: Some(found.checkpoint).filter(|batch| *batch > 0)?,
        },
        5 => TrainingEvent::RolledBack {
            job,
            lineage,
            batch: found.checkpoint.checked_sub(1)?,
        },
        6 => TrainingEvent::BatchTrained {
            job,
            lineage: lineage + 1,
            batch: next - 1,
        },
        _ => return None,
    };
    Some(event)
}

/// A client whose member has ended otherwise, or is one of another group, or of none.
fn of_client(number: u64, name: &str, found: &Job) -> Option<TrainingEvent> {
    let of = |group: &str, program: &str| MemberRef {
        job: name.into(),
        group: group.into(),
        program: program.into(),
    };
    let mut groups = found.groups.iter();
    let (key, program, member) = groups.find_map(|(key, group)| {
        let (program, member) = group.members.iter().find(|(_, m)| m.end.is_some())?;
        Some((key, program, member))
    })?;
    let event = match number {
        7 => {
            let other = if member.end == Some(End::Completed) {
                End::Truncated
            } else {
                End::Completed
            };
            TrainingEvent::MemberEnded {
                member: of(key, program),
                report: Report::of(other, 1, 1),
            }
        }
        8 => TrainingEvent::MemberArrived {
            member: of("another", program),
            direct: true,
        },
        _ => TrainingEvent::RewardFailed {
            member: of(key, "stranger"),
            cause: "it is no member".into(),
        },
    };
    Some(event)
}
