//! What is known of a program, row by row, extra columns included.

use treadle_plugin::random::SplitMix64;
use treadle_plugin::{FinishedColumns, LiveColumns};

use crate::config::Config;

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
}

impl Row {
    /// Distinguishes this program after this step from other programs and other steps.
    pub(crate) fn digest(&self) -> u64 {
        let numbers = [self.tokens, self.output_tokens, self.tool_ms];
        numbers
            .iter()
            .fold(u64::from(self.steps), |digest, number| {
                SplitMix64::new(digest ^ number.to_bits()).next_u64()
            })
    }
}

/// Positions of the extra columns that are understood.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Places {
    prompt_tokens: Option<usize>,
    prompt_score: Option<usize>,
    last_output_tokens: Option<usize>,
    last_tool_ok: Option<usize>,
    failed_tools: Option<usize>,
}

impl Places {
    pub(crate) fn of(config: &Config) -> Self {
        let place = |name: &str| config.extra.iter().position(|extra| extra == name);
        Self {
            prompt_tokens: place("prompt-tokens"),
            prompt_score: place("prompt-score"),
            last_output_tokens: place("last-output-tokens"),
            last_tool_ok: place("last-tool-ok"),
            failed_tools: place("failed-tools"),
        }
    }

    fn fill(self, row: &mut Row, at: impl Fn(usize) -> Option<f32>) {
        let number = |place: Option<usize>| {
            let value = f64::from(at(place?)?);
            value.is_finite().then_some(value)
        };
        let count = |place: Option<usize>| number(place).filter(|value| *value >= 0.0);
        row.prompt_tokens = count(self.prompt_tokens);
        row.prompt_score = number(self.prompt_score);
        row.last_output_tokens = count(self.last_output_tokens);
        row.last_tool_ok = count(self.last_tool_ok).map(|value| value >= 0.5);
        row.failed_tools = count(self.failed_tools);
    }

    /// The row of a live program.
    pub(crate) fn live(self, programs: &LiveColumns<'_>, index: usize) -> Row {
        let mut row = Row {
            group: programs.group[index],
            tokens: programs.tokens[index] as f64,
            output_tokens: programs.output_tokens[index] as f64,
            steps: programs.steps[index],
            tool_ms: programs.tool_ms[index] as f64,
            ..Row::default()
        };
        let rows = programs.len();
        self.fill(&mut row, |place| {
            programs.extra.get(place * rows + index).copied()
        });
        row
    }

    /// The row of a program that has finished, as it was then.
    pub(crate) fn finished(self, programs: &FinishedColumns<'_>, index: usize) -> Row {
        let mut row = Row {
            group: programs.group[index],
            tokens: programs.tokens[index] as f64,
            output_tokens: programs.output_tokens[index] as f64,
            steps: programs.steps[index],
            tool_ms: programs.tool_ms[index] as f64,
            ..Row::default()
        };
        let rows = programs.len();
        self.fill(&mut row, |place| {
            programs.extra.get(place * rows + index).copied()
        });
        row
    }
}
