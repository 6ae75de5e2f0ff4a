//! What training runs ask of their environment.

use crate::event::{MemberRef, TrainingEvent};
use crate::lost::Lost;
use crate::shape::ShapingQuestion;
use treadle_model::{AskId, Timestamp};

/// A group in a batch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServedGroup {
    /// Its key.
    pub group: Box<str>,
    /// Keys of its programs.
    pub programs: Vec<Box<str>>,
}

/// A command for a training run.
#[derive(Clone, Debug, PartialEq)]
pub enum TrainingCommand {
    /// Ask the shaping policy of a job. The answer is [`ShapingAnswered`], which the core replaces
    /// by its own if it has not come by the deadline.
    ///
    /// [`ShapingAnswered`]: crate::TrainingEvent::ShapingAnswered
    AskShaping {
        /// Number of the question.
        ask: AskId,
        /// The question.
        question: Box<ShapingQuestion>,
        /// When the core answers itself.
        deadline: Timestamp,
    },
    /// A batch was cut: it is put on record, and whoever waits for it is answered.
    ServeBatch {
        /// The job.
        job: Box<str>,
        /// Number of the batch.
        batch: u64,
        /// Its groups.
        groups: Vec<ServedGroup>,
    },
    /// A program that waited may begin.
    AdmitMember {
        /// Key of the program.
        program: Box<str>,
        /// Its group had all its members: it is not trained.
        surplus: bool,
    },
    /// A member ended well and has no reward, and its job computes rewards.
    ScoreMember {
        /// The member.
        member: MemberRef,
    },
    /// A member ended well, and its sample is to be assembled from its captured steps.
    AssembleMember {
        /// The member.
        member: MemberRef,
    },
    /// A member will not be trained: what was stored of it can go, and if it still runs, its client
    /// is told and further steps are refused.
    DropMember {
        /// Key of the program.
        program: Box<str>,
        /// Whether it still runs.
        running: bool,
        /// How it was lost; `None` if its job was removed.
        lost: Option<Box<Lost>>,
    },
    /// Put on record what the present event led to.
    Record {
        /// What follows in the journal.
        outcome: Box<TrainingEvent>,
    },
}

impl TrainingCommand {
    /// Puts on record that a member of a job was lost.
    pub(crate) fn record_lost(job: Box<str>, lost: &Lost) -> Self {
        let member = MemberRef {
            job,
            group: lost.group.clone(),
            program: lost.program.clone(),
        };
        let dropped = TrainingEvent::MemberDropped {
            member,
            end: lost.end,
            cause: lost.cause.clone(),
        };
        dropped.into()
    }
}

impl From<TrainingEvent> for TrainingCommand {
    /// Puts an outcome on record.
    fn from(outcome: TrainingEvent) -> Self {
        let outcome = Box::new(outcome);
        Self::Record { outcome }
    }
}
