//! The table of all parameters, with where each comes from.

use std::fmt::Write;

use super::task::{AgentModel, AgentTask, TaskShape};
use super::{
    AgentRun, FAILURES_IN_ROW_MAX, LognormalParameter, OUTPUT_TOKENS_MAX, RolloutWorkload,
    SCORE_CORRELATION, TOOL_MS_MAX,
};

/// A row of the table: what it is, its value for a task, and its source.
struct Parameter {
    meaning: &'static str,
    value: fn(&TaskShape) -> String,
    source: &'static str,
}

fn spread(parameter: LognormalParameter) -> String {
    format!("{} x e^(±{})", parameter.median, parameter.sigma)
}

const CHOSEN: &str = "chosen";

const PARAMETERS: &[Parameter] = &[
    Parameter {
        meaning: "system prompt, tokens",
        value: |shape| shape.system_tokens.to_string(),
        source: CHOSEN,
    },
    Parameter {
        meaning: "task's prompt, tokens",
        value: |shape| spread(shape.prompt_tokens),
        source: "chosen; a problem statement, a question (Heddle §7 names the data sets)",
    },
    Parameter {
        meaning: "correlation of the prompt's length with its difficulty",
        value: |shape| shape.prompt_correlation.to_string(),
        source: "chosen small: prompts predict lengths poorly (Heddle §2.3, §4.1)",
    },
    Parameter {
        meaning: "share of difficulty's variance that is the prompt's",
        value: |shape| shape.prompt_share.to_string(),
        source: "chosen; samples of a prompt diverge widely (Heddle §4.1, Figure 5; DARTS §3.2.1)",
    },
    Parameter {
        meaning: "first step generates, tokens",
        value: |shape| spread(shape.plan_tokens),
        source: "chosen; tens of seconds per step (Heddle §7.5), shorter in search (Heddle §7.1)",
    },
    Parameter {
        meaning: "later step with a tool call generates, tokens",
        value: |shape| spread(shape.step_tokens),
        source: "as above; outputs to beyond 20,000 tokens in coding (Heddle Figure 5)",
    },
    Parameter {
        meaning: "answer without a tool call, tokens",
        value: |shape| spread(shape.answer_tokens),
        source: CHOSEN,
    },
    Parameter {
        meaning: "a unit of difficulty adds to the logarithm of generated tokens",
        value: |shape| shape.tokens_per_difficulty.to_string(),
        source: "chosen; the first step's plan indicates the length (Heddle §4.1)",
    },
    Parameter {
        meaning: "successful tool calls before the answer",
        value: |shape| shape.successes.to_string(),
        source: "tests that pass once (Heddle §2.1); two hops of a HotpotQA question; one result",
    },
    Parameter {
        meaning: "logit of a tool call's failure",
        value: |shape| {
            format!(
                "{} + {} x difficulty + {} x failures in a row",
                shape.failure, shape.failure_per_difficulty, shape.failure_in_row
            )
        },
        source: "chosen; a failed test brings several steps that put it right (Heddle §2.3, §4.1)",
    },
    Parameter {
        meaning: "share of failures after which a program gives up",
        value: |shape| shape.gives_up.to_string(),
        source: CHOSEN,
    },
    Parameter {
        meaning: "most steps",
        value: |shape| shape.steps_max.to_string(),
        source: "chosen; turns per task from below 5 in mathematics to 50 (RollArt Table 1)",
    },
    Parameter {
        meaning: "a successful tool call adds to the context, tokens",
        value: |shape| spread(shape.ok_tokens),
        source: "chosen; prefill is dear in search (Heddle §7.1)",
    },
    Parameter {
        meaning: "a failed tool call adds to the context, tokens",
        value: |shape| spread(shape.failed_tokens),
        source: CHOSEN,
    },
    Parameter {
        meaning: "spread of a tool call's time, in logarithms",
        value: |shape| shape.tool_sigma.to_string(),
        source: "chosen; times are highly skewed (Heddle Figure 2; ThunderAgent Appendix C)",
    },
];

