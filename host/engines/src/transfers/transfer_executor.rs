//! Carries out the transfers of one scheduler.

use super::copies::{CopyIndex, Known};
use super::deletions::DeletionQueue;
use super::node::Node;
use super::reconcile;
use super::work::{Failure, Moved, Passing, Transfer};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, Id, JoinError, JoinHandle, JoinSet};
use treadle_core::Event;
use treadle_core::programs::ProgramEvent;
use treadle_model::ProgramId;
use treadle_scheduler::DriverHandle;
use treadle_scheduler::orders::{Order, Transferred, Work};
use treadle_transfer::{CopyId, Evicted, KvCopy};

/// Longest recorded cause, in characters.
const CAUSE_CHARS_MAX: usize = 300;

/// A running transfer executor.
pub struct TransferExecutor {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl TransferExecutor {
    /// Reconciles copies with the core, then carries out the driver's orders. New copies belong to
    /// `owner`, the shard.
    pub fn start(
        node: Arc<Node>,
        driver: DriverHandle,
        orders: UnboundedReceiver<Order>,
        owner: Box<str>,
    ) -> Self {
        let (stop, stopped) = oneshot::channel();
        let evictions = node.evictions();
        let deletions = DeletionQueue::new(node.executors.clone());
        let carrying = ExecutorTask {
            node,
            driver,
            owner,
            evictions,
            jobs: JoinSet::new(),
            deletions,
            running: HashMap::new(),
            copies: CopyIndex::default(),
            reported: BTreeSet::new(),
        };
        let task = tokio::spawn(carrying.run(orders, stopped));
        Self { stop, task }
    }

    /// Aborts all transfers, and waits until they have ended.
    pub async fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}

/// A transfer's result and duration.
type TransferResult = (Result<Moved, Failure>, Duration);

struct Running {
    transfer_id: u64,
    program: ProgramId,
    work: Work,
    passing: Passing,
    abort: AbortHandle,
}

struct ExecutorTask {
    node: Arc<Node>,
    driver: DriverHandle,
    owner: Box<str>,
    evictions: UnboundedReceiver<Evicted>,
    jobs: JoinSet<TransferResult>,
    deletions: DeletionQueue,
    running: HashMap<Id, Running>,
    copies: CopyIndex,
    /// Engines whose missing support was already logged.
    reported: BTreeSet<Box<str>>,
}

impl ExecutorTask {
    async fn run(mut self, mut orders: UnboundedReceiver<Order>, mut stop: oneshot::Receiver<()>) {
        for copy in reconcile::compare(&self.node, &self.driver, &self.owner).await {
            self.add_copy(copy.id, (copy.program, copy.handle));
        }
        loop {
            tokio::select! {
                biased;
                _ = &mut stop => break,
                Some(evicted) = self.evictions.recv() => self.lost(evicted.id),
                Some(joined) = self.jobs.join_next_with_id() => self.joined(joined),
                order = orders.recv() => match order {
                    Some(order) => self.obey(order),
                    None => break,
                },
            }
        }
        // Intermediate copies of transfers are dropped with them; the tier of the next process
        // removes the rest.
        self.jobs.shutdown().await;
        self.deletions.shutdown().await;
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Begin {
                transfer_id,
                program,
                key,
                work,
            } => self.begin(transfer_id, program, key, work),
            Order::Cancel { transfer_id } => {
                let mut running = self.running.values();
                if let Some(running) = running.find(|running| running.transfer_id == transfer_id) {
                    running.abort.abort();
                }
            }
            Order::Drop { copy } => match KvCopy::from_handle(&copy) {
                Ok(copy) => {
                    self.copies.forget(copy.id);
                    self.deletions.push(copy);
                }
                Err(error) => tracing::debug!(%error, "can't parse the handle of a copy to drop"),
            },
            Order::ForgetEngine { url } => {
                self.node.executors.forget(&url);
                self.reported.remove(&url);
            }
            Order::ForgetProgram { key } => self.node.prompts.forget(&key),
        }
    }

    fn begin(&mut self, transfer_id: u64, program: ProgramId, key: Box<str>, work: Work) {
        let passing = Passing::default();
        let transfer = Transfer {
            node: self.node.clone(),
            program,
            owner: self.owner.clone(),
            key,
            passing: passing.clone(),
        };
        let ordered = work.clone();
        let abort = self.jobs.spawn(async move {
            let began = Instant::now();
            let result = transfer.run(&ordered).await;
            (result, began.elapsed())
        });
        let running = Running {
            transfer_id,
            program,
            work,
            passing,
            abort: abort.clone(),
        };
        self.running.insert(abort.id(), running);
    }

    fn joined(&mut self, joined: Result<(Id, TransferResult), JoinError>) {
        let (id, done) = match joined {
            Ok((id, done)) => (id, Ok(done)),
            Err(error) => (error.id(), Err(error)),
        };
        let Some(running) = self.running.remove(&id) else {
            return;
        };
        let passed = running
            .passing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(copy) = passed {
            self.deletions.push(copy);
        }
        let mut kept = None;
        let event = match done {
            Ok((Ok(moved), took)) => {
                kept.clone_from(&moved.kept);
                self.succeeded(&running, moved, took)
            }
            Ok((Err(failure), _)) => self.failed(&running, &failure),
            Err(error) if error.is_cancelled() => return self.node.stats.cancelled(),
            Err(error) => self.failed(
                &running,
                &Failure {
                    code: "internal",
                    cause: error.to_string(),
                },
            ),
        };
        let known = match (&kept, &event) {
            (Some(copy), Event::Program(ProgramEvent::ProgramOffloaded { copy: handle, .. })) => {
                Some((copy.id, (running.program, handle.clone())))
            }
            _ => None,
        };
        self.driver.transferred(Transferred {
            transfer_id: running.transfer_id,
            program: running.program,
            event,
        });
        if let Some((id, known)) = known {
            self.add_copy(id, known);
        }
    }

    /// Tracks a copy that the core has; it may have been evicted meanwhile.
    fn add_copy(&mut self, id: CopyId, (program, handle): Known) {
        if let Some((program, copy)) = self.copies.insert(id, program, handle) {
            self.driver
                .event(Event::Program(ProgramEvent::CopyLost { program, copy }));
        }
    }

    fn succeeded(&mut self, running: &Running, moved: Moved, took: Duration) -> Event {
        let kind = running.work.kind();
        self.node.stats.done(kind, moved.bytes, took);
        tracing::debug!(program = %running.program, ?kind, ?took, bytes = moved.bytes, "a cache was moved");
        moved.event
    }

    fn failed(&mut self, running: &Running, failure: &Failure) -> Event {
        self.node.stats.failed(failure.code);
        let (program, kind) = (running.program, running.work.kind());
        let Failure { code, cause } = failure;
        // An engine without support fails each time, so this is logged once.
        if *code != "unsupported" {
            tracing::warn!(%program, ?kind, cause, "a KV cache was not moved");
        } else if self.reported.insert(running.work.subject().into()) {
            tracing::warn!(?kind, cause, "KV caches can't be moved there");
        }
        let cause: String = cause.chars().take(CAUSE_CHARS_MAX).collect();
        running.work.failed(program, cause.into())
    }

    /// Handles the eviction of a copy.
    fn lost(&mut self, id: CopyId) {
        if let Some((program, copy)) = self.copies.lost(id) {
            self.driver
                .event(Event::Program(ProgramEvent::CopyLost { program, copy }));
        }
    }
}
