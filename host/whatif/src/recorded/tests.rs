//! Recording a simulated run gives the workload that it was made from, and replaying that gives the
//! same outcome.

mod affinity;
mod edges;

use super::*;
use treadle_core::estimates::RemainingTime;
use treadle_core::estimates::Tools;
use treadle_core::programs::{ProgramEvent, Question};
use treadle_core::{Core, CoreConfig, Event, Mode};
use treadle_engine_model::engine::EngineProfile;
use treadle_model::{Span, Timestamp};
use treadle_policy::native::NativeEviction;
use treadle_simulator::cluster::{
    Answered, Answers, Begin, ClusterOptions, Environment, Report, ToolAction, TransferOptions,
    Watch, simulate_within,
};
use treadle_simulator::workload::{AgentRun, LognormalAgents};

/// Answers as the native policy does, and stores what the core has learnt about tools.
#[derive(Default)]
struct Onlooker {
    policy: NativeEviction,
    tools: Tools,
}

impl Answers for Onlooker {
    fn answer(&mut self, core: &Core, question: &Question, now_ms: u64) -> Answered {
        self.tools.clone_from(core.programs().estimates.tools());
        Answers::answer(&mut self.policy, core, question, now_ms)
    }
}

/// Records the events of a cluster's core.
struct Tape {
    events: Vec<(u64, Event)>,
}

impl Watch for Tape {
    fn heard(&mut self, now_us: u64, event: &Event) {
        self.events.push((now_us, event.clone()));
    }
}

fn runs(programs: usize) -> Vec<AgentRun> {
    let workload = LognormalAgents {
        programs,
        group_size: 4,
        ..LognormalAgents::default()
    };
    workload.generate().unwrap()
}

fn options(mode: Mode, slots: usize) -> ClusterOptions {
    ClusterOptions {
        core: CoreConfig {
            mode,
            ..CoreConfig::default()
        },
        policy: NativeEviction::default(),
        engines: 2,
        profile: EngineProfile {
            stream_interval_tokens: 64,
            ..EngineProfile::glm46_8xh100().with_kv_tokens(60_000)
        },
        transfers: TransferOptions::default(),
        reports_prefixes: true,
        concurrency: slots,
        stop_at_us: None,
        count_from_us: 0,
        seed: 1,
        audit: false,
    }
}

fn tape(runs: &[AgentRun], options: &ClusterOptions) -> (Tape, Report) {
    let mut tape = Tape { events: Vec::new() };
    let mut policy = options.policy.clone();
    let around = Environment::default();
    let report = simulate_within(runs, options, &mut policy, around, &mut tape);
    (tape, report)
}

fn recorded(tape: &Tape, range: std::ops::Range<usize>) -> Workload {
    let mut recorder = Recorder::new(RecorderOptions::default());
    for (_, event) in &tape.events[..range.start] {
        recorder.prepare(event);
        if let Event::Program(ProgramEvent::StepArrived(arrival)) = event {
            recorder.begun_before(&arrival.program);
        }
    }
    for (at, event) in &tape.events[range] {
        // The journal's clock does not begin at 0.
        recorder.take(Timestamp(at + 5_000_000), event).unwrap();
    }
    recorder.finish().unwrap()
}

fn replayed(workload: &Workload, mode: Mode, decisions_max: usize) -> Outcome {
    let options = ReplayOptions {
        core: options(mode, 0).core,
        profile: options(mode, 0).profile,
        kv_tokens: workload
            .workers
            .iter()
            .filter_map(|w| w.kv_tokens)
            .collect(),
        request_overhead_us: 0,
        decisions_max,
    };
    let mut policy = NativeEviction::default();
    replay(workload, &options, &mut policy, &mut |_| true).unwrap()
}