const INTRODUCTION: &str = "# Parameters of the rollout workloads

Written by a test of `treadle-simulator` from the code (`UPDATE_DOCS=1`); don't edit.

`RolloutWorkload` generates agentic RL rollouts like those that Heddle was evaluated on: a coding \
agent on CodeForces, a search agent on HotpotQA and a mathematics agent on DAPO-Math. The paper \
prints few numbers of its workloads: the tool times of its Table 1, 16 samples per prompt, the \
limit of 40K output tokens, and a longest completion of more than 4 times the median. What it does \
not print is chosen so that these come out, and marked as chosen. All of it was fixed before any \
policy was run.

`m x e^(±s)` is a lognormal distribution with median m whose logarithm has the standard deviation \
s. Difficulty is a standard normal number.
";

/// The page `docs/workload-parameters.md`.
pub fn parameters_markdown() -> String {
    let mut page = String::from(INTRODUCTION);
    let _ = write!(
        page,
        "\n## For all tasks\n\n| parameter | value | source |\n|---|---|---|\n\
         | samples per prompt | {} | Heddle §7 |\n\
         | most tokens that a program generates | {OUTPUT_TOKENS_MAX} | Heddle §7 |\n\
         | longest tool call | {} s | chosen; never reached in practice |\n\
         | failures in a row that count | {FAILURES_IN_ROW_MAX} | chosen |\n\
         | correlation of what a model reads from a prompt's text with its difficulty \
         | {SCORE_CORRELATION} | chosen; static analysis of prompts is imprecise (Heddle §4.1) |\n",
        RolloutWorkload::default().samples,
        TOOL_MS_MAX / 1_000.0
    );
    page.push_str("\n## Mean time of a tool call, in milliseconds (Heddle Table 1)\n");
    table(&mut page, &["model", "coding", "search", "math"]);
    for model in AgentModel::ALL {
        let times = AgentTask::ALL.map(|task| model.tool_ms_mean(task).to_string());
        row(&mut page, model.name(), &times);
    }
    page.push_str("\nLengths are the same for all models: the paper has no figures by model.\n");
    page.push_str("\n## By task\n");
    table(
        &mut page,
        &["parameter", "coding", "search", "math", "source"],
    );
    for parameter in PARAMETERS {
        let mut cells: Vec<String> = AgentTask::ALL
            .iter()
            .map(|task| (parameter.value)(task.shape()))
            .collect();
        cells.push(parameter.source.to_owned());
        row(&mut page, parameter.meaning, &cells);
    }
    page.push_str("\n## What comes out\n\n400 prompts of 16 samples, Qwen3-14B, seed 1.\n");
    table(&mut page, &["figure", "coding", "search", "math"]);
    let figures = AgentTask::ALL.map(Figures::of_default);
    for (name, value) in FIGURES {
        row(&mut page, name, &figures.each_ref().map(value));
    }
    page
}

fn table(page: &mut String, head: &[&str]) {
    let _ = writeln!(
        page,
        "\n| {} |\n|{}",
        head.join(" | "),
        "---|".repeat(head.len())
    );
}

fn row(page: &mut String, name: &str, cells: &[String]) {
    let _ = writeln!(page, "| {name} | {} |", cells.join(" | "));
}

/// What a rollout looks like.
pub(super) struct Figures {
    /// Generated tokens per program, the shortest first.
    pub(super) outputs: Vec<u64>,
    /// Steps per program, the fewest first.
    pub(super) steps: Vec<usize>,
    /// Mean time of a tool call, in milliseconds.
    pub(super) tool_ms_mean: f64,
    /// Mean tokens of a step.
    pub(super) step_tokens_mean: f64,
    /// Share of programs that were cut at the limit.
    pub(super) at_limit: f64,
    /// Share of the variance of output that lies within groups.
    pub(super) within_groups: f64,
    /// The largest ratio of a group's longest output to its mean.
    pub(super) group_tail_max: f64,
}

