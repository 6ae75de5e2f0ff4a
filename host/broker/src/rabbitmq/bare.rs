//! A minimal publisher, to measure the overhead of this crate.

use std::collections::VecDeque;
use std::fmt;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Channel, Connection};

use super::{Settings, failure, link, topology};
use crate::BrokerError;

/// Only lapin: one channel with confirmations, persistent messages without headers, the same
/// window. It does not reconnect.
pub struct BarePublisher {
    connection: Connection,
    channel: Channel,
    exchange: String,
    window: usize,
}

impl fmt::Debug for BarePublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BarePublisher")
            .field("exchange", &self.exchange)
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}

impl BarePublisher {
    /// Connects, with the exchange and the window of the settings.
    ///
    /// # Errors
    /// If the broker is unavailable or refuses.
    pub async fn connect(settings: &Settings) -> Result<Self, BrokerError> {
        let connection = link::connect(settings, "treadle bare").await?;
        topology::declare(&connection, &settings.names).await?;
        let channel = topology::channel(&connection).await?;
        channel
            .confirm_select(ConfirmSelectOptions::default())
            .await
            .map_err(|error| failure::lost(&error))?;
        Ok(Self {
            connection,
            channel,
            exchange: settings.names.events_exchange(),
            window: settings.window.max(1),
        })
    }

    /// Publishes messages, each a routing key and a body; returns their number when all are
    /// confirmed.
    ///
    /// # Errors
    /// If the connection is lost or a message is refused.
    pub async fn publish<'m>(
        &self,
        messages: impl IntoIterator<Item = (&'m str, &'m [u8])>,
    ) -> Result<u64, BrokerError> {
        let mut ahead = VecDeque::with_capacity(self.window);
        let mut count = 0;
        for (key, body) in messages {
            if ahead.len() >= self.window
                && let Some(confirm) = ahead.pop_front()
            {
                landed(confirm).await?;
            }
            let properties = BasicProperties::default().with_delivery_mode(2);
            let confirm = self
                .channel
                .basic_publish(
                    self.exchange.as_str().into(),
                    key.into(),
                    BasicPublishOptions::default(),
                    body,
                    properties,
                )
                .await
                .map_err(|error| failure::lost(&error))?;
            ahead.push_back(confirm);
            count += 1;
        }
        for confirm in ahead {
            landed(confirm).await?;
        }
        Ok(count)
    }

    /// Disconnects.
    pub async fn close(self) {
        let _ = self.connection.close(200, "bye".into()).await;
    }
}

async fn landed(confirm: lapin::PublisherConfirm) -> Result<(), BrokerError> {
    let confirmation = confirm.await.map_err(|error| failure::lost(&error))?;
    if confirmation.is_ack() {
        Ok(())
    } else {
        Err(BrokerError::Nacked {
            id: "of the benchmark".into(),
        })
    }
}
