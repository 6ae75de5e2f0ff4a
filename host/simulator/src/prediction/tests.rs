//! Predictors keep the order that the paper reports.

use super::*;

fn report(options: PredictionOptions) -> PredictionReport {
    compare(&options).unwrap()
}

fn figures<'r>(task: &'r TaskPredictions, name: &str, after_steps: usize) -> &'r PredictorFigures {
    let of_name =
        |figures: &&PredictorFigures| figures.name == name && figures.after_steps == after_steps;
    task.predictors.iter().find(of_name).unwrap()
}

fn print(report: &PredictionReport) {
    for task in &report.tasks {
        println!("{:?} {} {}", task.task, task.programs, task.running);
        for f in &task.predictors {
            println!(
                "  {:14} {} recall {:.3} r {:.3} | running recall {:.3} r {:.3} | p90 {:.3}",
                f.name,
                f.after_steps,
                f.recall,
                f.pearson,
                f.recall_running,
                f.pearson_running,
                f.within_p90
            );
        }
    }
}

#[test]
fn each_step_tells_more_than_any_prompt() {
    for earlier_epoch in [true, false] {
        let report = report(PredictionOptions {
            prompts: 150,
            other_prompts: 150,
            earlier_epoch,
            ..PredictionOptions::default()
        });
        print(&report);
    }
}
