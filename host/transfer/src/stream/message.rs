//! The messages of two nodes.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};

use super::frame;
use crate::tier::{Heard, News, Plan};
use crate::{CopyId, KvCopy, Prefix, TransferError};

/// Most evictions in one answer; the next one has the others.
pub(super) const EVICTIONS_REPORTED_MAX: usize = 1_000;

/// Most copies that a node is ordered to keep: as many as one message holds. With more than that
/// none are dropped.
pub(super) const KEPT_MAX: usize = 10_000;

/// The opening of a connection.
#[derive(Serialize, Deserialize)]
pub(super) struct Opening {
    pub(super) secret: Option<Box<str>>,
    /// Up to where the asking node has received evictions.
    #[serde(default)]
    pub(super) heard: Option<Heard>,
    pub(super) verb: Verb,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub(super) enum Verb {
    /// Send a copy's bytes.
    Fetch { copy: KvCopy },
    /// An engine on your node is about to save a slot. A draft follows, then [`Goodbye`] if the
    /// copy is to stay.
    Save {
        id: CopyId,
        #[serde(default)]
        plan: Plan,
    },
    /// Put a copy where the engines of your node can read it, until this connection ends.
    Stage { copy: KvCopy, name: CopyId },
    /// Forget a copy.
    Drop { id: CopyId },
    /// Forget all copies of a scheduler but these.
    Keep { owner: Box<str>, ids: Vec<CopyId> },
    /// Report evictions.
    Tell,
}

/// The last message of a transfer that went well.
#[derive(Serialize, Deserialize)]
pub(super) struct Goodbye {
    pub(super) done: bool,
}

/// An answer.
#[derive(Serialize, Deserialize)]
pub(super) struct Reply {
    pub(super) said: ReplyBody,
    /// None for a peer that is refused.
    #[serde(default)]
    pub(super) news: Option<News>,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "said", rename_all = "kebab-case")]
pub(super) enum ReplyBody {
    /// It is as was asked.
    Done,
    /// So many bytes follow.
    Bytes { bytes: u64 },
    /// A slot file has become a copy.
    Adopted {
        copy: Box<KvCopy>,
        head: Option<Prefix>,
    },
    /// It can't be.
    Refused { code: Box<str>, message: Box<str> },
}

/// Reads a message.
pub(super) async fn receive<M: DeserializeOwned>(
    node: &str,
    from: &mut (impl AsyncRead + Unpin),
) -> Result<M, TransferError> {
    let payload = frame::read(from)
        .await
        .map_err(|error| TransferError::unreachable(node, error))?;
    serde_json::from_slice(&payload).map_err(|error| TransferError::unreachable(node, error))
}

/// Writes a message.
pub(super) async fn send(
    node: &str,
    to: &mut (impl AsyncWrite + Unpin),
    message: &impl Serialize,
) -> Result<(), TransferError> {
    let payload = serde_json::to_vec(message)
        .map_err(|error| TransferError::internal("a message to a node", error))?;
    frame::write(to, &payload)
        .await
        .map_err(|error| TransferError::unreachable(node, error))
}
