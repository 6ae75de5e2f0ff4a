//! The demo in small.

use super::outcome::Outcome;
use super::*;
use clap::Parser;
use serde_json::Value;

#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    args: DemoArgs,
}

pub(super) fn plan(line: &str) -> Result<Plan, DemoError> {
    Plan::new(&CommandLine::try_parse_from(line.split(' ')).unwrap().args)
}

fn json(plan: &Plan, outcomes: &[Outcome]) -> Value {
    summary::report(plan, outcomes).to_json()
}

#[test]
fn options_without_sense_are_refused_by_name() {
    for (line, name) in [
        ("x --minutes 0", "--minutes"),
        ("x --warmup-minutes=-1", "--warmup-minutes"),
        ("x --kv-fraction NaN", "--kv-fraction"),
        ("x --engine-host=-1", "--engine-host"),
        ("x --time-scale=-3", "--time-scale"),
        ("x --trace /nowhere/at/all", "--trace"),
    ] {
        let error = plan(line).err().unwrap().to_string();
        assert!(error.contains(name), "{error}");
    }
    assert!(CommandLine::try_parse_from(["x", "--simulate", "--stream"]).is_err());
}

#[test]
fn programs_that_need_more_files_than_there_may_be_are_refused_with_how_many_fit() {
    let over_http = plan("x --programs 2048").unwrap();
    let refused = over_http.check_files(20_000).unwrap_err().to_string();
    for part in [
        "2048 programs",
        "25600 open files",
        "20000",
        "--programs 1581",
        "ulimit -n",
    ] {
        assert!(refused.contains(part), "{refused}");
    }
    assert!(over_http.check_files(25_600).is_ok());
    assert!(
        plan("x --programs 1581")
            .unwrap()
            .check_files(20_000)
            .is_ok()
    );
    let in_virtual_time = plan("x --simulate --programs 2048").unwrap();
    assert!(in_virtual_time.check_files(1_024).is_ok());
}

#[tokio::test]
async fn virtual_time_gives_all_figures_and_the_same_ones_each_time() {
    let plan = plan("x --simulate --programs 16 --minutes 3 --warmup-minutes 1").unwrap();
    let progress = Progress::new(&plan);
    let outcomes = virtual_time::measure_all(&plan, &progress).await.unwrap();
    let again = virtual_time::measure_all(&plan, &progress).await.unwrap();
    assert_eq!(outcomes, again);
    let json = json(&plan, &outcomes);
    for name in [
        "steps_per_min",
        "step_p50_s",
        "step_p95_s",
        "step_p99_s",
        "hit_rate",
    ] {
        for variant in ["least_load", "sticky", "treadle"] {
            let figure = &json["figures"][format!("{name}.{variant}")];
            assert!(
                figure["value"].as_f64() > Some(0.0),
                "{name}.{variant}: {json}"
            );
        }
    }
    assert_eq!(json["settings"]["engines_simulated"], true);
    assert!(json["figures"]["speedup_over_sticky"]["target"].is_null());
    let text = summary::text(&plan, &outcomes);
    assert!(
        text.contains("SIMULATED") && text.contains("times the steps of sticky"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn over_http_every_scheduler_answers_without_failures() {
    let line = "x --programs 6 --minutes 1.5 --warmup-minutes 0.5 --time-scale 50 --stream";
    let plan = plan(line).unwrap();
    let progress = Progress::new(&plan);
    let outcomes = variant::measure_all(&plan, &progress).await.unwrap();
    for outcome in &outcomes {
        assert!(outcome.steps_per_min > 5.0, "{outcome:?}");
        assert!(
            outcome.hit_rate > 0.0 && outcome.step_p99_s >= outcome.step_p50_s,
            "{outcome:?}"
        );
        assert_eq!((outcome.failures, &outcome.first_failure), (0, &None));
    }
    let json = json(&plan, &outcomes);
    assert_eq!(json["figures"]["failures.treadle"]["value"], 0.0);
    assert!(json["figures"]["p99_over_sticky"]["value"].is_number());
}

#[tokio::test]
async fn a_sandboxed_policy_decides_in_virtual_time_and_the_run_repeats() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), treadle_registry::default_eviction_module()).unwrap();
    let path = file.path().display();
    let line = format!("x --simulate --programs 16 --minutes 3 --policy {path}");
    let plan = plan(&line).unwrap();
    let progress = Progress::new(&plan);
    let outcomes = virtual_time::measure_all(&plan, &progress).await.unwrap();
    let again = virtual_time::measure_all(&plan, &progress).await.unwrap();
    assert_eq!(outcomes, again);
    assert!(outcomes.iter().any(|outcome| outcome.pauses > 0));
    assert!(CommandLine::try_parse_from(["x", "--policy", "file"]).is_err());
}

#[tokio::test]
async fn a_policy_that_is_none_is_refused_by_its_path() {
    let plan = plan("x --simulate --programs 4 --policy Cargo.toml").unwrap();
    let progress = Progress::new(&plan);
    let refused = virtual_time::measure_all(&plan, &progress).await;
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("Cargo.toml"), "{message}");
}
