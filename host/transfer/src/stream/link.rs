//! The client side of connections to other nodes.

use std::collections::BTreeSet;
use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use treadle_trust::Stream;
use xxhash_rust::xxh3::Xxh3;

use super::message::{Goodbye, KEPT_MAX, Opening, Reply, ReplyBody, Verb, receive, send};
use crate::client::within;
use crate::copy::Digest;
use crate::tier::{Draft, Evictions, Plan};
use crate::{CopyId, KvCopy, Limits, Prefix, TransferError};

/// Bytes read at once.
const PIECE_BYTES: usize = 256 << 10;

/// The client for other nodes.
#[derive(Clone)]
pub(crate) struct Link {
    secret: Option<Box<str>>,
    limits: Limits,
    /// Receives reported evictions.
    evictions: Evictions,
}

/// A file for an engine of another node to write.
pub(crate) struct RemoteSaving {
    connection: Connection,
    id: CopyId,
}

/// A copy that was made at another node; it is removed with the connection unless it is kept.
pub(crate) struct RemoteUnkept {
    connection: Connection,
    pub(crate) copy: KvCopy,
    pub(crate) head: Option<Prefix>,
}

/// A copy where an engine of another node can read it, while this is held.
pub(crate) struct RemoteStaged {
    _connection: Connection,
}

struct Connection {
    node: Box<str>,
    stream: Stream,
    limits: Box<Limits>,
    evictions: Evictions,
}

impl Link {
    pub(crate) fn new(secret: Option<Box<str>>, limits: Limits, evictions: Evictions) -> Self {
        Self {
            secret,
            limits,
            evictions,
        }
    }

    /// Prepares another node for a file from its engine.
    pub(crate) async fn save(
        &self,
        node: &str,
        id: CopyId,
        plan: Plan,
    ) -> Result<RemoteSaving, TransferError> {
        let mut connection = self.open(node, Verb::Save { id, plan }).await?;
        connection.done().await?;
        Ok(RemoteSaving { connection, id })
    }

    /// Makes another node put a copy where its engines can read it.
    pub(crate) async fn stage(
        &self,
        node: &str,
        copy: &KvCopy,
        name: CopyId,
    ) -> Result<RemoteStaged, TransferError> {
        let copy = copy.clone();
        let mut connection = self.open(node, Verb::Stage { copy, name }).await?;
        connection.done().await?;
        Ok(RemoteStaged {
            _connection: connection,
        })
    }

    /// Makes another node drop a copy.
    pub(crate) async fn remove(&self, node: &str, id: CopyId) -> Result<(), TransferError> {
        self.open(node, Verb::Drop { id }).await?.done().await
    }

    /// Makes another node drop a scheduler's copies except these.
    pub(crate) async fn keep_only(
        &self,
        node: &str,
        owner: &str,
        known: &BTreeSet<CopyId>,
    ) -> Result<(), TransferError> {
        if known.len() > KEPT_MAX {
            let why = format!("{} copies do not fit into one message", known.len());
            return Err(TransferError::internal("the copies to keep", why));
        }
        let verb = Verb::Keep {
            owner: owner.into(),
            ids: known.iter().copied().collect(),
        };
        self.open(node, verb).await?.done().await
    }

    /// Reads another node's evictions.
    pub(crate) async fn hear(&self, node: &str) -> Result<(), TransferError> {
        self.open(node, Verb::Tell).await?.done().await
    }

    /// Writes the bytes of another node's copy to a file. After an error, the caller removes the
    /// file, even if it appears later.
    pub(crate) async fn fetch(
        &self,
        node: &str,
        copy: &KvCopy,
        path: &Path,
    ) -> Result<(), TransferError> {
        let verb = Verb::Fetch { copy: copy.clone() };
        let mut connection = self.open(node, verb).await?;
        match connection.answer().await? {
            ReplyBody::Bytes { bytes } if bytes == copy.bytes => {}
            _ => {
                return Err(TransferError::unreachable(
                    node,
                    "it sent an unexpected reply",
                ));
            }
        }
        let file = tokio::fs::File::create_new(path).await;
        let file = file.map_err(TransferError::file("creating", path))?;
        connection.receive_bytes(copy, file, path).await
    }

