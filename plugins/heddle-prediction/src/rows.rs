//! The known figures of a program, row by row, including extra columns.

use crate::model::stage;
use treadle_plugin::random::SplitMix64;
use treadle_plugin::{FinishedColumns, LiveColumns};

/// The requested extra columns. A negative or non-finite number means unknown. Natively there may
/// be one more: difficulty as another model reads it from the prompt, on any scale around 0, larger
/// for longer programs.
pub(crate) const COLUMNS: [&str; 6] = [
    "prompt-tokens",
    "last-output-tokens",
    "last-tool-ok",
    "failed-tools",
    "returned",
    "ended",
];

/// A program as it is observed. The value of a missing extra column is `None`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Row {
    pub(crate) group: u64,
    pub(crate) tokens: f64,
    pub(crate) output_tokens: f64,
    pub(crate) steps: u32,
    pub(crate) tool_ms: f64,
    pub(crate) prompt_tokens: Option<f64>,
    pub(crate) prompt_score: Option<f64>,
    pub(crate) last_output_tokens: Option<f64>,
    /// `Some(true)` if the tool call that returned last succeeded.
    pub(crate) last_tool_ok: Option<bool>,
    pub(crate) failed_tools: Option<f64>,
    /// Whether the tool call after its last step has returned.
    pub(crate) returned: bool,
    /// Whether the rest is a lower bound: the program was aborted, or expired.
    pub(crate) is_cut_short: bool,
}

impl Row {
    /// The stage of the program.
    pub(crate) fn stage(&self) -> usize {
        stage(self.steps, self.returned)
    }

    /// Identifies this program at this moment.
    pub(crate) fn digest(&self) -> u64 {
        let numbers = [self.tokens, self.output_tokens, self.tool_ms];
        numbers.iter().fold(
            u64::from(self.steps) << 1 | u64::from(self.returned),
            |digest, number| SplitMix64::new(digest ^ number.to_bits()).next_u64(),
        )
    }
}

impl Row {
    fn with_extra(mut self, extra: &[f32], rows: usize, index: usize) -> Self {
        let number = |place: usize| {
            let value = f64::from(*extra.get(place * rows + index)?);
            value.is_finite().then_some(value)
        };
        let count = |place: usize| number(place).filter(|value| *value >= 0.0);
        self.prompt_tokens = count(0);
        self.last_output_tokens = count(1);
        self.last_tool_ok = count(2).map(|value| value >= 0.5);
        self.failed_tools = count(3);
        self.returned = count(4).is_some_and(|value| value >= 0.5);
        self.is_cut_short = count(5).is_some_and(|value| value < 0.5);
        self.prompt_score = number(COLUMNS.len());
        self
    }

    /// The row of a live program.
    pub(crate) fn live(programs: &LiveColumns<'_>, index: usize) -> Self {
        let row = Self {
            group: programs.group[index],
            tokens: programs.tokens[index] as f64,
            output_tokens: programs.output_tokens[index] as f64,
            steps: programs.steps[index],
            tool_ms: programs.tool_ms[index] as f64,
            ..Self::default()
        };
        row.with_extra(programs.extra, programs.len(), index)
    }

    /// The row of a finished program, as it was then.
    pub(crate) fn finished(programs: &FinishedColumns<'_>, index: usize) -> Self {
        let row = Self {
            group: programs.group[index],
            tokens: programs.tokens[index] as f64,
            output_tokens: programs.output_tokens[index] as f64,
            steps: programs.steps[index],
            tool_ms: programs.tool_ms[index] as f64,
            ..Self::default()
        };
        row.with_extra(programs.extra, programs.len(), index)
    }
}
