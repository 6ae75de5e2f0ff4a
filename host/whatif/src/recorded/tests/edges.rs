//! What a window does not contain: refused steps, abandoned programs, engines that did not answer.

use super::*;
use treadle_core::memory::Capacity;
use treadle_core::programs::WorkerState;
use treadle_core::programs::{StepArrival, StepTokens};
use treadle_model::{EngineKind, FinishReason, StepId, WorkerId};
use treadle_simulator::cluster::Schedule;

const SECOND: u64 = 1_000_000;

fn arrival(step: u64, program: &str) -> Event {
    Event::Program(ProgramEvent::StepArrived(StepArrival {
        step: StepId(step),
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
    }))
}

fn finished(step: u64) -> Event {
    Event::Program(ProgramEvent::StepFinished {
        step: StepId(step),
        tokens: StepTokens {
            prompt: 100,
            output: 10,
            cached: None,
        },
        finish: FinishReason::Stop,
        weights: None,
    })
}

fn released(program: &str) -> Event {
    Event::Program(ProgramEvent::ProgramReleased {
        program: program.into(),
        aborted: false,
    })
}

fn told(step: u64) -> Event {
    Event::Program(ProgramEvent::StepFirstToken { step: StepId(step) })
}

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

fn known(worker: u32) -> RecordedWorker {
    RecordedWorker {
        url: format!("http://e{worker}").into(),
        kv_tokens: Some(7),
        class: None,
    }
}

/// The workload of events at the given seconds.
fn workload(events: &[(u64, Event)]) -> Workload {
    let mut recorder = Recorder::new(RecorderOptions::default());
    for (at_s, event) in events {
        recorder.take(Timestamp(at_s * SECOND), event).unwrap();
    }
    recorder.finish().unwrap()
}

fn urls(workload: &Workload) -> Vec<&str> {
    workload.workers.iter().map(|w| &*w.url).collect()
}

#[test]
fn a_refused_step_ends_with_the_next_of_its_program_or_with_its_release() {
    let workload = workload(&[
        (0, arrival(1, "a")),
        (1, finished(1)),
        // Refused: no further event follows.
        (2, arrival(2, "a")),
        (3, arrival(3, "a")),
        (5, finished(3)),
        (6, arrival(4, "a")),
        (7, released("a")),
        // Takes the slot.
        (8, arrival(5, "b")),
        (9, finished(5)),
        (9, released("b")),
    ]);
    let cuts = Cuts {
        steps_unheard_of: 2,
        ..Cuts::default()
    };
    assert_eq!(workload.cuts, cuts);
    assert_eq!(workload.steps(), 3);
    let slot = Begin::Slot {
        ends: 1,
        lag_us: SECOND,
    };
    assert_eq!(workload.schedule.runs[1].begin, slot);
}

#[test]
fn steps_that_overlap_are_distinguished_from_refused_ones() {
    let workload = workload(&[
        (0, arrival(1, "a")),
        (1, arrival(2, "a")),
        (3, finished(2)),
        (4, finished(1)),
        (5, arrival(3, "a")),
    ]);
    let cuts = Cuts {
        steps_overlapping: 1,
        steps_open_at_end: 1,
        programs_open_at_end: 1,
        ..Cuts::default()
    };
    assert_eq!(workload.cuts, cuts);
    assert_eq!(workload.steps(), 2);
}

#[test]
fn a_program_that_its_client_left_does_not_hold_its_wave_open() {
    let mut events = vec![
        (0, arrival(1, "a")),
        (0, arrival(2, "left")),
        (4, finished(1)),
        (5, finished(2)),
        (9, released("a")),
    ];
    for wave in 1..20 {
        let (at, step) = (wave * 1_000, 10 + wave);
        let name = format!("w{wave}");
        events.push((at, arrival(step, &name)));
        events.push((at + 5, finished(step)));
        events.push((at + 6, released(&name)));
    }
    let workload = workload(&events);
    assert_eq!(
        (
            workload.cuts.programs_left,
            workload.cuts.programs_open_at_end
        ),
        (1, 0)
    );
    let Schedule { waves, runs, .. } = &workload.schedule;
    assert_eq!(waves.len(), 20);
    let at_once =
        |start: &treadle_simulator::cluster::RunStart| start.begin == Begin::At { offset_us: 0 };
    assert!(runs.iter().all(at_once), "{runs:?}");
}

#[test]
fn a_program_that_was_heard_of_lately_is_open() {
    let workload = workload(&[
        (0, arrival(1, "a")),
        (2, finished(1)),
        (3, released("a")),
        (7, arrival(2, "b")),
        (9, finished(2)),
        (11, arrival(3, "c")),
        (12, finished(3)),
    ]);
    let cuts = workload.cuts;
    assert_eq!((cuts.programs_left, cuts.programs_open_at_end), (0, 2));
}

