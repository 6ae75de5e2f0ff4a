//! The server side: serves a tier to other nodes.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};

use treadle_trust::Stream;

use super::Link;
use super::message::{
    EVICTIONS_REPORTED_MAX, Goodbye, Opening, Reply, ReplyBody, Verb, receive, send,
};
use crate::client::within;
use crate::tier::{Draft, EvictionPosition, Plan, Tier};
use crate::{CopyId, KvCopy, Limits, TransferError};

/// Bytes of a copy sent at once.
const PIECE_BYTES: usize = 256 << 10;
/// Connections that have not sent the secret yet; the oldest is closed for a new one, so that
/// silent ones do not block peers.
const STRANGERS_MAX: usize = 16;
/// Pause after a failed accept, such as without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves a tier to other nodes. Dropping it closes all connections.
pub struct TierServer {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl TierServer {
    /// Binds the address. Peers without `secret`, if there is one, are refused.
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

    /// The address that it listens on.
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
    let mut strangers = JoinSet::new();
    let mut waiting: VecDeque<AbortHandle> = VecDeque::new();
    let mut visits = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, peer)) = accepted else {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                };
                waiting.retain(|stranger| !stranger.is_finished());
                if waiting.len() >= STRANGERS_MAX && let Some(oldest) = waiting.pop_front() {
                    oldest.abort();
                }
                let served = Arc::clone(&served);
                waiting.push_back(strangers.spawn(served.greet(stream, peer.to_string())));
            }
            Some(greeted) = strangers.join_next() => {
                if let Ok(Some(guest)) = greeted && visits.len() < served.visits_max() {
                    let place = Arc::clone(&places).try_acquire_owned().ok();
                    visits.spawn(Arc::clone(&served).receive(guest, place));
                }
            }
            Some(_) = visits.join_next() => {}
        }
    }
}

/// An authenticated peer and its request.
struct Guest {
    stream: Stream,
    peer: String,
    opening: Opening,
}

impl Served {
    /// Connections that are served, and the same number that are refused because of the limit.
    fn visits_max(&self) -> usize {
        2 * self.limits.connections_max
    }

    /// Receives the first message of a connection; `None` if it is missing or invalid.
    async fn greet(self: Arc<Self>, stream: TcpStream, peer: String) -> Option<Guest> {
        let _ = stream.set_nodelay(true);
        let timeout = self.limits.idle.min(self.limits.connect);
        let opening = within("waiting for a node's first message", timeout, async {
            let mut stream = match &self.limits.tls {
                Some(tls) => tls.acceptor.accept(stream).await,
                None => Ok(stream.into()),
            }
            .map_err(|error| TransferError::unreachable(&peer, error))?;
            let opening = receive::<Opening>(&peer, &mut stream).await?;
            Ok((stream, opening))
        });
        let opening = opening
            .await
            .inspect_err(|error| tracing::debug!(%peer, %error, "a stranger"));
        let (stream, opening) = opening.ok()?;
        let is_known = self.is_known(opening.secret.as_deref());
        let guest = Guest {
            stream,
            peer,
            opening,
        };
        if is_known {
            return Some(guest);
        }
        let error = TransferError::Refused {
            url: self.tier.node().into(),
            status: 401,
            message: "this node has another cluster.secret".into(),
        };
        let _ = Visit::of(&self, guest).0.refuse(&error).await;
        None
    }

    async fn receive(self: Arc<Self>, guest: Guest, place: Option<OwnedSemaphorePermit>) {
        let peer = guest.peer.clone();
        let (mut visit, verb) = Visit::of(&self, guest);
        let outcome = if place.is_some() {
            visit.answer(verb).await
        } else {
            Err(TransferError::Busy {
                worker: self.tier.node().into(),
                waiting: self.limits.connections_max,
            })
        };
        if let Err(error) = outcome {
            tracing::debug!(%peer, %error, "a transfer with another node failed");
            // The peer may be gone; then it needs no reply.
            let _ = visit.refuse(&error).await;
        }
    }

    /// Compares in constant time for secrets of the same length.
    fn is_known(&self, secret: Option<&str>) -> bool {
        let Some(own) = self.secret.as_deref() else {
            return true;
        };
        let (own, said) = (own.as_bytes(), secret.unwrap_or_default().as_bytes());
        let differences = own.iter().zip(said).fold(0, |all, (a, b)| all | (a ^ b));
        own.len() == said.len() && differences == 0
    }
}

