//! What happened to training runs.

use crate::group::{End, Report, Reward};
use crate::settings::JobSettings;
use crate::shape::ShapingAnswer;
use serde::{Deserialize, Serialize};
use treadle_machine::kinds;
use treadle_model::{AskId, PolicyRef, StepId};

/// A member of a group, by its program.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct MemberRef {
    /// The job.
    pub job: Box<str>,
    /// Key of the group.
    pub group: Box<str>,
    /// Key of the program.
    pub program: Box<str>,
}

/// Something that happened to a training run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum TrainingEvent {
    /// A job was declared; settings of an earlier declaration are replaced.
    JobDeclared {
        /// The job.
        job: Box<str>,
        /// Its settings.
        settings: Box<JobSettings>,
    },
    /// A prompt is to be sampled. A key that the job knows already changes nothing.
    GroupSubmitted {
        /// The job.
        job: Box<str>,
        /// The client's key for the group.
        group: Box<str>,
        /// Its size, if it differs from the job's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<u16>,
        /// Digest of what the client stored with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content: Option<Box<str>>,
        /// What its prompt is from, such as `math`: the account is kept by it too.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        domain: Option<Box<str>>,
    },
    /// A program that names a group wants to begin: its first step arrived, or its client asked. It
    /// waits until it may.
    MemberArrived {
        /// The member.
        member: MemberRef,
        /// Its client samples it and reports its end, with or without steps of the program.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        direct: bool,
    },
    /// The client of a program that waits left.
    MemberLeft {
        /// The member.
        member: MemberRef,
    },
    /// A client said how a member ended. What it stored with that is durable.
    MemberEnded {
        /// The member.
        member: MemberRef,
        /// What it said.
        #[serde(flatten)]
        report: Report,
    },
    /// The tokens of a member's step were captured. They are durable.
    StepCaptured {
        /// The member.
        member: MemberRef,
        /// The step.
        step: StepId,
        /// Digest of what is stored of it.
        digest: Box<str>,
        /// Tokens that it sampled.
        tokens: u64,
    },
    /// The tokens of a step could not be captured, or no sample made of those that were: the member
    /// is not trained, unless its client reports its sample.
    CaptureFailed {
        /// The member.
        member: MemberRef,
        /// A short cause, in words.
        cause: Box<str>,
    },
    /// A member has its reward; a later one replaces it until the group is in a batch.
    RewardGiven {
        /// The member.
        member: MemberRef,
        /// The reward.
        reward: Reward,
    },
    /// No reward could be computed: the member is replaced.
    RewardFailed {
        /// The member.
        member: MemberRef,
        /// A short cause, in words.
        cause: Box<str>,
    },
    /// What is stored of a member is deleted: it is not trained, or, in a batch already, has no
    /// sample any more.
    MemberDeleted {
        /// The member.
        member: MemberRef,
    },
    /// The trainer waits for a batch.
    BatchRequested {
        /// The job.
        job: Box<str>,
        /// Number of the batch.
        batch: u64,
    },
    /// The trainer has trained on a batch.
    BatchTrained {
        /// The job.
        job: Box<str>,
        /// The lineage that the trainer is in.
        #[serde(default)]
        lineage: u32,
        /// Number of the batch.
        batch: u64,
    },
    /// The engines of a job have these weights.
    VersionTold {
        /// The job.
        job: Box<str>,
        /// The lineage that the trainer is in.
        lineage: u32,
        /// The version: how many batches were trained.
        version: u64,
        /// Digest of the weights, if the trainer gave one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<Box<str>>,
    },
    /// The trainer saved its state: batches up to this one are not asked for again.
    Checkpointed {
        /// The job.
        job: Box<str>,
        /// The lineage that the trainer is in.
        #[serde(default)]
        lineage: u32,
        /// The last batch in the checkpoint.
        batch: u64,
    },
    /// A shaping policy decided about groups, or the core did without one.
    ShapingAnswered {
        /// The job.
        job: Box<str>,
        /// The question.
        ask: AskId,
        /// The policy.
        policy: PolicyRef,
        /// What it decided.
        answer: ShapingAnswer,
    },
    /// A member is not trained: it was lost, or the core ended it or left it out. The core says so
    /// itself; nothing changes with it.
    MemberDropped {
        /// The member.
        member: MemberRef,
        /// How it was lost.
        end: End,
        /// A short cause, in words, if one was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<Box<str>>,
    },
    /// A batch was cut. The core says so itself; nothing changes with it.
    BatchCut {
        /// The job.
        job: Box<str>,
        /// Number of the batch.
        batch: u64,
    },
    /// Engines serve a version of the weights, which treadle or the trainer had them load. The core
    /// says so itself; nothing changes with it.
    VersionServed {
        /// The job.
        job: Box<str>,
        /// The lineage of versions.
        lineage: u32,
        /// The version.
        version: u64,
    },
    /// A job was removed, with everything that it has.
    JobRemoved {
        /// The job.
        job: Box<str>,
    },
    /// The trainer went back to a checkpoint: later batches come again as they were, and later
    /// versions are abandoned.
    RolledBack {
        /// The job.
        job: Box<str>,
        /// The lineage that ends with this.
        lineage: u32,
        /// The last batch in the checkpoint.
        batch: u64,
    },
}

