//! Agent runs as a prediction policy sees them: what is known after some steps, and what then came.

use treadle_plugin::{FinishedColumns, LiveColumns};

use treadle_simulator::workload::{AgentRun, ToolResult};

/// What remains of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remaining {
    /// Tokens still to be generated.
    pub tokens: u64,
    /// Time still to be spent in tools, in milliseconds.
    pub tool_ms: u64,
}

/// A program as it is known when one of its steps has ended and its tool runs: the results of the
/// tool calls before that, and not yet that of this one; or when that has returned.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observation {
    /// The same for programs with the same prompt.
    pub group: u64,
    /// Context length in tokens.
    pub tokens: u64,
    /// Tokens generated so far.
    pub output_tokens: u64,
    /// Steps finished.
    pub steps: u32,
    /// Time in the tool calls that have returned, in milliseconds.
    pub tool_ms: u64,
    /// Extra column `prompt-tokens`: tokens of the first prompt.
    pub prompt_tokens: u64,
    /// Extra column `prompt-score`: difficulty as a model reads it from the prompt, about 0.
    pub prompt_score: f64,
    /// Extra column `last-output-tokens`: tokens of the last finished step.
    pub last_output_tokens: u64,
    /// Extra column `last-tool-ok`: what became of the tool call that returned last.
    pub last_tool: ToolResult,
    /// Extra column `failed-tools`: tool calls that have failed.
    pub failed_tools: u32,
    /// Extra column `returned`: whether the tool call after its last step has returned.
    pub has_returned: bool,
}

impl Observation {
    /// A run after this number of its steps; `prompt_score` may be 0.
    pub fn after(run: &AgentRun, steps: usize, prompt_score: f64) -> Self {
        let done = &run.steps[..steps.min(run.steps.len())];
        let returned = &done[..done.len().saturating_sub(1)];
        let prompt_tokens = run
            .steps
            .first()
            .map_or(0, |step| u64::from(step.input_tokens));
        let failed = |result: ToolResult| result == ToolResult::Failed;
        Self {
            group: u64::from(run.group),
            tokens: done
                .last()
                .map_or(prompt_tokens, |step| u64::from(step.context_tokens())),
            output_tokens: done.iter().map(|step| u64::from(step.output_tokens)).sum(),
            steps: done.len() as u32,
            tool_ms: returned.iter().map(|step| step.tool_us).sum::<u64>() / 1_000,
            prompt_tokens,
            prompt_score,
            last_output_tokens: done.last().map_or(0, |step| u64::from(step.output_tokens)),
            last_tool: returned
                .last()
                .map_or(ToolResult::None, |step| step.tool_result),
            failed_tools: returned
                .iter()
                .filter(|step| failed(step.tool_result))
                .count() as u32,
            has_returned: false,
        }
    }

    /// The same when the tool of its last step has returned.
    #[must_use]
    pub fn returned(mut self, run: &AgentRun) -> Self {
        let called = (self.steps as usize).checked_sub(1);
        if let Some(step) = called.and_then(|last| run.steps.get(last)) {
            let done = &run.steps[..self.steps as usize];
            self.tool_ms = done.iter().map(|step| step.tool_us).sum::<u64>() / 1_000;
            self.last_tool = step.tool_result;
            self.failed_tools += u32::from(step.tool_result == ToolResult::Failed);
            self.has_returned = true;
        }
        self
    }

    /// What then comes of the run: what the oracle knows.
    pub fn remaining(&self, run: &AgentRun) -> Remaining {
        let tool_ms = run.steps.iter().map(|step| step.tool_us).sum::<u64>() / 1_000;
        Remaining {
            tokens: run.output_tokens().saturating_sub(self.output_tokens),
            tool_ms: tool_ms.saturating_sub(self.tool_ms),
        }
    }

    /// Its entry in the extra column of this name; `None` if there is no such column.
    pub fn extra(&self, name: &str) -> Option<f32> {
        Some(match name {
            "prompt-tokens" => self.prompt_tokens as f32,
            "prompt-score" => self.prompt_score as f32,
            "last-output-tokens" => self.last_output_tokens as f32,
            "failed-tools" => self.failed_tools as f32,
            "returned" if self.steps == 0 => -1.0,
            "returned" => f32::from(self.has_returned),
            "last-tool-ok" => match self.last_tool {
                ToolResult::None => -1.0,
                ToolResult::Ok => 1.0,
                ToolResult::Failed => 0.0,
            },
            _ => return None,
        })
    }
}

