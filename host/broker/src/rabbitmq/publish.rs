//! Publishes messages ahead of their confirmations, within a window.

use std::collections::VecDeque;
use std::sync::Arc;

use lapin::options::BasicPublishOptions;
use lapin::{BasicProperties, Channel, Confirmation, PublisherConfirm};
use tokio::sync::{Mutex, watch};

use super::link::{Link, Session};
use super::{Settings, failure, properties};
use crate::names::DIRECT_REPLIES;
use crate::{BrokerError, Letter, Message, Names, Reply};

/// Publishes one batch after the other.
pub(super) struct Publisher {
    settings: Arc<Settings>,
    link: Arc<Link>,
    /// Held while a batch is sent, so that batches don't mix.
    turn: Mutex<()>,
}

impl Publisher {
    pub(super) fn new(settings: Arc<Settings>, link: Arc<Link>) -> Self {
        Self {
            settings,
            link,
            turn: Mutex::new(()),
        }
    }

    /// Waits for the connection.
    pub(super) async fn session(&self) -> Result<Arc<Session>, BrokerError> {
        self.link.session(self.settings.timeout).await
    }

    /// Waits until the connection is closed permanently.
    pub(super) async fn ended(&self) {
        self.link.ended().await;
    }

    /// Names of exchanges and queues.
    pub(super) fn names(&self) -> &Names {
        &self.settings.names
    }

    /// Publishes a batch; returns the last sequence number when all messages are confirmed.
    pub(super) async fn publish(&self, batch: &[Message]) -> Result<u64, BrokerError> {
        let Some(last) = batch.last() else {
            return Ok(0);
        };
        let exchange = self.settings.names.events_exchange();
        let outgoing = batch.iter().map(|message| Outgoing {
            exchange: &exchange,
            key: message.key.as_str(),
            id: message.seq.to_string(),
            properties: properties::of_message(message),
            body: &message.body,
            mandatory: false,
        });
        self.deliver(outgoing).await?;
        Ok(last.seq)
    }

    /// Sends one letter.
    pub(super) async fn send(
        &self,
        exchange: String,
        key: String,
        letter: &Letter,
    ) -> Result<(), BrokerError> {
        let outgoing = Outgoing {
            exchange: &exchange,
            key: &key,
            id: letter.id.clone(),
            properties: properties::of_letter(letter),
            body: &letter.body,
            mandatory: false,
        };
        self.deliver(std::iter::once(outgoing)).await.map(drop)
    }

    /// Sends a reply to a queue; `false` if it does not exist.
    pub(super) async fn answer(&self, reply: &Reply) -> Result<bool, BrokerError> {
        let outgoing = Outgoing {
            exchange: "",
            key: &reply.to,
            id: reply.id.clone(),
            properties: properties::of_reply(reply),
            body: &reply.body,
            // RabbitMQ passes a direct reply to a channel, but returns it as if it had no queue.
            mandatory: !reply.to.starts_with(DIRECT_REPLIES),
        };
        let returned = self.deliver(std::iter::once(outgoing)).await?;
        Ok(returned == 0)
    }

    /// Sends messages; returns the number of mandatory ones without a queue when all are confirmed.
    async fn deliver<'m>(
        &self,
        outgoing: impl Iterator<Item = Outgoing<'m>>,
    ) -> Result<usize, BrokerError> {
        let _turn = self.turn.lock().await;
        let session = self.session().await?;
        self.unblocked(&session).await?;
        let flight = Flight::new(&self.settings, &session);
        let sent = session.over().unless(flight.all(outgoing)).await.flatten();
        if let Err(cause) = &sent
            && !matches!(
                cause,
                BrokerError::Nacked { .. } | BrokerError::Blocked { .. }
            )
        {
            // Messages in transit would arrive before those that are sent again, which is harmless;
            // but a failed channel does not recover, and a silent one needs another connection.
            session.give_up(cause.clone());
            self.link.left(&session).await;
        }
        sent
    }

    /// Waits until the broker accepts messages. Meanwhile nothing may be sent, or it would
    /// accumulate here.
    async fn unblocked(&self, session: &Arc<Session>) -> Result<(), BrokerError> {
        let mut blocked = session.blocked.subscribe();
        let free = async {
            tokio::select! {
                _ = blocked.wait_for(Option::is_none) => {}
                () = self.link.left(session) => {}
            }
        };
        let waited = tokio::time::timeout(self.settings.timeout, free).await;
        let reason = session.blocked.borrow().clone();
        match (waited, reason) {
            (Err(_), Some(reason)) => Err(BrokerError::Blocked { reason }),
            _ => Ok(()),
        }
    }
}

/// A message to send.
struct Outgoing<'m> {
    exchange: &'m str,
    key: &'m str,
    id: String,
    properties: BasicProperties,
    body: &'m [u8],
    /// Whether the broker reports a missing queue.
    mandatory: bool,
}

/// Messages that are sent but not confirmed.
struct Flight<'s> {
    settings: &'s Settings,
    channel: &'s Channel,
    blocked: watch::Receiver<Option<String>>,
    ahead: VecDeque<(String, PublisherConfirm)>,
    /// Mandatory messages without a queue.
    returned: usize,
}

impl<'s> Flight<'s> {
    fn new(settings: &'s Settings, session: &'s Session) -> Self {
        Self {
            settings,
            channel: &session.channel,
            blocked: session.blocked.subscribe(),
            ahead: VecDeque::with_capacity(settings.window),
            returned: 0,
        }
    }

    async fn all<'m>(
        mut self,
        outgoing: impl Iterator<Item = Outgoing<'m>>,
    ) -> Result<usize, BrokerError> {
        for message in outgoing {
            while self.ahead.len() >= self.settings.window.max(1) {
                self.land().await?;
            }
            let options = BasicPublishOptions {
                mandatory: message.mandatory,
                ..BasicPublishOptions::default()
            };
            let confirm = self
                .channel
                .basic_publish(
                    message.exchange.into(),
                    message.key.into(),
                    options,
                    message.body,
                    message.properties,
                )
                .await
                .map_err(|error| failure::lost(&error))?;
            self.ahead.push_back((message.id, confirm));
        }
        while !self.ahead.is_empty() {
            self.land().await?;
        }
        Ok(self.returned)
    }

    /// Waits for the oldest confirmation.
    async fn land(&mut self) -> Result<(), BrokerError> {
        let Some((id, confirm)) = self.ahead.pop_front() else {
            return Ok(());
        };
        let timeout = self.settings.timeout;
        let confirmed = tokio::select! {
            biased;
            confirmed = tokio::time::timeout(timeout, confirm) => confirmed,
            Ok(reason) = self.blocked.wait_for(Option::is_some) => {
                let reason = reason.clone().unwrap_or_default();
                return Err(BrokerError::Blocked { reason });
            }
        };
        match confirmed {
            Ok(Ok(Confirmation::Ack(returned))) => {
                self.returned += usize::from(returned.is_some());
                Ok(())
            }
            Ok(Ok(_)) => Err(BrokerError::Nacked { id }),
            Ok(Err(error)) => Err(failure::lost(&error)),
            Err(_) => Err(BrokerError::TimedOut {
                what: "the confirmation of a message",
                after_ms: timeout.as_millis() as u64,
            }),
        }
    }
}
