//! The command prints the same for the same options, and reports what it cannot do.

use super::*;
use clap::Parser;

#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    args: SimArgs,
}

fn output(line: &str) -> Result<String, SimError> {
    let words = std::iter::once("x").chain(line.split_whitespace());
    let line = CommandLine::try_parse_from(words).unwrap();
    line.args.output()
}

const SMALL: &str = "--task search --gpus 8 --prompts 2";

#[test]
fn the_same_options_print_the_same() {
    for more in [
        "",
        "--json",
        "--report --json",
        "--system slime --priority fcfs",
    ] {
        let line = format!("{SMALL} {more}");
        assert_eq!(output(&line).unwrap(), output(&line).unwrap(), "{line}");
    }
    let other = format!("{SMALL} --seed 2");
    assert_ne!(output(SMALL).unwrap(), output(&other).unwrap());
}

#[test]
fn a_report_has_the_bound_and_every_system() {
    let json = output(&format!("{SMALL} --report --json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let runs = json["runs"].as_array().unwrap();
    let names: Vec<_> = runs
        .iter()
        .filter_map(|run| run["system"]["name"].as_str())
        .collect();
    assert_eq!(
        names,
        ["treadle", "with the truth", "verl", "verl_hybrid", "slime"]
    );
    for run in runs {
        assert!(run["distance_to_bound"].as_f64() >= Some(1.0), "{run}");
    }
    assert!(json["prediction_error_s"].is_number());
    let text = output(&format!("{SMALL} --report")).unwrap();
    assert!(
        text.contains("to bound") && text.contains("Errors of prediction: "),
        "{text}"
    );
}

#[test]
fn policies_are_replaced_one_by_one() {
    let text = output(&format!(
        "{SMALL} --system verl --placement least-load --fail 0@1:5"
    ))
    .unwrap();
    let set = "custom: prediction none, priority round-robin, placement least-load";
    assert!(text.contains(set), "{text}");
    let text = output(&format!("{SMALL} --model glm-4.6 --system verl")).unwrap();
    assert!(
        text.contains("workers: 1 x 8 GPUs") && text.contains("tool times"),
        "{text}"
    );
}

#[test]
fn traces_run_with_and_without_a_history() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, history) = (
        folder.path().join("now.jsonl"),
        folder.path().join("then.jsonl"),
    );
    let line = |id: u32| {
        format!("{{\"id\": \"a-{id}\", \"steps\": [[900, 0, 300, 2.0], [1400, 1152, 200, 0.0]]}}\n")
    };
    std::fs::write(&trace, line(1) + &line(2)).unwrap();
    std::fs::write(&history, line(3) + &line(4)).unwrap();
    let trace = format!("--gpus 8 --trace {}", trace.display());
    let known = format!("{trace} --history {}", history.display());
    let text = output(&known).unwrap();
    assert!(
        text.starts_with("now, qwen3-14b, 8 H100: 2 programs"),
        "{text}"
    );
    let error = output(&trace).unwrap_err().to_string();
    assert!(
        error.starts_with("--allocation: `heddle`") && error.contains("give one"),
        "{error}"
    );
    let text = output(&format!("{trace} --allocation fix1")).unwrap();
    assert!(text.contains("without having learnt"), "{text}");
}

#[test]
fn what_makes_no_sense_names_the_option_and_the_remedy() {
    for (line, begins) in [
        (
            "--prompts 10000 --samples 100",
            "--prompts is 10000 with 100 samples",
        ),
        ("--trace nowhere.jsonl", "--trace nowhere.jsonl: "),
        (
            "--task search --prompts 1 --gpus 4 --allocation fix8",
            "--allocation: `fix8` uses 0 of 4",
        ),
        (
            "--task search --prompts 1 --gpus 8 --system verl --fail 9@1:1",
            "--fail: there is no worker 9",
        ),
        (
            "--model glm-4.6 --gpus 2 --prompts 1",
            "--gpus: glm-4.6 does not fit",
        ),
    ] {
        let error = output(line).unwrap_err().to_string();
        assert!(error.starts_with(begins), "{error}");
    }
}
