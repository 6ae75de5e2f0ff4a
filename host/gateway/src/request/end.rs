//! How a relayed body ends after its last bytes.

use bytes::Bytes;
use hyper::body::Frame;
use std::io;
use std::task::{Context, Poll};

/// How it ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum End {
    /// Properly.
    Orderly,
    /// With a broken connection, once earlier bytes are flushed.
    BrokenAfterFlush,
    /// With a broken connection.
    Broken,
}

impl End {
    /// Polls the end; nothing follows it.
    pub(super) fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self {
            Self::Orderly => Poll::Ready(None),
            Self::BrokenAfterFlush => {
                // An error would drop what the server has not written yet; returning pending lets
                // it write first.
                *self = Self::Broken;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Self::Broken => {
                *self = Self::Orderly;
                let broken = io::Error::other("the engine's answer broke off");
                Poll::Ready(Some(Err(broken)))
            }
        }
    }
}
