//! Messages through the broker, beside a publisher with nothing around it.

use super::super::BenchError;
use super::rows::row;
use std::time::{Duration, Instant};
use treadle_broker::rabbitmq::BarePublisher;
use treadle_broker::{Address, Broker, Message, Names, RabbitMq, Settings, Subscription};
use treadle_outbox::message;
use treadle_store::EventRow;

/// Messages of one call, as the outbox makes them.
const BATCH: u64 = 2_000;

/// Two publishers on one exchange, and a queue that takes what they send.
pub(super) struct Fixture {
    broker: RabbitMq,
    bare: BarePublisher,
    queue: String,
    rows: Vec<EventRow>,
    messages: Vec<Message>,
}

impl Fixture {
    /// Connects, and makes exchange and queue.
    pub(super) async fn open(url: &str) -> Result<Self, BenchError> {
        let prefix = format!("treadle-bench-{}", std::process::id());
        let settings = Settings {
            names: Names::new(&prefix)?,
            ..Settings::new(Address::parse(url)?)
        };
        let broker = RabbitMq::start(settings.clone());
        let queue = format!("{prefix}.queue");
        // It has no reader: what is sent stays in a queue as events for a slow consumer do.
        drop(
            broker
                .subscribe(&Subscription::new(queue.as_str(), ["#"]))
                .await?,
        );
        let rows: Vec<EventRow> = (1..=BATCH).map(row).collect();
        Ok(Self {
            broker,
            bare: BarePublisher::connect(&settings).await?,
            queue,
            messages: rows.iter().map(message).collect(),
            rows,
        })
    }

    /// Messages a second: of treadle, then of the bare publisher.
    pub(super) async fn round(&self, time: Duration) -> Result<(f64, f64), BenchError> {
        let began = Instant::now();
        let mut sent = 0;
        while began.elapsed() < time {
            let batch: Vec<Message> = self.rows.iter().map(message).collect();
            self.broker.publish(&batch).await?;
            sent += BATCH;
        }
        let own = sent as f64 / began.elapsed().as_secs_f64();
        let began = Instant::now();
        let mut sent = 0;
        while began.elapsed() < time {
            let messages = self.messages.iter();
            let messages = messages.map(|m| (m.key.as_str(), m.body.as_slice()));
            sent += self.bare.publish(messages).await?;
        }
        Ok((own, sent as f64 / began.elapsed().as_secs_f64()))
    }

    /// Removes exchange and queues.
    pub(super) async fn remove(self) {
        self.bare.close().await;
        // What stays is named after a process that is gone; a log line would not help.
        let _ = self.broker.unsubscribe(&self.queue).await;
        let _ = self.broker.remove_topology().await;
        let _ = self.broker.close().await;
    }
}
