//! Events out (treadle-outbox) and commands in, over a broker.

mod actions;
mod commands;
mod effects;
mod runs;
mod training;

use crate::app::App;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use treadle_broker::{Broker, BrokerError, Queue, RabbitMq};
use treadle_config::BrokerConfig;
use treadle_outbox::{Outbox, Status};

/// How long tasks may take to end, and the broker connection to close.
const STOP_WAIT: Duration = Duration::from_secs(3);

/// The daemon's part in messages.
pub struct Messaging {
    broker: Arc<dyn Broker>,
    status: Arc<Status>,
    prefetch: u16,
    running: Mutex<Option<Running>>,
}

struct Running {
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Messaging {
    /// Starts to connect if a broker is configured, without waiting.
    ///
    /// # Errors
    /// If URL or prefix can't be used.
    pub fn connect(config: &BrokerConfig) -> Result<Option<Arc<Self>>, BrokerError> {
        if !config.is_on() {
            return Ok(None);
        }
        let broker = Arc::new(RabbitMq::start(config.settings()?));
        Ok(Some(Self::over(broker, config)))
    }

    /// Uses an existing broker connection.
    pub fn over(broker: Arc<dyn Broker>, config: &BrokerConfig) -> Arc<Self> {
        Arc::new(Self {
            status: Arc::new(Status::new(broker.health(), config.lag_events_max)),
            broker,
            prefetch: u16::try_from(config.prefetch).unwrap_or(u16::MAX),
            running: Mutex::new(None),
        })
    }

    /// Its status.
    pub fn status(&self) -> &Arc<Status> {
        &self.status
    }

    /// Starts to publish events and to execute commands, which only the scheduling daemon does;
    /// `committed` is the last event on disk.
    pub fn start(&self, app: &App, committed: watch::Receiver<u64>) {
        let stop = watch::Sender::new(false);
        let outbox = Outbox {
            store: app.store.clone(),
            broker: Arc::clone(&self.broker),
            status: Arc::clone(&self.status),
            committed,
            stop: stop.subscribe(),
        };
        let consumer = |queue, prefetch| commands::Consumer {
            app: app.clone(),
            deliveries: self.broker.consume(queue, prefetch),
            status: Arc::clone(&self.status),
            stop: stop.subscribe(),
        };
        let training = commands::Consumer {
            app: app.training.clone(),
            deliveries: self.broker.consume(Queue::Training, training::PREFETCH),
            status: Arc::clone(&self.status),
            stop: stop.subscribe(),
        };
        let tasks = vec![
            tokio::spawn(outbox.run()),
            tokio::spawn(consumer(Queue::Commands, self.prefetch).run()),
            tokio::spawn(actions::run(consumer(Queue::Actions, self.prefetch))),
            tokio::spawn(runs::run(
                consumer(Queue::Runs, runs::PREFETCH),
                self.broker.clone(),
            )),
            tokio::spawn(training::run(training, self.broker.clone())),
        ];
        let before = self.set(Some(Running { stop, tasks }));
        if let Some(before) = before {
            before.stop.send_replace(true);
        }
    }

    /// Stops publishing and executing; unfinished deliveries go back to their queues.
    pub async fn pause(&self) {
        let Some(running) = self.set(None) else {
            return;
        };
        running.stop.send_replace(true);
        for mut task in running.tasks {
            if tokio::time::timeout(STOP_WAIT, &mut task).await.is_err() {
                task.abort();
            }
        }
    }

    /// Ends for good.
    pub async fn stop(&self) {
        self.pause().await;
        // A connection that does not close in time is dropped.
        let _ = tokio::time::timeout(STOP_WAIT, self.broker.close()).await;
    }

    fn set(&self, running: Option<Running>) -> Option<Running> {
        let mut held = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *held, running)
    }
}
