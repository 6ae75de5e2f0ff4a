//! Captured calls of training runs: stored, then on record, then their clients get the last byte.

use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use treadle_auth::Principal;
use treadle_core::training::{MemberRef, TrainingEvent};
use treadle_model::StepId;
use treadle_model::tenant::split;
use treadle_samples::{Call, Deltas};
use treadle_scheduler::DriverHandle;
use treadle_store::{PayloadRoom, Store, TrainingPayload};
use xxhash_rust::xxh3::xxh3_64;

/// Calls written in one transaction: those that came while the one before was written.
const CALLS_AT_ONCE: usize = 256;
/// Parts of the table of bases, each with a lock.
const PARTS: usize = 16;
/// Blocks of bases in a part; beyond, later calls are stored whole once.
const BLOCKS_MAX: usize = 1 << 16;

/// Stores captured calls.
pub struct Captures {
    /// The scheduler.
    pub(crate) driver: DriverHandle,
    room: Arc<PayloadRoom>,
    rows: UnboundedSender<Row>,
    /// What programs have stored, by program: their next prompts are stored as differences.
    bases: [Mutex<HashMap<Box<str>, Deltas>>; PARTS],
}

/// A call to be stored, and whom to tell.
struct Row {
    payload: TrainingPayload,
    stored: oneshot::Sender<Result<(), String>>,
}

impl Captures {
    /// Writes to this store.
    pub fn start(driver: DriverHandle, store: Arc<dyn Store>, room: Arc<PayloadRoom>) -> Arc<Self> {
        let (rows, received) = unbounded_channel();
        tokio::spawn(write(store, received));
        Arc::new(Self {
            driver,
            room,
            rows,
            bases: Default::default(),
        })
    }

    /// Stores a call of a member and puts it on record.
    ///
    /// # Errors
    /// Why it is not, in words.
    pub(crate) async fn keep(
        &self,
        member: &MemberRef,
        step: StepId,
        principal: &Principal,
        call: &Call,
    ) -> Result<(), String> {
        // The difference is smaller than this.
        let bytes =
            8 * (call.prompt.len() + call.outputs.iter().map(|o| o.ids.len()).sum::<usize>());
        let share = principal.share(None, self.room.bytes_max());
        let tenant = &principal.tenant.tenant;
        let reserved = self.room.reserve(tenant, share, bytes as u64).await;
        reserved.map_err(|error| error.to_string())?;
        let (digest, stored) = self.store(member, step, call)?;
        let stored = stored.await;
        if let Err(cause) = stored.unwrap_or_else(|_| Err("treadle is shutting down".to_owned())) {
            self.part(&member.program).remove(&member.program);
            return Err(cause);
        }
        let tokens = call.outputs.iter().map(|output| output.ids.len() as u64);
        let captured = TrainingEvent::StepCaptured {
            member: member.clone(),
            step,
            digest: digest.into(),
            tokens: tokens.sum(),
        };
        // A member that was cut meanwhile is refused, and needs no capture.
        let recorded = self.driver.train(captured).await;
        recorded.map(drop).map_err(|error| error.to_string())
    }

    /// Puts on record that a step of a member was not captured.
    pub(crate) async fn failed(&self, member: &MemberRef, cause: &str) {
        tracing::warn!(program = &*member.program, cause, "a step was not captured");
        let failed = TrainingEvent::CaptureFailed {
            member: member.clone(),
            cause: cause.chars().take(256).collect::<String>().into(),
        };
        // It was cut meanwhile, or the daemon stops and its client gets no answer.
        let _ = self.driver.train(failed).await;
    }

    /// Queues a call for the store. A base is queued before what builds on it.
    fn store(&self, member: &MemberRef, step: StepId, call: &Call) -> Result<Queued, String> {
        let mut part = self.part(&member.program);
        let blocks: usize = part.values().map(Deltas::len).sum();
        if blocks > BLOCKS_MAX {
            part.clear();
        }
        let delta = part
            .entry(member.program.clone())
            .or_default()
            .add(&call.first_step());
        let body = call.encode(&delta).map_err(|error| error.to_string())?;
        let digest = format!("sha256:{}", hex(&Sha256::digest(&body)));
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let payload = TrainingPayload {
            job: member.job.to_string(),
            name: format!("step/{}/{:020}", split(&member.program).1, step.0),
            at_us: now.unwrap_or_default().as_micros() as u64,
            size_bytes: body.len() as u64,
            body,
        };
        let (stored, result) = oneshot::channel();
        // The writer only ends with the daemon.
        let _ = self.rows.send(Row { payload, stored });
        Ok((digest, result))
    }

    fn part(&self, program: &str) -> std::sync::MutexGuard<'_, HashMap<Box<str>, Deltas>> {
        let part = xxh3_64(program.as_bytes()) as usize % PARTS;
        self.bases[part]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes as hexadecimal text.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The digest of a queued call, and whether it was stored.
type Queued = (String, oneshot::Receiver<Result<(), String>>);

async fn write(store: Arc<dyn Store>, mut rows: UnboundedReceiver<Row>) {
    let mut taken = Vec::new();
    while rows.recv_many(&mut taken, CALLS_AT_ONCE).await > 0 {
        let (payloads, waiting): (Vec<_>, Vec<_>) =
            taken.drain(..).map(|row| (row.payload, row.stored)).unzip();
        let stored = store.put_payloads(&payloads).await;
        let stored = stored.map_err(|error| format!("the store failed: {error}"));
        for waiting in waiting {
            let _ = waiting.send(stored.clone());
        }
    }
}
