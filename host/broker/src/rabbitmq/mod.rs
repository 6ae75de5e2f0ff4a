//! A broker over AMQP 0-9-1: RabbitMQ 3.10 or later.
//!
//! There are two connections, because a broker without memory blocks those that publish, while
//! deliveries must still be acknowledged: one publishes, the other, made when first needed,
//! consumes. Each reconnects when it is lost ([`link`]), and then declares exchanges and queues
//! again, so that they are restored if the broker has lost them.

mod bare;
mod consume;
mod failure;
mod inspect;
mod link;
mod properties;
mod publish;
mod topology;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

pub use bare::BarePublisher;
pub use inspect::{Check, Grade, inspect};
use link::{Link, Role};
use publish::Publisher;

use crate::health::Board;
use crate::{
    Address, Broker, BrokerError, Deliveries, Health, Letter, Message, Names, Queue, Reply,
    Subscription, check_letter, check_reply, check_sizes,
};

/// Settings of a broker's client.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its address and credentials.
    pub address: Address,
    /// Names of exchanges and queues.
    pub names: Names,
    /// The client's name in the broker's lists.
    pub client: String,
    /// Messages sent ahead of their confirmations.
    pub window: usize,
    /// How long the broker may be unavailable or silent before an operation fails.
    pub timeout: Duration,
    /// Timeout of one attempt to connect.
    pub connect_wait: Duration,
    /// The first pause after a connection is lost; pauses double.
    pub backoff_first: Duration,
    /// The longest pause between attempts.
    pub backoff_longest: Duration,
}

impl Settings {
    /// Default settings for a broker.
    pub fn new(address: Address) -> Self {
        Self {
            address,
            names: Names::default(),
            client: "treadle".into(),
            window: 1_000,
            timeout: Duration::from_secs(30),
            connect_wait: Duration::from_secs(10),
            backoff_first: Duration::from_millis(100),
            backoff_longest: Duration::from_secs(10),
        }
    }
}

/// [`Broker`] over AMQP.
pub struct RabbitMq {
    settings: Arc<Settings>,
    board: Arc<Board>,
    stop: Arc<watch::Sender<bool>>,
    publisher: Arc<Publisher>,
    consumer: OnceLock<Arc<Link>>,
}

impl fmt::Debug for RabbitMq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMq")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl RabbitMq {
    /// Starts to connect, and returns at once, so that an unavailable broker delays nothing.
    /// [`Broker::health`] reports the state.
    ///
    /// Must be called within a Tokio runtime, on which the connections run.
    pub fn start(settings: Settings) -> Self {
        let settings = Arc::new(settings);
        let board = Arc::new(Board::new());
        let stop = Arc::new(watch::Sender::new(false));
        let link = Link::start(&settings, Role::Publish, &board, &stop);
        let publisher = Arc::new(Publisher::new(Arc::clone(&settings), link));
        Self {
            settings,
            board,
            stop,
            publisher,
            consumer: OnceLock::new(),
        }
    }

    /// Removes exchanges and queues with all messages, for example after tests. No other client
    /// should be connected, because it would create them again.
    ///
    /// # Errors
    /// If the broker is unavailable or refuses.
    pub async fn remove_topology(&self) -> Result<(), BrokerError> {
        let session = self.publisher.session().await?;
        let removing = topology::remove(&session, &self.settings.names);
        session.over().unless(removing).await.flatten()
    }

    fn consumer(&self) -> Arc<Link> {
        let link = self
            .consumer
            .get_or_init(|| Link::start(&self.settings, Role::Consume, &self.board, &self.stop));
        Arc::clone(link)
    }
}

impl Drop for RabbitMq {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

#[async_trait]
impl Broker for RabbitMq {
    async fn publish(&self, batch: &[Message]) -> Result<u64, BrokerError> {
        check_sizes(batch.len(), batch.iter().map(|message| message.body.len()))?;
        self.publisher.publish(batch).await
    }

    async fn send(&self, queue: Queue, letter: &Letter) -> Result<(), BrokerError> {
        check_letter(letter)?;
        let queue = self.settings.names.queue(queue);
        self.publisher.send(String::new(), queue, letter).await
    }

    async fn answer(&self, reply: &Reply) -> Result<bool, BrokerError> {
        check_reply(&self.settings.names, reply)?;
        self.publisher.answer(reply).await
    }

    fn consume(&self, queue: Queue, prefetch: u16) -> Deliveries {
        let source = consume::Source {
            queue: self.settings.names.queue(queue),
            subscription: None,
            prefetch: prefetch.max(1),
        };
        consume::start(self.consumer(), Arc::clone(&self.publisher), source)
    }

    async fn subscribe(&self, subscription: &Subscription) -> Result<Deliveries, BrokerError> {
        let link = self.consumer();
        let session = link.session(self.settings.timeout).await?;
        let declaring = topology::subscribe(&session, &self.settings.names, subscription);
        session.over().unless(declaring).await.flatten()?;
        let source = consume::Source {
            queue: subscription.queue.clone(),
            subscription: Some(subscription.clone()),
            prefetch: subscription.prefetch.max(1),
        };
        Ok(consume::start(link, Arc::clone(&self.publisher), source))
    }

    async fn unsubscribe(&self, queue: &str) -> Result<(), BrokerError> {
        let session = self.publisher.session().await?;
        let deleting = topology::unsubscribe(&session, queue);
        session.over().unless(deleting).await.flatten()
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.board.watch()
    }

    async fn close(&self) -> Result<(), BrokerError> {
        self.stop.send_replace(true);
        self.publisher.ended().await;
        if let Some(link) = self.consumer.get() {
            link.ended().await;
        }
        Ok(())
    }
}
