//! The agents of the published evaluations, and the numbers that describe them.

use serde::Serialize;

use crate::workload::lognormal::LognormalParameter;

/// An agent with its data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentTask {
    /// Writes programs for CodeForces problems and runs tests in a sandbox.
    Coding,
    /// Answers HotpotQA's questions with web searches.
    Search,
    /// Solves DAPO-Math problems with a calculator and solvers.
    Math,
}

impl AgentTask {
    /// All tasks, in the order of the published tables.
    pub const ALL: [Self; 3] = [Self::Coding, Self::Search, Self::Math];

    /// The task's name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Coding => "coding",
            Self::Search => "search",
            Self::Math => "math",
        }
    }

    /// The task with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|task| task.name() == name)
    }
}

/// The models of the published evaluations; the times of tools depend on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum AgentModel {
    /// Qwen3-8B.
    #[serde(rename = "qwen3-8b")]
    Qwen3Of8B,
    /// Qwen3-14B.
    #[serde(rename = "qwen3-14b")]
    Qwen3Of14B,
    /// Qwen3-32B.
    #[serde(rename = "qwen3-32b")]
    Qwen3Of32B,
}

impl AgentModel {
    /// All models, the smallest first.
    pub const ALL: [Self; 3] = [Self::Qwen3Of8B, Self::Qwen3Of14B, Self::Qwen3Of32B];

    /// The model's name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qwen3Of8B => "qwen3-8b",
            Self::Qwen3Of14B => "qwen3-14b",
            Self::Qwen3Of32B => "qwen3-32b",
        }
    }

    /// The model with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|model| model.name() == name)
    }

    /// Mean time of a tool call, in milliseconds (Heddle, Table 1).
    pub fn tool_ms_mean(self, task: AgentTask) -> f64 {
        let [coding, search, math] = match self {
            Self::Qwen3Of8B => [460.0, 1_420.0, 51.0],
            Self::Qwen3Of14B => [410.0, 1_410.0, 46.0],
            Self::Qwen3Of32B => [450.0, 1_430.0, 54.0],
        };
        match task {
            AgentTask::Coding => coding,
            AgentTask::Search => search,
            AgentTask::Math => math,
        }
    }
}

/// Parameters of a task's programs. A program's *difficulty* is a standard normal number, partly
/// its prompt's and partly its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TaskShape {
    /// The prompt that all programs share, in tokens.
    pub(super) system_tokens: u32,
    /// The task's own prompt, in tokens.
    pub(super) prompt_tokens: LognormalParameter,
    /// Correlation of the prompt's length, as its logarithm, with the prompt's difficulty.
    pub(super) prompt_correlation: f64,
    /// Share of the variance of difficulty that is the prompt's.
    pub(super) prompt_share: f64,
    /// Tokens of the first step.
    pub(super) plan_tokens: LognormalParameter,
    /// Tokens of a later step with a tool call.
    pub(super) step_tokens: LognormalParameter,
    /// Tokens of the last step, without a tool call.
    pub(super) answer_tokens: LognormalParameter,
    /// Increase of the logarithm of generated tokens per unit of difficulty.
    pub(super) tokens_per_difficulty: f64,
    /// Number of successful tool calls after which a program answers.
    pub(super) successes: u32,
    /// Logit of a tool call's failure at difficulty 0.
    pub(super) failure: f64,
    /// Increase of that logit per unit of difficulty.
    pub(super) failure_per_difficulty: f64,
    /// Increase of that logit for each consecutive failure before it, up to 4.
    pub(super) failure_in_row: f64,
    /// Share of failures after which a program gives up and answers.
    pub(super) gives_up: f64,
    /// Maximum number of steps.
    pub(super) steps_max: u32,
    /// Tokens that a successful tool call adds to the context.
    pub(super) ok_tokens: LognormalParameter,
    /// Tokens that a failed tool call adds to the context.
    pub(super) failed_tokens: LognormalParameter,
    /// Standard deviation of a tool call's time, in logarithms.
    pub(super) tool_sigma: f64,
}

const fn lognormal(median: f64, sigma: f64) -> LognormalParameter {
    LognormalParameter { median, sigma }
}

const CODING: TaskShape = TaskShape {
    system_tokens: 600,
    prompt_tokens: lognormal(650.0, 0.4),
    prompt_correlation: 0.2,
    prompt_share: 0.5,
    plan_tokens: lognormal(2_600.0, 0.5),
    step_tokens: lognormal(1_500.0, 0.6),
    answer_tokens: lognormal(450.0, 0.4),
    tokens_per_difficulty: 0.3,
    successes: 1,
    failure: 0.35,
    failure_per_difficulty: 0.8,
    failure_in_row: 0.1,
    gives_up: 0.08,
    steps_max: 32,
    ok_tokens: lognormal(120.0, 0.5),
    failed_tokens: lognormal(350.0, 0.8),
    tool_sigma: 1.0,
};

const SEARCH: TaskShape = TaskShape {
    system_tokens: 500,
    prompt_tokens: lognormal(60.0, 0.3),
    prompt_correlation: 0.15,
    prompt_share: 0.5,
    plan_tokens: lognormal(420.0, 0.5),
    step_tokens: lognormal(300.0, 0.6),
    answer_tokens: lognormal(250.0, 0.5),
    tokens_per_difficulty: 0.3,
    successes: 2,
    failure: 0.1,
    failure_per_difficulty: 0.7,
    failure_in_row: 0.05,
    gives_up: 0.08,
    steps_max: 24,
    ok_tokens: lognormal(900.0, 0.5),
    failed_tokens: lognormal(700.0, 0.6),
    tool_sigma: 0.8,
};

const MATH: TaskShape = TaskShape {
    system_tokens: 300,
    prompt_tokens: lognormal(130.0, 0.5),
    prompt_correlation: 0.2,
    prompt_share: 0.6,
    plan_tokens: lognormal(3_600.0, 0.55),
    step_tokens: lognormal(1_900.0, 0.7),
    answer_tokens: lognormal(700.0, 0.5),
    tokens_per_difficulty: 0.45,
    successes: 1,
    failure: -0.3,
    failure_per_difficulty: 0.8,
    failure_in_row: 0.2,
    gives_up: 0.15,
    steps_max: 16,
    ok_tokens: lognormal(50.0, 0.6),
    failed_tokens: lognormal(80.0, 0.6),
    tool_sigma: 0.6,
};

impl AgentTask {
    pub(super) fn shape(self) -> &'static TaskShape {
        match self {
            Self::Coding => &CODING,
            Self::Search => &SEARCH,
            Self::Math => &MATH,
        }
    }
}