/// A figure as text.
type Shown = fn(&Figures) -> String;

/// Rows of the last table.
const FIGURES: [(&str, Shown); 11] = [
    ("output tokens, median", |f| f.output_at(50).to_string()),
    ("output tokens, 90th percentile", |f| {
        f.output_at(90).to_string()
    }),
    ("output tokens, 99th percentile", |f| {
        f.output_at(99).to_string()
    }),
    ("output tokens, longest / median", |f| {
        format!("{:.1}", f.tail())
    }),
    ("programs at the limit, %", |f| {
        format!("{:.2}", f.at_limit * 100.0)
    }),
    ("steps, median", |f| f.steps[f.steps.len() / 2].to_string()),
    ("steps, 99th percentile", |f| {
        f.steps[f.steps.len() * 99 / 100].to_string()
    }),
    ("tokens per step, mean", |f| {
        format!("{:.0}", f.step_tokens_mean)
    }),
    ("tool call, mean ms", |f| format!("{:.0}", f.tool_ms_mean)),
    ("variance of output within groups, %", |f| {
        format!("{:.0}", f.within_groups * 100.0)
    }),
    ("longest of a group / its mean, at most", |f| {
        format!("{:.1}", f.group_tail_max)
    }),
];

impl Figures {
    fn of_default(task: AgentTask) -> Self {
        let workload = RolloutWorkload {
            task,
            ..RolloutWorkload::default()
        };
        Self::of(
            &workload.generate().unwrap_or_default(),
            workload.samples as usize,
        )
    }

    pub(super) fn of(runs: &[AgentRun], samples: usize) -> Self {
        let mut outputs: Vec<u64> = runs.iter().map(AgentRun::output_tokens).collect();
        let mut steps: Vec<usize> = runs.iter().map(|run| run.steps.len()).collect();
        let all = || runs.iter().flat_map(|run| &run.steps);
        let calls = all().filter(|step| step.tool_us > 0).count().max(1);
        let tool_us: u64 = all().map(|step| step.tool_us).sum();
        let total: u64 = outputs.iter().sum();
        let is_cut = |tokens: &&u64| **tokens >= u64::from(OUTPUT_TOKENS_MAX);
        let at_limit = outputs.iter().filter(is_cut).count();
        let groups: Vec<Vec<f64>> = outputs
            .chunks(samples.max(1))
            .map(|group| group.iter().map(|tokens| *tokens as f64).collect())
            .collect();
        let within: f64 = groups.iter().map(|group| squares(group)).sum();
        let whole: Vec<f64> = outputs.iter().map(|tokens| *tokens as f64).collect();
        let tail = |group: &Vec<f64>| group.iter().copied().fold(0.0, f64::max) / mean(group);
        let figures = Self {
            tool_ms_mean: tool_us as f64 / 1_000.0 / calls as f64,
            step_tokens_mean: total as f64 / all().count().max(1) as f64,
            at_limit: at_limit as f64 / outputs.len().max(1) as f64,
            within_groups: within / squares(&whole),
            group_tail_max: groups.iter().map(tail).fold(0.0, f64::max),
            outputs: Vec::new(),
            steps: Vec::new(),
        };
        outputs.sort_unstable();
        steps.sort_unstable();
        Self {
            outputs,
            steps,
            ..figures
        }
    }

    pub(super) fn output_at(&self, percent: usize) -> u64 {
        self.outputs[self.outputs.len() * percent / 100]
    }

    /// The longest output as a multiple of the median.
    pub(super) fn tail(&self) -> f64 {
        let longest = self.outputs.last().copied().unwrap_or_default();
        longest as f64 / self.output_at(50) as f64
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Sum of the squared distances from the mean.
fn squares(values: &[f64]) -> f64 {
    let mean = mean(values);
    values
        .iter()
        .map(|value| (value - mean) * (value - mean))
        .sum()
}