#[test]
fn the_workload_of_a_recorded_run_is_the_one_that_it_was_made_from() {
    let runs = runs(24);
    let (tape, report) = tape(&runs, &options(Mode::ProgramAware, 8));
    let workload = recorded(&tape, 0..tape.events.len());
    assert_eq!(workload.runs, runs);
    assert_eq!(workload.cuts, Cuts::default());
    let at =
        |start: &&treadle_simulator::cluster::RunStart| start.begin == Begin::At { offset_us: 0 };
    let schedule = &workload.schedule;
    assert_eq!((schedule.waves.len(), schedule.jobs.len()), (1, 1));
    assert_eq!(schedule.runs.iter().filter(at).count(), 8);
    let slots = schedule.runs[8..].iter().enumerate();
    for (place, start) in slots {
        let ends = place as u32 + 1;
        assert_eq!(start.begin, Begin::Slot { ends, lag_us: 0 });
    }
    let kv: Vec<Option<u64>> = workload.workers.iter().map(|w| w.kv_tokens).collect();
    assert_eq!(kv, [Some(60_000), Some(60_000)]);
    let was = workload.recorded.unwrap();
    assert_eq!(
        (was.steps, was.makespan_s),
        (report.steps, report.makespan_s)
    );
    assert!((was.hit_rate - report.hit_rate).abs() < 1e-9);
    assert!(!workload.whole_answers);
}

#[test]
fn a_replay_under_the_recorded_policies_comes_to_what_was_recorded() {
    for mode in [Mode::ProgramAware, Mode::Sticky, Mode::LeastLoad] {
        let (tape, report) = tape(&runs(24), &options(mode, 8));
        let workload = recorded(&tape, 0..tape.events.len());
        let outcome = replayed(&workload, mode, 0);
        assert_eq!(
            (outcome.steps, outcome.makespan_s),
            (report.steps, report.makespan_s)
        );
        assert_eq!(
            (outcome.step_p99_s, outcome.hit_rate),
            (report.step_p99_s, report.hit_rate)
        );
        assert!(outcome.whole && outcome.programs == 24);
        assert!(outcome.jobs[0].slowdown >= 0.9, "{:?}", outcome.jobs);
    }
}

#[test]
fn what_the_edges_of_a_window_cut_is_counted_and_the_rest_is_repeated() {
    let runs = runs(24);
    let (tape, _) = tape(&runs, &options(Mode::ProgramAware, 8));
    let (from, to) = (tape.events.len() / 3, tape.events.len() * 2 / 3);
    let workload = recorded(&tape, from..to);
    let cuts = workload.cuts;
    assert!(cuts.programs_begun_before > 0 && cuts.programs_begun_before <= 8);
    assert!(cuts.programs_open_at_end > 0 && cuts.programs_open_at_end <= 8);
    assert!(cuts.steps_open_at_end <= 8);
    assert_eq!(workload.workers.len(), 2);
    let outcome = replayed(&workload, Mode::Sticky, 0);
    assert_eq!(outcome.steps, workload.steps());
    assert!(outcome.whole);
}

#[test]
fn a_window_without_an_answer_and_one_that_is_too_large_are_refused() {
    let recorder = Recorder::new(RecorderOptions::default());
    assert_eq!(recorder.finish().unwrap_err(), ReplayError::Empty);
    let (tape, _) = tape(&runs(8), &options(Mode::Sticky, 8));
    let options = RecorderOptions {
        programs_max: 3,
        ..RecorderOptions::default()
    };
    let mut recorder = Recorder::new(options);
    let taken: Result<Vec<()>, ReplayError> = tape
        .events
        .iter()
        .map(|(at, event)| recorder.take(Timestamp(*at), event))
        .collect();
    let what = "programs";
    assert_eq!(taken.unwrap_err(), ReplayError::TooLarge { what, max: 3 });
}

#[test]
fn of_many_jobs_those_with_most_programs_are_reported() {
    let mut workload = Workload::of_runs(runs(24), 8);
    workload.workers = vec![RecordedWorker {
        url: "a".into(),
        kv_tokens: Some(60_000),
        class: None,
    }];
    let mut outcome = replayed(&workload, Mode::Sticky, 0);
    let job = |programs: u64| JobOutcome {
        job: programs.to_string().into(),
        programs,
        slowdown: 1.0,
    };
    outcome.jobs = (0..5_000).map(job).collect();
    let told = Comparison::of(&workload, vec![("a".into(), vec![outcome])], 0);
    let jobs = &told.sets[0].seeds[0].jobs;
    assert_eq!((jobs.len(), jobs[0].programs), (200, 4_999));
}

