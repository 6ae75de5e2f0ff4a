//! `[broker]`: the message broker that events are published to and commands are consumed from.

use std::time::Duration;

use treadle_broker::{Address, BrokerError, Names, Settings};

use super::Secret;
use super::section::section;

section! {
    /// The AMQP 0-9-1 broker (RabbitMQ 3.10 or later) that events are published to and commands are consumed from. `docs/messaging.md` describes the messages.
    BrokerConfig in "broker" {
        /// URL of the broker: `amqp://user:password@host:5672/vhost`, or `amqps://` for TLS, with `?cacertfile=`, `certfile=` and `keyfile=` if the system's certificate authorities are not sufficient. Empty for no broker.
        url: Secret = Secret::default(), "";
        /// Prefix of the names of exchanges and queues.
        prefix: String = "treadle".to_owned(), "";
        /// Events waiting for the broker before an alarm is raised. Retention keeps at most this
        /// many for the broker: if it is away longer, the events it misses remain only in your own
        /// archive, if you keep one.
        lag_events_max: u64 = 1_000_000, "events", 1_000 ..= 1_000_000_000_000_u64;
        fixed {
            /// Messages sent ahead of their confirmations.
            window: u32 = 1_000, "messages", 1 ..= 10_000;
            /// Commands fetched ahead of their execution.
            prefetch: u32 = 64, "messages", 1 ..= 1_000;
        }
    }
}

impl BrokerConfig {
    /// Whether a broker is configured.
    pub fn is_on(&self) -> bool {
        !self.url.is_empty()
    }

    /// The settings of the connection.
    ///
    /// # Errors
    /// If the URL or the prefix is invalid.
    pub fn settings(&self) -> Result<Settings, BrokerError> {
        Ok(Settings {
            names: Names::new(&self.prefix)?,
            window: self.window as usize,
            // Shorter than the default, so that an unresponsive broker is detected soon.
            timeout: Duration::from_secs(15),
            // Short, so that a broker that is back gets its backlog soon.
            backoff_longest: Duration::from_secs(2),
            ..Settings::new(Address::parse(self.url.reveal())?)
        })
    }

    /// The configuration of one shard. Each shard has its own journal, so message ids are unique
    /// only within it: the first shard has the names of a daemon without shards, and each further
    /// one has its own exchanges and queues, with the shard's name behind the prefix.
    pub fn of_shard(&self, shard: &str, is_first: bool) -> Self {
        let mut own = self.clone();
        if !is_first {
            own.prefix = format!("{}.{shard}", self.prefix);
        }
        own
    }

    /// The first invalid key and its problem, if any.
    pub(super) fn problem(&self) -> Option<(&'static str, String)> {
        if !self.is_on() {
            return None;
        }
        match self.settings().err()? {
            BrokerError::Url { cause } => Some(("broker.url", cause)),
            BrokerError::Prefix { cause } => Some(("broker.prefix", cause)),
            other => Some(("broker.url", other.to_string())),
        }
    }
}
