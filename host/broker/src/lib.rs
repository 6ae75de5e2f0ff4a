//! Publishes events and receives commands.
//!
//! [`Broker`] is the interface; [`RabbitMq`] implements it over AMQP 0-9-1, [`InProcess`] within
//! the process, and one test suite runs on both. This crate is independent of the core, the store
//! and JSON: it transfers bytes with an id, a routing key and headers.
//!
//! When [`Broker::publish`] has returned, the broker has confirmed the messages. After an error,
//! the caller publishes them again: messages are delivered at least once, those of one sender in
//! order, and consumers recognise duplicates by their id.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use treadle_broker::{Attributes, Broker, InProcess, Message, Names, RoutingKey, Subscription};
//!
//! let broker = InProcess::new(Names::default());
//! let mut steps = broker
//!     .subscribe(&Subscription::new("billing", ["*.*.step.#"]))
//!     .await
//!     .unwrap();
//! let message = Message {
//!     seq: 17,
//!     key: RoutingKey::event("acme", "math", "step", "finished"),
//!     schema_version: 1,
//!     attributes: Attributes {
//!         source: "/treadle/acme/math".into(),
//!         kind: "treadle.step.finished".into(),
//!         subject: "p-1".into(),
//!         time: "2026-01-01T00:00:00Z".into(),
//!     },
//!     body: b"{}".to_vec(),
//! };
//! assert_eq!(broker.publish(&[message]).await.unwrap(), 17);
//! let delivery = steps.next().await.unwrap();
//! assert_eq!(delivery.id.as_deref(), Some("17"));
//! assert_eq!(delivery.routing_key, "acme.math.step.finished");
//! delivery.ack().await.unwrap();
//! # });
//! ```

mod address;
mod backoff;
mod delivery;
mod error;
mod health;
mod in_process;
mod message;
mod names;
pub mod rabbitmq;
mod routing;

pub use address::Address;
use async_trait::async_trait;
pub use delivery::{Deliveries, Delivery};
pub use error::BrokerError;
pub use health::Health;
pub use in_process::InProcess;
pub use message::{Attributes, Letter, Message, Reply, Subscription, header};
pub use names::{Names, Queue};
pub use rabbitmq::{RabbitMq, Settings};
pub use routing::RoutingKey;
use tokio::sync::watch;

/// Most messages of one [`Broker::publish`].
pub const BATCH_MESSAGES_MAX: usize = 10_000;
/// Largest body of a message, in bytes; RabbitMQ 4 refuses more than 16 MiB.
pub const BODY_BYTES_MAX: usize = 8 << 20;
/// How often a message of a command queue is delivered again before it becomes a dead letter. It is
/// delivered again when it is returned, and whenever its connection is lost.
pub const DELIVERY_LIMIT: u32 = 5;
/// [`DELIVERY_LIMIT`] for [`Queue::Runs`]. RabbitMQ also counts lost connections, and before 3.12
/// it takes a message back after every `consumer_timeout`, 30 minutes by default: 48 times in
/// [`RUN_UNSETTLED_MS_MAX`], which must not make an action that is still running a dead letter.
pub const RUN_DELIVERY_LIMIT: u32 = 100;
/// How long a delivery of [`Queue::Runs`] may stay unsettled before RabbitMQ 3.12 or later takes it
/// back, in milliseconds: 24 hours. An older one takes it back after `consumer_timeout`.
pub const RUN_UNSETTLED_MS_MAX: u32 = 24 * 60 * 60 * 1_000;
/// Longest name, id or correlation id, in bytes: a short string of AMQP.
pub const SHORT_BYTES_MAX: usize = 255;
/// Most messages that wait in a command queue; more are refused.
pub const COMMANDS_HELD_MAX: u32 = 100_000;
/// Most dead letters that are kept; the oldest are dropped.
pub const DEAD_LETTERS_HELD_MAX: u32 = 100_000;
/// Most messages that wait for one subscriber; the oldest are dropped.
pub const EVENTS_HELD_MAX: u32 = 1_000_000;
/// Longest reason of a rejection, in bytes; the rest is cut off.
pub const REASON_BYTES_MAX: usize = 1_000;