kinds! {
    TrainingEvent {
        JobDeclared = "job_declared",
        GroupSubmitted = "group_submitted",
        MemberArrived = "member_arrived",
        MemberLeft = "member_left",
        MemberEnded = "member_ended",
        StepCaptured = "step_captured",
        CaptureFailed = "capture_failed",
        RewardGiven = "reward_given",
        RewardFailed = "reward_failed",
        MemberDeleted = "member_deleted",
        BatchRequested = "batch_requested",
        BatchTrained = "batch_trained",
        VersionTold = "version_told",
        Checkpointed = "checkpointed",
        ShapingAnswered = "shaping_answered",
        MemberDropped = "member_dropped",
        BatchCut = "batch_cut",
        VersionServed = "version_served",
        JobRemoved = "job_removed",
        RolledBack = "rolled_back",
    }
}

impl TrainingEvent {
    /// The job that it happened to.
    pub fn job(&self) -> &str {
        match self {
            Self::JobDeclared { job, .. }
            | Self::GroupSubmitted { job, .. }
            | Self::BatchRequested { job, .. }
            | Self::BatchTrained { job, .. }
            | Self::VersionTold { job, .. }
            | Self::Checkpointed { job, .. }
            | Self::ShapingAnswered { job, .. }
            | Self::BatchCut { job, .. }
            | Self::VersionServed { job, .. }
            | Self::JobRemoved { job }
            | Self::RolledBack { job, .. } => job,
            Self::MemberArrived { member, .. }
            | Self::MemberLeft { member }
            | Self::MemberEnded { member, .. }
            | Self::StepCaptured { member, .. }
            | Self::CaptureFailed { member, .. }
            | Self::RewardGiven { member, .. }
            | Self::RewardFailed { member, .. }
            | Self::MemberDeleted { member }
            | Self::MemberDropped { member, .. } => &member.job,
        }
    }

    /// Whether it only says what an earlier event led to.
    pub fn is_outcome(&self) -> bool {
        matches!(
            self,
            Self::MemberDropped { .. } | Self::BatchCut { .. } | Self::VersionServed { .. }
        )
    }

    /// The member of a group that it happened to, if to one.
    pub fn member(&self) -> Option<&MemberRef> {
        match self {
            Self::MemberArrived { member, .. }
            | Self::MemberLeft { member }
            | Self::MemberEnded { member, .. }
            | Self::StepCaptured { member, .. }
            | Self::CaptureFailed { member, .. }
            | Self::RewardGiven { member, .. }
            | Self::RewardFailed { member, .. }
            | Self::MemberDeleted { member }
            | Self::MemberDropped { member, .. } => Some(member),
            _ => None,
        }
    }
}
