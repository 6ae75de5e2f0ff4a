//! The audit log: every manual change and who made it.
//!
//! One task writes waiting changes in one transaction, so that a burst of changes costs few
//! commits.

use super::now_us;
use super::principal::Caller;
use serde_json::Value;
use std::sync::{Arc, Mutex};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use treadle_store::AuditRow;

/// Most changes that wait to be written; beyond that callers wait.
const WAITING_MAX: usize = 4_096;
/// Most changes in one transaction.
const BATCH_MAX: usize = 256;

/// A change: action, target, and state before and after.
#[derive(Clone, Debug)]
pub struct Change<'a> {
    /// The action: a noun and a verb in the past tense, such as `token.created`.
    pub action: &'static str,
    /// The changed object, by the caller's name.
    pub target: &'a str,
    /// The state before; null if it did not exist.
    pub before: Value,
    /// The state after; null if it was removed.
    pub after: Value,
}

/// The change was made, but could not be recorded.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the change was made, but the audit log could not be written; the cause is in the log")]
pub struct NotAudited;

/// The audit log.
pub struct Audit {
    entries: Mutex<Option<mpsc::Sender<Entry>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

struct Entry {
    row: AuditRow,
    written: Option<oneshot::Sender<()>>,
}

impl Audit {
    /// Starts the writer.
    pub(super) fn start(store: Arc<dyn treadle_store::Audit>) -> Self {
        let (entries, received) = mpsc::channel(WAITING_MAX);
        Self {
            entries: Mutex::new(Some(entries)),
            writer: Mutex::new(Some(tokio::spawn(write(store, received)))),
        }
    }

    /// Records a change in the caller's tenant and waits until it is on disk.
    ///
    /// # Errors
    /// [`NotAudited`] if it could not be written.
    pub async fn record(&self, caller: &Caller, change: Change<'_>) -> Result<(), NotAudited> {
        let (written, done) = oneshot::channel();
        let row = row(caller, &change);
        self.send(row, Some(written)).await?;
        done.await.map_err(|_| NotAudited)
    }

    /// Records a change without waiting, for changes that are also in the journal.
    pub async fn note(&self, caller: &Caller, change: Change<'_>) {
        if self.send(row(caller, &change), None).await.is_err() {
            tracing::error!("a change was made after the audit log was closed");
        }
    }

    /// Records a change that did not arrive as a request, without waiting: with its tenant, its
    /// source and its id.
    pub async fn note_as(&self, tenant: &str, who: &str, id: &str, change: Change<'_>) {
        let row = AuditRow {
            id: 0,
            at_us: now_us(),
            tenant: tenant.to_owned(),
            who: who.to_owned(),
            action: change.action.to_owned(),
            target: change.target.to_owned(),
            before: change.before.to_string(),
            after: change.after.to_string(),
            request_id: id.to_owned(),
            address: None,
        };
        if self.send(row, None).await.is_err() {
            tracing::error!("a change was made after the audit log was closed");
        }
    }

    async fn send(
        &self,
        row: AuditRow,
        written: Option<oneshot::Sender<()>>,
    ) -> Result<(), NotAudited> {
        let entries = self.entries.lock().ok().and_then(|held| held.clone());
        let entries = entries.ok_or(NotAudited)?;
        let sent = entries.send(Entry { row, written }).await;
        sent.map_err(|_| NotAudited)
    }

    /// Writes waiting changes and accepts no more.
    pub async fn close(&self) {
        drop(self.entries.lock().ok().and_then(|mut held| held.take()));
        let writer = self.writer.lock().ok().and_then(|mut held| held.take());
        if let Some(writer) = writer {
            let _ = writer.await;
        }
    }
}

fn row(caller: &Caller, change: &Change<'_>) -> AuditRow {
    AuditRow {
        id: 0,
        at_us: now_us(),
        tenant: caller.principal.tenant.tenant.name().to_owned(),
        who: caller.principal.who.to_string(),
        action: change.action.to_owned(),
        target: change.target.to_owned(),
        before: change.before.to_string(),
        after: change.after.to_string(),
        request_id: caller.request_id.clone(),
        address: caller.address.map(|address| address.to_string()),
    }
}

async fn write(store: Arc<dyn treadle_store::Audit>, mut received: mpsc::Receiver<Entry>) {
    let mut entries = Vec::with_capacity(BATCH_MAX);
    while received.recv_many(&mut entries, BATCH_MAX).await > 0 {
        let (rows, waiting): (Vec<_>, Vec<_>) = entries
            .drain(..)
            .map(|entry| (entry.row, entry.written))
            .unzip();
        if let Err(error) = store.add_audit(&rows).await {
            // Waiting callers notice it by the dropped channel.
            tracing::error!(%error, changes = rows.len(), "the audit log could not be written");
            continue;
        }
        for written in waiting.into_iter().flatten() {
            let _ = written.send(());
        }
    }
}
