//! Traces as they are parsed.

use super::*;
use crate::workload::RolloutWorkload;

fn load(text: &str, options: &TraceOptions) -> Result<TraceSample, TraceError> {
    load_trace(text.as_bytes(), options)
}

fn plain() -> TraceOptions {
    TraceOptions {
        token_divisor: 1,
        ..TraceOptions::default()
    }
}

#[test]
fn reuse_distinguishes_growth_from_compaction() {
    let text = r#"{"id":"cc-0001-000","steps":[
        [1000,512,50,12.5],[1200,960,30,400.0],[1210,1152,10,1.0],[600,256,5,0.0]]}"#;
    let sample = load(&text.replace('\n', ""), &plain()).unwrap();
    let steps = &sample.runs[0].steps;
    let reused: Vec<u32> = steps.iter().map(|step| step.reused_tokens).collect();
    // Nothing before the first; all of 1000 + 50; 1210 is too short for the answer; compacted.
    assert_eq!(reused, [0, 1_050, 1_200, 256]);
    assert_eq!(
        (steps[0].tool_us, steps[1].tool_us),
        (12_500_000, 300_000_000)
    );
}

#[test]
fn dividing_keeps_the_chain_consistent() {
    let text = r#"{"id":"a-1","steps":[[1003,0,50,1.0],[1060,960,3,1.0]]}"#;
    let run = load(text, &TraceOptions::default()).unwrap().runs.remove(0);
    assert_eq!(run.steps[0].context_tokens(), 250 + 12);
    assert_eq!(
        (run.steps[1].reused_tokens, run.steps[1].input_tokens),
        (262, 265)
    );
    assert_eq!(run.steps[1].output_tokens, 1);
}

#[test]
fn long_contexts_are_cut_and_counted() {
    let text = "{\"id\":\"a-1\",\"steps\":[[10,0,5,1.0],[200,0,5,1.0]]}\n\
                {\"id\":\"b-1\",\"steps\":[[500,0,5,1.0]]}\n";
    let sample = load(
        text,
        &TraceOptions {
            context_limit_tokens: 100,
            ..plain()
        },
    )
    .unwrap();
    assert_eq!(
        (
            sample.runs.len(),
            sample.truncated_runs,
            sample.dropped_runs
        ),
        (1, 2, 1)
    );
    assert_eq!(
        (sample.runs[0].steps.len(), sample.runs[0].steps[0].tool_us),
        (1, 0)
    );
}

#[test]
fn sampling_is_seeded_and_without_repeats() {
    let line = |id| format!("{{\"id\":\"a-{id}\",\"steps\":[[9,0,1,0]]}}");
    let text = (0..50).map(line).collect::<Vec<_>>().join("\n");
    let ids = |seed| {
        let options = TraceOptions {
            programs: 20,
            seed,
            ..plain()
        };
        let runs = load(&text, &options).unwrap().runs;
        runs.into_iter().map(|run| run.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(1), ids(1));
    assert_ne!(ids(1), ids(2));
    let distinct: std::collections::BTreeSet<_> = ids(3).into_iter().collect();
    assert_eq!(distinct.len(), 20);
}

#[test]
fn errors_name_the_line_and_the_field() {
    let good = "{\"id\":\"a-1\",\"steps\":[[9,0,1,0]]}\n";
    for (bad, wanted) in [
        ("{\"steps\":[]}", "line 2: id: "),
        ("{\"id\":\"x\",\"steps\":[]}", "line 2: steps: "),
        ("{\"id\":\"x\",\"steps\":[[1,2,3]]}", "line 2: steps[0]: "),
        (
            "{\"id\":\"x\",\"steps\":[[9,0,1,0],[1,2,-3,0]]}",
            "line 2: steps[1].output_tokens: ",
        ),
        (
            "{\"id\":\"x\",\"steps\":[[9,0,1,\"1s\"]]}",
            "line 2: steps[0].gap_s: ",
        ),
        ("{\"id\":", "line 2: line: "),
    ] {
        let error = load(&format!("{good}{bad}"), &plain())
            .unwrap_err()
            .to_string();
        assert!(error.starts_with(wanted), "{error}");
    }
}

#[test]
fn what_may_be_added_is_read() {
    let text = "{\"id\":\"a-1\",\"group\":\"p\",\"steps\":[[9,0,1,0.5,\"failed\"],[11,10,1,0]]}\n\
                {\"id\":\"b-1\",\"group\":\"p\",\"system_tokens\":4,\"group_tokens\":3,\
                 \"steps\":[[9,0,1,0,\"ok\"]]}\n\
                {\"id\":\"p-1\",\"steps\":[[9,0,1,0]]}\n";
    let runs = load(text, &plain()).unwrap().runs;
    let groups: Vec<u32> = runs.iter().map(|run| run.group).collect();
    // An id counts as its group only for runs that name none; "p" is "p".
    assert_eq!(groups, [0, 0, 0]);
    assert_eq!((runs[1].system_tokens, runs[1].group_tokens), (4, 3));
    let results: Vec<ToolResult> = runs
        .iter()
        .flat_map(|run| &run.steps)
        .map(|step| step.tool_result)
        .collect();
    let names: Vec<&str> = results.iter().map(|result| result.name()).collect();
    assert_eq!(names, ["failed", "none", "ok", "none"]);
}

#[test]
fn what_is_written_is_read_back() {
    let runs = RolloutWorkload {
        prompts: 20,
        ..RolloutWorkload::default()
    };
    let runs = runs.generate().unwrap();
    let mut text = Vec::new();
    write_trace(&runs, &mut text).unwrap();
    let options = TraceOptions {
        programs: runs.len(),
        ..plain()
    };
    assert_eq!(load_trace(&text[..], &options).unwrap().runs, runs);
}

#[test]
fn errors_in_what_may_be_added_name_the_field() {
    for (bad, wanted) in [
        (
            "{\"id\":\"x\",\"group\":1,\"steps\":[[9,0,1,0]]}",
            "line 1: group: ",
        ),
        (
            "{\"id\":\"x\",\"group_tokens\":-1,\"steps\":[[9,0,1,0]]}",
            "line 1: group_tokens: ",
        ),
        (
            "{\"id\":\"x\",\"steps\":[[9,0,1,0,\"good\"]]}",
            "line 1: steps[0].tool_result: ",
        ),
    ] {
        let error = load(bad, &plain()).unwrap_err().to_string();
        assert!(error.starts_with(wanted), "{error}");
    }
}
