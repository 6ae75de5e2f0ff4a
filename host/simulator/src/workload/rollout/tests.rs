//! The generator reproduces the published figures.

use super::parameters::Figures;
use super::*;

fn workload(task: AgentTask) -> RolloutWorkload {
    RolloutWorkload {
        task,
        ..RolloutWorkload::default()
    }
}

fn figures(workload: RolloutWorkload) -> Figures {
    Figures::of(&workload.generate().unwrap(), workload.samples as usize)
}

#[test]
fn tools_take_the_published_time() {
    for task in AgentTask::ALL {
        for model in AgentModel::ALL {
            let found = figures(RolloutWorkload {
                model,
                ..workload(task)
            });
            let off = found.tool_ms_mean / model.tool_ms_mean(task) - 1.0;
            assert!(
                off.abs() < 0.03,
                "{task:?} {model:?}: {}",
                found.tool_ms_mean
            );
        }
    }
}

#[test]
fn lengths_are_as_skewed_as_published() {
    for task in AgentTask::ALL {
        let found = figures(workload(task));
        assert!(found.tail() > 4.0, "{task:?}: {}", found.tail());
        assert!(found.at_limit < 0.05, "{task:?}: {}", found.at_limit);
        // Samples of a prompt differ by about as much as prompts do, and at most by DARTS's factor.
        assert!(
            (0.3..0.8).contains(&found.within_groups),
            "{task:?}: {}",
            found.within_groups
        );
        assert!(
            (3.0..=10.0).contains(&found.group_tail_max),
            "{task:?}: {}",
            found.group_tail_max
        );
    }
    let [coding, search, math] = AgentTask::ALL.map(|task| figures(workload(task)));
    assert!(coding.at_limit > 0.001 && math.at_limit > 0.001 && search.at_limit == 0.0);
    // Search has shorter sequences and more frequent steps; mathematics has few steps.
    assert!(search.output_at(50) * 2 < coding.output_at(50));
    assert!(search.step_tokens_mean * 2.0 < coding.step_tokens_mean.min(math.step_tokens_mean));
    assert!(math.steps[math.steps.len() / 2] < 5);
    assert!(coding.output_at(95) > 12_000, "{}", coding.output_at(95));
}

#[test]
fn the_same_options_give_the_same_runs_and_more_of_them_keep_the_first() {
    let few = RolloutWorkload {
        prompts: 5,
        ..RolloutWorkload::default()
    };
    let runs = few.generate().unwrap();
    assert_eq!(runs, few.generate().unwrap());
    let more = RolloutWorkload { prompts: 9, ..few }.generate().unwrap();
    assert_eq!(runs[..], more[..runs.len()]);
    let later = RolloutWorkload {
        first_prompt: 5,
        prompts: 4,
        ..few
    };
    assert_eq!(later.generate().unwrap()[..], more[runs.len()..]);
    assert_ne!(runs, RolloutWorkload { seed: 2, ..few }.generate().unwrap());
}

/// Pinned, to detect a machine with different draws.
#[test]
fn the_runs_are_these_on_any_machine() {
    let digests = AgentTask::ALL.map(|task| {
        let few = RolloutWorkload {
            prompts: 50,
            ..workload(task)
        };
        let runs = few.generate().unwrap();
        let numbers: Vec<u64> = runs
            .iter()
            .flat_map(|run| &run.steps)
            .flat_map(|step| {
                let tokens = [step.input_tokens, step.output_tokens];
                [
                    u64::from(tokens[0]),
                    u64::from(tokens[1]),
                    step.tool_us,
                    step.tool_result as u64,
                ]
            })
            .collect();
        treadle_engine_model::engine::content_hash(&numbers)
    });
    let expected = [
        906_340_944_796_042_382,
        16_578_840_069_489_642_017,
        16_510_796_665_220_568_577,
    ];
    assert_eq!(digests, expected);
}

#[test]
fn another_epoch_has_other_samples_of_the_same_prompts() {
    let [first, second] = [0, 1].map(|epoch| {
        let workload = RolloutWorkload {
            prompts: 300,
            epoch,
            ..RolloutWorkload::default()
        };
        workload.generate().unwrap()
    });
    assert!(
        first
            .iter()
            .zip(&second)
            .all(|(a, b)| a.group_tokens == b.group_tokens)
    );
    assert!(first.iter().zip(&second).all(|(a, b)| a.id != b.id));
    let means = |runs: &[AgentRun]| -> Vec<f64> {
        let sum = |group: &[AgentRun]| group.iter().map(AgentRun::output_tokens).sum::<u64>();
        runs.chunks(16).map(|group| sum(group) as f64).collect()
    };
    let r = crate::pearson(&means(&first), &means(&second));
    assert!((0.6..0.99).contains(&r), "{r}");
}

#[test]
fn contexts_chain_and_results_belong_to_tool_calls() {
    for task in AgentTask::ALL {
        for run in workload(task).generate().unwrap() {
            let mut context = 0;
            for (index, step) in run.steps.iter().enumerate() {
                assert_eq!(step.reused_tokens, context);
                assert!(step.fresh_tokens() > 0 && step.output_tokens > 0);
                context = step.context_tokens();
                let is_last = index + 1 == run.steps.len();
                assert_eq!(step.tool_result == ToolResult::None, is_last, "{}", run.id);
                assert_eq!(step.tool_us == 0, is_last, "{}", run.id);
            }
            assert!(run.output_tokens() <= u64::from(OUTPUT_TOKENS_MAX));
        }
    }
}

#[test]
fn nonsense_is_named() {
    let none = RolloutWorkload {
        samples: 0,
        ..RolloutWorkload::default()
    };
    let error = none.generate().unwrap_err().to_string();
    assert_eq!(error, "samples must be at least 1");
}

/// `UPDATE_DOCS=1` writes the page instead.
#[test]
fn the_page_of_parameters_is_up_to_date() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/workload-parameters.md"
    );
    let page = parameters_markdown();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let stored = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        stored == page,
        "docs/workload-parameters.md is stale; run with UPDATE_DOCS=1"
    );
}
