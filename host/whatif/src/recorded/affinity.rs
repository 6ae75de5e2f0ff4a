//! Which class of hardware recorded programs preferred, as their training runs said it.

use std::collections::BTreeMap;
use treadle_core::training::{Affinity, MemberRef, TrainingEvent};
use treadle_simulator::cluster::{MemberOf, Preferences};

/// Members of training runs, with what decides which class they prefer.
#[derive(Default)]
pub(super) struct MemberTracker {
    /// The last affinity that each job declared.
    affinities: BTreeMap<Box<str>, Affinity>,
    /// Domain of each group that has one, by job.
    domains: BTreeMap<Box<str>, BTreeMap<Box<str>, Box<str>>>,
    /// Where each program is a member, until it is released.
    members: BTreeMap<Box<str>, MemberRef>,
}

impl MemberTracker {
    /// Processes an event of a training run.
    pub(super) fn take(&mut self, event: &TrainingEvent) {
        match event {
            TrainingEvent::JobDeclared { job, settings } => {
                if let Some(affinity) = &settings.affinity {
                    self.affinities.insert(job.clone(), affinity.clone());
                }
            }
            TrainingEvent::GroupSubmitted {
                job,
                group,
                domain: Some(domain),
                ..
            } => {
                let groups = self.domains.entry(job.clone()).or_default();
                // A key that the job knows already changes nothing.
                let known = groups.entry(group.clone());
                known.or_insert_with(|| domain.clone());
            }
            TrainingEvent::MemberArrived { member, .. } => {
                self.members.insert(member.program.clone(), member.clone());
            }
            TrainingEvent::JobRemoved { job } => {
                self.domains.remove(job);
            }
            _ => {}
        }
    }

    /// Processes the end of a program: if its key is used again, it belongs to another one.
    pub(super) fn released(&mut self, program: &str) {
        self.members.remove(program);
    }

    /// The training job that a program is a member of.
    pub(super) fn of(&self, program: &str) -> Option<MemberOf> {
        let member = self.members.get(program)?;
        let groups = self.domains.get(&member.job);
        Some(MemberOf {
            job: member.job.clone(),
            domain: groups.and_then(|groups| groups.get(&member.group)).cloned(),
        })
    }

    /// What runs prefer that are members of these jobs.
    pub(super) fn preferences(&self, mut members: Vec<Option<MemberOf>>) -> Preferences {
        let mut jobs = BTreeMap::new();
        for member in &mut members {
            let affinity = member
                .as_ref()
                .and_then(|of| self.affinities.get_key_value(&of.job));
            match affinity {
                Some((job, affinity)) => drop(jobs.insert(job.clone(), affinity.clone())),
                None => *member = None,
            }
        }
        Preferences { jobs, members }
    }
}
