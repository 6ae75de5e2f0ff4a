//! Events through the store: how many a second, and how long until they are acknowledged.

use super::super::BenchError;
use super::super::latencies::Latencies;
use super::psql::psql;
use super::rows::row;
use std::sync::Arc;
use std::time::{Duration, Instant};
use treadle_scheduler::{JournalBatch, Recording, spawn_journal};
use treadle_store::{Batch, EventRow, Location, PostgresLocation, Store, open};

/// Time between two batches while acknowledgements are timed, as between two flushes of a driver.
const FLUSH_PAUSE: Duration = Duration::from_millis(1);

/// A store in a schema of its own.
pub(super) struct Fixture {
    schema: String,
    url: String,
    store: Arc<dyn Store>,
}

impl Fixture {
    /// Makes the schema.
    pub(super) async fn open(url: &str) -> Result<Self, BenchError> {
        let schema = format!("treadle_bench_{}", std::process::id());
        let location = PostgresLocation {
            schema: schema.clone(),
            ..PostgresLocation::new(url)
        };
        Ok(Self {
            schema,
            url: url.to_owned(),
            store: open(&Location::Postgres(location)).await?,
        })
    }

    /// Removes the schema.
    pub(super) async fn remove(self) {
        let _ = self.store.close().await;
        let drop = format!(
            "SET client_min_messages = warning; DROP SCHEMA IF EXISTS {} CASCADE",
            self.schema
        );
        if let Err(error) = psql(&self.url, &drop).await {
            super::report_progress(&format!("the schema {} stays: {error}", self.schema));
        }
    }

    /// Events a second in transactions of a fixed size, one after another.
    pub(super) async fn throughput(&self, group: usize, time: Duration) -> Result<f64, BenchError> {
        let first = self.store.last_seq().await?;
        let mut seq = first;
        let mut batch = Batch {
            events: (seq + 1..=seq + group as u64).map(row).collect(),
            ..Batch::default()
        };
        let began = Instant::now();
        while began.elapsed() < time {
            seq = self.store.append(&batch).await?;
            renumber(&mut batch.events, seq);
        }
        Ok((seq - first) as f64 / began.elapsed().as_secs_f64())
    }

    /// Times from handing a batch to the journal's writer until it is confirmed to be on disk, at a
    /// steady rate.
    pub(super) async fn acknowledgements(
        &self,
        per_s: u32,
        time: Duration,
    ) -> Result<Latencies, BenchError> {
        let mut seq = self.store.last_seq().await?;
        let journal = spawn_journal(self.store.clone(), Arc::default());
        let per_flush = (f64::from(per_s) * FLUSH_PAUSE.as_secs_f64())
            .ceil()
            .max(1.0) as u64;
        let pause = Duration::from_secs_f64(per_flush as f64 / f64::from(per_s));
        // A driver hands over from a thread of its own.
        let handing = tokio::task::spawn_blocking(move || {
            let mut waits = Vec::new();
            let (began, mut next) = (Instant::now(), Instant::now());
            while began.elapsed() < time {
                let (committed, told) = Recording::new();
                let events = (seq + 1..=seq + per_flush).map(row).collect();
                let batch = JournalBatch {
                    rows: Batch {
                        events,
                        ..Batch::default()
                    },
                    committed: vec![(seq + per_flush, committed)],
                    ..JournalBatch::default()
                };
                seq += per_flush;
                let handed = Instant::now();
                journal.append(batch);
                waits.push((
                    handed,
                    tokio::runtime::Handle::current()
                        .spawn(async move { told.await.ok().map(|()| handed.elapsed()) }),
                ));
                next += pause;
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
            journal.close();
            waits
        });
        let handed = handing.await;
        let mut times = Latencies::default();
        for (_, wait) in handed.map_err(|error| BenchError::Ended(error.to_string()))? {
            match wait.await {
                Ok(Some(time)) => times.push(time),
                _ => return Err(BenchError::Ended("a batch was not acknowledged".to_owned())),
            }
        }
        Ok(times)
    }
}

/// The same rows as the next ones: making rows is not what is measured, on either side.
fn renumber(events: &mut [EventRow], after: u64) {
    for (event, seq) in events.iter_mut().zip(after + 1..) {
        event.seq = seq;
    }
}
