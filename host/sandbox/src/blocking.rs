//! Runs work to completion, and blocking work.

use std::io;

use crate::error::SandboxError;

/// Runs work to completion, even if the caller stops waiting.
pub(crate) async fn whole<T: Send + 'static>(
    work: impl Future<Output = Result<T, SandboxError>> + Send + 'static,
) -> Result<T, SandboxError> {
    let failed = |error| SandboxError::System("changing the sandbox", io::Error::other(error));
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|error| Err(failed(error)))
}

/// Runs blocking work on a blocking thread.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(io::Error::other(error)))
}
