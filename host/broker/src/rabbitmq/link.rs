//! A connection that reconnects when it is lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use lapin::options::ConfirmSelectOptions;
use lapin::{Channel, Connection, ConnectionProperties, Event};
use tokio::sync::{mpsc, watch};

use super::{Settings, failure, topology};
use crate::backoff::Backoff;
use crate::health::Board;
use crate::{BrokerError, Health};

/// Timeout for an orderly close.
const CLOSE_WAIT: Duration = Duration::from_secs(1);
/// Interval of checking a connection, in addition to its own notifications.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A connection that lasted this long starts again with the shortest pause.
const GOOD_AFTER: Duration = Duration::from_secs(5);

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Publishing, with confirmations.
    Publish,
    /// Consuming.
    Consume,
}

impl Role {
    const fn word(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Consume => "consume",
        }
    }
}

/// One connection, until it is lost.
pub(super) struct Session {
    pub(super) connection: Connection,
    /// A channel with confirmations.
    pub(super) channel: Channel,
    /// Why the broker currently accepts no messages.
    pub(super) blocked: watch::Sender<Option<String>>,
    /// Why the connection has ended.
    over: watch::Sender<Option<BrokerError>>,
    broken: mpsc::Sender<BrokerError>,
}

impl Session {
    /// Closes a connection after a failure, so that it is replaced.
    pub(super) fn give_up(&self, cause: BrokerError) {
        // The first cause is sufficient.
        let _ = self.broken.try_send(cause);
    }

    /// Reports when and why the connection ends.
    pub(super) fn over(&self) -> Over {
        Over(self.over.subscribe())
    }
}

/// Reports when and why a connection ends.
pub(super) struct Over(watch::Receiver<Option<BrokerError>>);

impl Over {
    /// Runs an operation on the connection, until that ends. The library may leave operations
    /// pending when the connection is lost.
    pub(super) async fn unless<T>(
        &mut self,
        work: impl Future<Output = T>,
    ) -> Result<T, BrokerError> {
        tokio::select! {
            biased;
            over = self.0.wait_for(Option::is_some) => {
                let cause = over.ok().and_then(|cause| cause.clone());
                Err(cause.unwrap_or(BrokerError::Closed))
            }
            done = work => Ok(done),
        }
    }
}

/// The state of a link.
#[derive(Clone)]
enum State {
    Up(Arc<Session>),
    Down(BrokerError),
    /// Permanently closed.
    Ended,
}

/// A connection that reconnects when it is lost.
pub(super) struct Link {
    state: watch::Receiver<State>,
}

impl Link {
    /// Starts to connect.
    pub(super) fn start(
        settings: &Arc<Settings>,
        role: Role,
        board: &Arc<Board>,
        stop: &watch::Sender<bool>,
    ) -> Arc<Self> {
        let (sender, state) = watch::channel(State::Down(BrokerError::Connecting));
        let keeper = Keeper {
            settings: Arc::clone(settings),
            role,
            part: board.add(),
            board: Arc::clone(board),
            state: sender,
            stop: stop.subscribe(),
        };
        tokio::spawn(keeper.run());
        Arc::new(Self { state })
    }

    /// Waits for the connection.
    ///
    /// # Errors
    /// The error when no connection is made within `timeout`.
    pub(super) async fn session(&self, timeout: Duration) -> Result<Arc<Session>, BrokerError> {
        let mut state = self.state.clone();
        let settled = state.wait_for(|state| !matches!(state, State::Down(_)));
        let now = match tokio::time::timeout(timeout, settled).await {
            Ok(Ok(state)) => state.clone(),
            Ok(Err(_)) => State::Ended,
            Err(_) => self.state.borrow().clone(),
        };
        match now {
            State::Up(session) => Ok(session),
            State::Down(cause) => Err(cause),
            State::Ended => Err(BrokerError::Closed),
        }
    }

    /// Waits for the connection without a timeout; `None` if the link has ended.
    pub(super) async fn next_session(&self) -> Option<Arc<Session>> {
        let mut state = self.state.clone();
        let settled = state.wait_for(|state| !matches!(state, State::Down(_)));
        match settled.await.as_deref() {
            Ok(State::Up(session)) => Some(Arc::clone(session)),
            _ => None,
        }
    }

    /// Waits until the link no longer uses this connection.
    pub(super) async fn left(&self, session: &Arc<Session>) {
        let mut state = self.state.clone();
        let is_other = |state: &State| !matches!(state, State::Up(up) if Arc::ptr_eq(up, session));
        // An error means that the link has ended.
        let _ = state.wait_for(is_other).await;
    }

    /// Waits until the link has ended.
    pub(super) async fn ended(&self) {
        let mut state = self.state.clone();
        let _ = state.wait_for(|state| matches!(state, State::Ended)).await;
    }
}

/// Makes a link's connections.
struct Keeper {
    settings: Arc<Settings>,
    role: Role,
    part: usize,
    board: Arc<Board>,
    state: watch::Sender<State>,
    stop: watch::Receiver<bool>,
}

