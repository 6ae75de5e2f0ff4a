//! The writer survives any rows from the driver.

use super::*;
use crate::{Clock, DriverOptions, Recording, spawn_driver};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::unbounded_channel;
use treadle_core::programs::StepTokens;
use treadle_core::{Core, CoreConfig, DaemonEvent, Origin};
use treadle_model::{FinishReason, StepId};
use treadle_policy::evaluator::{EvaluatorLimits, PolicyEvaluator};
use treadle_services::{Schema, are_skipped};
use treadle_store::{
    DecisionRow, EventRow, Location, PAGE_ROWS_MAX, PostgresLocation, ProgramRow, StepRow,
    WorkerRow, open,
};

/// Longest wait for a batch: far more than any takes, far less than forever.
const TIMEOUT: Duration = Duration::from_mins(1);
/// The substitute for NUL in PostgreSQL, which is also what is read back.
const NUL_SUBSTITUTE: char = '\u{f0000}';

/// Letters that no database can compress.
fn letters(length: usize, mut state: u64) -> String {
    let letter = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        char::from(b'!' + (state >> 33) as u8 % 90)
    };
    (0..length).map(letter).collect()
}

fn text() -> impl Strategy<Value = String> {
    let any_characters = proptest::collection::vec(any::<char>(), 0..20).prop_map(|all| {
        all.into_iter()
            .filter(|c| *c != NUL_SUBSTITUTE)
            .collect::<String>()
    });
    prop_oneof![
        6 => "[a-z]{1,6}",
        3 => any_characters,
        1 => (2_000..12_000_usize, 0..1_u64 << 32).prop_map(|(length, state)| letters(length, state)),
        1 => Just("a\u{0}b".to_owned()),
    ]
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..1_000_000_u64, 1 => any::<u64>(), 1 => Just(u64::MAX)]
}

prop_compose! {
    fn event()(at_us in number(), names in [text(), text(), text()], named in any::<bool>()) -> EventRow {
        let [kind, job, body] = names;
        let program = named.then(|| job.clone());
        EventRow { seq: 0, at_us, kind, job, program, body }
    }
}

prop_compose! {
    fn program()(names in [text(), text(), text()], numbers in [number(), number(), number()])
        -> ProgramRow
    {
        let ([program, job, status], [context_tokens, steps, created_at_us]) = (names, numbers);
        ProgramRow { program, job, context_tokens, steps, created_at_us, status, ..good_program("") }
    }
}

prop_compose! {
    fn step()(program in prop_oneof![Just("good".to_owned()), text()], cause in text(),
        numbers in [number(), number(), number()]) -> StepRow
    {
        let [step, prompt_tokens, cached] = numbers;
        StepRow {
            step,
            program,
            worker: None,
            arrived_at_us: 1,
            dispatched_at_us: None,
            first_token_at_us: None,
            finished_at_us: None,
            prompt_tokens,
            output_tokens: 0,
            cached_tokens: Some(cached),
            outcome: "stop".into(),
            waited_us: 0,
            cause: Some(cause),
            ..StepRow::default()
        }
    }
}

prop_compose! {
    fn worker()(names in [text(), text()], numbers in [number(), number()]) -> WorkerRow {
        let ([worker, url], [capacity, used_tokens]) = (names, numbers);
        WorkerRow {
            worker,
            url,
            kind: "vllm".into(),
            status: "healthy".into(),
            capacity_tokens: Some(capacity),
            used_tokens,
            added_at_us: 1,
            updated_at_us: 1,
        }
    }
}

prop_compose! {
    fn decision()(names in [text(), text(), text()], at_us in number()) -> DecisionRow {
        let [program, policy, why] = names;
        let kind = "pause".into();
        // A decision is about an event that the journal has.
        DecisionRow { seq: 1, at_us, kind, program: Some(program), worker: None, policy, why }
    }
}

fn good_program(name: &str) -> ProgramRow {
    ProgramRow {
        program: name.into(),
        job: "j".into(),
        parent: None,
        status: "active".into(),
        phase: "acting".into(),
        worker: None,
        context_tokens: 1,
        steps: 1,
        tokens_total: 1,
        created_at_us: 1,
        updated_at_us: 1,
        ..ProgramRow::default()
    }
}

