//! The journal's writer: a task that writes the driver's rows in transactions, each with all events
//! that came while the previous one was written.
//!
//! Rows that the store can't take at present are retried; rows that it can't hold at all are left
//! out.

use super::run::GatewaySender;
use crate::link::{ToGateway, WireInstruction};
use crate::record;
use crate::recording::{NotRecorded, Recorder};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use treadle_core::Event;
use treadle_core::programs::ProgramEvent;
use treadle_model::GatewayId;
use treadle_store::{Batch, Leadership, RefusedRow, Snapshot, Store, StoreError};

/// Maximum number of batches that wait for the disk; beyond it the driver blocks.
const BATCHES_MAX: usize = 1_024;
/// Maximum number of events in one transaction.
const TRANSACTION_EVENTS_MAX: usize = 20_000;
/// Pause between two attempts to write while the disk refuses.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Pause between two log lines about a batch that can't be written.
const TELL_PAUSE: Duration = Duration::from_secs(30);
/// Maximum number of left-out rows of one batch that are named in the log.
const REFUSED_NAMED_MAX: usize = 8;

/// Counters of rows.
#[derive(Debug, Default)]
pub struct JournalStatistics {
    refused: AtomicU64,
}

impl JournalStatistics {
    fn refuse(&self, rows: usize) {
        self.refused.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Number of rows that the store could not hold and that were left out.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// The driver's rows between two flushes.
#[derive(Default)]
pub struct JournalBatch {
    /// Rows to write.
    pub rows: Batch,
    /// To be notified once the rows are on disk, each with the number of its event.
    pub committed: Vec<(u64, Recorder)>,
    /// Gateways in other processes to be notified likewise, with the number of their last event.
    pub relayed: Vec<(GatewayId, GatewaySender, u64)>,
}

impl JournalBatch {
    /// True if there is nothing to write and nothing to notify.
    pub fn is_empty(&self) -> bool {
        self.committed.is_empty() && self.relayed.is_empty() && self.rows.is_empty()
    }

    fn absorb(&mut self, mut other: Self) {
        self.rows.append(other.rows);
        self.committed.append(&mut other.committed);
        self.relayed.append(&mut other.relayed);
    }

    /// Notifies all waiters that the rows are on disk, except those whose rows were refused.
    pub(super) fn notify(self, refused: &[RefusedRow]) {
        let refused: HashSet<u64> = refused.iter().filter_map(|row| row.event).collect();
        let is_refused = |seq: &u64| refused.contains(seq);
        for event in self.rows.events.iter().filter(|row| is_refused(&row.seq)) {
            self.notify_gateway(&event.body);
        }
        for (seq, recorder) in self.committed {
            recorder.settle(if is_refused(&seq) {
                Err(NotRecorded::Refused)
            } else {
                Ok(())
            });
        }
        for (_, sender, number) in self.relayed {
            let _ = sender.send(ToGateway::Recorded { number });
        }
    }

    /// Notifies a gateway in another process whose client waits for the end of an answer to be on
    /// record that it never will be.
    fn notify_gateway(&self, refused: &str) {
        if let Ok((Event::Program(ProgramEvent::StepFinished { step, .. }), _)) =
            record::decode(refused)
            && let Some((_, sender, _)) = self.relayed.iter().find(|to| to.0 == step.gateway())
        {
            let word = WireInstruction::Forget;
            let _ = sender.send(ToGateway::Step { step, word });
        }
    }
}

enum Entry {
    Batch(Box<JournalBatch>),
    Snapshot(Snapshot),
    Close,
}

/// The driver's end of the journal.
#[derive(Clone)]
pub struct JournalHandle {
    entries: mpsc::Sender<Entry>,
    committed: watch::Receiver<u64>,
    lacks_an_event: Arc<AtomicBool>,
}

impl JournalHandle {
    /// Queues rows; waits while the bound is reached.
    pub fn append(&self, batch: JournalBatch) {
        self.send(Entry::Batch(Box::new(batch)));
    }

    /// Queues a snapshot.
    pub fn snapshot(&self, snapshot: Snapshot) {
        self.send(Entry::Snapshot(snapshot));
    }

    /// Publishes the last event that is on disk; 0 until one is.
    pub fn committed(&self) -> watch::Receiver<u64> {
        self.committed.clone()
    }

    /// Whether an event was refused since the last call: then a replay of the journal reaches
    /// another state, unless it begins with a snapshot from after that event.
    pub fn lacks_an_event(&self) -> bool {
        self.lacks_an_event.swap(false, Ordering::Relaxed)
    }

    /// Stops the writer once everything queued before is written, and waits for it.
    pub fn close(&self) {
        self.send(Entry::Close);
        while !self.entries.is_closed() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether the writer has stopped.
    pub fn is_closed(&self) -> bool {
        self.entries.is_closed()
    }

    fn send(&self, entry: Entry) {
        if self.entries.blocking_send(entry).is_err() {
            tracing::error!("the journal's writer has ended; events are no longer recorded");
        }
    }
}

/// Starts the writer.
pub fn spawn_journal(store: Arc<dyn Store>, statistics: Arc<JournalStatistics>) -> JournalHandle {
    let (entries, received) = mpsc::channel(BATCHES_MAX);
    let (notified, committed) = watch::channel(0);
    let lacks_an_event = Arc::<AtomicBool>::default();
    let writer = Writer {
        store,
        statistics,
        notified,
        lacks_an_event: lacks_an_event.clone(),
    };
    tokio::spawn(writer.run(received));
    JournalHandle {
        entries,
        committed,
        lacks_an_event,
    }
}

struct Writer {
    store: Arc<dyn Store>,
    statistics: Arc<JournalStatistics>,
    notified: watch::Sender<u64>,
    lacks_an_event: Arc<AtomicBool>,
}

impl Writer {
    async fn run(self, mut entries: mpsc::Receiver<Entry>) {
        while let Some(entry) = entries.recv().await {
            let mut next = Some(entry);
            let mut batch = JournalBatch::default();
            // Adds everything that has come meanwhile to the same transaction.
            while let Some(Entry::Batch(more)) = next {
                batch.absorb(*more);
                let full = batch.rows.events.len() >= TRANSACTION_EVENTS_MAX;
                next = if full { None } else { entries.try_recv().ok() };
            }
            if !batch.is_empty() && !self.commit(batch).await {
                break;
            }
            match next {
                Some(Entry::Snapshot(snapshot)) => self.save(&snapshot).await,
                Some(Entry::Close) => break,
                Some(Entry::Batch(_)) | None => {}
            }
        }
        entries.close();
    }

    /// Writes a batch and notifies its waiters. `false` means that another process writes the
    /// journal now.
    async fn commit(&self, mut batch: JournalBatch) -> bool {
        keep_latest(&mut batch.rows);
        let Some(refused) = self.write(&batch.rows).await else {
            return false;
        };
        self.alarm(&refused);
        if let Some(last) = batch.rows.events.last() {
            self.notified.send_replace(last.seq);
        }
        batch.notify(&refused);
        true
    }

    /// Writes until it succeeds: rows must not be lost while the disk is full for a while. The
    /// bounded channel blocks the driver meanwhile. Rows that can never be stored are left out and
    /// returned. `None` means that another process writes the journal now.
    async fn write(&self, rows: &Batch) -> Option<Vec<RefusedRow>> {
        let mut row_by_row = false;
        let mut trouble = Trouble::default();
        loop {
            let written = if row_by_row {
                self.store.append_what_fits(rows, record::placeholder).await
            } else {
                self.store.append(rows).await.map(|_| Vec::new())
            };
            let error = match written {
                Ok(refused) => {
                    trouble.end();
                    return Some(refused);
                }
                Err(error) => error,
            };
            trouble.tell(&error, rows.events.len(), row_by_row);
            // Once superseded, the store's answer is final: it may be closed already.
            let superseded = *self.store.leadership().borrow() == Leadership::Superseded;
            let is_final = matches!(
                error,
                StoreError::Gap { .. } | StoreError::Fenced { .. } | StoreError::Lost { .. }
            );
            if superseded || is_final {
                return None;
            }
            if error.is_permanent() && !row_by_row {
                row_by_row = true;
            } else {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }

    fn alarm(&self, refused: &[RefusedRow]) {
        if refused.is_empty() {
            return;
        }
        self.statistics.refuse(refused.len());
        if refused.iter().any(|row| row.event.is_some()) {
            self.lacks_an_event.store(true, Ordering::Relaxed);
        }
        for RefusedRow {
            table, key, cause, ..
        } in refused.iter().take(REFUSED_NAMED_MAX)
        {
            tracing::error!(
                table,
                ?key,
                cause,
                "the store rejected a row permanently; it is left out"
            );
        }
        let rows = refused.len();
        tracing::error!(
            rows,
            "rows were permanently left out of the journal's batch"
        );
    }

    async fn save(&self, snapshot: &Snapshot) {
        if let Err(error) = self.store.save_snapshot(snapshot).await {
            tracing::error!(%error, "saving the snapshot failed");
        }
    }
}

/// Logging of a batch that can't be written at present: at once, then periodically, and once it is
/// over.
#[derive(Default)]
struct Trouble {
    began: Option<Instant>,
    told: Option<Instant>,
}

impl Trouble {
    fn tell(&mut self, error: &StoreError, events: usize, row_by_row: bool) {
        let began = *self.began.get_or_insert_with(Instant::now);
        if self.told.is_some_and(|told| told.elapsed() < TELL_PAUSE) && error.passes() {
            return;
        }
        self.told = Some(Instant::now());
        let for_s = began.elapsed().as_secs();
        tracing::error!(%error, events, row_by_row, for_s, "writing the journal failed; retrying");
    }

    fn end(self) {
        if let Some(began) = self.began {
            let after_s = began.elapsed().as_secs_f64();
            tracing::warn!(after_s, "writing the journal works again");
        }
    }
}

/// Of several states of one program, worker or action, only the last matters.
fn keep_latest(rows: &mut Batch) {
    let mut seen = HashSet::new();
    rows.programs.reverse();
    rows.programs.retain(|row| seen.insert(row.program.clone()));
    rows.programs.reverse();
    seen.clear();
    rows.workers.reverse();
    rows.workers.retain(|row| seen.insert(row.worker.clone()));
}

#[cfg(test)]
mod tests;
