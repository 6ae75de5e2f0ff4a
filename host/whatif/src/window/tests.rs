//! Windows of journals with a pruned beginning, and their engines.

use super::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use treadle_core::memory::Capacity;
use treadle_core::programs::{StepArrival, StepTokens};
use treadle_core::training::{Affinity, JobSettings, MemberRef, TrainingEvent};
use treadle_model::{EngineKind, FinishReason, StepId};
use treadle_store::{Batch, Location, ProgramRow, Retention, Snapshot, WorkerRow, open};

const SECOND: u64 = 1_000_000;

fn added(worker: u32) -> Event {
    Event::Program(ProgramEvent::WorkerAdded {
        worker: WorkerId(worker),
        url: format!("http://e{worker}").into(),
        engine: EngineKind::Vllm,
        capacity: Capacity {
            tokens: Some(1_000),
            ..Capacity::default()
        },
        role: None,
    })
}

fn lost(worker: u32) -> Event {
    Event::Program(ProgramEvent::WorkerLost {
        worker: WorkerId(worker),
        cause: "gone".into(),
    })
}

/// A step of a program, and its answer.
fn step(number: u64, program: &str) -> [Event; 2] {
    let arrival = StepArrival {
        step: StepId(number),
        program: program.into(),
        job: "job".into(),
        prompt_tokens: 100,
        exact: true,
        prompt_bytes: 400,
        text: None,
        output_tokens_max: None,
        prefix: Vec::new(),
        one_shot: false,
        inferred: false,
        parent: None,
        group: None,
        model: None,
    };
    let finished = Event::Program(ProgramEvent::StepFinished {
        step: StepId(number),
        tokens: StepTokens {
            prompt: 100,
            output: 10,
            cached: None,
        },
        finish: FinishReason::Stop,
        weights: None,
    });
    [Event::Program(ProgramEvent::StepArrived(arrival)), finished]
}

fn worker(number: u32, status: &str) -> WorkerRow {
    WorkerRow {
        worker: format!("w{number}"),
        url: format!("http://e{number}"),
        kind: "vllm".into(),
        status: status.into(),
        capacity_tokens: Some(77),
        used_tokens: 0,
        added_at_us: 0,
        updated_at_us: 0,
    }
}

fn program(name: &str, created_at_us: u64) -> ProgramRow {
    ProgramRow {
        program: name.into(),
        job: "job".into(),
        parent: None,
        status: "finished".into(),
        phase: "acting".into(),
        worker: None,
        context_tokens: 0,
        steps: 1,
        created_at_us,
        updated_at_us: created_at_us,
        ..ProgramRow::default()
    }
}

/// A store with these events, one per second; the journal keeps the last `kept`.
async fn store(events: &[Event], workers: Vec<WorkerRow>, kept: u64) -> Arc<dyn Store> {
    let store = open(&Location::Memory).await.unwrap();
    let row = |(place, event): (usize, &Event)| EventRow {
        seq: place as u64 + 1,
        at_us: (place as u64 + 1) * SECOND,
        kind: event.kind().into(),
        job: String::new(),
        program: match event {
            Event::Program(ProgramEvent::StepArrived(arrival)) => Some(arrival.program.to_string()),
            Event::Program(ProgramEvent::StepFinished { .. }) => Some("p1".into()),
            _ => None,
        },
        body: record::encode(event, None),
    };
    let batch = Batch {
        events: events.iter().enumerate().map(row).collect(),
        programs: vec![program("p1", SECOND), program("p2", 1_000 * SECOND)],
        workers,
        ..Batch::default()
    };
    let last = store.append(&batch).await.unwrap();
    let snapshot = Snapshot {
        seq: last,
        saved_at_us: 0,
        state: Vec::new(),
    };
    store.save_snapshot(&snapshot).await.unwrap();
    let retention = Retention {
        keep_events: kept,
        ..Retention::default()
    };
    while store.prune(&retention).await.unwrap().more {}
    store
}