/// Programs in columns, for a policy with some extra columns.
#[derive(Clone, Debug, Default)]
pub struct ObservationTable {
    group: Vec<u64>,
    tokens: Vec<u64>,
    output_tokens: Vec<u64>,
    steps: Vec<u32>,
    tool_ms: Vec<u64>,
    remaining_tokens: Vec<u64>,
    remaining_tool_ms: Vec<u64>,
    extra: Vec<f32>,
}

impl ObservationTable {
    /// A table of these rows; an unknown column is -1 throughout. Without `remaining`, what was to
    /// come is left out.
    pub fn new(rows: &[Observation], remaining: &[Remaining], extra: &[&str]) -> Self {
        let column = |field: fn(&Observation) -> u64| rows.iter().map(field).collect();
        let of_name = |name: &&str| {
            let name = (*name).to_owned();
            rows.iter().map(move |row| row.extra(&name).unwrap_or(-1.0))
        };
        Self {
            group: column(|row| row.group),
            tokens: column(|row| row.tokens),
            output_tokens: column(|row| row.output_tokens),
            steps: rows.iter().map(|row| row.steps).collect(),
            tool_ms: column(|row| row.tool_ms),
            remaining_tokens: remaining.iter().map(|left| left.tokens).collect(),
            remaining_tool_ms: remaining.iter().map(|left| left.tool_ms).collect(),
            extra: extra.iter().flat_map(of_name).collect(),
        }
    }

    /// The question of `predict`.
    pub fn live(&self) -> LiveColumns<'_> {
        LiveColumns {
            group: &self.group,
            tokens: &self.tokens,
            output_tokens: &self.output_tokens,
            steps: &self.steps,
            tool_ms: &self.tool_ms,
            extra: &self.extra,
        }
    }

    /// The lesson of `learn`.
    pub fn finished(&self) -> FinishedColumns<'_> {
        FinishedColumns {
            group: &self.group,
            tokens: &self.tokens,
            output_tokens: &self.output_tokens,
            steps: &self.steps,
            tool_ms: &self.tool_ms,
            remaining_tokens: &self.remaining_tokens,
            remaining_tool_ms: &self.remaining_tool_ms,
            extra: &self.extra,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use treadle_simulator::workload::AgentStep;

    #[test]
    fn the_result_of_the_running_tool_is_not_known_yet() {
        let step = |input_tokens, output_tokens, tool_us, tool_result| AgentStep {
            input_tokens,
            reused_tokens: 0,
            output_tokens,
            tool_us,
            tool_result,
        };
        let run = AgentRun {
            id: "a-0".into(),
            group: 7,
            system_tokens: 50,
            group_tokens: 50,
            steps: vec![
                step(100, 30, 400_000, ToolResult::Failed),
                step(150, 20, 600_000, ToolResult::Ok),
                step(180, 10, 0, ToolResult::None),
            ],
        };
        let [begin, first, second] = [0, 1, 2].map(|steps| Observation::after(&run, steps, 0.5));
        assert_eq!(
            (begin.tokens, begin.steps, begin.output_tokens),
            (100, 0, 0)
        );
        assert_eq!(
            (first.tokens, first.output_tokens, first.tool_ms),
            (130, 30, 0)
        );
        assert_eq!((first.last_tool, first.failed_tools), (ToolResult::None, 0));
        assert_eq!((second.tool_ms, second.last_output_tokens), (400, 20));
        assert_eq!(
            (second.last_tool, second.failed_tools),
            (ToolResult::Failed, 1)
        );
        let left = first.remaining(&run);
        assert_eq!((left.tokens, left.tool_ms), (30, 1_000));
        let back = first.returned(&run);
        assert_eq!((back.tool_ms, back.last_tool), (400, ToolResult::Failed));
        assert_eq!((back.failed_tools, back.steps), (1, 1));
        assert_eq!(back.remaining(&run).tool_ms, 600);
        let table = ObservationTable::new(&[first, second], &[], &["last-tool-ok", "colour"]);
        assert_eq!(table.live().extra, [-1.0, 0.0, -1.0, -1.0]);
        assert_eq!(table.live().check(2), Ok(()));
    }
}
