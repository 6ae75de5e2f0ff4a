//! Which weights sample a step that is captured.

use super::DriverHandle;
use crate::recording::DriverStopped;
use treadle_core::CapturedVersion;
use treadle_core::training::MemberRef;
use treadle_model::WorkerId;

impl DriverHandle {
    /// What a worker has of the job of a member whose steps are captured; `None` if they are not. It
    /// need not be on record yet.
    ///
    /// # Errors
    /// The driver has stopped.
    pub async fn captured_version(
        &self,
        member: MemberRef,
        worker: Option<WorkerId>,
    ) -> Result<Option<CapturedVersion>, DriverStopped> {
        self.read(move |view| {
            let is_captured = view.core.training().captures(&member);
            let read = || view.core.captured_version(&member.job, worker);
            is_captured.then(read).flatten()
        })
        .await
    }

    /// What a worker has of a job; `None` for a job that is not declared any more.
    ///
    /// # Errors
    /// The driver has stopped.
    pub async fn served_version(
        &self,
        job: Box<str>,
        worker: WorkerId,
    ) -> Result<Option<CapturedVersion>, DriverStopped> {
        self.read(move |view| view.core.captured_version(&job, Some(worker)))
            .await
    }
}
