//! Consumes deliveries across lost connections.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Acker, Channel, Consumer};
use tokio::sync::mpsc;

use super::link::{Link, Over, Session};
use super::publish::Publisher;
use super::{failure, properties, topology};
use crate::delivery::{Parts, Settle, Settlement};
use crate::{BrokerError, Deliveries, Delivery, Letter, Subscription, header};

/// What to consume.
pub(super) struct Source {
    pub(super) queue: String,
    /// Declared again on every connection.
    pub(super) subscription: Option<Subscription>,
    pub(super) prefetch: u16,
}

/// Starts to consume.
pub(super) fn start(link: Arc<Link>, publisher: Arc<Publisher>, source: Source) -> Deliveries {
    // The prefetch limits buffered and unsettled deliveries together.
    let (sender, receiver) = mpsc::channel(usize::from(source.prefetch));
    tokio::spawn(run(link, publisher, source, sender));
    Deliveries::new(receiver)
}

async fn run(
    link: Arc<Link>,
    publisher: Arc<Publisher>,
    source: Source,
    sender: mpsc::Sender<Delivery>,
) {
    loop {
        let session = tokio::select! {
            () = sender.closed() => return,
            session = link.next_session() => session,
        };
        let Some(session) = session else {
            return;
        };
        let mut over = session.over();
        let opened = over.unless(open(&session, &publisher, &source)).await;
        match opened.flatten() {
            Ok((channel, consumer)) => {
                let forwarding = forward(consumer, &session, &publisher, &source.queue, &sender);
                if over.unless(forwarding).await == Ok(End::Unwanted) {
                    // Unsettled messages are returned when the channel closes.
                    let _ = over.unless(channel.close(200, "done".into())).await;
                    return;
                }
                session.give_up(BrokerError::Lost {
                    cause: format!("the broker stopped delivering from {}", source.queue),
                });
            }
            Err(cause) => session.give_up(cause),
        }
        link.left(&session).await;
    }
}

async fn open(
    session: &Session,
    publisher: &Publisher,
    source: &Source,
) -> Result<(Channel, Consumer), BrokerError> {
    if let Some(subscription) = &source.subscription {
        topology::subscribe(session, publisher.names(), subscription).await?;
    }
    let channel = topology::channel(&session.connection).await?;
    channel
        .basic_qos(source.prefetch, BasicQosOptions::default())
        .await
        .map_err(|error| failure::lost(&error))?;
    let consumer = channel
        .basic_consume(
            source.queue.as_str().into(),
            // The broker chooses a tag.
            "".into(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        )
        .await
        .map_err(|error| failure::lost(&error))?;
    Ok((channel, consumer))
}

/// Why forwarding has ended.
#[derive(PartialEq)]
enum End {
    /// The receiver is gone.
    Unwanted,
    /// The broker has stopped delivering.
    Stopped,
}

/// Forwards deliveries.
async fn forward(
    mut consumer: Consumer,
    session: &Session,
    publisher: &Arc<Publisher>,
    queue: &str,
    sender: &mpsc::Sender<Delivery>,
) -> End {
    loop {
        let arrived = tokio::select! {
            () = sender.closed() => return End::Unwanted,
            arrived = consumer.next() => arrived,
        };
        let Some(Ok(arrived)) = arrived else {
            return End::Stopped;
        };
        let delivery = Delivery {
            id: arrived
                .properties
                .message_id()
                .as_ref()
                .map(ToString::to_string),
            routing_key: arrived.routing_key.to_string(),
            headers: properties::headers(&arrived.properties),
            reply_to: properties::reply_to(&arrived.properties),
            correlation_id: arrived
                .properties
                .correlation_id()
                .as_ref()
                .map(ToString::to_string),
            body: arrived.data,
            redelivered: arrived.redelivered,
            settle: Box::new(Receipt {
                acker: arrived.acker,
                over: session.over(),
                queue: queue.to_owned(),
                publisher: Arc::clone(publisher),
            }),
        };
        if sender.send(delivery).await.is_err() {
            return End::Unwanted;
        }
    }
}

/// Settles a delivery.
struct Receipt {
    acker: Acker,
    over: Over,
    queue: String,
    publisher: Arc<Publisher>,
}

#[async_trait]
impl Settle for Receipt {
    async fn settle(
        self: Box<Self>,
        delivery: Parts,
        settlement: Settlement,
    ) -> Result<(), BrokerError> {
        let Self {
            acker,
            mut over,
            queue,
            publisher,
        } = *self;
        let burial = Burial {
            queue: &queue,
            publisher: &publisher,
        };
        let settling = settle(&acker, &burial, delivery, settlement);
        match over.unless(settling).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) | Err(_) => Err(BrokerError::DeliveryLost),
            Ok(Err(error)) => {
                tracing::debug!(queue, "not settled: {error}");
                Err(BrokerError::DeliveryLost)
            }
        }
    }
}

/// Settles a delivery; `false` if its connection is lost.
async fn settle(
    acker: &Acker,
    burial: &Burial<'_>,
    delivery: Parts,
    settlement: Settlement,
) -> lapin::Result<bool> {
    let back = |requeue| BasicNackOptions {
        requeue,
        ..BasicNackOptions::default()
    };
    let reason = match settlement {
        Settlement::Ack => return acker.ack(BasicAckOptions::default()).await,
        Settlement::Requeue => return acker.nack(back(true)).await,
        Settlement::Reject(reason) => reason,
    };
    if !acker.usable() {
        return Ok(false);
    }
    // A rejection can't carry a reason, so a copy with the reason goes to the dead letters, and the
    // original is acknowledged. Without a confirmed copy, the broker itself moves the original,
    // with the reason `rejected`.
    match burial.bury(delivery, reason).await {
        Ok(()) => acker.ack(BasicAckOptions::default()).await,
        Err(cause) => {
            tracing::warn!(
                queue = burial.queue,
                "could not add the reason to a dead letter: {cause}"
            );
            acker.nack(back(false)).await
        }
    }
}

/// Makes a letter a dead letter.
struct Burial<'r> {
    queue: &'r str,
    publisher: &'r Publisher,
}

impl Burial<'_> {
    async fn bury(&self, delivery: Parts, reason: String) -> Result<(), BrokerError> {
        let mut letter = Letter {
            id: delivery.id.unwrap_or_default(),
            headers: delivery.headers,
            reply_to: delivery.reply_to,
            correlation_id: delivery.correlation_id,
            body: delivery.body,
        };
        letter.headers.insert(header::REASON.into(), reason);
        letter
            .headers
            .insert(header::FROM_QUEUE.into(), self.queue.to_owned());
        let exchange = self.publisher.names().dead_exchange();
        self.publisher
            .send(exchange, self.queue.to_owned(), &letter)
            .await
    }
}