async fn loaded(store: &Arc<dyn Store>, window: WindowSpec) -> Result<Workload, WhatIfError> {
    let options = RecorderOptions::default();
    load(&**store, &window, None, options, &|| true).await
}

fn urls(workload: &Workload) -> Vec<&str> {
    workload.workers.iter().map(|w| &*w.url).collect()
}

#[tokio::test]
async fn the_default_window_begins_where_the_journal_does() {
    let mut events = vec![added(0)];
    events.extend((0..10).flat_map(|number| step(number, "p1")));
    let store = store(&events, vec![worker(0, "healthy")], 8).await;
    let workload = loaded(&store, WindowSpec::default()).await.unwrap();
    assert_eq!(workload.steps(), 4, "{:?}", workload.cuts);
    // It began before what is left.
    assert_eq!(workload.cuts.programs_begun_before, 1);
    assert_eq!(urls(&workload), ["http://e0"]);
    assert_eq!(workload.workers[0].kv_tokens, Some(77));
    let early = WindowSpec {
        to_seq: Some(3),
        ..WindowSpec::default()
    };
    let failure = loaded(&store, early).await.unwrap_err().to_string();
    assert!(failure.contains("the journal from 14 to 21"), "{failure}");
}

#[tokio::test]
async fn engines_are_those_that_answered_in_the_window() {
    let mut events = vec![added(0), added(1), lost(1), added(2), added(3)];
    events.extend(step(1, "p1"));
    // One is lost in the window; others are added or lost after it.
    events.push(lost(2));
    events.extend(step(2, "p1"));
    events.extend([lost(3), added(4)]);
    let statuses = [(0, "healthy"), (2, "lost"), (3, "lost"), (4, "healthy")];
    let rows = statuses.map(|(number, status)| worker(number, status));
    let whole = store(&events, rows.to_vec(), 1_000).await;
    let window = || WindowSpec {
        to_seq: Some(10),
        ..WindowSpec::default()
    };
    let workload = loaded(&whole, window()).await.unwrap();
    assert_eq!(urls(&workload), ["http://e0", "http://e2", "http://e3"]);
    // The same with pruned registrations. One was lost before the window.
    let mut rows = rows.to_vec();
    rows.push(worker(1, "lost"));
    let pruned = store(&events, rows, 7).await;
    let workload = loaded(&pruned, window()).await.unwrap();
    assert_eq!(urls(&workload), ["http://e0", "http://e2", "http://e3"]);
}

#[tokio::test]
async fn classes_and_members_from_before_the_window_are_known() {
    let affinity = BTreeMap::from([("math".into(), "h20".into())]);
    let settings = JobSettings {
        affinity: Some(Affinity::Classes(affinity)),
        ..JobSettings::default()
    };
    let member = MemberRef {
        job: "job".into(),
        group: "g".into(),
        program: "p1".into(),
    };
    let training = [
        TrainingEvent::JobDeclared {
            job: "job".into(),
            settings: Box::new(settings),
        },
        TrainingEvent::GroupSubmitted {
            job: "job".into(),
            group: "g".into(),
            size: None,
            content: None,
            domain: Some("math".into()),
        },
        TrainingEvent::MemberArrived {
            member,
            direct: false,
        },
    ];
    let class = Event::Program(ProgramEvent::WorkerClassSet {
        worker: WorkerId(0),
        class: Some("h20".into()),
    });
    let mut events = vec![added(0), class];
    events.extend(training.map(Event::Training));
    events.extend(step(1, "p1"));
    let store = store(&events, vec![worker(0, "healthy")], 1_000).await;
    let window = WindowSpec {
        from_seq: Some(6),
        ..WindowSpec::default()
    };
    let workload = loaded(&store, window).await.unwrap();
    assert_eq!(workload.workers[0].class.as_deref(), Some("h20"));
    let of = workload.preferences.members[0].as_ref().unwrap();
    assert_eq!((&*of.job, of.domain.as_deref()), ("job", Some("math")));
    let affinity = &workload.preferences.jobs["job"];
    assert_eq!(affinity.class_of("math"), Some("h20"));
}
