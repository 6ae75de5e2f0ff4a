//! Rollouts of agentic RL: groups of programs with one prompt each, whose lengths are as skewed and
//! as unpredictable as published ones (Heddle §2.2, §7).
//!
//! A prompt has a difficulty, a sample adds a deviation of its own, and the sum determines what is
//! observable: how much the first step generates, whether tool calls succeed, how much is generated
//! for corrections. A program continues while its tool calls fail and ends soon after they succeed,
//! so samples of one prompt diverge (Heddle Figure 5), and each step is more informative about the
//! rest. The length of a prompt is not informative.
//!
//! All numbers are in one table, [`parameters_markdown`], each with its source. They are fixed
//! before any policy is run.

pub(crate) mod draw;
mod parameters;
mod task;
#[cfg(test)]
mod tests;

pub use parameters::parameters_markdown;
pub use task::{AgentModel, AgentTask};

use draw::Draw;
use task::TaskShape;
use treadle_plugin::exact::exp;

use super::lognormal::{LognormalParameter, WorkloadError};
use super::{AgentRun, AgentStep, ToolResult};

/// Maximum number of tokens that a program generates over all its steps (Heddle §7).
pub const OUTPUT_TOKENS_MAX: u32 = 40_000;
/// Maximum time of a tool call, in milliseconds.
const TOOL_MS_MAX: f64 = 120_000.0;
/// Number of consecutive failures beyond which the next is no likelier.
const FAILURES_IN_ROW_MAX: u32 = 4;
/// Correlation between a model's reading of a prompt's text and its difficulty.
const SCORE_CORRELATION: f64 = 0.5;
/// Minimum number of new tokens in a step's prompt.
const FRESH_TOKENS_MIN: u32 = 16;

/// A seeded rollout. The same options give the same runs, byte for byte, on any machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RolloutWorkload {
    /// The agent.
    pub task: AgentTask,
    /// The model that drives it.
    pub model: AgentModel,
    /// Number of the first prompt of the data set; rollouts that share prompts share their
    /// difficulty.
    pub first_prompt: u32,
    /// Number of prompts.
    pub prompts: u32,
    /// Number of programs per prompt.
    pub samples: u32,
    /// The pass over the data set: another one has other samples of the same prompts.
    pub epoch: u32,
    /// Seed of the data set and of the samples.
    pub seed: u64,
}

impl Default for RolloutWorkload {
    fn default() -> Self {
        Self {
            task: AgentTask::Coding,
            model: AgentModel::Qwen3Of14B,
            first_prompt: 0,
            prompts: 400,
            samples: 16,
            epoch: 0,
            seed: 1,
        }
    }
}

/// A prompt of the data set.
struct Prompt {
    number: u32,
    tokens: u32,
    difficulty: f64,
}

impl RolloutWorkload {
    /// The runs, prompt by prompt. More prompts or samples leave the others unchanged.
    pub fn generate(&self) -> Result<Vec<AgentRun>, WorkloadError> {
        for (field, count) in [("prompts", self.prompts), ("samples", self.samples)] {
            if count == 0 {
                return Err(WorkloadError::Zero { field });
            }
        }
        let mut runs = Vec::with_capacity(self.prompts as usize * self.samples as usize);
        for number in self.first_prompt..self.first_prompt.saturating_add(self.prompts) {
            let prompt = self.prompt(number);
            runs.extend((0..self.samples).map(|sample| self.run(&prompt, sample)));
        }
        Ok(runs)
    }

    /// A model's estimate of a prompt's difficulty from its text: a standard normal number,
    /// correlated with the difficulty. It replaces the text, which these workloads don't have.
    pub fn prompt_score(&self, number: u32) -> f64 {
        let mut draw = Draw::new(&[self.seed, self.task as u64, 3, u64::from(number)]);
        let own = (1.0 - SCORE_CORRELATION * SCORE_CORRELATION).sqrt();
        SCORE_CORRELATION * self.prompt(number).difficulty + own * draw.normal()
    }

    fn prompt(&self, number: u32) -> Prompt {
        let shape = self.task.shape();
        let mut draw = Draw::new(&[self.seed, self.task as u64, 1, u64::from(number)]);
        let difficulty = draw.normal();
        let own = (1.0 - shape.prompt_correlation * shape.prompt_correlation).sqrt();
        let length = LognormalParameter {
            median: shape.prompt_tokens.median,
            sigma: shape.prompt_tokens.sigma * own,
        };
        let shift = shape.prompt_tokens.sigma * shape.prompt_correlation * difficulty;
        Prompt {
            number,
            tokens: draw.tokens(length, shift, FRESH_TOKENS_MIN),
            difficulty,
        }
    }

