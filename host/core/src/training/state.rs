//! The state of the machine of training runs.

use crate::training::command::TrainingCommand;
use crate::training::event::MemberRef;
use crate::training::group::Place;
use crate::training::job::Job;
use crate::training::settings::JobSettings;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A program that may not begin yet.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// Its job.
    pub job: Box<str>,
    /// Its group.
    pub group: Box<str>,
    /// Order of arrival.
    pub number: u64,
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
    pub held: BTreeMap<Box<str>, Held>,
    /// Programs that were held.
    pub arrivals: u64,
}

impl State {
    pub(crate) fn declare(&mut self, name: &str, settings: JobSettings) {
        match self.jobs.get_mut(name) {
            Some(job) => job.declare(settings),
            None => drop(self.jobs.insert(name.into(), Job::new(settings))),
        }
    }

    /// A member of a group begins once; steps of one that has begun go on.
    pub(crate) fn hold(&mut self, member: &MemberRef) {
        if self.members.contains_key(&member.program) {
            return;
        }
        self.arrivals += 1;
        let held = Held {
            job: member.job.clone(),
            group: member.group.clone(),
            number: self.arrivals,
        };
        self.held.insert(member.program.clone(), held);
    }

    /// Begins held programs as long as the job lets any begin, in the order of their groups.
    pub(crate) fn admit(&mut self, name: &str) -> Vec<TrainingCommand> {
        let Some(job) = self.jobs.get_mut(name) else {
            return Vec::new();
        };
        let of_job = self.held.iter().filter(|(_, held)| &*held.job == name);
        let mut waiting: Vec<(Option<Place>, u64, Box<str>)> = of_job
            .map(|(program, held)| {
                let group = job.groups.get(&held.group);
                (group.map(|g| g.place), held.number, program.clone())
            })
            .collect();
        waiting.sort_unstable();
        let mut admitted = Vec::new();
        for (_, _, program) in waiting {
            let Some(held) = self.held.get(&program) else {
                continue;
            };
            let surplus = !job.takes(&held.group);
            if surplus {
                // It is treated like any other program.
                job.account.surplus += 1;
            } else if job.wait().is_some() {
                continue;
            } else {
                job.begin(&held.group, &program);
                let member = (held.job.clone(), held.group.clone());
                self.members.insert(program.clone(), member);
            }
            self.held.remove(&program);
            admitted.push(TrainingCommand::AdmitMember { program, surplus });
        }
        admitted
    }
}
