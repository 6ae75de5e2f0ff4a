//! The comparison of predictors.

use heddle_prediction::HeddlePrediction;
use history_prediction::HistoryPrediction;
use prompt_only_prediction::PromptOnlyPrediction;
use serde::Serialize;
use std::io::BufRead;
use treadle_plugin::{Policy, PolicyError, PredictionPolicy};

use super::by_step::{StepFigures, by_step};
use super::figures::tail_recall;
use super::replay::{LOOKS, Predictions, Rollout, replay};
use treadle_engine_model::engine::content_hash;
use treadle_simulator::pearson;
use treadle_simulator::workload::{
    AgentModel, AgentRun, AgentTask, RolloutWorkload, TraceError, TraceOptions, WorkloadError,
    load_trace,
};

/// The long tail: the longest of 1,000 programs.
const TAIL_PER_MILLE: usize = 100;
/// What `heddle` asks for.
const HEDDLE_EXTRA: [&str; 6] = [
    "prompt-tokens",
    "prompt-score",
    "last-output-tokens",
    "last-tool-ok",
    "failed-tools",
    "returned",
];
/// What `heddle` can be given by a daemon that knows nothing of tools and prompts.
const COLUMNS_EXTRA: [&str; 3] = ["prompt-tokens", "last-output-tokens", "returned"];
/// What `heddle` is given by the daemon: all but what a model reads from prompts.
const NO_TEXT_EXTRA: [&str; 5] = [
    "prompt-tokens",
    "last-output-tokens",
    "last-tool-ok",
    "failed-tools",
    "returned",
];
/// What a predictor that looks at prompts asks for.
const PROMPT_EXTRA: [&str; 2] = ["prompt-tokens", "prompt-score"];

/// What is compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PredictionOptions {
    /// The tasks.
    pub tasks: Vec<AgentTask>,
    /// The model that drives the agents.
    pub model: AgentModel,
    /// Prompts by which the predictors are evaluated.
    pub prompts: u32,
    /// Programs per prompt.
    pub samples: u32,
    /// Other prompts that they have seen before.
    pub other_prompts: u32,
    /// Whether they have seen an earlier rollout of the same prompts.
    pub earlier_epoch: bool,
    /// Seed of the workloads.
    pub seed: u64,
}

impl Default for PredictionOptions {
    fn default() -> Self {
        Self {
            tasks: AgentTask::ALL.to_vec(),
            model: AgentModel::Qwen3Of14B,
            prompts: 400,
            samples: 16,
            other_prompts: 400,
            earlier_epoch: true,
            seed: 1,
        }
    }
}

/// How well each predictor did, task by task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PredictionReport {
    /// What was compared.
    pub options: PredictionOptions,
    /// One for each task.
    pub tasks: Vec<TaskPredictions>,
}

/// How well each predictor did in a task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskPredictions {
    /// The task.
    pub task: AgentTask,
    /// Programs that were predicted.
    pub programs: usize,
    /// Those of them that were still running after two steps.
    pub running: usize,
    /// The predictors after 0, 1 and 2 steps.
    pub predictors: Vec<PredictorFigures>,
    /// The predictors step by step.
    pub by_step: Vec<PredictorSteps>,
}

/// How far a predictor was off, step by step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PredictorSteps {
    /// Its name.
    pub name: &'static str,
    /// At each moment.
    pub steps: Vec<StepFigures>,
}

/// How well a predictor did after some steps, as to the tokens that programs generate in all.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PredictorFigures {
    /// Its name.
    pub name: &'static str,
    /// Steps that the programs had finished. Those that had ended by then count with what they
    /// came to, which is known.
    pub after_steps: usize,
    /// Share of the longest tenth that was predicted to be among it, 0 to 1.
    pub recall: f64,
    /// Pearson's correlation of predicted with actual, -1 to 1.
    pub pearson: f64,
    /// The same recall among programs that were still running after two steps: the same programs
    /// in every row.
    pub recall_running: f64,
    /// The same correlation among these.
    pub pearson_running: f64,
    /// Share of programs not yet ended that came to no more than the predicted 90th percentile.
    pub within_p90: f64,
}