fn good_event() -> EventRow {
    EventRow {
        seq: 0,
        at_us: 7,
        kind: "timer_fired".into(),
        job: "default".into(),
        program: None,
        body: "{\"event\":\"timer_fired\"}".into(),
    }
}

prop_compose! {
    /// Arbitrary rows, with a good event and a good program among them.
    fn rows()(
        events in proptest::collection::vec(event(), 0..24),
        programs in proptest::collection::vec(program(), 0..4),
        steps in proptest::collection::vec(step(), 0..4),
        workers in proptest::collection::vec(worker(), 0..3),
        decisions in proptest::collection::vec(decision(), 0..4),
    ) -> Batch {
        let mut rows = Batch { events, programs, steps, workers, decisions, ..Batch::default() };
        rows.events.insert(rows.events.len() / 2, good_event());
        rows.programs.insert(rows.programs.len() / 2, good_program("good"));
        rows
    }
}

struct Fixture {
    runtime: Runtime,
    store: Arc<dyn Store>,
    journal: JournalHandle,
    statistics: Arc<JournalStatistics>,
}

impl Fixture {
    fn new(location: &Location) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let store = runtime.block_on(open(location)).expect("it opens");
        let statistics = Arc::<JournalStatistics>::default();
        let journal = {
            let _inside = runtime.enter();
            spawn_journal(store.clone(), statistics.clone())
        };
        Self {
            runtime,
            store,
            journal,
            statistics,
        }
    }

    /// Queues rows and waits for each event. Returns the stored events and each event's result.
    fn write(&self, mut rows: Batch) -> (Vec<EventRow>, Vec<Result<(), NotRecorded>>) {
        let last = self.runtime.block_on(self.store.last_seq());
        let first = last.expect("it is read") + 1;
        let mut batch = JournalBatch::default();
        let mut recordings = Vec::new();
        for (event, seq) in rows.events.iter_mut().zip(first..) {
            event.seq = seq;
            let (recorder, recording) = Recording::new();
            batch.committed.push((seq, recorder));
            recordings.push(recording);
        }
        let sent = rows.events.clone();
        batch.rows = rows;
        self.journal.append(batch);
        let all = futures_util::future::join_all(recordings);
        let outcomes = self
            .runtime
            .block_on(async { tokio::time::timeout(TIMEOUT, all).await });
        (sent, outcomes.expect("the writer goes on"))
    }

    /// All rows are stored in order, or placeholders for them.
    fn check(&self, rows: Batch) -> Result<(), TestCaseError> {
        let good = rows.events.iter().position(|event| *event == good_event());
        let (sent, outcomes) = self.write(rows);
        let after = sent[0].seq - 1;
        let stored = self.store.events_after(after, PAGE_ROWS_MAX);
        let stored = self.runtime.block_on(stored).expect("it is read");
        prop_assert_eq!(stored.len(), sent.len());
        for ((stored, sent), outcome) in stored.iter().zip(&sent).zip(&outcomes) {
            if outcome.is_ok() {
                prop_assert_eq!(stored, sent);
            } else {
                prop_assert_eq!(*outcome, Err(NotRecorded::Refused));
                prop_assert_eq!((stored.seq, &*stored.kind), (sent.seq, "record_refused"));
                prop_assert!(record::decode(&stored.body).is_ok());
            }
        }
        prop_assert_eq!(outcomes[good.unwrap_or_default()], Ok(()));
        let lacks = outcomes.iter().any(Result::is_err);
        prop_assert_eq!(self.journal.lacks_an_event(), lacks);
        let program = self.runtime.block_on(self.store.program("good"));
        prop_assert!(program.expect("it is read").is_some());
        Ok(())
    }
}

