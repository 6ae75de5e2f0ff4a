//! The outbox: publishes committed events of the journal, from a cursor in the store.
//!
//! A batch is read while the one before it is published. The cursor is stored after its events are
//! confirmed, but not for every batch: after a crash the last ones are published again. So every
//! event is published at least once, in the journal's order.

use crate::event_message::message;
use crate::status::Status;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use treadle_broker::{Broker, Message};
use treadle_store::{EventRow, Store, StoreError};

/// Events of one batch: several windows, because the window runs empty at its end.
const BATCH_EVENTS: u32 = 5_000;
/// Shortest interval between two writes of the cursor.
const NOTE_INTERVAL: Duration = Duration::from_millis(250);
/// The name of this sink in the store.
pub const SINK: &str = "amqp";
/// How long to wait for a commit before reading the store anyway.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// The first and the longest pause after a failure.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The outbox.
pub struct Outbox {
    /// The journal.
    pub store: Arc<dyn Store>,
    /// Where events go.
    pub broker: Arc<dyn Broker>,
    /// What is told about it.
    pub status: Arc<Status>,
    /// The last event on disk.
    pub committed: watch::Receiver<u64>,
    /// Changes when it must end.
    pub stop: watch::Receiver<bool>,
}

/// The outbox must end: it was stopped, or this daemon no longer leads.
#[derive(Debug)]
struct Over;

/// Its position.
struct Cursor {
    /// The last confirmed event.
    at: u64,
    /// The last confirmed event that is stored.
    noted: u64,
    noted_at: Instant,
}

impl Outbox {
    /// Publishes until stopped.
    pub async fn run(mut self) {
        let Ok(mut cursor) = self.begin().await else {
            return;
        };
        let ended = self.publish_all(&mut cursor).await;
        debug_assert!(ended.is_err());
        // Stores the position, so that confirmed events are not published again.
        if cursor.noted < cursor.at {
            let _ = self.store.advance_sink(SINK, cursor.at).await;
        }
    }

    async fn begin(&mut self) -> Result<Cursor, Over> {
        let store = Arc::clone(&self.store);
        let at = self.surely(|| store.sink_cursor(SINK)).await?;
        let last = self.surely(|| store.last_seq()).await?;
        self.status.begins_after(at);
        self.status.committed(last);
        tracing::info!(
            after = at,
            waiting = last.saturating_sub(at),
            "publishing events"
        );
        Ok(Cursor {
            at,
            noted: at,
            noted_at: Instant::now(),
        })
    }

    async fn publish_all(&mut self, cursor: &mut Cursor) -> Result<(), Over> {
        let mut batch = self.read(cursor.at).await?;
        loop {
            let Some(last) = batch.last().map(|row| row.seq) else {
                self.idle(cursor).await?;
                batch = self.read(cursor.at).await?;
                continue;
            };
            let missing = batch[0].seq.saturating_sub(cursor.at + 1);
            if missing > 0 {
                self.status.missed(missing);
                tracing::error!(
                    missing,
                    from = cursor.at + 1,
                    "events were removed before they were published; the broker was unavailable \
                     for longer than broker.lag_events_max and store.keep_events allow"
                );
            }
            let messages: Vec<Message> = batch.iter().map(message).collect();
            let (published, ahead) = self.publish_and_read(&messages, last).await;
            published?;
            cursor.at = last;
            self.status.confirmed(last, messages.len());
            if cursor.noted_at.elapsed() >= NOTE_INTERVAL {
                self.note(cursor).await?;
            }
            batch = ahead?;
        }
    }

    /// Publishes a batch, and reads the next one meanwhile.
    async fn publish_and_read(
        &self,
        messages: &[Message],
        last: u64,
    ) -> (Result<(), Over>, Result<Vec<EventRow>, Over>) {
        tokio::join!(self.publish(messages), self.read(last))
    }

    /// Publishes a batch, with retries.
    async fn publish(&self, messages: &[Message]) -> Result<(), Over> {
        let mut pause = PAUSE_MIN;
        loop {
            let published = self.broker.publish(messages);
            let Err(cause) = self.watch_while(published).await? else {
                return Ok(());
            };
            self.status.failed();
            tracing::debug!(%cause, "a batch was not published; retrying");
            let mut health = self.broker.health();
            let recovery = async {
                tokio::time::sleep(pause).await;
                // A broker whose health is gone was closed, and reports that when published to.
                let _ = health.wait_for(treadle_broker::Health::is_connected).await;
            };
            let recovery = tokio::time::timeout(LOOK_INTERVAL, recovery);
            // Retries after the pause, or as soon as the broker recovers.
            let _ = self.watch_while(recovery).await?;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Awaits a future, and updates the lag meanwhile.
    async fn watch_while<T>(&self, work: impl Future<Output = T>) -> Result<T, Over> {
        let mut committed = self.committed.clone();
        self.status.committed(*committed.borrow_and_update());
        let watching = async {
            while committed.changed().await.is_ok() {
                self.status.committed(*committed.borrow_and_update());
            }
            std::future::pending().await
        };
        let either = async {
            tokio::select! {
                done = work => done,
                never = watching => never,
            }
        };
        self.unless_stopped(either).await
    }

    /// Stores the cursor, then waits for a commit past it.
    async fn idle(&mut self, cursor: &mut Cursor) -> Result<(), Over> {
        let mut committed = self.committed.clone();
        let behind = cursor.noted < cursor.at;
        let wait = if behind {
            NOTE_INTERVAL.saturating_sub(cursor.noted_at.elapsed())
        } else {
            LOOK_INTERVAL
        };
        let at = cursor.at;
        let news = async {
            if committed.wait_for(|seq| *seq > at).await.is_err() {
                // The journal's writer has ended; only the interval applies.
                std::future::pending::<()>().await;
            }
        };
        let came = tokio::time::timeout(wait, news);
        if self.unless_stopped(came).await?.is_err() && behind {
            self.note(cursor).await?;
        }
        self.status.committed(*self.committed.borrow());
        Ok(())
    }

    async fn note(&self, cursor: &mut Cursor) -> Result<(), Over> {
        let at = cursor.at;
        self.surely(|| self.store.advance_sink(SINK, at)).await?;
        cursor.noted = at;
        cursor.noted_at = Instant::now();
        Ok(())
    }

    async fn read(&self, after: u64) -> Result<Vec<EventRow>, Over> {
        self.status.committed(*self.committed.borrow());
        self.surely(|| self.store.events_after(after, BATCH_EVENTS))
            .await
    }

    /// Calls the store, with retries.
    async fn surely<T, A>(&self, ask: impl Fn() -> A) -> Result<T, Over>
    where
        A: Future<Output = Result<T, StoreError>>,
    {
        let mut pause = PAUSE_MIN;
        loop {
            match self.unless_stopped(ask()).await? {
                Ok(answer) => return Ok(answer),
                Err(StoreError::Fenced { .. }) => {
                    tracing::warn!("another daemon leads; this one stops publishing");
                    return Err(Over);
                }
                Err(error) => tracing::warn!(%error, "the outbox can't use the store"),
            }
            self.unless_stopped(tokio::time::sleep(pause)).await?;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T, Over> {
        let mut stop = self.stop.clone();
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => Err(Over),
            done = work => Ok(done),
        }
    }
}
