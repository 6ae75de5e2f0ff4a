//! The answering side: a tier's server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

use super::Link;
use super::message::{EVICTIONS_TOLD_MAX, Goodbye, Opening, Reply, Said, Verb, receive, send};
use crate::client::within;
use crate::tier::{Draft, Tier};
use crate::{CopyId, KvCopy, Limits, TransferError};

/// Bytes of a copy that are sent at once.
const PIECE_BYTES: usize = 256 << 10;
/// A pause after a connection could not be taken, as when there are no file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves a tier to other nodes. Dropping it ends all of its connections.
pub struct TierServer {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl TierServer {
    /// Listens. Who does not know `secret` is refused, if there is one.
    pub async fn bind(
        address: &str,
        tier: Tier,
        secret: Option<Box<str>>,
        limits: Limits,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let link = Link::new(secret.clone(), limits.clone(), tier.evictions().clone());
        let served = Arc::new(Served {
            tier,
            secret,
            limits,
            link,
        });
        Ok(Self {
            address,
            task: tokio::spawn(accept(listener, served)),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for TierServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Served {
    tier: Tier,
    secret: Option<Box<str>>,
    limits: Limits,
    link: Link,
}

async fn accept(listener: TcpListener, served: Arc<Served>) {
    let places = Arc::new(Semaphore::new(served.limits.connections_max));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            tracing::warn!(%peer, "a transfer was turned away: too many connections");
            continue;
        };
        let served = Arc::clone(&served);
        connections.spawn(async move {
            if let Err(error) = served.serve(stream, &peer.to_string()).await {
                tracing::debug!(%peer, %error, "a transfer with another node ended early");
            }
            drop(place);
        });
    }
}

impl Served {
    async fn serve(&self, mut stream: TcpStream, peer: &str) -> Result<(), TransferError> {
        let _ = stream.set_nodelay(true);
        let opening = within("the first words of a node", self.limits.idle, async {
            receive::<Opening>(peer, &mut stream).await
        });
        let opening = opening.await?;
        let outcome = if self.is_known(opening.secret.as_deref()) {
            self.answer(&mut stream, peer, opening.verb).await
        } else {
            Err(TransferError::Refused {
                url: self.tier.node().into(),
                status: 401,
                message: "the secret of the transfers is another one here".into(),
            })
        };
        if let Err(error) = &outcome {
            let said = Said::Refused {
                code: error.code().into(),
                message: error.to_string().into(),
            };
            // It may be gone; then it knows.
            let _ = self.reply(&mut stream, peer, said).await;
        }
        outcome
    }

    /// Compares in the same time for every wrong secret of one length.
    fn is_known(&self, secret: Option<&str>) -> bool {
        let Some(own) = self.secret.as_deref() else {
            return true;
        };
        let (own, said) = (own.as_bytes(), secret.unwrap_or_default().as_bytes());
        let differences = own.iter().zip(said).fold(0, |all, (a, b)| all | (a ^ b));
        own.len() == said.len() && differences == 0
    }

    async fn answer(
        &self,
        stream: &mut TcpStream,
        peer: &str,
        verb: Verb,
    ) -> Result<(), TransferError> {
        match verb {
            Verb::Fetch { copy } => self.fetch(stream, peer, &copy).await,
            Verb::Save { id } => self.save(stream, peer, id).await,
            Verb::Stage { copy, name } => self.stage(stream, peer, &copy, name).await,
            Verb::Drop { id } => {
                self.tier.remove(id);
                self.reply(stream, peer, Said::Done).await
            }
        }
    }

    async fn fetch(
        &self,
        stream: &mut TcpStream,
        peer: &str,
        copy: &KvCopy,
    ) -> Result<(), TransferError> {
        let pinned = self.tier.pin(copy)?;
        let path = pinned.path();
        let mut file = tokio::fs::File::open(&path)
            .await
            .map_err(TransferError::file("opening", &path))?;
        let bytes = copy.bytes;
        self.reply(stream, peer, Said::Bytes { bytes }).await?;
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let read = file
                .read(&mut piece)
                .await
                .map_err(TransferError::file("reading", &path))?;
            if read == 0 {
                return Ok(());
            }
            within("sending a piece of a copy", self.limits.idle, async {
                let sent = stream.write_all(&piece[..read]).await;
                sent.map_err(|error| TransferError::unreachable(peer, error))
            })
            .await?;
        }
    }

    async fn save(
        &self,
        stream: &mut TcpStream,
        peer: &str,
        id: CopyId,
    ) -> Result<(), TransferError> {
        let saving = self.tier.saving(id);
        self.reply(stream, peer, Said::Done).await?;
        let draft = within("an engine's save", self.limits.export, async {
            receive::<Draft>(peer, stream).await
        });
        let unkept = saving.adopt(draft.await?).await?;
        let copy = unkept.copy().clone();
        let head = unkept.head().cloned();
        let copy = Box::new(copy);
        let adopted = Said::Adopted { copy, head };
        self.reply(stream, peer, adopted).await?;
        let last = within("the word that a copy stays", self.limits.idle, async {
            receive::<Goodbye>(peer, stream).await
        });
        if last.await?.done {
            unkept.keep();
        }
        self.reply(stream, peer, Said::Done).await
    }

    async fn stage(
        &self,
        stream: &mut TcpStream,
        peer: &str,
        copy: &KvCopy,
        name: CopyId,
    ) -> Result<(), TransferError> {
        let staged = tokio::select! {
            staged = within("staging", self.limits.import, self.tier.stage(copy, name, &self.link)) => staged?,
            () = ended(stream) => return Ok(()),
        };
        self.reply(stream, peer, Said::Done).await?;
        let _ = tokio::time::timeout(self.limits.import, ended(stream)).await;
        drop(staged);
        Ok(())
    }

    async fn reply(
        &self,
        stream: &mut TcpStream,
        peer: &str,
        said: Said,
    ) -> Result<(), TransferError> {
        let evicted = self.tier.evictions().take(EVICTIONS_TOLD_MAX);
        let reply = Reply { said, evicted };
        within("answering a node", self.limits.idle, async {
            send(peer, stream, &reply).await
        })
        .await
    }
}

/// Waits for the end of a connection on which nothing more is said.
async fn ended(stream: &mut TcpStream) {
    let mut nothing = [0; 1];
    let _ = stream.read(&mut nothing).await;
}