fn nothing_blocks_the_writer(location: &Location, cases: u32) {
    let fixture = Fixture::new(location);
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    let ran = runner.run(&rows(), |rows| fixture.check(rows));
    ran.expect("whatever comes");
    // A snapshot that can't be stored does not block the writer either.
    fixture.journal.snapshot(Snapshot {
        seq: u64::MAX,
        saved_at_us: u64::MAX,
        state: vec![1],
    });
    let (_, outcomes) = fixture.write(Batch {
        events: vec![good_event(); 3],
        ..Batch::default()
    });
    assert_eq!(outcomes, [Ok(()); 3]);
    let refused = fixture.statistics.refused();
    assert!(refused > 0, "some of it was not to be stored");
    fixture.journal.close();
    fixture
        .runtime
        .block_on(fixture.store.close())
        .expect("it ends");
}

#[test]
fn nothing_blocks_the_writer_of_sqlite() {
    nothing_blocks_the_writer(&Location::Memory, 128);
}

#[test]
fn nothing_blocks_the_writer_of_postgres() {
    if are_skipped() {
        return;
    }
    let schema = Schema::fresh("journal_writer");
    let mut at = PostgresLocation::new(schema.url.clone());
    at.schema.clone_from(&schema.name);
    nothing_blocks_the_writer(&Location::Postgres(at), 48);
}

#[test]
fn a_gateway_hears_that_the_end_of_an_answer_was_refused() {
    let gateway = GatewayId(3);
    let step = StepId::of(gateway, 2);
    let finished = Event::Program(ProgramEvent::StepFinished {
        step,
        tokens: StepTokens {
            prompt: 1,
            output: 1,
            cached: None,
        },
        finish: FinishReason::Stop,
        weights: None,
    });
    let origin = Origin { gateway, number: 9 };
    let refused = EventRow {
        seq: 2,
        body: record::encode(&finished, Some(origin)),
        ..good_event()
    };
    let (sender, mut said) = unbounded_channel();
    let batch = JournalBatch {
        rows: Batch {
            events: vec![good_event(), refused],
            ..Batch::default()
        },
        relayed: vec![(gateway, sender, 9)],
        ..JournalBatch::default()
    };
    batch.notify(&[RefusedRow {
        table: "events",
        key: "2".into(),
        event: Some(2),
        cause: "too long".into(),
    }]);
    let first = said.try_recv().expect("a word");
    let word = WireInstruction::Forget;
    let expected = ToGateway::Step { step, word };
    assert_eq!(format!("{first:?}"), format!("{expected:?}"));
    let then = said.try_recv().expect("a word");
    assert!(matches!(then, ToGateway::Recorded { number: 9 }));
}

/// The writer is driven by hand.
#[tokio::test]
async fn relayed_events_are_recorded_once_the_writer_confirms() {
    let (entries, mut received) = mpsc::channel(BATCHES_MAX);
    let (_told, committed) = watch::channel(0);
    let core = Core::new(CoreConfig::default());
    let driver = spawn_driver(DriverOptions {
        clock: Clock::start(core.now(), 1.0),
        core,
        seq: 0,
        restarted: false,
        snapshot_seq: 0,
        replay_time: Duration::ZERO,
        policies: PolicyEvaluator::new(EvaluatorLimits::default()),
        journal: Some(JournalHandle {
            entries,
            committed,
            lacks_an_event: Arc::default(),
        }),
        snapshot_events: u64::MAX,
        forecasts: None,
        transfers: None,
        actions: None,
        notices: None,
    });
    let driver = driver.unwrap();
    driver.event(Event::Daemon(DaemonEvent::DaemonRestarted));
    let recorded = driver.recorded();
    tokio::pin!(recorded);
    let mut taken = Vec::new();
    while taken
        .iter()
        .all(|batch: &JournalBatch| batch.rows.events.is_empty())
    {
        tokio::select! {
            biased;
            _ = &mut recorded => panic!("nothing is on disk yet"),
            Some(Entry::Batch(batch)) = received.recv() => taken.push(*batch),
        }
    }
    tokio::select! {
        biased;
        _ = &mut recorded => panic!("nothing is on disk yet"),
        () = std::future::ready(()) => {}
    }
    for batch in taken {
        batch.notify(&[]);
    }
    loop {
        tokio::select! {
            done = &mut recorded => break done.unwrap(),
            // The request came too late for the event's own batch.
            Some(Entry::Batch(batch)) = received.recv() => batch.notify(&[]),
        }
    }
}
