//! Programs, their steps, and the workers that they ran on.

use async_trait::async_trait;

use crate::{
    LengthRow, ListedPage, ListedStep, ProgramPage, ProgramRow, StepPage, StepRow, StoreError,
    WorkerRow,
};

/// Programs, their steps, and the workers that they ran on.
/// [`Journal::append`](crate::Journal::append) writes them,
/// [`Journal::prune`](crate::Journal::prune) removes programs with their steps.
#[async_trait]
pub trait Programs: Send + Sync {
    /// One program; `None` if it is unknown or was pruned.
    async fn program(&self, program: &str) -> Result<Option<ProgramRow>, StoreError>;

    /// Programs that match.
    async fn programs(&self, page: &ProgramPage) -> Result<Vec<ProgramRow>, StoreError>;

    /// Lengths of the newest ended programs of a job, newest first, without those that had no step.
    async fn lengths(&self, job: &str, limit: u32) -> Result<Vec<LengthRow>, StoreError>;

    /// Steps of one program, by rising number.
    async fn steps(&self, program: &str, page: &StepPage) -> Result<Vec<StepRow>, StoreError>;

    /// Ended steps, of one program or of all, together with data of their programs.
    async fn listed_steps(&self, page: &ListedPage) -> Result<Vec<ListedStep>, StoreError>;

    /// When the last of the first `rows` steps that a query for this page scans ended, whether they
    /// match or not. `None` if there are fewer, or if all rows read match. If steps are sorted by
    /// duration, the newest ones are scanned.
    async fn steps_reach(&self, page: &ListedPage, rows: u32) -> Result<Option<u64>, StoreError>;

    /// All workers, by name.
    async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError>;
}