/// A connection being served.
struct Visit<'s> {
    served: &'s Served,
    stream: Stream,
    peer: String,
    /// The position up to which the other node has received evictions.
    heard: Option<EvictionPosition>,
}

impl<'s> Visit<'s> {
    fn of(served: &'s Served, guest: Guest) -> (Self, Verb) {
        let visit = Self {
            served,
            stream: guest.stream,
            peer: guest.peer,
            heard: guest.opening.heard,
        };
        (visit, guest.opening.verb)
    }

    async fn answer(&mut self, verb: Verb) -> Result<(), TransferError> {
        match verb {
            Verb::Fetch { copy } => self.fetch(&copy).await,
            Verb::Save { id, plan } => self.save(id, &plan).await,
            Verb::Stage { copy, name } => self.stage(&copy, name).await,
            Verb::Drop { id } => {
                self.served.tier.forget([id]).await;
                self.reply(ReplyBody::Done).await
            }
            Verb::Keep { owner, ids } => {
                let known = ids.into_iter().collect();
                self.served.tier.keep_only(Some(&owner), &known).await;
                self.reply(ReplyBody::Done).await
            }
            Verb::Tell => self.reply(ReplyBody::Done).await,
        }
    }

    async fn fetch(&mut self, copy: &KvCopy) -> Result<(), TransferError> {
        let pinned = self.served.tier.pin(copy)?;
        let path = pinned.path();
        let mut file = tokio::fs::File::open(&path)
            .await
            .map_err(TransferError::file("opening", &path))?;
        let bytes = copy.bytes;
        self.reply(ReplyBody::Bytes { bytes }).await?;
        let (peer, stream) = (&*self.peer, &mut self.stream);
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let read = file
                .read(&mut piece)
                .await
                .map_err(TransferError::file("reading", &path))?;
            if read == 0 {
                return Ok(());
            }
            within(
                "sending a piece of a copy",
                self.served.limits.idle,
                async {
                    let sent = stream.write_all(&piece[..read]).await;
                    sent.map_err(|error| TransferError::unreachable(peer, error))
                },
            )
            .await?;
        }
    }

    async fn save(&mut self, id: CopyId, plan: &Plan) -> Result<(), TransferError> {
        let limits = &self.served.limits;
        let saving = self.served.tier.saving(id, plan).await?;
        self.reply(ReplyBody::Done).await?;
        let draft = within("an engine's save", limits.export, async {
            receive::<Draft>(&self.peer, &mut self.stream).await
        });
        let unkept = saving.adopt(draft.await?).await?;
        let copy = Box::new(unkept.copy().clone());
        let head = unkept.head().cloned();
        self.reply(ReplyBody::Adopted { copy, head }).await?;
        let last = within(
            "waiting for the confirmation of a copy",
            limits.idle,
            async { receive::<Goodbye>(&self.peer, &mut self.stream).await },
        );
        if last.await?.done {
            unkept.keep();
        }
        self.reply(ReplyBody::Done).await
    }

    async fn stage(&mut self, copy: &KvCopy, name: CopyId) -> Result<(), TransferError> {
        let Served {
            tier, limits, link, ..
        } = self.served;
        let staged = tokio::select! {
            staged = within("staging", limits.import, tier.stage(copy, name, link)) => staged?,
            () = ended(&mut self.stream) => return Ok(()),
        };
        self.reply(ReplyBody::Done).await?;
        let _ = tokio::time::timeout(limits.import, ended(&mut self.stream)).await;
        drop(staged);
        Ok(())
    }

    /// Replies, including the evictions that the other node has not received.
    async fn reply(&mut self, said: ReplyBody) -> Result<(), TransferError> {
        let evictions = self.served.tier.evictions();
        let news = evictions.since(self.heard, EVICTIONS_REPORTED_MAX);
        self.heard = Some(news.heard);
        let news = Some(news);
        self.send(&Reply { said, news }).await
    }

    /// Reports only the cause, because the peer may not be authenticated.
    async fn refuse(&mut self, error: &TransferError) -> Result<(), TransferError> {
        let said = ReplyBody::Refused {
            code: error.code().into(),
            message: error.to_string().into(),
        };
        self.send(&Reply { said, news: None }).await
    }

    async fn send(&mut self, reply: &Reply) -> Result<(), TransferError> {
        within("replying to a node", self.served.limits.idle, async {
            send(&self.peer, &mut self.stream, reply).await
        })
        .await
    }
}

/// Waits until the peer closes the connection.
async fn ended(stream: &mut Stream) {
    let mut nothing = [0; 1];
    let _ = stream.read(&mut nothing).await;
}