    fn run(&self, prompt: &Prompt, sample: u32) -> AgentRun {
        let shape = self.task.shape();
        let (number, epoch) = (u64::from(prompt.number), u64::from(self.epoch));
        let name = [
            self.seed,
            self.task as u64,
            2,
            number,
            epoch,
            u64::from(sample),
        ];
        let mut draw = Draw::new(&name);
        let difficulty = shape.prompt_share.sqrt() * prompt.difficulty
            + (1.0 - shape.prompt_share).sqrt() * draw.normal();
        let spread = shape.tool_sigma;
        let tool_ms = LognormalParameter {
            median: self.model.tool_ms_mean(self.task) * exp(-spread * spread / 2.0),
            sigma: spread,
        };
        let program = Program {
            shape,
            tool_ms,
            difficulty,
            steps: Vec::new(),
            context_tokens: 0,
            output_left: OUTPUT_TOKENS_MAX,
        };
        AgentRun {
            id: format!(
                "{}-p{:05}-e{epoch}-s{sample:02}",
                self.task.name(),
                prompt.number
            ),
            group: prompt.number,
            system_tokens: shape.system_tokens,
            group_tokens: prompt.tokens,
            steps: program.steps(prompt.tokens, &mut draw),
        }
    }
}

/// A program while it is generated.
struct Program {
    shape: &'static TaskShape,
    tool_ms: LognormalParameter,
    difficulty: f64,
    steps: Vec<AgentStep>,
    context_tokens: u32,
    output_left: u32,
}

impl Program {
    fn steps(mut self, prompt_tokens: u32, draw: &mut Draw) -> Vec<AgentStep> {
        let shape = self.shape;
        let mut fresh = shape.system_tokens + prompt_tokens;
        let (mut successes, mut failures_in_row, mut gave_up) = (0, 0_u32, false);
        loop {
            let begun = self.steps.len() as u32;
            let answers = successes >= shape.successes || gave_up || begun + 1 >= shape.steps_max;
            let tokens = match (answers, begun) {
                (true, _) => shape.answer_tokens,
                (false, 0) => shape.plan_tokens,
                (false, _) => shape.step_tokens,
            };
            self.generate(fresh, tokens, draw);
            if answers || self.output_left == 0 {
                return self.steps;
            }
            let in_row = f64::from(failures_in_row.min(FAILURES_IN_ROW_MAX));
            let logit = shape.failure
                + shape.failure_per_difficulty * self.difficulty
                + shape.failure_in_row * in_row;
            let has_failed = draw.happens(logit);
            let observed = if has_failed {
                failures_in_row += 1;
                gave_up = draw.with_probability(shape.gives_up);
                shape.failed_tokens
            } else {
                failures_in_row = 0;
                successes += 1;
                shape.ok_tokens
            };
            self.call_tool(has_failed, draw);
            fresh = draw.tokens(observed, 0.0, FRESH_TOKENS_MIN);
        }
    }

    /// Adds a step, cut at the program's output limit.
    fn generate(&mut self, fresh_tokens: u32, tokens: LognormalParameter, draw: &mut Draw) {
        let shift = self.shape.tokens_per_difficulty * self.difficulty;
        let output_tokens = draw.tokens(tokens, shift, 1).min(self.output_left);
        self.output_left -= output_tokens;
        let step = AgentStep {
            input_tokens: self.context_tokens + fresh_tokens,
            reused_tokens: self.context_tokens,
            output_tokens,
            ..AgentStep::default()
        };
        self.context_tokens = step.context_tokens();
        self.steps.push(step);
    }

    /// Adds the tool call after the latest step.
    fn call_tool(&mut self, has_failed: bool, draw: &mut Draw) {
        let tool_ms = draw.lognormal(self.tool_ms, 0.0).min(TOOL_MS_MAX);
        if let Some(step) = self.steps.last_mut() {
            step.tool_us = (tool_ms * 1_000.0).round() as u64;
            step.tool_result = if has_failed {
                ToolResult::Failed
            } else {
                ToolResult::Ok
            };
        }
    }
}
