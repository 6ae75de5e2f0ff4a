//! A consumer of all events, independent of the daemons: it records each message, then acknowledges
//! it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use treadle_broker::{Address, Broker, Delivery, Names, RabbitMq, Settings, Subscription};

use crate::error::ChaosError;
use crate::record::Record;

/// Prefix of its queue's name.
const QUEUE: &str = "chaos-record";

/// The consumer at work.
pub(crate) struct Consumer {
    broker: RabbitMq,
    seq: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<Result<(), ChaosError>>,
}

impl Consumer {
    /// Subscribes to all events of a shard, whose exchanges have a prefix.
    pub(crate) async fn start(url: &str, prefix: &str, file: &Path) -> Result<Self, ChaosError> {
        let broker = RabbitMq::start(Settings {
            names: Names::new(prefix)?,
            ..Settings::new(Address::parse(url)?)
        });
        let mut deliveries = broker
            .subscribe(&Subscription::new(format!("{QUEUE}-{prefix}"), ["#"]))
            .await?;
        let record = Record::create(file)?;
        let seq = Arc::new(AtomicU64::new(0));
        let seen = seq.clone();
        let task = tokio::spawn(async move {
            while let Some(delivery) = deliveries.next().await {
                record.add(&line(&delivery))?;
                let number = delivery.id.as_deref().and_then(|id| id.parse().ok());
                seen.fetch_max(number.unwrap_or(0), Ordering::Relaxed);
                // If this is lost with the broker, the message comes once more.
                let _ = delivery.ack().await;
            }
            Ok(())
        });
        Ok(Self { broker, seq, task })
    }

    /// The greatest number that has come.
    pub(crate) fn seq(&self) -> u64 {
        self.seq.load(Ordering::Relaxed)
    }

    /// Disconnects and closes the record.
    pub(crate) async fn stop(self) -> Result<(), ChaosError> {
        self.broker.close().await?;
        self.task
            .await
            .map_err(|error| ChaosError::Nonsense(error.to_string()))?
    }
}

fn line(delivery: &Delivery) -> Value {
    json!({
        "id": delivery.id,
        "key": delivery.routing_key,
        "redelivered": delivery.redelivered,
        "body": String::from_utf8_lossy(&delivery.body),
    })
}