fn comparison(workload: &Workload, seeds: &[u64]) -> Comparison {
    let outcomes = [Mode::LeastLoad, Mode::ProgramAware].map(|mode| {
        let own = seeds.iter().map(|&seed| {
            let decisions_max = if seed == 0 { 10_000 } else { 0 };
            replayed(&workload.jittered(seed, 0.1), mode, decisions_max)
        });
        (format!("{mode:?}"), own.collect())
    });
    Comparison::of(workload, outcomes.into(), 5)
}

#[test]
fn the_same_seeds_give_the_same_report_and_others_another() {
    let workload = Workload {
        workers: vec![
            RecordedWorker {
                url: "a".into(),
                kv_tokens: Some(60_000),
                class: None,
            };
            2
        ],
        ..Workload::of_runs(runs(24), 8)
    };
    let one = comparison(&workload, &[0, 1, 2]);
    assert_eq!(one, comparison(&workload, &[0, 1, 2]));
    let other = comparison(&workload, &[0, 3, 4]);
    assert_eq!(one.sets[0].seeds[0], other.sets[0].seeds[0]);
    assert_ne!(one.sets[0].makespan_s, other.sets[0].makespan_s);
    assert!(one.sets[1].makespan_s.half_width.unwrap() > 0.0);
    assert_eq!((one.programs, one.seat_takers, one.waves), (24, 16, 1));
    // Memory is short, so the set that considers it does better and decides differently.
    let change = one.sets[1].against_first.as_ref().unwrap();
    assert!(change.makespan_ratio.mean < 1.0, "{change:?}");
    assert!(change.programs_decided_otherwise > 0);
    assert_eq!(change.differences.len().min(5), change.differences.len());
    let first = &change.differences[0];
    assert!(first.ours.is_some() || first.theirs.is_some());
    assert!(one.sets[0].against_first.is_none());
    assert_eq!(one.jobs, 1);
    // Decisions are dropped once they are compared.
    let outcomes = one.sets.iter().flat_map(|set| &set.seeds);
    assert!(outcomes.map(|outcome| outcome.choices.len()).sum::<usize>() == 0);
}

#[test]
fn a_replay_ends_when_it_is_cancelled() {
    let workload = Workload::of_runs(runs(24), 8);
    let options = ReplayOptions {
        core: CoreConfig::default(),
        profile: EngineProfile::glm46_8xh100(),
        kv_tokens: vec![60_000],
        request_overhead_us: 0,
        decisions_max: 0,
    };
    let mut policy = NativeEviction::default();
    let mut asked = Vec::new();
    let outcome = replay(&workload, &options, &mut policy, &mut |steps| {
        asked.push(steps);
        asked.len() < 2
    });
    assert_eq!((outcome, asked.len()), (None, 2));
}

#[test]
fn a_replay_ends_when_it_is_cancelled_even_if_virtual_time_stands_still() {
    let workload = Workload::of_runs(runs(4), 4);
    let mut options = ReplayOptions {
        core: CoreConfig::default(),
        profile: EngineProfile::glm46_8xh100(),
        kv_tokens: vec![60_000],
        request_overhead_us: 0,
        decisions_max: 0,
    };
    // Polls the load as soon as the previous poll is over.
    options.core.tick = treadle_model::Span(0);
    let mut asked = 0;
    let outcome = replay(
        &workload,
        &options,
        &mut NativeEviction::default(),
        &mut |_| {
            asked += 1;
            asked < 100
        },
    );
    assert_eq!((outcome, asked), (None, 100));
}

#[test]
fn a_shrunk_prompt_keeps_what_is_known_to_be_kept() {
    let mut run = runs(1).remove(0);
    run.steps.truncate(3);
    run.steps[2].input_tokens = run.system_tokens + run.group_tokens + 500;
    run.steps[2].reused_tokens = run.system_tokens + run.group_tokens;
    run.steps[2].tool_us = 0;
    let mut twin = run.clone();
    twin.id = "twin".into();
    let runs = [run, twin];
    let (tape, _) = tape(&runs, &options(Mode::Sticky, 2));
    let workload = recorded(&tape, 0..tape.events.len());
    assert_eq!(workload.cuts.steps_compacted, 2);
    for run in &workload.runs {
        let kept = run.steps[2].reused_tokens;
        let shared = run.system_tokens + run.group_tokens;
        assert!(kept >= shared && kept < shared + 500, "{kept} {shared}");
    }
}

