//! Writes requests and responses to the store in the background, with bounded memory.

use crate::routing::shard_of;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use treadle_config::{Keep, PayloadsConfig};
use treadle_model::StepId;
use treadle_store::{Bodies, BodyRow};

/// Bodies written in one transaction.
const ROWS_AT_ONCE: usize = 64;
/// Pause after a failed write, whose bodies are dropped.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// Called for each stored body with the program's name and the number of bytes.
pub type Counted = Arc<dyn Fn(&str, u64) + Send + Sync>;

/// Queues bodies for the store.
pub struct PayloadWriter {
    keep: Keep,
    body_bytes_max: u64,
    waiting_bytes_max: u64,
    waiting_bytes: Arc<AtomicU64>,
    left_out: AtomicU64,
    shards: Vec<String>,
    rows: UnboundedSender<(usize, BodyRow)>,
}

/// Stores one step's bodies.
pub(crate) struct PayloadCapture {
    pub(crate) bodies: Arc<PayloadWriter>,
    pub(crate) job: Arc<str>,
    pub(crate) program: Arc<str>,
    pub(crate) step: StepId,
    pub(crate) request: Bytes,
}

impl PayloadWriter {
    /// Writes to the stores of the shards, by job; `None` if bodies are not stored.
    pub fn start(
        config: &PayloadsConfig,
        shards: Vec<String>,
        stores: Vec<Arc<dyn Bodies>>,
        counted: Option<Counted>,
    ) -> Option<Arc<Self>> {
        if config.keep == Keep::None {
            return None;
        }
        let (rows, received) = unbounded_channel();
        let waiting_bytes = Arc::new(AtomicU64::new(0));
        tokio::spawn(write(stores, received, waiting_bytes.clone(), counted));
        Some(Arc::new(Self {
            keep: config.keep,
            body_bytes_max: config.body_bytes_max,
            waiting_bytes_max: config.waiting_bytes_max,
            waiting_bytes,
            left_out: AtomicU64::new(0),
            shards,
            rows,
        }))
    }

    /// Number of bodies that were dropped as too long or because the queue was full.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    fn put(&self, capture: &PayloadCapture, kind: &str, body: Vec<u8>) {
        let bytes = body.len() as u64;
        let waiting = self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        if bytes > self.body_bytes_max || waiting + bytes > self.waiting_bytes_max {
            self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let row = BodyRow {
            program: capture.program.to_string(),
            step: capture.step.0,
            kind: kind.to_owned(),
            at_us: now.unwrap_or_default().as_micros() as u64,
            body,
        };
        // The writer only ends with the daemon.
        let _ = self.rows.send((shard_of(&self.shards, &capture.job), row));
    }
}

impl PayloadCapture {
    /// Longest answer that is worth collecting, in bytes.
    pub(crate) fn answer_bytes_max(&self) -> u64 {
        self.bodies.body_bytes_max
    }

    /// Counts a response that is too long to be stored.
    pub(crate) fn leave_out(&self) {
        self.bodies.left_out.fetch_add(1, Ordering::Relaxed);
    }

    /// Stores the step's response, given in pieces; for a failed step, the part that arrived.
    pub(crate) fn file(&self, answer: &[Bytes]) {
        if self.bodies.keep == Keep::All {
            self.bodies.put(self, "request", self.request.to_vec());
        }
        let answer = answer.concat();
        if !answer.is_empty() {
            self.bodies.put(self, "answer", answer);
        }
    }
}

async fn write(
    stores: Vec<Arc<dyn Bodies>>,
    mut rows: UnboundedReceiver<(usize, BodyRow)>,
    waiting_bytes: Arc<AtomicU64>,
    counted: Option<Counted>,
) {
    let mut taken = Vec::new();
    while rows.recv_many(&mut taken, ROWS_AT_ONCE).await > 0 {
        let bytes: u64 = taken.iter().map(|(_, row)| row.body.len() as u64).sum();
        for (shard, store) in stores.iter().enumerate() {
            let own = taken.iter().filter(|(of, _)| *of == shard);
            let own: Vec<BodyRow> = own.map(|(_, row)| row.clone()).collect();
            if own.is_empty() {
                continue;
            }
            if let Err(error) = store.put_bodies(&own).await {
                tracing::warn!(%error, bodies = own.len(), "bodies of steps could not be stored");
                tokio::time::sleep(FAILURE_PAUSE).await;
            } else if let Some(counted) = &counted {
                for row in &own {
                    counted(&row.program, row.body.len() as u64);
                }
            }
        }
        taken.clear();
        waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}