/// A message broker between this daemon and others.
#[async_trait]
pub trait Broker: Send + Sync {
    /// Publishes a batch in order; returns the sequence number of its last message when all are
    /// confirmed, 0 for an empty batch.
    ///
    /// After an error, any part of the batch may have been published: publish it again. Batches are
    /// published one after the other. Dropping the future is equivalent to an error.
    ///
    /// [`BrokerError::TooLarge`] beyond [`BATCH_MESSAGES_MAX`] and [`BODY_BYTES_MAX`]; any other
    /// error means that the broker is unavailable, refuses, or has no room, and the caller should
    /// retry.
    async fn publish(&self, batch: &[Message]) -> Result<u64, BrokerError>;

    /// Sends a letter to a queue, and returns when the broker has confirmed it.
    ///
    /// # Errors
    /// As for [`Broker::publish`]; [`BrokerError::Nacked`] if the queue is full.
    async fn send(&self, queue: Queue, letter: &Letter) -> Result<(), BrokerError>;

    /// Sends a reply to the queue named by its receiver, and returns when the broker has confirmed
    /// it; `false` if the queue no longer exists, so that nobody waits.
    ///
    /// RabbitMQ does not report whether a client still waits for a direct reply
    /// (`amq.rabbitmq.reply-to.…`): then `true` only means that the broker has accepted it.
    ///
    /// [`BrokerError::ReplyTo`] if replies may not go there: to a daemon's own queue, to a name
    /// that begins with the prefix and a dot, or to an empty name. [`BrokerError::TooLarge`] beyond
    /// [`BODY_BYTES_MAX`] and [`SHORT_BYTES_MAX`]. Otherwise as for [`Broker::send`]; after an
    /// error the reply may have arrived.
    async fn answer(&self, reply: &Reply) -> Result<bool, BrokerError>;

    /// Consumes a queue, with at most `prefetch` (at least 1) unsettled deliveries.
    ///
    /// The stream outlives the connection: it continues after each loss, and messages that were
    /// unsettled then are delivered again. It ends with [`Broker::close`]. Dropping it returns
    /// unsettled messages.
    fn consume(&self, queue: Queue, prefetch: u16) -> Deliveries;

    /// Creates a subscriber's queue for matching events, and consumes it.
    ///
    /// The queue remains when the stream is dropped, and collects events until
    /// [`Broker::unsubscribe`].
    ///
    /// # Errors
    /// If the broker is unavailable or refuses to create the queue.
    async fn subscribe(&self, subscription: &Subscription) -> Result<Deliveries, BrokerError>;

    /// Removes the queue of a subscription with all its messages; a missing one is not an error.
    ///
    /// # Errors
    /// If the broker is unavailable or refuses.
    async fn unsubscribe(&self, queue: &str) -> Result<(), BrokerError>;

    /// The health of the broker, with its changes.
    fn health(&self) -> watch::Receiver<Health>;

    /// Disconnects; later calls fail with [`BrokerError::Closed`] and streams end.
    async fn close(&self) -> Result<(), BrokerError>;
}

/// Checks the address and the size of a reply.
fn check_reply(names: &Names, reply: &Reply) -> Result<(), BrokerError> {
    names.check_reply_to(&reply.to)?;
    check_short(reply.correlation_id.as_deref())?;
    check_sizes(1, std::iter::once(reply.body.len()))
}

/// Checks the size of a letter.
fn check_letter(letter: &Letter) -> Result<(), BrokerError> {
    check_short(letter.reply_to.as_deref())?;
    check_short(letter.correlation_id.as_deref())?;
    check_sizes(1, std::iter::once(letter.body.len()))
}

/// Checks the length of a text that must not be truncated, such as a correlation id.
fn check_short(text: Option<&str>) -> Result<(), BrokerError> {
    match text {
        Some(text) if text.len() > SHORT_BYTES_MAX => Err(BrokerError::TooLarge {
            what: "reply_to or correlation_id, in bytes,",
            size: text.len(),
            size_max: SHORT_BYTES_MAX,
        }),
        _ => Ok(()),
    }
}

/// The beginning of a text, up to a length.
fn shortened(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Checks the sizes of a batch and of bodies.
fn check_sizes(messages: usize, bodies: impl Iterator<Item = usize>) -> Result<(), BrokerError> {
    if messages > BATCH_MESSAGES_MAX {
        return Err(BrokerError::TooLarge {
            what: "a batch, in messages,",
            size: messages,
            size_max: BATCH_MESSAGES_MAX,
        });
    }
    match bodies.max() {
        Some(size) if size > BODY_BYTES_MAX => Err(BrokerError::TooLarge {
            what: "a body, in bytes,",
            size,
            size_max: BODY_BYTES_MAX,
        }),
        _ => Ok(()),
    }
}
