//! Received messages.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use async_trait::async_trait;
use futures_util::Stream;
use tokio::sync::mpsc;

use crate::{BrokerError, REASON_BYTES_MAX, header, shortened};

/// How a delivery is settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Settlement {
    /// Acknowledged.
    Ack,
    /// Sent to the dead letters, with this reason.
    Reject(String),
    /// Returned to the queue.
    Requeue,
}

/// Settles a delivery.
#[async_trait]
pub(crate) trait Settle: Send {
    /// Settles the delivery; a dead letter is made from its parts.
    async fn settle(
        self: Box<Self>,
        delivery: Parts,
        settlement: Settlement,
    ) -> Result<(), BrokerError>;
}

/// The contents of a delivery.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) id: Option<String>,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) reply_to: Option<String>,
    pub(crate) correlation_id: Option<String>,
    pub(crate) body: Vec<u8>,
}

/// A received message. Settle it by [`Delivery::ack`], [`Delivery::reject`] or
/// [`Delivery::requeue`]; a dropped one stays unsettled until its stream or connection ends.
pub struct Delivery {
    /// Its id, if the sender set one.
    pub id: Option<String>,
    /// Its routing key.
    pub routing_key: String,
    /// Headers whose values are strings or numbers.
    pub headers: BTreeMap<String, String>,
    /// Queue in which its sender waits for a reply, if it does: `to` of a [`crate::Reply`]. At most
    /// [`crate::SHORT_BYTES_MAX`] bytes.
    pub reply_to: Option<String>,
    /// Identifies the reply for its sender. At most [`crate::SHORT_BYTES_MAX`] bytes.
    pub correlation_id: Option<String>,
    /// The body, normally JSON.
    pub body: Vec<u8>,
    /// Whether it may have been delivered before.
    pub redelivered: bool,
    pub(crate) settle: Box<dyn Settle>,
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("id", &self.id)
            .field("routing_key", &self.routing_key)
            .field("headers", &self.headers)
            .field("reply_to", &self.reply_to)
            .field("correlation_id", &self.correlation_id)
            .field("body_bytes", &self.body.len())
            .field("redelivered", &self.redelivered)
            .finish_non_exhaustive()
    }
}

impl Delivery {
    /// How often it was returned before.
    pub fn returns(&self) -> u32 {
        self.headers
            .get(header::DELIVERY_COUNT)
            .and_then(|count| count.parse().ok())
            .unwrap_or_default()
    }

    /// Why it is a dead letter, if it is one.
    pub fn reason(&self) -> Option<&str> {
        self.headers
            .get(header::REASON)
            .or_else(|| self.headers.get(header::FIRST_DEATH_REASON))
            .map(String::as_str)
    }

    /// Acknowledges it, so that it is not delivered again.
    ///
    /// # Errors
    /// [`BrokerError::DeliveryLost`] if it is delivered again nevertheless.
    pub async fn ack(self) -> Result<(), BrokerError> {
        self.settle(Settlement::Ack).await
    }

    /// Rejects it permanently: it goes to the dead letters, with the reason in the header
    /// [`header::REASON`], truncated to [`REASON_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// [`BrokerError::DeliveryLost`] if it is delivered again nevertheless.
    pub async fn reject(self, reason: &str) -> Result<(), BrokerError> {
        self.settle(Settlement::Reject(
            shortened(reason, REASON_BYTES_MAX).to_owned(),
        ))
        .await
    }

    /// Returns it to be delivered again, up to [`crate::DELIVERY_LIMIT`] times
    /// ([`crate::RUN_DELIVERY_LIMIT`] for [`crate::Queue::Runs`]); then it goes to the dead
    /// letters.
    ///
    /// # Errors
    /// [`BrokerError::DeliveryLost`] if it was already returned.
    pub async fn requeue(self) -> Result<(), BrokerError> {
        self.settle(Settlement::Requeue).await
    }

    async fn settle(self, settlement: Settlement) -> Result<(), BrokerError> {
        let parts = Parts {
            id: self.id,
            headers: self.headers,
            reply_to: self.reply_to,
            correlation_id: self.correlation_id,
            body: self.body,
        };
        self.settle.settle(parts, settlement).await
    }
}

/// A stream of deliveries.
#[derive(Debug)]
pub struct Deliveries {
    receiver: mpsc::Receiver<Delivery>,
}

impl Deliveries {
    pub(crate) fn new(receiver: mpsc::Receiver<Delivery>) -> Self {
        Self { receiver }
    }

    /// The next delivery; `None` when the broker was closed. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Delivery> {
        self.receiver.recv().await
    }
}

impl Stream for Deliveries {
    type Item = Delivery;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        self.receiver.poll_recv(cx)
    }
}
