//! `[broker]`: where events go and commands come from.

use std::time::Duration;

use treadle_broker::{Address, BrokerError, Names, Settings};

use super::Secret;
use super::section::section;

section! {
    /// The broker to which events go and from which commands come, over AMQP 0-9-1: RabbitMQ 3.10
    /// or later. `docs/messaging.md` has what is sent.
    BrokerConfig in "broker" {
        /// Its URL: `amqp://user:password@host:5672/vhost`, or `amqps://` for TLS, with `?cacertfile=`, `certfile=` and `keyfile=` where the system's authorities don't do. Empty for no broker.
        url: Secret = Secret::default(), "";
        /// What the names of exchanges and queues begin with.
        prefix: String = "treadle".to_owned(), "";
        /// Events that wait for the broker before an alarm is raised. Retention keeps so many for
        /// it and no more: events that a broker misses when it is away for longer remain only in
        /// your own archive, if you keep one.
        lag_events_max: u64 = 1_000_000, "events", 1_000 ..= 1_000_000_000_000_u64;
        fixed {
            /// Messages that are sent ahead of their confirmations.
            window: u32 = 1_000, "messages", 1 ..= 10_000;
            /// Commands that are fetched ahead of being carried out.
            prefetch: u32 = 64, "messages", 1 ..= 1_000;
        }
    }
}

impl BrokerConfig {
    /// Whether there is a broker.
    pub fn is_on(&self) -> bool {
        !self.url.is_empty()
    }

    /// How to work with the broker.
    ///
    /// # Errors
    /// If URL or prefix can't be used.
    pub fn settings(&self) -> Result<Settings, BrokerError> {
        Ok(Settings {
            names: Names::new(&self.prefix)?,
            window: self.window as usize,
            // Shorter than the default, so that a silent broker is found out soon.
            timeout: Duration::from_secs(15),
            // What waits meanwhile is caught up with; a broker that is back is to get it soon.
            backoff_longest: Duration::from_secs(2),
            ..Settings::new(Address::parse(self.url.reveal())?)
        })
    }

    /// What one shard uses. Each has a journal of its own, so ids of messages are those of its shard
    /// alone: the first shard has the names of a daemon without shards, each further one has
    /// exchanges and queues of its own, with its name behind the prefix.
    pub fn of_shard(&self, shard: &str, is_first: bool) -> Self {
        let mut own = self.clone();
        if !is_first {
            own.prefix = format!("{}.{shard}", self.prefix);
        }
        own
    }

    /// What is wrong with it, if anything: key and problem.
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