    async fn open(&self, node: &str, verb: Verb) -> Result<Connection, TransferError> {
        let stream = within("connecting to a node", self.limits.connect, async {
            let unreachable = |error| TransferError::unreachable(node, error);
            let stream = TcpStream::connect(node).await.map_err(unreachable)?;
            let _ = stream.set_nodelay(true);
            let Some(tls) = &self.limits.tls else {
                return Ok(stream.into());
            };
            let host = node.rsplit_once(':').map_or(node, |(host, _)| host);
            let host = host.trim_start_matches('[').trim_end_matches(']');
            tls.trust.connect(host, stream).await.map_err(unreachable)
        });
        let mut connection = Connection {
            node: node.into(),
            stream: stream.await?,
            limits: Box::new(self.limits.clone()),
            evictions: self.evictions.clone(),
        };
        let opening = Opening {
            secret: self.secret.clone(),
            heard: self.evictions.heard_of(node),
            verb,
        };
        send(node, &mut connection.stream, &opening).await?;
        Ok(connection)
    }
}

impl Connection {
    async fn answer(&mut self) -> Result<ReplyBody, TransferError> {
        let reply: Reply = receive(&self.node, &mut self.stream).await?;
        if let Some(news) = &reply.news {
            self.evictions.hear(&self.node, news);
        }
        match reply.said {
            ReplyBody::Refused { code, message } => Err(TransferError::Node {
                node: self.node.clone(),
                code,
                message,
            }),
            said => Ok(said),
        }
    }

    async fn done(&mut self) -> Result<(), TransferError> {
        match self.answer().await? {
            ReplyBody::Done => Ok(()),
            _ => Err(TransferError::unreachable(
                &self.node,
                "it sent an unexpected reply",
            )),
        }
    }

    async fn receive_bytes(
        &mut self,
        copy: &KvCopy,
        mut file: tokio::fs::File,
        path: &Path,
    ) -> Result<(), TransferError> {
        let mut hasher = Xxh3::new();
        let mut piece = vec![0; PIECE_BYTES];
        let mut left = copy.bytes;
        while left > 0 {
            let wanted = usize::try_from(left).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
            let (node, stream) = (&*self.node, &mut self.stream);
            let read = within(
                "waiting for the next piece of a copy",
                self.limits.idle,
                async {
                    let read = stream.read(&mut piece[..wanted]).await;
                    read.map_err(|error| TransferError::unreachable(node, error))
                },
            );
            let read = read.await?;
            if read == 0 {
                let why = format!("the stream ended {left} bytes too early");
                return Err(TransferError::unreachable(&self.node, why));
            }
            hasher.update(&piece[..read]);
            file.write_all(&piece[..read])
                .await
                .map_err(TransferError::file("writing", path))?;
            left -= read as u64;
        }
        file.flush()
            .await
            .map_err(TransferError::file("writing", path))?;
        if copy.checksum.as_deref() != Some(&*Digest::of(&hasher).text()) {
            return Err(TransferError::damaged(
                copy.id,
                "the received bytes have another checksum",
            ));
        }
        Ok(())
    }
}

impl RemoteSaving {
    pub(crate) fn id(&self) -> CopyId {
        self.id
    }

    pub(crate) async fn adopt(mut self, draft: Draft) -> Result<RemoteUnkept, TransferError> {
        send(&self.connection.node, &mut self.connection.stream, &draft).await?;
        match self.connection.answer().await? {
            ReplyBody::Adopted { copy, head } => Ok(RemoteUnkept {
                connection: self.connection,
                copy: *copy,
                head,
            }),
            _ => Err(TransferError::unreachable(
                &self.connection.node,
                "it sent an unexpected reply",
            )),
        }
    }
}

impl RemoteUnkept {
    pub(crate) async fn keep(mut self) -> Result<KvCopy, TransferError> {
        let node = &self.connection.node;
        send(node, &mut self.connection.stream, &Goodbye { done: true }).await?;
        self.connection.done().await?;
        Ok(self.copy)
    }
}