/// Every other tool call is an edit of half a second; the others are tests that take half a minute
/// and fail.
fn two_tools(runs: &mut [AgentRun]) -> Vec<Vec<Vec<ToolAction>>> {
    let mut actions = Vec::new();
    for run in runs {
        let last = run.steps.len() - 1;
        let mut of_run = Vec::new();
        for (place, step) in run.steps.iter_mut().enumerate() {
            let (tool, ends_us, ok) = match place % 2 {
                0 => ("edit", 500_000, true),
                _ => ("test", 30_000_000, false),
            };
            let action = ToolAction {
                tool: tool.into(),
                begins_us: 100_000,
                ends_us: Some(ends_us),
                ok,
            };
            step.tool_us = if place == last { 0 } else { ends_us + 200_000 };
            of_run.push(if place == last { vec![] } else { vec![action] });
        }
        actions.push(of_run);
    }
    actions
}

#[test]
fn the_times_of_each_tool_are_learnt_as_they_were() {
    let mut runs = runs(24);
    let actions = two_tools(&mut runs);
    let options = options(Mode::ProgramAware, 8);
    let mut tape = Tape { events: Vec::new() };
    let mut was = Onlooker::default();
    let around = Environment {
        actions: &actions,
        ..Environment::default()
    };
    simulate_within(&runs, &options, &mut was, around, &mut tape);
    let workload = recorded(&tape, 0..tape.events.len());
    assert_eq!(
        (&workload.actions, workload.cuts),
        (&actions, Cuts::default())
    );
    let again = ReplayOptions {
        core: options.core.clone(),
        profile: options.profile.clone(),
        kv_tokens: vec![60_000; 2],
        request_overhead_us: 0,
        decisions_max: 0,
    };
    let mut is = Onlooker::default();
    replay(&workload, &again, &mut is, &mut |_| true).unwrap();
    assert_eq!(is.tools, was.tools);
    let remaining_time = |tool: &str| {
        let known = &is.tools["simulation"][tool];
        (
            RemainingTime::of(&known.times, Span(0), Span(0))
                .unwrap()
                .mean,
            known.failed > 0,
        )
    };
    let ((edit, edits_fail), (test, tests_fail)) = (remaining_time("edit"), remaining_time("test"));
    assert!(
        edit < Span::from_secs(1) && test > Span::from_secs(20),
        "{edit:?} {test:?}"
    );
    assert_eq!((edits_fail, tests_fail), (false, true));
    // Others take more or less time, and so do their tools.
    let jittered = workload.jittered(7, 0.1);
    for (run, steps) in jittered.runs.iter().zip(&jittered.actions) {
        for (step, action) in run
            .steps
            .iter()
            .zip(steps.iter())
            .filter_map(|(s, a)| Some((s, a.first()?)))
        {
            assert!(
                action
                    .ends_us
                    .is_some_and(|ends_us| ends_us <= step.tool_us)
            );
        }
    }
}

#[test]
fn an_action_before_the_first_answer_is_left_out() {
    let runs = runs(1);
    let (mut tape, _) = tape(&runs, &options(Mode::Sticky, 1));
    let arrived =
        |(_, event): &(u64, Event)| matches!(event, Event::Program(ProgramEvent::StepArrived(_)));
    let first = tape.events.iter().position(arrived).unwrap();
    let (at, program) = (tape.events[first].0, runs[0].id.as_str().into());
    let event = Event::Program(ProgramEvent::ActionStarted {
        program,
        action: "0".into(),
        tool: "early".into(),
    });
    tape.events.insert(first + 1, (at, event));
    let workload = recorded(&tape, 0..tape.events.len());
    assert_eq!(workload.cuts.actions_left_out, 1);
    assert!(workload.actions[0].iter().all(Vec::is_empty));
}
