//! A client of the broker that a daemon under test talks to.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use treadle_broker::{
    Address, Broker, Deliveries, Delivery, Letter, Names, Queue, RabbitMq, Settings, Subscription,
};

use super::client::TIMEOUT;

#[allow(dead_code, reason = "these tests ask for no number")]
#[path = "../../host/broker/tests/broker/order.rs"]
mod order;

use order::Order;

/// The shared RabbitMQ; `None` if tests that need it are skipped.
pub fn amqp_url() -> Option<String> {
    if std::env::var("TREADLE_SKIP_SERVICE_TESTS").is_ok_and(|value| value == "1") {
        return None;
    }
    let url = std::env::var("TREADLE_TEST_AMQP_URL").unwrap_or_else(|_| {
        panic!(
            "TREADLE_TEST_AMQP_URL is not set: run `scripts/services.sh start` and set it to what \
             `scripts/services.sh url rabbitmq` prints, or leave these tests out by \
             TREADLE_SKIP_SERVICE_TESTS=1"
        )
    });
    Some(url)
}

/// Events without an acknowledgement.
const PREFETCH: u16 = 100;

/// Another client of the broker: gets all events, sends commands.
pub struct Peer {
    broker: RabbitMq,
    events: Deliveries,
    order: Order,
    queue: String,
    /// Prefix of the daemon's exchanges and queues.
    pub prefix: String,
}

/// A received event.
#[derive(Debug)]
pub struct Event {
    /// Its sequence number, which is the message's id.
    pub seq: u64,
    /// Its routing key.
    pub key: String,
    /// Its headers.
    pub headers: BTreeMap<String, String>,
    /// Its body.
    pub body: Value,
}

impl Peer {
    /// Connects, with names that no other test has, and subscribes to all events.
    pub async fn connect(url: &str, test: &str) -> Self {
        let since = std::time::UNIX_EPOCH.elapsed().expect("a time after 1970");
        let prefix = format!("t-{test}-{}-{:x}", std::process::id(), since.as_nanos());
        let settings = Settings {
            names: Names::new(&prefix).expect("a prefix"),
            backoff_longest: Duration::from_millis(500),
            ..Settings::new(Address::parse(url).expect("a URL"))
        };
        let broker = RabbitMq::start(settings);
        let queue = format!("{prefix}.all");
        let all = Subscription {
            prefetch: PREFETCH,
            ..Subscription::new(&queue, ["#"])
        };
        let events = broker.subscribe(&all).await.expect("a subscription");
        Self {
            broker,
            events,
            order: Order::default(),
            queue,
            prefix,
        }
    }

    /// Sends a command or a notice.
    pub async fn send(&self, queue: Queue, id: &str, body: &str) {
        let letter = Letter {
            id: id.to_owned(),
            body: body.as_bytes().to_vec(),
            ..Letter::default()
        };
        self.broker.send(queue, &letter).await.expect("it is sent");
    }

    /// Sends what is answered to [`Peer::replies`].
    pub async fn ask(&self, queue: Queue, id: &str, correlation_id: &str, body: &str) {
        let letter = Letter {
            id: id.to_owned(),
            reply_to: Some(self.replies_queue()),
            correlation_id: Some(correlation_id.to_owned()),
            body: body.as_bytes().to_vec(),
            ..Letter::default()
        };
        let sent = self.broker.send(queue, &letter).await;
        sent.expect("it is sent");
    }

    /// The next reply.
    pub async fn replies(&self) -> Deliveries {
        // No event has this key.
        let none = Subscription::new(self.replies_queue(), ["none"]);
        self.broker.subscribe(&none).await.expect("a subscription")
    }

    fn replies_queue(&self) -> String {
        format!("{}-replies", self.prefix)
    }

    /// The next event, though it may have come before.
    pub async fn event(&mut self) -> Event {
        let delivery = next(&mut self.events).await;
        let event = Event {
            seq: delivery
                .id
                .as_deref()
                .map_or(0, |id| id.parse().expect("a number")),
            key: delivery.routing_key.clone(),
            headers: delivery.headers.clone(),
            body: serde_json::from_slice(&delivery.body).expect("JSON"),
        };
        // A message whose acknowledgement failed with the broker is redelivered.
        let _ = delivery.ack().await;
        event
    }

    /// Prepares for a kill of the broker: messages that it has delivered may come late.
    pub fn broker_is_killed(&mut self) {
        self.order.broker_is_killed(PREFETCH);
    }

    /// All events until one meets a condition, by their numbers; each counts once. Checks that they
    /// come in order, and without a gap.
    pub async fn events_until(
        &mut self,
        seen: &mut BTreeMap<u64, Event>,
        is_met: impl Fn(&Event) -> bool,
    ) {
        let mut met = false;
        while !met || !self.order.is_whole() {
            let event = self.event().await;
            if self.order.take(event.seq) {
                met = met || is_met(&event);
                seen.insert(event.seq, event);
            }
        }
    }

    /// The next dead letter.
    pub fn dead_letters(&self) -> Deliveries {
        self.broker.consume(Queue::DeadLetters, 10)
    }

    /// Removes everything that the test made.
    pub async fn clean_up(self) {
        let queues = [self.queue.clone(), self.replies_queue()];
        drop(self.events);
        for queue in queues {
            let gone = self.broker.unsubscribe(&queue).await;
            gone.expect("it is gone");
        }
        self.broker.remove_topology().await.expect("it is gone");
        self.broker.close().await.expect("it is closed");
    }
}

/// The next delivery, which has to come.
pub async fn next(deliveries: &mut Deliveries) -> Delivery {
    tokio::time::timeout(TIMEOUT, deliveries.next())
        .await
        .expect("a delivery comes in time")
        .expect("the stream goes on")
}
