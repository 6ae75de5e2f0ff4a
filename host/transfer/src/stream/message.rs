//! The messages between nodes.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};

use super::frame;
use crate::tier::{EvictionPosition, News, Plan};
use crate::{CopyId, KvCopy, Prefix, TransferError};

/// Most evictions in one reply; the next one contains the rest.
pub(super) const EVICTIONS_REPORTED_MAX: usize = 1_000;

/// Most copies in a `Keep` message. If there are more, none are dropped.
pub(super) const KEPT_MAX: usize = 10_000;

/// The first message of a connection.
#[derive(Serialize, Deserialize)]
pub(super) struct Opening {
    pub(super) secret: Option<Box<str>>,
    /// The position up to which the client has received evictions.
    #[serde(default)]
    pub(super) heard: Option<EvictionPosition>,
    pub(super) verb: Verb,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub(super) enum Verb {
    /// Send a copy's bytes.
    Fetch { copy: KvCopy },
    /// An engine on the receiving node is about to save a slot. A draft follows, then [`Goodbye`]
    /// if the copy is to be kept.
    Save {
        id: CopyId,
        #[serde(default)]
        plan: Plan,
    },
    /// Put a copy where the engines of the receiving node can read it, until this connection ends.
    Stage { copy: KvCopy, name: CopyId },
    /// Drop a copy.
    Drop { id: CopyId },
    /// Drop all copies of a scheduler except these.
    Keep { owner: Box<str>, ids: Vec<CopyId> },
    /// Report evictions.
    Tell,
}

/// The last message of a successful transfer.
#[derive(Serialize, Deserialize)]
pub(super) struct Goodbye {
    pub(super) done: bool,
}

/// A reply.
#[derive(Serialize, Deserialize)]
pub(super) struct Reply {
    pub(super) said: ReplyBody,
    /// Absent for a refused peer.
    #[serde(default)]
    pub(super) news: Option<News>,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "said", rename_all = "kebab-case")]
pub(super) enum ReplyBody {
    /// The operation is done.
    Done,
    /// `bytes` bytes follow.
    Bytes { bytes: u64 },
    /// A slot file has become a copy.
    Adopted {
        copy: Box<KvCopy>,
        head: Option<Prefix>,
    },
    /// The request is refused.
    Refused { code: Box<str>, message: Box<str> },
}

/// Receives a message.
pub(super) async fn receive<M: DeserializeOwned>(
    node: &str,
    from: &mut (impl AsyncRead + Unpin),
) -> Result<M, TransferError> {
    let payload = frame::read(from)
        .await
        .map_err(|error| TransferError::unreachable(node, error))?;
    serde_json::from_slice(&payload).map_err(|error| TransferError::unreachable(node, error))
}

/// Sends a message.
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
