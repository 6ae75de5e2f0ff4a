//! Recovery: the latest snapshot, and the events after it replayed.

use crate::record;
use treadle_core::{Core, CoreConfig, State};
use treadle_model::Timestamp;
use treadle_store::{EventRow, Journal, Snapshot, StoreError};

/// Events per read from the store.
const PAGE_EVENTS: u32 = 10_000;

/// Why the journal can't be replayed.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The store failed.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// A snapshot can't be read.
    #[error(
        "the snapshot at event {seq} cannot be read: {error}; it was written by another version"
    )]
    Snapshot {
        /// Its position.
        seq: u64,
        /// The reader's error.
        error: serde_json::Error,
    },
    /// An event can't be read.
    #[error("event {seq} cannot be read: {error}; it was written by another version")]
    Event {
        /// Its position.
        seq: u64,
        /// The reader's error.
        error: serde_json::Error,
    },
    /// Events that a replay needs are missing.
    #[error(
        "event {wanted} is missing from the journal (next: {found}); replay from the latest snapshot, or raise `store.keep_events` for future events"
    )]
    Missing {
        /// The next expected event.
        wanted: u64,
        /// The event found.
        found: u64,
    },
}

/// How much of the journal to replay.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extent {
    /// The last event; the end of the journal if absent.
    pub until: Option<u64>,
    /// Begin with the first event instead of the latest snapshot.
    pub from_start: bool,
}

/// A core in its state after the last committed event.
pub struct Recovered {
    /// The core.
    pub core: Core,
    /// Position of that event; 0 for an empty journal.
    pub seq: u64,
    /// Position of the snapshot that it started from; 0 without one.
    pub snapshot_seq: u64,
}

/// A core to which the journal's rows are applied one by one.
pub struct Replay {
    core: Core,
    seq: u64,
    snapshot_seq: u64,
}

impl Replay {
    /// Starts from a snapshot, or from an empty state.
    pub fn new(config: CoreConfig, snapshot: Option<&Snapshot>) -> Result<Self, RecoveryError> {
        let read = |snapshot: &Snapshot| {
            let seq = snapshot.seq;
            let state = treadle_core_json::read_state(&snapshot.state);
            state.map_err(|error| RecoveryError::Snapshot { seq, error })
        };
        let state: State = snapshot.map(read).transpose()?.unwrap_or_default();
        let seq = snapshot.map_or(0, |snapshot| snapshot.seq);
        Ok(Self {
            core: Core::with_state(config, state),
            seq,
            snapshot_seq: seq,
        })
    }

    /// Position of the latest event.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Handles the next event.
    pub fn apply(&mut self, row: &EventRow) -> Result<(), RecoveryError> {
        let (wanted, found) = (self.seq + 1, row.seq);
        if found != wanted {
            return Err(RecoveryError::Missing { wanted, found });
        }
        let decoded = record::decode(&row.body);
        let (event, origin) = decoded.map_err(|error| RecoveryError::Event {
            seq: row.seq,
            error,
        })?;
        let at = Timestamp(row.at_us);
        match origin {
            Some(origin) => {
                self.core.handle_relayed(at, origin, &event);
            }
            None => self.core.handle(at, &event),
        }
        self.seq = row.seq;
        // Its commands were carried out then, or died with the daemon.
        while self.core.poll_command().is_some() {}
        while self.core.poll_decision().is_some() {}
        Ok(())
    }

    /// The core after the latest event.
    pub fn finish(self) -> Recovered {
        Recovered {
            core: self.core,
            seq: self.seq,
            snapshot_seq: self.snapshot_seq,
        }
    }
}

/// Rebuilds the core from the store.
pub async fn recover(store: &dyn Journal, config: CoreConfig) -> Result<Recovered, RecoveryError> {
    replay(store, config, Extent::default(), &mut |_| {}).await
}

/// Rebuilds the core in its state after an event, for a given extent. A snapshot after that event
/// is ignored.
pub async fn replay(
    store: &dyn Journal,
    config: CoreConfig,
    extent: Extent,
    progress: &mut (dyn FnMut(u64) + Send),
) -> Result<Recovered, RecoveryError> {
    let until = extent.until.unwrap_or(u64::MAX);
    let snapshot = store.latest_snapshot().await?;
    let snapshot = snapshot.filter(|snapshot| snapshot.seq <= until && !extent.from_start);
    let mut replay = Replay::new(config, snapshot.as_ref())?;
    while replay.seq() < until {
        let limit = u64::from(PAGE_EVENTS).min(until - replay.seq()) as u32;
        let rows = store.events_after(replay.seq(), limit).await?;
        if rows.is_empty() {
            break;
        }
        for row in &rows {
            replay.apply(row)?;
        }
        progress(replay.seq());
    }
    Ok(replay.finish())
}

