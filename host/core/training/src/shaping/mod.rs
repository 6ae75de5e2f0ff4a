//! Shaping: how many members groups sample, which are cut short and which are trained, as a policy
//! decides. Without one, groups sample what they train, and nothing here has an effect.
//!
//! A group is sized before its first member begins. One that lost members by failures is refilled
//! only up to its size: what it samples beyond that is the budget for failures. Members that the
//! policy ends are replaced by none; those that it puts off are, later. Once all members have ended
//! well, as many as the size are selected, and the group is ready.
//!
//! A job has one open question at a time. If no answer comes in time the core's own decides: groups
//! sample what they train, members run on, and those that began first are selected.

mod answers;
mod ask;

use crate::command::TrainingCommand;
use crate::group::Group;
use crate::state::State;
use crate::{LivePrograms, Training};
use ask::ASK_DEADLINE;
use treadle_machine::BoundJobs;
use treadle_model::{AskId, Timestamp};

impl Group {
    /// A member was lost: it is replaced only if fewer than the size would be left.
    pub(crate) fn lost_one(&mut self) {
        self.shape.target = self.shape.target.saturating_sub(1).max(self.size);
        self.shape.selected = false;
        self.forget_shape();
    }

    /// Without members, it is to be decided anew how many it samples.
    pub(crate) fn forget_shape(&mut self) {
        if self.members.is_empty() {
            self.shape.clear();
        }
    }
}

impl State {
    /// The first time at which a job's shaping has to go on.
    pub(crate) fn shaping_due(&self) -> Option<Timestamp> {
        let jobs = self.jobs.values();
        jobs.filter_map(|job| job.shaping.due()).min()
    }
}

impl Training {
    /// Answers for shaping policies that are late, and looks at running members.
    pub(crate) fn keep_shaping(&mut self) {
        if self.shaping_due.is_none_or(|due| due > self.now) {
            return;
        }
        let mut commands = Vec::new();
        for (name, job) in &mut self.state.jobs {
            if job.shaping.due().is_some_and(|due| due <= self.now) {
                commands.extend(job.shaping_expired(name, self.now));
                self.touched.insert(name.clone());
            }
        }
        self.carry(commands);
    }

    /// The next question about a job, if there is one.
    pub(crate) fn ask_shaping(
        &mut self,
        name: &str,
        programs: &dyn LivePrograms,
    ) -> Option<TrainingCommand> {
        let (ask, now) = (AskId(self.state.next_ask), self.now);
        let job = self.state.jobs.get_mut(name)?;
        let question = job.next_question(name, ask, now, programs)?;
        self.state.next_ask += 1;
        Some(TrainingCommand::AskShaping {
            ask,
            question: Box::new(question),
            deadline: now + ASK_DEADLINE,
        })
    }

    /// Policies were bound or unbound: these jobs have a shaping policy.
    pub(crate) fn policies_bound(&mut self, shaped: &BoundJobs) {
        self.shaped = shaped.clone();
        let jobs: Vec<Box<str>> = self.state.jobs.keys().cloned().collect();
        for name in jobs {
            self.shape_job(&name);
        }
    }

    /// A policy shapes a job's groups, or none does any more.
    pub(crate) fn shape_job(&mut self, name: &str) {
        if let Some(job) = self.state.jobs.get_mut(name) {
            job.shaping.by_policy = self.shaped.contains(name);
            self.touched.insert(name.into());
        }
    }
}
