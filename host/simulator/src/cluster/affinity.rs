//! Classes of hardware, and the runs that prefer one (`RollArt` §5.2): the scheduler hears of both as
//! from operators and from training runs. These runs have no trainer, and no batch is cut.

use super::{Cluster, engines};
use treadle_core::Event;
use treadle_core::programs::ProgramEvent;
use treadle_core::training::{
    BATCH_GROUPS_MAX, JobSettings, LAG_MAX, MEMBER_TIMEOUT_MAX_S, MemberRef, TrainingEvent,
};
use treadle_model::WorkerId;

impl Cluster<'_> {
    /// Names the classes of engines, and declares the jobs of runs that prefer one.
    pub(super) fn set_classes(&mut self) {
        let environment = self.environment;
        let each = engines::workers_each(&environment);
        for worker in 0..self.options.engines * each {
            let class = environment.classes.get((worker / each) as usize);
            if let Some(Some(class)) = class {
                self.handle(&Event::Program(ProgramEvent::WorkerClassSet {
                    worker: WorkerId(worker),
                    class: Some(class.clone()),
                }));
            }
        }
        let jobs = environment.preferences.map(|all| &all.jobs);
        for (job, affinity) in jobs.into_iter().flatten() {
            // Nothing waits for a batch or for weights.
            let settings = JobSettings {
                group_size: 1,
                batch_groups: BATCH_GROUPS_MAX,
                lag_max: LAG_MAX,
                pipeline: LAG_MAX,
                rewarded: false,
                member_timeout_s: MEMBER_TIMEOUT_MAX_S,
                affinity: Some(affinity.clone()),
                ..JobSettings::default()
            };
            self.handle(&Event::Training(TrainingEvent::JobDeclared {
                job: job.clone(),
                settings: Box::new(settings),
            }));
        }
    }

    /// Makes a run that begins a member of its job, as the only one of a group.
    pub(super) fn begin_member(&mut self, run: usize, program: &str) {
        let preferences = self.environment.preferences;
        let Some(of) = preferences.and_then(|all| all.members.get(run)?.as_ref()) else {
            return;
        };
        self.handle(&Event::Training(TrainingEvent::GroupSubmitted {
            job: of.job.clone(),
            group: program.into(),
            size: None,
            content: None,
            domain: of.domain.clone(),
        }));
        self.handle(&Event::Training(TrainingEvent::MemberArrived {
            member: MemberRef {
                job: of.job.clone(),
                group: program.into(),
                program: program.into(),
            },
            direct: false,
        }));
    }
}
