//! Predictors keep the order that the paper reports.

use super::*;
use treadle_simulator::workload::AgentTask;

fn report(options: &PredictionOptions) -> PredictionReport {
    compare(options).unwrap()
}

fn figures<'r>(task: &'r TaskPredictions, name: &str, after_steps: usize) -> &'r PredictorFigures {
    let of_name =
        |figures: &&PredictorFigures| figures.name == name && figures.after_steps == after_steps;
    task.predictors.iter().find(of_name).unwrap()
}

#[test]
fn each_step_predicts_more_than_any_prompt() {
    // Other seeds than the one of the default report.
    for seed in [2, 3] {
        let report = report(&PredictionOptions {
            prompts: 150,
            other_prompts: 150,
            seed,
            ..PredictionOptions::default()
        });
        for task in &report.tasks {
            let r = |name, steps| figures(task, name, steps).pearson;
            let running = |name, steps| figures(task, name, steps).pearson_running;
            let recall = |name, steps| figures(task, name, steps).recall;
            for name in ["heddle", "heddle-columns"] {
                assert!(
                    r(name, 1) > r(name, 0) && r(name, 2) > r(name, 1),
                    "{task:#?}"
                );
                assert!(recall(name, 2) > recall(name, 0), "{task:#?}");
            }
            assert!(running("heddle", 1) > running("heddle", 0), "{task:#?}");
            assert!(running("heddle", 2) > running("heddle", 1), "{task:#?}");
            for baseline in ["history", "prompt-only"] {
                for steps in [1, 2] {
                    assert!(r("heddle", steps) > r(baseline, steps), "{task:#?}");
                    let of_baseline = recall(baseline, steps);
                    assert!(recall("heddle", steps) > of_baseline, "{task:#?}");
                    let of_baseline = running(baseline, steps);
                    assert!(running("heddle", steps) > of_baseline, "{task:#?}");
                }
            }
            let oracle = figures(task, "oracle", 0);
            assert_eq!((oracle.recall, oracle.recall_running), (1.0, 1.0));
            for steps in 0..3 {
                let within = figures(task, "heddle", steps).within_p90;
                assert!((0.85..0.99).contains(&within), "{task:#?}");
            }
        }
    }
}

#[test]
fn without_history_the_steps_still_predict() {
    let report = report(&PredictionOptions {
        prompts: 100,
        other_prompts: 100,
        earlier_epoch: false,
        tasks: vec![AgentTask::Math],
        ..PredictionOptions::default()
    });
    let task = &report.tasks[0];
    let r = |name, steps| figures(task, name, steps).pearson;
    assert!(r("history", 0).abs() < 0.05, "{task:#?}");
    assert!(
        r("heddle", 0) < r("heddle", 1) && r("heddle", 1) < r("heddle", 2),
        "{task:#?}"
    );
}

#[test]
fn on_unseen_groups_each_look_orders_programs_better_than_baselines_at_the_same_step() {
    let report = report(&PredictionOptions {
        prompts: 120,
        other_prompts: 120,
        earlier_epoch: false,
        seed: 5,
        ..PredictionOptions::default()
    });
    for task in &report.tasks {
        let at = |name: &str, steps, returned| {
            let of = task.by_step.iter().find(|of| of.name == name).unwrap();
            let found = |f: &&StepFigures| (f.steps, f.returned) == (steps, returned);
            of.steps.iter().find(found).unwrap()
        };
        for (steps, returned) in [(1, false), (1, true), (2, false), (2, true)] {
            let heddle = at("heddle-no-text", steps, returned);
            for baseline in ["history", "prompt-only"] {
                let other = at(baseline, steps, returned);
                assert_eq!(heddle.programs, other.programs);
                assert!(heddle.rank > other.rank, "{task:#?}");
            }
        }
        for steps in [1, 2] {
            let error = |returned| at("heddle-no-text", steps, returned).error;
            assert!(error(true) < error(false), "{task:#?}");
        }
        // What the tool came to says more than that it runs; what a prompt says helps.
        assert!(
            at("heddle-no-text", 1, true).rank > at("heddle-no-text", 1, false).rank,
            "{task:#?}"
        );
        assert!(
            at("heddle", 0, false).rank > at("heddle-no-text", 0, false).rank,
            "{task:#?}"
        );
    }
}

/// Recorded coding agents, which are not part of the repository; `TREADLE_TRACE` names them
/// elsewhere.
#[test]
fn recorded_agents_of_unseen_groups_are_ordered_better_than_by_baselines() {
    let path = std::env::var("TREADLE_TRACE").unwrap_or_else(|_| {
        concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../shared/traces/coding-agent-runs.jsonl"
        )
        .into()
    });
    let Ok(file) = std::fs::File::open(&path) else {
        return eprintln!("skipped: there is no trace at {path}");
    };
    let runs = recorded(std::io::BufReader::new(file)).unwrap();
    let found = compare_recorded(runs).unwrap();
    let at = |name: &str, steps| {
        let of = found.iter().find(|of| of.name == name).unwrap();
        let found = |f: &&StepFigures| f.steps == steps && !f.returned;
        of.steps.iter().find(found).unwrap()
    };
    for steps in [1, 2, 4, 8, 16] {
        let heddle = at("heddle-no-text", steps);
        for baseline in ["history", "prompt-only"] {
            assert_eq!(heddle.programs, at(baseline, steps).programs);
            // How long they become shows late: before, predictions from prompts only are less off.
            assert!(
                steps < 8 || heddle.factor < at(baseline, steps).factor,
                "{steps}: {found:#?}"
            );
            assert!(
                heddle.rank > at(baseline, steps).rank,
                "{steps}: {found:#?}"
            );
        }
    }
}

#[test]
fn the_same_options_give_the_same_report() {
    let options = PredictionOptions {
        prompts: 20,
        other_prompts: 20,
        ..PredictionOptions::default()
    };
    let text = || serde_json::to_string(&report(&options)).unwrap();
    assert_eq!(text(), text());
    let none = compare(&PredictionOptions {
        prompts: 0,
        ..options
    });
    assert_eq!(none.unwrap_err().to_string(), "prompts must be at least 1");
}