impl Keeper {
    async fn run(self) {
        let (first, longest) = (self.settings.backoff_first, self.settings.backoff_longest);
        let mut backoff = Backoff::new(first, longest);
        while let Some(opened) = self.unless_stopped(open(&self.settings, self.role)).await {
            let cause = match opened {
                Ok((session, broken)) => {
                    let since = Instant::now();
                    let cause = self.keep(session, broken).await;
                    if since.elapsed() >= GOOD_AFTER {
                        backoff.reset();
                    }
                    cause
                }
                Err(cause) => cause,
            };
            if cause == BrokerError::Closed {
                break;
            }
            self.down(cause);
            let wait = tokio::time::sleep(backoff.next());
            if self.unless_stopped(wait).await.is_none() {
                break;
            }
        }
        self.board
            .set(self.part, Health::disconnected(BrokerError::Closed));
        self.state.send_replace(State::Ended);
    }

    /// `None` if the link is being closed.
    async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut stop = self.stop.clone();
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => None,
            done = work => Some(done),
        }
    }

    /// Publishes a connection to its users, and waits until it is lost or the link is closed.
    async fn keep(&self, session: Session, broken: mpsc::Receiver<BrokerError>) -> BrokerError {
        let session = Arc::new(session);
        tracing::info!(
            broker = %self.settings.address,
            role = self.role.word(),
            "connected to the broker"
        );
        self.board.set(self.part, Health::Connected);
        self.state.send_replace(State::Up(Arc::clone(&session)));
        let watched = self.watch(&session, broken);
        let cause = self.unless_stopped(watched).await;
        let cause = cause.unwrap_or(BrokerError::Closed);
        self.state.send_replace(State::Down(cause.clone()));
        session.over.send_replace(Some(cause.clone()));
        let closing = session.connection.close(200, "bye".into());
        // A connection that can't be closed in order is closed when it is dropped.
        let _ = tokio::time::timeout(CLOSE_WAIT, closing).await;
        cause
    }

    /// Waits until a connection is lost.
    async fn watch(
        &self,
        session: &Session,
        mut broken: mpsc::Receiver<BrokerError>,
    ) -> BrokerError {
        let mut events = Box::pin(session.connection.events_listener());
        let mut look = tokio::time::interval(LOOK_EVERY);
        loop {
            let event = tokio::select! {
                Some(cause) = broken.recv() => return cause,
                event = events.next() => event,
                _ = look.tick() => None,
            };
            match event {
                Some(Event::ConnectionBlocked(reason)) => {
                    tracing::warn!(broker = %self.settings.address, reason, "the broker accepts no messages");
                    session.blocked.send_replace(Some(reason.clone()));
                    self.board.set(self.part, Health::blocked(reason));
                }
                Some(Event::ConnectionUnblocked) => {
                    session.blocked.send_replace(None);
                    self.board.set(self.part, Health::Connected);
                }
                Some(Event::Error(error)) => return failure::lost(&error),
                _ => {}
            }
            let status = session.connection.status();
            if status.blocked() && session.blocked.borrow().is_none() {
                // Reported before the listener was installed.
                session.blocked.send_replace(Some("alarm".into()));
                self.board.set(self.part, Health::blocked("alarm".into()));
            }
            if !status.connected() {
                return BrokerError::Lost {
                    cause: "it was closed".into(),
                };
            }
        }
    }

    /// Records why there is no connection, and logs it if the cause has changed.
    fn down(&self, cause: BrokerError) {
        let health = Health::disconnected(cause.clone());
        let shown = self.board.watch().borrow().cause();
        if shown.as_ref().map(BrokerError::code) != Some(cause.code()) {
            tracing::warn!(role = self.role.word(), "{cause}");
        }
        self.board.set(self.part, health);
        self.state.send_replace(State::Down(cause));
    }
}

/// Connects, and declares exchanges and queues.
async fn open(
    settings: &Settings,
    role: Role,
) -> Result<(Session, mpsc::Receiver<BrokerError>), BrokerError> {
    let opening = async {
        let name = format!("{} {}", settings.client, role.word());
        let connection = connect(settings, &name).await?;
        topology::declare(&connection, &settings.names).await?;
        let channel = connection
            .create_channel()
            .await
            .map_err(|error| failure::lost(&error))?;
        channel
            .confirm_select(ConfirmSelectOptions::default())
            .await
            .map_err(|error| failure::lost(&error))?;
        let (broken, receiver) = mpsc::channel(1);
        let session = Session {
            connection,
            channel,
            blocked: watch::Sender::new(None),
            over: watch::Sender::new(None),
            broken,
        };
        Ok((session, receiver))
    };
    match tokio::time::timeout(settings.connect_wait, opening).await {
        Ok(opened) => opened,
        Err(_) => Err(BrokerError::Unreachable {
            address: settings.address.to_string(),
            cause: format!("no answer within {} ms", settings.connect_wait.as_millis()),
        }),
    }
}

/// Connects.
pub(super) async fn connect(settings: &Settings, name: &str) -> Result<Connection, BrokerError> {
    let address = &settings.address;
    let properties = ConnectionProperties::default()
        .with_connection_name(name.into())
        .with_client_property("product".into(), "treadle".into())
        .with_client_property("version".into(), env!("CARGO_PKG_VERSION").into());
    let runtime = lapin::runtime::default_runtime().map_err(|error| failure::lost(&error))?;
    Connection::connect_uri_with_config(address.uri(), properties, address.tls()?, runtime)
        .await
        .map_err(|error| failure::connecting(address, &error))
}