#[cfg(test)]
mod tests {
    use treadle_core::memory::Capacity;
    use treadle_core::programs::{ProgramEvent, StepArrival, StepTokens};
    use treadle_core::{DaemonEvent, Event};
    use treadle_model::{EngineKind, FinishReason, StepId, WorkerId};
    use treadle_store::{Batch, EventRow, Location, Retention, Snapshot, open};

    use super::*;

    /// Events of two programs with a step each, from a gateway in this process.
    fn two_programs() -> Vec<Event> {
        let (worker, step) = (WorkerId(0), StepId);
        let arrival = |n: u64| {
            Event::Program(ProgramEvent::StepArrived(StepArrival {
                step: step(n),
                program: format!("p-{n}").into(),
                job: "j".into(),
                prompt_tokens: 9,
                exact: true,
                prompt_bytes: 36,
                text: None,
                output_tokens_max: None,
                prefix: vec![],
                one_shot: false,
                inferred: false,
                parent: None,
                group: None,
                model: None,
            }))
        };
        let finished = |n: u64| {
            Event::Program(ProgramEvent::StepFinished {
                step: step(n),
                tokens: StepTokens {
                    prompt: 9,
                    output: 3,
                    cached: None,
                },
                finish: FinishReason::Stop,
                weights: None,
            })
        };
        let added = Event::Program(ProgramEvent::WorkerAdded {
            worker,
            url: "http://w".into(),
            engine: EngineKind::Vllm,
            capacity: Capacity::default(),
            role: None,
        });
        vec![added, arrival(1), arrival(2), finished(1), finished(2)]
    }

    #[tokio::test]
    async fn a_journal_with_a_placeholder_replays() {
        let store = open(&Location::Memory).await.expect("it opens");
        let row = |(event, seq): (&Event, u64)| EventRow {
            seq,
            // The second event can't be stored.
            at_us: if seq == 2 { u64::MAX } else { seq },
            kind: event.kind().into(),
            job: "j".into(),
            program: None,
            body: record::encode(event, None),
        };
        let batch = Batch {
            events: two_programs().iter().zip(1..).map(row).collect(),
            ..Batch::default()
        };
        let refused = store.append_what_fits(&batch, record::placeholder).await;
        assert_eq!(refused.expect("the rest is stored")[0].event, Some(2));
        let recovered = recover(&*store, CoreConfig::default()).await;
        let recovered = recovered.expect("it replays");
        assert_eq!(recovered.seq, 5);
        assert!(recovered.core.programs().program("p-1").is_none());
        assert!(recovered.core.programs().program("p-2").is_some());
        assert_eq!(recovered.core.now(), Timestamp(5));
    }

    #[tokio::test]
    async fn a_replay_past_what_is_kept_is_refused() {
        let store = open(&Location::Memory).await.expect("it opens");
        let body = record::encode(&Event::Daemon(DaemonEvent::TimerFired), None);
        let event = |seq| EventRow {
            seq,
            at_us: seq,
            kind: "timer_fired".into(),
            job: "j".into(),
            program: None,
            body: body.clone(),
        };
        let batch = Batch {
            events: (1..=10).map(event).collect(),
            ..Batch::default()
        };
        store.append(&batch).await.expect("it appends");
        let extent = |until, from_start| Extent { until, from_start };
        let fold = async |extent| replay(&*store, CoreConfig::default(), extent, &mut |_| {}).await;
        let six = fold(extent(Some(6), false)).await.expect("it replays");
        assert_eq!((six.seq, six.snapshot_seq), (6, 0));
        let snapshot = Snapshot {
            seq: 6,
            saved_at_us: 6,
            state: treadle_core_json::write_state(&six.core.state()).expect("JSON"),
        };
        store.save_snapshot(&snapshot).await.expect("it is saved");
        let whole = fold(extent(None, true)).await.expect("it replays");
        let rest = fold(extent(None, false)).await.expect("it replays");
        assert_eq!((rest.seq, rest.snapshot_seq), (10, 6));
        assert_eq!(whole.core.state(), rest.core.state());

        let retention = Retention {
            keep_events: 0,
            ended_before_us: 0,
            sink_lag_events_max: 0,
        };
        store.prune(&retention).await.expect("it prunes");
        for gone in [extent(None, true), extent(Some(3), false)] {
            let error = fold(gone).await.err().expect("events are gone");
            let missing = matches!(
                error,
                RecoveryError::Missing {
                    wanted: 1,
                    found: 7
                }
            );
            assert!(missing, "{error}");
        }
        assert_eq!(fold(extent(None, false)).await.expect("it replays").seq, 10);
    }
}
