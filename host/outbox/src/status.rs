//! Status of messaging, for health and metrics.

use serde::Serialize;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::watch;
use treadle_broker::Health;
use utoipa::ToSchema;

/// Status of messaging.
#[derive(Debug)]
pub struct Status {
    broker: watch::Receiver<Health>,
    lag_events_max: u64,
    /// Last event that is on disk.
    committed: AtomicU64,
    /// Last event that the broker has confirmed.
    confirmed: AtomicU64,
    is_late: AtomicBool,
    published: AtomicU64,
    failures: AtomicU64,
    missed: AtomicU64,
    commands: [AtomicU64; 3],
}

/// Status of messaging, as shown in `/health`.
#[derive(Debug, Serialize, ToSchema)]
pub struct BrokerHealth {
    /// connected, blocked or disconnected.
    state: &'static str,
    /// When it lost its connection, in microseconds since 1970.
    since_us: Option<u64>,
    /// A stable word for the cause.
    code: Option<&'static str>,
    /// The cause.
    cause: Option<String>,
    /// Events that are on disk and not at the broker.
    lag_events: u64,
    /// The lag above which the broker counts as degraded.
    lag_events_max: u64,
    /// Whether it is not connected or its lag exceeds the limit.
    degraded: bool,
}

/// The result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was executed.
    Done,
    /// It had already been executed.
    Repeated,
    /// It can't be executed and went to the dead letters.
    Refused,
}

impl Outcome {
    const ALL: [Self; 3] = [Self::Done, Self::Repeated, Self::Refused];

    const fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Repeated => "repeated",
            Self::Refused => "refused",
        }
    }
}

impl Status {
    /// Starts with all counters at zero.
    pub fn new(broker: watch::Receiver<Health>, lag_events_max: u64) -> Self {
        Self {
            broker,
            lag_events_max,
            committed: AtomicU64::default(),
            confirmed: AtomicU64::default(),
            is_late: AtomicBool::default(),
            published: AtomicU64::default(),
            failures: AtomicU64::default(),
            missed: AtomicU64::default(),
            commands: Default::default(),
        }
    }

    /// The health of the broker.
    pub fn health(&self) -> Health {
        self.broker.borrow().clone()
    }

    /// Events that are on disk and not at the broker.
    pub fn lag_events(&self) -> u64 {
        let committed = self.committed.load(Ordering::Relaxed);
        committed.saturating_sub(self.confirmed.load(Ordering::Relaxed))
    }

    /// Whether the lag exceeds the limit.
    pub fn is_late(&self) -> bool {
        self.is_late.load(Ordering::Relaxed)
    }

    /// Records the last event on disk.
    pub fn committed(&self, seq: u64) {
        self.committed.fetch_max(seq, Ordering::Relaxed);
        self.update_alarm();
    }

    /// Records that the broker has all events up to this one.
    pub fn begins_after(&self, seq: u64) {
        self.confirmed.store(seq, Ordering::Relaxed);
        self.update_alarm();
    }

    /// Records a confirmed batch.
    pub fn confirmed(&self, seq: u64, messages: usize) {
        self.confirmed.store(seq, Ordering::Relaxed);
        self.published.fetch_add(messages as u64, Ordering::Relaxed);
        self.update_alarm();
    }

    /// Records a batch that was not confirmed.
    pub fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Records events that were removed before they were published.
    pub fn missed(&self, events: u64) {
        self.missed.fetch_add(events, Ordering::Relaxed);
    }

    /// Records a settled command.
    pub fn settled(&self, outcome: Outcome) {
        self.commands[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Raises the alarm once above the limit, and clears it below half of the limit.
    fn update_alarm(&self) {
        let (lag_events, max) = (self.lag_events(), self.lag_events_max);
        if lag_events > max {
            if !self.is_late.swap(true, Ordering::Relaxed) {
                tracing::error!(
                    lag_events,
                    "the broker lags so far behind that events may be removed before they are \
                     published (broker.lag_events_max is {max}); check it with treadle doctor"
                );
            }
        } else if lag_events < max / 2 && self.is_late.swap(false, Ordering::Relaxed) {
            tracing::info!(lag_events, "the broker has caught up");
        }
    }

    /// For `/health`.
    pub fn report(&self) -> BrokerHealth {
        let health = self.health();
        let since_us = match &health {
            Health::Connected => None,
            Health::Blocked { since_us, .. } | Health::Disconnected { since_us, .. } => {
                Some(*since_us)
            }
        };
        let cause = health.cause();
        BrokerHealth {
            state: health.word(),
            since_us,
            code: cause.as_ref().map(treadle_broker::BrokerError::code),
            cause: cause.map(|cause| cause.to_string()),
            lag_events: self.lag_events(),
            lag_events_max: self.lag_events_max,
            degraded: self.is_late() || !health.is_connected(),
        }
    }

    /// For `/metrics`.
    pub fn render(&self) -> String {
        let mut text = String::new();
        let mut metric = |name: &str, kind: &str, help: &str, value: u64| {
            // Writing to a string does not fail.
            let _ = write!(
                text,
                "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"
            );
        };
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        for (name, help, value) in [
            (
                "treadle_broker_connected",
                "1 if the broker accepts and delivers messages, else 0.",
                u64::from(self.health().is_connected()),
            ),
            (
                "treadle_broker_lag_events",
                "Events on disk that the broker has not confirmed.",
                self.lag_events(),
            ),
            (
                "treadle_broker_late",
                "1 if the unconfirmed events exceed broker.lag_events_max, else 0.",
                u64::from(self.is_late()),
            ),
        ] {
            metric(name, "gauge", help, value);
        }
        for (name, help, counter) in [
            (
                "treadle_broker_published_total",
                "Messages that the broker has confirmed.",
                &self.published,
            ),
            (
                "treadle_broker_failures_total",
                "Batches that were published again because the broker did not confirm them.",
                &self.failures,
            ),
            (
                "treadle_broker_missed_events_total",
                "Events that retention removed before they were published.",
                &self.missed,
            ),
        ] {
            metric(name, "counter", help, count(counter));
        }
        let name = "treadle_broker_commands_total";
        let _ = write!(
            text,
            "# HELP {name} Commands received over the broker.\n# TYPE {name} counter\n"
        );
        for outcome in Outcome::ALL {
            let value = count(&self.commands[outcome as usize]);
            let _ = writeln!(text, "{name}{{outcome=\"{}\"}} {value}", outcome.word());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use treadle_broker::{Broker, InProcess, Names};

    #[tokio::test]
    async fn an_alarm_is_raised_past_the_bound_and_taken_back_below_half_of_it() {
        let broker = InProcess::new(Names::default());
        let status = Status::new(broker.health(), 100);
        status.begins_after(1_000);
        status.committed(1_100);
        assert_eq!((status.lag_events(), status.is_late()), (100, false));
        status.committed(1_101);
        assert!(status.is_late());
        assert!(status.report().degraded);
        status.confirmed(1_040, 40);
        assert!(status.is_late());
        status.confirmed(1_060, 20);
        assert!(!status.is_late());
        assert!(!status.report().degraded);
        broker.cut();
        assert_eq!(status.report().state, "disconnected");
        let text = status.render();
        assert!(text.contains("treadle_broker_lag_events 41\n"), "{text}");
        assert!(
            text.contains("treadle_broker_published_total 60\n"),
            "{text}"
        );
        assert!(text.contains("treadle_broker_connected 0\n"), "{text}");
    }
}
