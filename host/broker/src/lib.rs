//! Events out and commands in.
//!
//! [`Broker`] is the interface; [`RabbitMq`] implements it over AMQP 0-9-1, [`InProcess`] within
//! the process, and one suite of tests runs on both. This crate knows nothing of the core, the
//! store or JSON: it carries bytes with an id, a routing key and headers.
//!
//! A message for which [`Broker::publish`] has returned is confirmed by the broker. Others the
//! caller publishes again: messages are delivered at least once, those of one sender in order, and
//! a consumer recognises repetitions by their id.
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

use std::future::Future;
use std::pin::Pin;

pub use address::Address;
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
/// How often a message of a command queue comes again before it is a dead letter. It comes again
/// when it is given back, and whenever its connection is lost.
pub const DELIVERY_LIMIT: u32 = 5;
/// As [`DELIVERY_LIMIT`], for [`Queue::Runs`]. RabbitMQ counts lost connections too, and before
/// 3.12 it takes a message back after every `consumer_timeout`, 30 minutes by default: 48 times in
/// [`RUN_UNSETTLED_MS_MAX`], which must not make an action that still runs a dead letter.
pub const RUN_DELIVERY_LIMIT: u32 = 100;
/// How long a delivery of [`Queue::Runs`] may stay unsettled before RabbitMQ 3.12 or later takes it
/// back, in milliseconds: 24 hours. An older one takes it back after `consumer_timeout`.
pub const RUN_UNSETTLED_MS_MAX: u32 = 24 * 60 * 60 * 1_000;
/// Longest name, id or correlation id, in bytes: a short string of AMQP.
pub const SHORT_BYTES_MAX: usize = 255;
/// Most messages that wait in a command queue; more are refused to their sender.
pub const COMMANDS_HELD_MAX: u32 = 100_000;
/// Most dead letters that are kept; the oldest go first.
pub const DEAD_LETTERS_HELD_MAX: u32 = 100_000;
/// Most messages that wait for one subscriber; the oldest go first.
pub const EVENTS_HELD_MAX: u32 = 1_000_000;
/// Longest reason of a rejection, in bytes; the rest is cut off.
pub const REASON_BYTES_MAX: usize = 1_000;

/// What a method of [`Broker`] returns: a boxed future, so that the trait can be used as an object.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, BrokerError>> + Send + 'a>>;

/// Who carries messages between this daemon and others.
pub trait Broker: Send + Sync {
    /// Publishes a batch in its order and returns the sequence number of its last message once all
    /// are confirmed; 0 for an empty batch.
    ///
    /// On an error any part of the batch may have been published: publish it again. Batches are
    /// published one after the other. Dropping the future has the effect of an error.
    ///
    /// # Errors
    /// [`BrokerError::TooLarge`] past [`BATCH_MESSAGES_MAX`] and [`BODY_BYTES_MAX`]; any other one
    /// means that the broker is away, refuses, or has no room, and that trying again is right.
    fn publish<'a>(&'a self, batch: &'a [Message]) -> Answer<'a, u64>;

    /// Puts a letter into a queue and returns once the broker has confirmed it.
    ///
    /// # Errors
    /// As [`Broker::publish`]; [`BrokerError::Nacked`] if the queue is full.
    fn send<'a>(&'a self, queue: Queue, letter: &'a Letter) -> Answer<'a, ()>;

    /// Puts a reply into the queue that its receiver named, and returns once the broker has
    /// confirmed it; `false` if there is no such queue any more, so that nobody waits.
    ///
    /// RabbitMQ does not report whether a client still waits for a direct reply
    /// (`amq.rabbitmq.reply-to.…`): `true` means that the broker has passed it on, if so.
    ///
    /// # Errors
    /// [`BrokerError::ReplyTo`] if replies may not go there: to a queue of a daemon's own, to what
    /// begins with the prefix and a dot, or to no name at all. [`BrokerError::TooLarge`] past
    /// [`BODY_BYTES_MAX`] and [`SHORT_BYTES_MAX`]. Else as [`Broker::send`]; after an error the
    /// reply may have arrived.
    fn answer<'a>(&'a self, reply: &'a Reply) -> Answer<'a, bool>;

    /// What arrives in a queue, with at most `prefetch` (at least 1) deliveries unsettled.
    ///
    /// The stream outlives the connection: it goes on after each loss, and what was unsettled then
    /// comes again. It ends with [`Broker::close`]. Dropping it gives back what is unsettled.
    fn consume(&self, queue: Queue, prefetch: u16) -> Deliveries;

    /// Makes a queue of one's own that gets the events that match, and consumes it.
    ///
    /// The queue stays when the stream is dropped, and goes on collecting, until
    /// [`Broker::unsubscribe`].
    ///
    /// # Errors
    /// If the broker is away or refuses to make the queue.
    fn subscribe<'a>(&'a self, subscription: &'a Subscription) -> Answer<'a, Deliveries>;

    /// Removes the queue of a subscription with all that waits in it; a missing one is not an
    /// error.
    ///
    /// # Errors
    /// If the broker is away or refuses.
    fn unsubscribe<'a>(&'a self, queue: &'a str) -> Answer<'a, ()>;

    /// How the broker is doing, now and whenever it changes.
    fn health(&self) -> watch::Receiver<Health>;

    /// Disconnects; later calls fail with [`BrokerError::Closed`] and streams end.
    fn close(&self) -> Answer<'_, ()>;
}

/// Refuses a reply that may not go where it is to, or is too large.
fn check_reply(names: &Names, reply: &Reply) -> Result<(), BrokerError> {
    names.check_reply_to(&reply.to)?;
    check_short(reply.correlation_id.as_deref())?;
    check_sizes(1, std::iter::once(reply.body.len()))
}

/// Refuses a letter that is too large.
fn check_letter(letter: &Letter) -> Result<(), BrokerError> {
    check_short(letter.reply_to.as_deref())?;
    check_short(letter.correlation_id.as_deref())?;
    check_sizes(1, std::iter::once(letter.body.len()))
}

/// A correlation id that is cut would be another.
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

/// The beginning of a text.
fn shortened(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Refuses a batch or body that is too large.
fn check_sizes(messages: usize, bodies: impl Iterator<Item = usize>) -> Result<(), BrokerError> {
    if messages > BATCH_MESSAGES_MAX {
        return Err(BrokerError::TooLarge {
            what: "a batch",
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