/// Why predictors could not be compared.
#[derive(Debug, thiserror::Error)]
pub enum PredictionError {
    /// The workload.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// A policy refused.
    #[error("a prediction policy refused: {0}")]
    Policy(#[from] PolicyError),
}

/// Compares the predictors. The same options give the same report.
///
/// # Errors
/// A count of 0, named.
pub fn compare(options: &PredictionOptions) -> Result<PredictionReport, PredictionError> {
    let tasks = options.tasks.iter();
    let tasks = tasks.map(|task| compare_task(options, *task));
    Ok(PredictionReport {
        options: options.clone(),
        tasks: tasks.collect::<Result<_, _>>()?,
    })
}

/// All runs of a trace, at their own lengths.
///
/// # Errors
/// The trace can't be read.
pub fn recorded(trace: impl BufRead) -> Result<Vec<AgentRun>, TraceError> {
    let options = TraceOptions {
        programs: usize::MAX,
        token_divisor: 1,
        context_limit_tokens: u32::MAX,
        ..TraceOptions::default()
    };
    Ok(load_trace(trace, &options)?.runs)
}

/// Compares the predictors on recorded runs whose groups they have not seen before: they learn
/// from two groups of three, and are asked about the others. No text is recorded.
///
/// # Errors
/// A policy refuses.
pub fn compare_recorded(runs: Vec<AgentRun>) -> Result<Vec<PredictorSteps>, PredictionError> {
    let unseen = |run: &AgentRun| content_hash(&[u64::from(run.group)]).is_multiple_of(3);
    let (evaluated, before): (Vec<_>, Vec<_>) = runs.into_iter().partition(unseen);
    let rollout = |runs: Vec<AgentRun>| Rollout {
        scores: vec![0.0; runs.len()],
        runs,
    };
    let evaluation = Evaluation {
        before: vec![rollout(before)],
        evaluated: rollout(evaluated),
    };
    let all = evaluation.all()?;
    // Without text there is nothing to compare with it.
    let all = all.into_iter().filter(|(name, _)| *name != "heddle");
    Ok(steps_of(&evaluation.evaluated.runs, all))
}

fn steps_of(
    runs: &[AgentRun],
    predictions: impl IntoIterator<Item = (&'static str, Predictions)>,
) -> Vec<PredictorSteps> {
    let steps = |(name, predictions)| PredictorSteps {
        name,
        steps: by_step(runs, &predictions),
    };
    predictions.into_iter().map(steps).collect()
}

/// What a task's predictors go through.
struct Evaluation {
    before: Vec<Rollout>,
    evaluated: Rollout,
}

impl Evaluation {
    fn new(options: &PredictionOptions, task: AgentTask) -> Result<Self, WorkloadError> {
        let evaluated = RolloutWorkload {
            task,
            model: options.model,
            prompts: options.prompts,
            samples: options.samples,
            seed: options.seed,
            epoch: 1,
            first_prompt: 0,
        };
        let earlier = RolloutWorkload {
            epoch: 0,
            ..evaluated
        };
        let others = RolloutWorkload {
            first_prompt: options.prompts,
            prompts: options.other_prompts,
            ..earlier
        };
        let mut before = vec![rollout(&others)?];
        if options.earlier_epoch {
            before.push(rollout(&earlier)?);
        }
        Ok(Self {
            before,
            evaluated: rollout(&evaluated)?,
        })
    }

    /// What each predictor says.
    fn all(&self) -> Result<[(&'static str, Predictions); 5], PolicyError> {
        Ok([
            ("history", self.predictions::<HistoryPrediction>(&[])?),
            (
                "prompt-only",
                self.predictions::<PromptOnlyPrediction>(&PROMPT_EXTRA)?,
            ),
            (
                "heddle-columns",
                self.predictions::<HeddlePrediction>(&COLUMNS_EXTRA)?,
            ),
            (
                "heddle-no-text",
                self.predictions::<HeddlePrediction>(&NO_TEXT_EXTRA)?,
            ),
            (
                "heddle",
                self.predictions::<HeddlePrediction>(&HEDDLE_EXTRA)?,
            ),
        ])
    }

    fn predictions<P: PredictionPolicy>(&self, extra: &[&str]) -> Result<Predictions, PolicyError> {
        let mut policy = <P as Policy>::configure("{}")?;
        // The columns that it asks for, unknown where they are not told; one that the daemon does
        // not have comes after them.
        let told = |name: &&'static str| {
            if extra.contains(name) {
                *name
            } else {
                "unknown"
            }
        };
        let mut names: Vec<&str> = P::COLUMNS.iter().map(told).collect();
        names.extend(extra.iter().filter(|name| **name == "prompt-score"));
        let extra = names.as_slice();
        for rollout in &self.before {
            replay(&mut policy, rollout, extra)?;
        }
        replay(&mut policy, &self.evaluated, extra)
    }
}

fn rollout(workload: &RolloutWorkload) -> Result<Rollout, WorkloadError> {
    let runs = workload.generate()?;
    let score = |group| workload.prompt_score(group);
    Ok(Rollout {
        scores: runs.iter().map(|run| score(run.group)).collect(),
        runs,
    })
}

fn compare_task(
    options: &PredictionOptions,
    task: AgentTask,
) -> Result<TaskPredictions, PredictionError> {
    let evaluation = Evaluation::new(options, task)?;
    let actual: Vec<f64> = evaluation
        .evaluated
        .runs
        .iter()
        .map(|run| run.output_tokens() as f64)
        .collect();
    let running: Vec<bool> = evaluation
        .evaluated
        .runs
        .iter()
        .map(|run| run.steps.len() >= LOOKS)
        .collect();
    let all = evaluation.all()?;
    let evaluate = |name, looks: std::ops::Range<usize>, predictions: &Predictions| {
        let figures = |look| evaluated(name, look, predictions, &actual, &running);
        looks.map(figures).collect::<Vec<_>>()
    };
    let of_each = all
        .iter()
        .flat_map(|(name, told)| evaluate(name, 0..LOOKS, told));
    let oracle = evaluate("oracle", 0..1, &Vec::new());
    let predictors: Vec<_> = of_each.chain(oracle).collect();
    Ok(TaskPredictions {
        task,
        programs: actual.len(),
        running: running.iter().filter(|running| **running).count(),
        predictors,
        by_step: steps_of(&evaluation.evaluated.runs, all),
    })
}

/// Figures of predictions after some steps; without predictions, of the truth.
fn evaluated(
    name: &'static str,
    look: usize,
    predictions: &Predictions,
    actual: &[f64],
    running: &[bool],
) -> PredictorFigures {
    let given = |place: usize| predictions.get(place).and_then(|looks| looks[look].acting);
    let predicted: Vec<f64> = actual
        .iter()
        .enumerate()
        .map(|(place, actual)| given(place).map_or(*actual, |given| given.total))
        .collect();
    let pick = |list: &[f64]| -> Vec<f64> {
        let chosen = list.iter().zip(running).filter(|(_, running)| **running);
        chosen.map(|(value, _)| *value).collect()
    };
    let (actual_running, predicted_running) = (pick(actual), pick(&predicted));
    let within = |place: &usize| given(*place).is_some_and(|p| actual[*place] <= p.total_p90);
    let asked = (0..actual.len()).filter(|place| given(*place).is_some());
    let within = asked.clone().filter(within).count() as f64;
    let asked = asked.count();
    PredictorFigures {
        name,
        after_steps: look,
        recall: tail_recall(actual, &predicted, TAIL_PER_MILLE),
        pearson: pearson(actual, &predicted),
        recall_running: tail_recall(&actual_running, &predicted_running, TAIL_PER_MILLE),
        pearson_running: pearson(&actual_running, &predicted_running),
        within_p90: if asked == 0 {
            1.0
        } else {
            within / asked as f64
        },
    }
}
