//! Parses the lines of a trace.

use std::io::BufRead;

use serde_json::Value;

use super::{RecordedRun, RecordedStep, TraceError};
use crate::workload::ToolResult;

/// Maximum length of a line, in bytes.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Maximum number of lines.
const LINES_MAX: usize = 1_000_000;
/// Largest count of tokens in one field.
const TOKENS_MAX: u64 = 1 << 30;

pub(super) fn read_runs(mut reader: impl BufRead) -> Result<Vec<RecordedRun>, TraceError> {
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
        let at = Position { line };
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

/// Position of an error in the file.
#[derive(Clone, Copy)]
struct Position {
    line: usize,
}

impl Position {
    fn wrong(self, field: impl Into<String>, problem: impl Into<String>) -> TraceError {
        TraceError::Field {
            line: self.line,
            field: field.into(),
            problem: problem.into(),
        }
    }
}

fn parse_run(text: &[u8], at: Position) -> Result<RecordedRun, TraceError> {
    let object: Value =
        serde_json::from_slice(text).map_err(|error| at.wrong("line", error.to_string()))?;
    let id = object
        .get("id")
        .and_then(Value::as_str)
        .filter(|id| !id.is_empty());
    let id = id.ok_or_else(|| at.wrong("id", "must be a string that is not empty"))?;
    let group = match object.get("group") {
        None => id.rsplit_once('-').map_or(id, |(prefix, _)| prefix),
        Some(group) => group
            .as_str()
            .ok_or_else(|| at.wrong("group", "must be a string"))?,
    };
    let prefix = |field: &str| match object.get(field) {
        None => Ok(0),
        Some(tokens) => tokens
            .as_u64()
            .filter(|tokens| *tokens <= TOKENS_MAX)
            .ok_or_else(|| at.wrong(field, tokens_wanted())),
    };
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
        group: group.to_owned(),
        system_tokens: prefix("system_tokens")?,
        group_tokens: prefix("group_tokens")?,
        steps: steps.collect::<Result<_, _>>()?,
    })
}

fn parse_step(step: &Value, index: usize, at: Position) -> Result<RecordedStep, TraceError> {
    let fields = step
        .as_array()
        .filter(|fields| (4..=5).contains(&fields.len()))
        .ok_or_else(|| {
            let wanted = "must be [input_tokens, reused_prefix_tokens, output_tokens, gap_s], \
                          and perhaps the tool's result";
            at.wrong(format!("steps[{index}]"), wanted)
        })?;
    let tokens = |place: usize, name: &str| {
        fields[place]
            .as_u64()
            .filter(|tokens| *tokens <= TOKENS_MAX)
            .ok_or_else(|| at.wrong(format!("steps[{index}].{name}"), tokens_wanted()))
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
        tool_result: match fields.get(4) {
            None => ToolResult::None,
            Some(word) => word.as_str().and_then(ToolResult::named).ok_or_else(|| {
                let wanted = "must be \"ok\", \"failed\" or \"none\"";
                at.wrong(format!("steps[{index}].tool_result"), wanted)
            })?,
        },
    })
}

fn tokens_wanted() -> String {
    format!("must be a whole number from 0 to {TOKENS_MAX}")
}