#[test]
fn answers_of_others_do_not_decide_how_ours_came() {
    // The other job's steps stream, and must not count as steps of this recorder.
    let workload = workload(&[
        (0, told(100)),
        (0, told(101)),
        (0, arrival(1, "a")),
        (1, told(102)),
        (2, finished(1)),
    ]);
    assert!(workload.whole_answers);
    let streaming = self::workload(&[
        (0, arrival(1, "a")),
        (1, told(1)),
        (1, told(1)),
        (2, finished(1)),
    ]);
    assert!(!streaming.whole_answers);
}

#[test]
fn engines_that_never_answered_in_the_window_are_not_repeated() {
    let mut recorder = Recorder::new(RecorderOptions::default());
    for event in [added(0), added(1), lost(1), added(2), added(3)] {
        recorder.prepare(&event);
    }
    let removed = Event::Program(ProgramEvent::WorkerRemoved {
        worker: WorkerId(3),
    });
    recorder.prepare(&removed);
    // Their registrations are no longer in the events; the fourth is removed already.
    for worker in [2, 3, 4, 5] {
        recorder.worker_beside(WorkerId(worker), known(worker));
    }
    recorder.prepare(&lost(5));
    let window = [
        (0, arrival(1, "a")),
        (1, lost(2)),
        (2, finished(1)),
        (3, lost(4)),
    ];
    for (at_s, event) in &window {
        recorder.take(Timestamp(at_s * SECOND), event).unwrap();
    }
    let workload = recorder.finish().unwrap();
    assert_eq!(urls(&workload), ["http://e0", "http://e2", "http://e4"]);
    assert_eq!(
        workload.workers[1].kv_tokens,
        Some(1_000),
        "events go first"
    );
    assert_eq!(workload.cuts.worker_changes, 2);
}

#[test]
fn an_engine_that_was_drained_before_the_window_is_not_repeated() {
    let mut recorder = Recorder::new(RecorderOptions::default());
    let set = |worker, state| {
        let worker = WorkerId(worker);
        Event::Program(ProgramEvent::WorkerStateSet { worker, state })
    };
    let drained = set(1, WorkerState::Draining);
    let cordoned = set(2, WorkerState::Cordoned);
    for event in [added(0), added(1), added(2), drained, cordoned] {
        recorder.prepare(&event);
    }
    let window = [
        (0, arrival(1, "a")),
        (1, set(0, WorkerState::Draining)),
        (2, finished(1)),
    ];
    for (at_s, event) in &window {
        recorder.take(Timestamp(at_s * SECOND), event).unwrap();
    }
    let workload = recorder.finish().unwrap();
    assert_eq!(urls(&workload), ["http://e0", "http://e2"]);
    assert_eq!(workload.cuts.worker_changes, 1);
}

#[test]
fn one_that_answers_again_within_the_window_is_repeated() {
    let mut recorder = Recorder::new(RecorderOptions::default());
    recorder.prepare(&added(0));
    recorder.prepare(&lost(0));
    let recovered = Event::Program(ProgramEvent::WorkerRecovered {
        worker: WorkerId(0),
    });
    for (at_s, event) in [(0, recovered), (1, arrival(1, "a")), (2, finished(1))] {
        recorder.take(Timestamp(at_s * SECOND), &event).unwrap();
    }
    assert_eq!(urls(&recorder.finish().unwrap()), ["http://e0"]);
}

#[test]
fn a_burst_stays_one_however_late_it_comes() {
    const HOURS: u64 = 8 * 3_600 * SECOND;
    let at = |offset_us| treadle_simulator::cluster::RunStart {
        wave: 0,
        begin: Begin::At { offset_us },
    };
    let mut starts = vec![at(0)];
    starts.extend((0..20).map(|place| at(HOURS + place * SECOND)));
    let mut workload = Workload::of_runs(runs(21), 1);
    workload.schedule.runs = starts;
    workload.schedule.waves[0].gap_us = 100 * SECOND;
    for seed in 1..20 {
        let jittered = workload.jittered(seed, 0.05).schedule;
        let offsets: Vec<u64> = jittered.runs[1..]
            .iter()
            .map(|start| match start.begin {
                Begin::At { offset_us } => offset_us,
                Begin::Slot { .. } => unreachable!("no program takes a slot"),
            })
            .collect();
        assert!(offsets.is_sorted());
        let took = offsets[19] - offsets[0];
        assert!(took.abs_diff(19 * SECOND) < 2 * SECOND, "{took}");
        let gap = jittered.waves[0].gap_us;
        assert!(gap != 100 * SECOND && gap.abs_diff(100 * SECOND) <= 5 * SECOND);
    }
    assert_eq!(workload.jittered(0, 0.05), workload);
}
