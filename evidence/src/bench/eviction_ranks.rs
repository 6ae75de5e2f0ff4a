//! `treadle-bench eviction --ranks N`: agents on one engine whose ranks step together.

use super::figures::{Figure, Report, Target};
use super::report_progress;
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use treadle_engine_model::engine::EngineProfile;
use treadle_systems::pressure::{RIVALS, RankOutcome, RankSystem, Scenario, TREADLE};

/// KV memory of all ranks, as shares of the peak demand: enough for all, and less.
const SHARES: [(&str, f64); 3] = [
    ("kv_enough", 1.25),
    ("kv_half", 1.0 / 2.0),
    ("kv_third", 1.0 / 3.0),
];

/// Runs all systems on all scenarios, on this many threads.
pub(super) fn measure(scenes: &[Scenario], ranks: u32, jobs: u32) -> Report {
    let mut report = Report::new("eviction");
    report.setting("engine", EngineProfile::glm46_8xh100().name.as_ref());
    report.setting("ranks", ranks);
    let outcomes = outcomes(scenes, ranks, jobs);
    let mut names: Vec<&'static str> = Vec::new();
    for scene in scenes {
        if !names.contains(&scene.name) {
            names.push(scene.name);
            report.setting(&format!("live.{}", scene.name), scene.live as u64);
            report.setting(&format!("programs.{}", scene.name), scene.runs.len() as u64);
        }
    }
    for name in names {
        for (share, _) in SHARES {
            let of_cell = |o: &&RankOutcome| o.scene == name && o.share == share;
            let cell: Vec<&RankOutcome> = outcomes.iter().filter(of_cell).collect();
            figures(&cell, &format!("{share}.{name}"), &mut report);
        }
    }
    report.detail("outcomes", json!(outcomes));
    report.note(NOTE);
    report
}

fn systems() -> impl Iterator<Item = &'static RankSystem> {
    [&TREADLE].into_iter().chain(&RIVALS)
}

/// Means over the seeds, and how treadle compares with each of the others.
fn figures(cell: &[&RankOutcome], suffix: &str, report: &mut Report) {
    let mean = |system: &RankSystem, value: fn(&RankOutcome) -> f64| {
        let values = cell.iter().filter(|o| o.system == system.name);
        let values: Vec<f64> = values.map(|o| value(o)).collect();
        values.iter().sum::<f64>() / values.len().max(1) as f64
    };
    let steps = |system: &RankSystem| mean(system, |o| o.report.steps_per_min);
    let program_p99 = |system: &RankSystem| mean(system, |o| o.program_p99_s);
    let step_p99 = |system: &RankSystem| mean(system, |o| o.report.step_p99_s);
    for system in systems() {
        let name = |what: &str| format!("{what}.{}.{suffix}", system.name);
        report.push(Figure::new(name("steps_per_min"), steps(system), "1/min"));
        report.push(Figure::new(name("program_p99_s"), program_p99(system), "s"));
        report.push(Figure::new(name("step_p99_s"), step_p99(system), "s"));
        let hits = mean(system, |o| o.report.hit_rate);
        report.push(Figure::new(name("hit_rate"), hits, "ratio"));
    }
    for rival in &RIVALS {
        let name = |what: &str| format!("{what}_vs_{}.{suffix}", rival.name);
        let ratio = |of: &dyn Fn(&RankSystem) -> f64| of(&TREADLE) / of(rival);
        let faster = Figure::new(name("steps"), ratio(&steps), "ratio");
        report.push(if rival.is_rank_blind() {
            faster.target(Target::AtLeast(1.4))
        } else {
            faster
        });
        let tail = Figure::new(name("program_p99"), ratio(&program_p99), "ratio");
        report.push(tail.target(Target::AtMost(1.0)));
        report.push(Figure::new(name("step_p99"), ratio(&step_p99), "ratio"));
    }
}

/// Everything that is to run, in an order that does not depend on threads.
fn outcomes(scenes: &[Scenario], ranks: u32, jobs: u32) -> Vec<RankOutcome> {
    let cells = scenes
        .iter()
        .flat_map(|scene| SHARES.map(|share| (scene, share)));
    let run_tasks: Vec<_> = cells
        .flat_map(|(scene, share)| systems().map(move |system| (scene, share, system)))
        .collect();
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, RankOutcome)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some((scene, share, system)) = run_tasks.get(index) else {
                        return;
                    };
                    let (name, seed) = (scene.name, scene.seed);
                    let title = format!("{name}, {}, {}, seed {seed}", share.0, system.name);
                    report_progress(&format!("eviction: {title} ..."));
                    let mut outcome = scene.run_on_ranks(system, ranks, share.1);
                    outcome.share = share.0;
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.push((index, outcome));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

const NOTE: &str = "In virtual time, on one simulated engine whose ranks step together, each with \
    an equal part of its compute, bandwidth and KV memory: figures are the same on any machine. All \
    systems run the same programs to their ends, as many at once. rank_blind keeps programs at the \
    engine, which spreads their steps over its ranks by load, as vLLM does; pinned_by_hash and \
    pinned_by_load keep a program at one rank, and nothing waits outside of the engine. steps_vs_* \
    is treadle's steps a minute over theirs, program_p99_vs_* and step_p99_vs_* its times over \
    theirs. KV memory is enough for all programs, half or a third of their peak demand. Host memory \
    is nowhere, and no cache is moved.";
