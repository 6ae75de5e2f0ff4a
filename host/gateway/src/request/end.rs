//! How a body that is passed on ends once its last bytes are handed over.

use bytes::Bytes;
use hyper::body::Frame;
use std::io;
use std::task::{Context, Poll};

/// How it ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum End {
    /// In order.
    Orderly,
    /// With a broken connection, as soon as what came before is on its way.
    BrokenAfterFlush,
    /// With a broken connection.
    Broken,
}

impl End {
    /// The end; nothing comes after it.
    pub(super) fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self {
            Self::Orderly => Poll::Ready(None),
            Self::BrokenAfterFlush => {
                // An error drops what the server has not written yet; it
                // writes when it is made to wait.
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
