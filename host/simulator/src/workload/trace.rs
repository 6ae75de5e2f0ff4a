//! Recorded agent runs: one JSON object a line, `{"id": "cc-0001-000", "steps": [[input_tokens,
//! reused_prefix_tokens, output_tokens, gap_s], ...]}`.
//!
//! `reused_prefix_tokens` counts whole 64-token blocks that a prompt shares with the run's previous
//! prompt. Where it covers that prompt to the block, the run kept its context: the answer too, if
//! the new prompt is long enough to hold it. Where it is smaller, the run dropped or compacted the
//! rest. What a first step shares with other runs is not known: it shares nothing here.

use std::collections::BTreeMap;
use std::io::BufRead;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;

use super::{AgentRun, AgentStep};

/// Blocks in which the recorder counted reuse.
const RECORDED_BLOCK_TOKENS: u64 = 64;
/// Longest line, in bytes.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Most lines.
const LINES_MAX: usize = 1_000_000;
/// Largest count of tokens in one field.
const TOKENS_MAX: u64 = 1 << 30;

/// Which runs of a trace to take and how to scale them.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceOptions {
    /// Runs to sample; all, in the order of the file, if the trace has no more.
    pub programs: usize,
    /// Seed of the sample.
    pub seed: u64,
    /// Token counts are divided by this: recorded contexts are long for small modelled memories.
    pub token_divisor: u32,
    /// Longest time between two steps, in seconds: the tail is people, not tools.
    pub tool_cap_s: u64,
    /// Runs are cut before the step whose context, after division, exceeds this.
    pub context_limit_tokens: u32,
}

impl Default for TraceOptions {
    fn default() -> Self {
        Self {
            programs: 96,
            seed: 1,
            token_divisor: 4,
            tool_cap_s: 300,
            context_limit_tokens: 131_072,
        }
    }
}

/// Sampled runs and what the options did to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSample {
    /// The runs.
    pub runs: Vec<AgentRun>,
    /// Runs in the trace.
    pub available_runs: usize,
    /// Sampled runs cut at the context limit, those below included.
    pub truncated_runs: usize,
    /// Sampled runs left out because already their first step exceeded the limit.
    pub dropped_runs: usize,
}

/// Why a trace could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The text could not be read.
    #[error("line {line}: cannot be read: {source}")]
    Read {
        /// Line number, from 1.
        line: usize,
        /// What happened.
        source: std::io::Error,
    },
    /// A field is not what it should be.
    #[error("line {line}: {field}: {problem}")]
    Field {
        /// Line number, from 1.
        line: usize,
        /// Path of the field, as `steps[3].gap_s`.
        field: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// An option makes no sense.
    #[error("{field} must be at least 1")]
    Option {
        /// Which one.
        field: &'static str,
    },
}

/// One recorded call.
#[derive(Clone, Copy)]
struct RecordedStep {
    input_tokens: u64,
    reused_tokens: u64,
    output_tokens: u64,
    gap_us: u64,
}

struct RecordedRun {
    id: String,
    steps: Vec<RecordedStep>,
}

/// Reads a trace and samples runs from it. Runs whose ids agree up to the last `-` form a group.
pub fn load_trace(reader: impl BufRead, options: &TraceOptions) -> Result<TraceSample, TraceError> {
    if options.token_divisor == 0 {
        return Err(TraceError::Option {
            field: "token_divisor",
        });
    }
    let recorded = read_runs(reader)?;
    let available_runs = recorded.len();
    let mut groups: BTreeMap<String, u32> = BTreeMap::new();
    let mut sample = TraceSample {
        runs: Vec::new(),
        available_runs,
        truncated_runs: 0,
        dropped_runs: 0,
    };
    for index in chosen(available_runs, options) {
        let run = &recorded[index];
        let prefix = run
            .id
            .rsplit_once('-')
            .map_or(run.id.as_str(), |(prefix, _)| prefix);
        let next = groups.len() as u32;
        let group = *groups.entry(prefix.to_owned()).or_insert(next);
        let mut run = scaled(run, group, options);
        sample.truncated_runs += usize::from(run.truncate_at(options.context_limit_tokens));
        if run.steps.is_empty() {
            sample.dropped_runs += 1;
        } else {
            sample.runs.push(run);
        }
    }
    Ok(sample)
}

/// A seeded choice of places in a trace, in the order in which they were drawn.
fn chosen(available: usize, options: &TraceOptions) -> Vec<usize> {
    let mut places: Vec<usize> = (0..available).collect();
    if options.programs >= available {
        return places;
    }
    let mut stream = Pcg64Mcg::seed_from_u64(options.seed);
    for place in 0..options.programs {
        let other = stream.random_range(place..available);
        places.swap(place, other);
    }
    places.truncate(options.programs);
    places
}

