//! Captured calls of training runs: stored, then on record, then their clients get the last byte.

use crate::answer_cache::AnswerCache;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use treadle_auth::Principal;
use treadle_core::training::{MemberRef, TrainingEvent};
use treadle_engines::LogprobKinds;
use treadle_model::StepId;
use treadle_model::tenant::split;
use treadle_samples::{Call, Delta, Deltas, Step, name_of_call};
use treadle_scheduler::DriverHandle;
use treadle_store::{BODY_BYTES_MAX, PayloadRoom, Store, TrainingPayload};
use xxhash_rust::xxh3::xxh3_64;

/// Calls written in one transaction: those that came while the one before was written.
const CALLS_AT_ONCE: usize = 256;
/// How often calls are stored again if the store fails, and the first pause; it doubles.
const RETRIES: u32 = 6;
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Parts of the table of bases, each with a lock.
const PARTS: usize = 16;
/// Blocks of bases in a part; beyond, later calls are stored whole once.
const BLOCKS_MAX: usize = 1 << 16;

/// Stores captured calls.
pub struct Captures {
    /// The scheduler.
    pub(crate) driver: DriverHandle,
    /// Kinds of engines' log-probabilities.
    pub kinds: Arc<LogprobKinds>,
    /// Answers that are continued by their tokens.
    pub(crate) answers: AnswerCache,
    room: Arc<PayloadRoom>,
    rows: UnboundedSender<Row>,
    bases: [Mutex<Bases>; PARTS],
}

/// What programs have stored: their next prompts are stored as differences.
#[derive(Default)]
struct Bases {
    programs: HashMap<Box<str>, Deltas>,
    /// Blocks of all programs, and one for each.
    size: usize,
}

impl Bases {
    fn add(&mut self, program: &str, step: &Step) -> Delta {
        if self.size > BLOCKS_MAX {
            *self = Self::default();
        }
        if !self.programs.contains_key(program) {
            self.programs.insert(program.into(), Deltas::default());
            self.size += 1;
        }
        let deltas = self.programs.entry(program.into()).or_default();
        let before = deltas.len();
        let delta = deltas.add(step);
        self.size += deltas.len() - before;
        delta
    }

    fn forget(&mut self, job: &str) {
        let start = start_of(job);
        let own = self.programs.keys().filter(|key| key.starts_with(&start));
        let own: Vec<Box<str>> = own.cloned().collect();
        for key in own {
            self.remove(&key);
        }
    }

    fn remove(&mut self, program: &str) {
        if let Some(deltas) = self.programs.remove(program) {
            self.size -= deltas.len() + 1;
        }
    }
}

/// A call to be stored, and whom to tell.
struct Row {
    payload: TrainingPayload,
    stored: oneshot::Sender<Result<(), String>>,
}

impl Captures {
    /// Writes to this store.
    pub fn start(
        driver: DriverHandle,
        store: Arc<dyn Store>,
        room: Arc<PayloadRoom>,
        kinds: Arc<LogprobKinds>,
    ) -> Arc<Self> {
        let (rows, received) = unbounded_channel();
        tokio::spawn(write(store, received));
        Arc::new(Self {
            driver,
            kinds,
            answers: AnswerCache::default(),
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
        let body = self.encoded(member, call)?;
        let digest = format!("sha256:{}", hex(&Sha256::digest(&body)));
        if let Err(cause) = self.store(member, step, principal, body).await {
            // Later calls must not build on it.
            self.part(&member.program).remove(&key_of(member));
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

    /// Forgets what the programs of a job have stored: it was removed.
    pub fn forget(&self, job: &str) {
        for part in &self.bases {
            part.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .forget(job);
        }
        self.answers.forget(&start_of(job));
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

    /// What is stored of a call: only what it adds to those of its program before.
    fn encoded(&self, member: &MemberRef, call: &Call) -> Result<Vec<u8>, String> {
        let mut part = self.part(&member.program);
        let delta = part.add(&key_of(member), &call.first_step());
        drop(part);
        call.encode(&delta).map_err(|error| error.to_string())
    }

    async fn store(
        &self,
        member: &MemberRef,
        step: StepId,
        principal: &Principal,
        body: Vec<u8>,
    ) -> Result<(), String> {
        if body.len() > BODY_BYTES_MAX {
            let bytes = body.len();
            return Err(format!(
                "the step needs {bytes} bytes, more than {BODY_BYTES_MAX}"
            ));
        }
        let share = principal.share(None, self.room.bytes_max());
        let tenant = &principal.tenant.tenant;
        let reserved = self.room.reserve(tenant, share, body.len() as u64).await;
        reserved.map_err(|error| error.to_string())?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let payload = TrainingPayload {
            job: member.job.to_string(),
            name: name_of_call(split(&member.program).1, step.0),
            at_us: now.unwrap_or_default().as_micros() as u64,
            size_bytes: body.len() as u64,
            body,
        };
        let (stored, result) = oneshot::channel();
        // The writer only ends with the daemon.
        let _ = self.rows.send(Row { payload, stored });
        let result = result.await;
        result.unwrap_or_else(|_| Err("treadle is shutting down".to_owned()))
    }

    fn part(&self, program: &str) -> MutexGuard<'_, Bases> {
        let part = xxh3_64(program.as_bytes()) as usize % PARTS;
        self.bases[part]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A program may have the name of one in another job.
pub(crate) fn key_of(member: &MemberRef) -> String {
    start_of(&member.job) + &member.program
}

/// What the keys of a job's programs begin with.
fn start_of(job: &str) -> String {
    format!("{job}\0")
}

/// Bytes as hexadecimal text.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

async fn write(store: Arc<dyn Store>, mut rows: UnboundedReceiver<Row>) {
    let mut taken = Vec::new();
    while rows.recv_many(&mut taken, CALLS_AT_ONCE).await > 0 {
        let (payloads, waiting): (Vec<_>, Vec<_>) =
            taken.drain(..).map(|row| (row.payload, row.stored)).unzip();
        let mut stored = store.put_payloads(&payloads).await;
        for attempt in 0..RETRIES {
            let Err(error) = &stored else { break };
            tracing::warn!(%error, calls = payloads.len(), "captured steps are stored again");
            tokio::time::sleep(RETRY_PAUSE * 2_u32.pow(attempt)).await;
            stored = store.put_payloads(&payloads).await;
        }
        let stored = stored.map_err(|error| format!("the store failed: {error}"));
        for waiting in waiting {
            let _ = waiting.send(stored.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bases_are_bounded_however_many_programs_there_are() {
        let mut bases = Bases::default();
        let mut step = Step {
            prompt: (0..640).collect(),
            output: vec![1],
            ..Step::default()
        };
        for program in 0..20_000 {
            bases.add(&program.to_string(), &step);
            assert!(bases.size <= BLOCKS_MAX + 11);
        }
        let blocks = bases.programs.values().map(|deltas| deltas.len() + 1);
        assert_eq!(bases.size, blocks.sum::<usize>());
        step.number = 1;
        let delta = bases.add("19999", &step);
        assert_eq!(delta.base_tokens, 640, "the same prompt again");
        assert_eq!(bases.add("job\0p", &step).base_tokens, 0);
        bases.forget("job");
        assert_eq!(
            bases.add("job\0p", &step).base_tokens,
            0,
            "it was forgotten"
        );
        bases.remove("19999");
        assert_eq!(bases.add("19999", &step).base_tokens, 0);
    }
}
