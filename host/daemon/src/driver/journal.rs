//! The journal's writer: a task that turns what the driver saw into
//! transactions, as many events in each as came while the last was written.

use super::links::Words;
use crate::link::ToGateway;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use treadle_store::{Batch, Snapshot, Standing, Store, StoreError};

/// Batches that may wait for the disk; beyond it the driver is held up.
const BATCHES_MAX: usize = 1_024;
/// Events in one transaction.
const TRANSACTION_EVENTS_MAX: usize = 20_000;
/// Pause between two attempts to write while the disk refuses.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// What the driver saw between two flushes.
#[derive(Default)]
pub struct JournalBatch {
    /// Rows to write.
    pub rows: Batch,
    /// Told once the rows are on disk.
    pub committed: Vec<oneshot::Sender<()>>,
    /// Gateways in other processes, told the same with the number of their last event.
    pub(crate) relayed: Vec<(Words, u64)>,
}

impl JournalBatch {
    /// True if there is nothing to write and nobody to tell.
    pub fn is_empty(&self) -> bool {
        self.committed.is_empty()
            && self.relayed.is_empty()
            && self.rows.events.is_empty()
            && self.rows.programs.is_empty()
            && self.rows.steps.is_empty()
    }

    fn absorb(&mut self, mut other: Self) {
        self.rows.events.append(&mut other.rows.events);
        self.rows.programs.append(&mut other.rows.programs);
        self.rows.steps.append(&mut other.rows.steps);
        self.rows.workers.append(&mut other.rows.workers);
        self.rows.decisions.append(&mut other.rows.decisions);
        self.committed.append(&mut other.committed);
        self.relayed.append(&mut other.relayed);
    }

    /// Tells all who wait that the rows are on disk.
    pub(super) fn tell(self) {
        for committed in self.committed {
            let _ = committed.send(());
        }
        for (words, number) in self.relayed {
            let _ = words.send(ToGateway::Recorded { number });
        }
    }
}

enum Entry {
    Batch(JournalBatch),
    Snapshot(Snapshot),
    Close,
}

/// The driver's end of the journal.
#[derive(Clone)]
pub struct JournalHandle {
    entries: mpsc::Sender<Entry>,
    committed: watch::Receiver<u64>,
}

impl JournalHandle {
    /// Queues rows; waits while the bound is reached.
    pub fn append(&self, batch: JournalBatch) {
        self.send(Entry::Batch(batch));
    }

    /// Queues a snapshot of the state after event `seq`, taken at `saved_at_us`.
    pub fn snapshot(&self, seq: u64, saved_at_us: u64, state: Vec<u8>) {
        self.send(Entry::Snapshot(Snapshot {
            seq,
            saved_at_us,
            state,
        }));
    }

    /// Tells the last event that is on disk; 0 until one is.
    pub fn committed(&self) -> watch::Receiver<u64> {
        self.committed.clone()
    }

    /// Ends the writer once all before is written, and waits for it.
    pub fn close(&self) {
        self.send(Entry::Close);
        while !self.entries.is_closed() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether nothing is written any more.
    pub fn is_closed(&self) -> bool {
        self.entries.is_closed()
    }

    fn send(&self, entry: Entry) {
        if self.entries.blocking_send(entry).is_err() {
            tracing::error!("the journal's writer has ended; events are not kept any more");
        }
    }
}

/// Starts the writer.
pub fn spawn_journal(store: Arc<dyn Store>) -> JournalHandle {
    let (entries, received) = mpsc::channel(BATCHES_MAX);
    let (told, committed) = watch::channel(0);
    tokio::spawn(write(store, received, told));
    JournalHandle { entries, committed }
}

async fn write(
    store: Arc<dyn Store>,
    mut entries: mpsc::Receiver<Entry>,
    told: watch::Sender<u64>,
) {
    while let Some(entry) = entries.recv().await {
        let mut next = Some(entry);
        let mut batch = JournalBatch::default();
        // Everything that came meanwhile goes into the same transaction.
        while let Some(Entry::Batch(more)) = next {
            batch.absorb(more);
            let full = batch.rows.events.len() >= TRANSACTION_EVENTS_MAX;
            next = if full { None } else { entries.try_recv().ok() };
        }
        if !batch.is_empty() && !commit(&*store, batch, &told).await {
            break;
        }
        match next {
            Some(Entry::Snapshot(snapshot)) => save(&*store, &snapshot).await,
            Some(Entry::Close) => break,
            Some(Entry::Batch(_)) | None => {}
        }
    }
    entries.close();
}

/// Writes until it succeeds: what the driver saw must not be lost while the
/// disk is full for a while. The bounded channel holds the driver meanwhile.
/// `false` says that another process writes the journal now.
async fn commit(store: &dyn Store, mut batch: JournalBatch, told: &watch::Sender<u64>) -> bool {
    keep_latest(&mut batch.rows);
    while let Err(error) = store.append(&batch.rows).await {
        let events = batch.rows.events.len();
        tracing::error!(%error, events, "the journal could not be written");
        // Once deposed, whatever the store says is for good: it may be closed already.
        let deposed = *store.standing().borrow() == Standing::Deposed;
        if deposed || matches!(error, StoreError::Gap { .. } | StoreError::Fenced { .. }) {
            return false;
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
    if let Some(last) = batch.rows.events.last() {
        told.send_replace(last.seq);
    }
    batch.tell();
    true
}

/// Of several states of one program or worker only the last matters.
fn keep_latest(rows: &mut Batch) {
    let mut seen = std::collections::HashSet::new();
    rows.programs.reverse();
    rows.programs.retain(|row| seen.insert(row.program.clone()));
    rows.programs.reverse();
    seen.clear();
    rows.workers.reverse();
    rows.workers.retain(|row| seen.insert(row.worker.clone()));
}

async fn save(store: &dyn Store, snapshot: &Snapshot) {
    if let Err(error) = store.save_snapshot(snapshot).await {
        tracing::error!(%error, "the snapshot could not be saved");
    }
}