fn scaled(recorded: &RecordedRun, group: u32, options: &TraceOptions) -> AgentRun {
    let divisor = u64::from(options.token_divisor);
    let scale = |tokens: u64| (tokens / divisor) as u32;
    let mut steps: Vec<AgentStep> = Vec::with_capacity(recorded.steps.len());
    let mut before: Option<RecordedStep> = None;
    for step in &recorded.steps {
        let input_tokens = scale(step.input_tokens).max(1);
        let reused_tokens = match (before, steps.last()) {
            (Some(recorded), Some(scaled)) => match kept(recorded, *step) {
                Kept::Everything => scaled.context_tokens(),
                Kept::Prompt => scaled.input_tokens,
                Kept::Part(tokens) => scale(tokens).min(scaled.context_tokens()),
            },
            _ => 0,
        };
        steps.push(AgentStep {
            input_tokens,
            reused_tokens: reused_tokens.min(input_tokens),
            output_tokens: scale(step.output_tokens).max(1),
            tool_us: step
                .gap_us
                .min(options.tool_cap_s.saturating_mul(1_000_000)),
        });
        before = Some(*step);
    }
    AgentRun {
        id: recorded.id.clone(),
        group,
        system_tokens: 0,
        group_tokens: 0,
        steps,
    }
}

/// What a recorded step kept of the context before it.
enum Kept {
    Everything,
    Prompt,
    Part(u64),
}

fn kept(before: RecordedStep, step: RecordedStep) -> Kept {
    if step.reused_tokens + RECORDED_BLOCK_TOKENS <= before.input_tokens {
        Kept::Part(step.reused_tokens)
    } else if step.input_tokens >= before.input_tokens + before.output_tokens {
        Kept::Everything
    } else {
        Kept::Prompt
    }
}

fn read_runs(mut reader: impl BufRead) -> Result<Vec<RecordedRun>, TraceError> {
    let mut runs = Vec::new();
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        let mut limited = std::io::Read::take(&mut reader, LINE_BYTES_MAX as u64 + 1);
        let read = limited.read_until(b'\n', &mut text);
        let bytes = read.map_err(|source| TraceError::Read { line, source })?;
        if bytes == 0 {
            break;
        }
        let at = Place { line };
        if bytes > LINE_BYTES_MAX || line > LINES_MAX {
            let limits = format!("more than {LINE_BYTES_MAX} bytes or {LINES_MAX} lines");
            return Err(at.wrong("line", limits));
        }
        if text.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        runs.push(parse_run(&text, at)?);
    }
    Ok(runs)
}

/// Where in the file an error is.
#[derive(Clone, Copy)]
struct Place {
    line: usize,
}

impl Place {
    fn wrong(self, field: impl Into<String>, problem: impl Into<String>) -> TraceError {
        TraceError::Field {
            line: self.line,
            field: field.into(),
            problem: problem.into(),
        }
    }
}

fn parse_run(text: &[u8], at: Place) -> Result<RecordedRun, TraceError> {
    let object: Value =
        serde_json::from_slice(text).map_err(|error| at.wrong("line", error.to_string()))?;
    let id = object
        .get("id")
        .and_then(Value::as_str)
        .filter(|id| !id.is_empty());
    let id = id.ok_or_else(|| at.wrong("id", "must be a string that is not empty"))?;
    let steps = object
        .get("steps")
        .and_then(Value::as_array)
        .filter(|steps| !steps.is_empty());
    let steps = steps.ok_or_else(|| at.wrong("steps", "must be an array of at least one step"))?;
    let steps = steps
        .iter()
        .enumerate()
        .map(|(index, step)| parse_step(step, index, at));
    Ok(RecordedRun {
        id: id.to_owned(),
        steps: steps.collect::<Result<_, _>>()?,
    })
}

fn parse_step(step: &Value, index: usize, at: Place) -> Result<RecordedStep, TraceError> {
    let fields = step
        .as_array()
        .filter(|fields| fields.len() == 4)
        .ok_or_else(|| {
            let wanted = "must be [input_tokens, reused_prefix_tokens, output_tokens, gap_s]";
            at.wrong(format!("steps[{index}]"), wanted)
        })?;
    let tokens = |place: usize, name: &str| {
        fields[place]
            .as_u64()
            .filter(|tokens| *tokens <= TOKENS_MAX)
            .ok_or_else(|| {
                let problem = format!("must be a whole number from 0 to {TOKENS_MAX}");
                at.wrong(format!("steps[{index}].{name}"), problem)
            })
    };
    let gap_s = fields[3]
        .as_f64()
        .filter(|gap_s| (0.0..1e9).contains(gap_s))
        .ok_or_else(|| {
            at.wrong(
                format!("steps[{index}].gap_s"),
                "must be a number of seconds, at least 0",
            )
        })?;
    Ok(RecordedStep {
        input_tokens: tokens(0, "input_tokens")?,
        reused_tokens: tokens(1, "reused_prefix_tokens")?,
        output_tokens: tokens(2, "output_tokens")?,
        gap_us: (gap_s * 1e6).round() as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn reuse_tells_growth_from_compaction() {
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
}
