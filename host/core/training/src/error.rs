//! Why something can't happen to a training run, and the limits on runs.

use crate::settings::GROUP_SIZE_MAX;
use thiserror::Error;

/// Longest name of a domain.
pub const DOMAIN_BYTES_MAX: usize = 64;
/// Declared jobs.
pub(crate) const JOBS_MAX: usize = 1_024;
/// Groups of a job that are in no batch.
pub(crate) const GROUPS_MAX: usize = 1_000_000;
/// Programs of all jobs that may not begin yet.
pub(crate) const HELD_MAX: usize = 100_000;
/// Batches of a job since its last checkpoint.
pub(crate) const BATCHES_MAX: usize = 10_000;

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
    #[error("program `{0}` has ended already, with another report; a member ends once")]
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
    /// The name of a group's domain is out of bounds.
    #[error("the name of a domain has 1 to {DOMAIN_BYTES_MAX} bytes, not {0}")]
    Domain(usize),
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
    /// treadle loads the job's weights, so it knows the version.
    #[error("treadle loads the weights of job `{0}`; publish the version instead")]
    Loaded(Box<str>),
    /// The job's engines are being updated.
    #[error("the engines of job `{0}` load a version; wait until it serves, or has failed")]
    Loading(Box<str>),
    /// A version that no batch can have made.
    #[error("version {told} comes after training on batch {told}; the last batch is {last}")]
    VersionAhead {
        /// The version that was told.
        told: u64,
        /// The last batch that was cut.
        last: u64,
    },
}
