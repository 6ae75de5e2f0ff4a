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
                assert!(r("heddle", 1) > r(baseline, 0), "{task:#?}");
                assert!(recall("heddle", 1) > recall(baseline, 0), "{task:#?}");
                assert!(running("heddle", 1) > running(baseline, 0), "{task:#?}");
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
