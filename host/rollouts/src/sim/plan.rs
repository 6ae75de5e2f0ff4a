//! What is simulated: the programs, the cluster, and what is known beforehand.

use super::{SimArgs, SimError};
use crate::comparison::{Cell, Comparison};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use treadle_engine_model::hardware::{Gpu, H100, LanguageModel, QWEN3_14B};
use treadle_simulator::workload::{AgentModel, AgentRun, AgentTask, TraceOptions, load_trace};

/// Most programs.
const PROGRAMS_MAX: u64 = 100_000;
/// Longest gap between steps of a trace, in seconds.
const TOOL_CAP_S: u64 = 300;

/// Names of the models.
pub(super) fn models() -> impl Iterator<Item = &'static str> {
    LanguageModel::ALL.into_iter().map(|model| model.name)
}

/// Names of the classes of GPU.
pub(super) fn gpus() -> impl Iterator<Item = &'static str> {
    Gpu::ALL.into_iter().map(|gpu| gpu.name)
}

/// What is simulated.
pub(super) struct Plan {
    pub(super) comparison: Comparison,
    /// The trace's name; `None` for generated programs.
    pub(super) trace: Option<String>,
    /// What has to be known to read the figures.
    pub(super) notes: Vec<String>,
}

impl Plan {
    pub(super) fn new(args: &SimArgs) -> Result<Self, SimError> {
        // Names are checked as they are parsed.
        let model = LanguageModel::named(&args.model).unwrap_or(QWEN3_14B);
        let papers = AgentModel::named(&args.model);
        let task = AgentTask::named(&args.task).unwrap_or(AgentTask::Coding);
        // Times of tools are known only for the paper's models.
        let agent = papers.unwrap_or(AgentModel::Qwen3Of32B);
        let cell = Cell {
            language_model: papers.is_none().then_some(model),
            gpu: Gpu::named(&args.gpu).unwrap_or(H100),
            gpus: args.gpus,
            prompts: args.prompts,
            samples: args.samples,
            ..Cell::of(task, agent, args.seed)
        };
        if let Some(path) = &args.trace {
            return Self::recorded(args, cell, path);
        }
        let programs = u64::from(args.prompts) * u64::from(args.samples);
        if programs > PROGRAMS_MAX {
            return Err(SimError::Option {
                option: "--prompts",
                value: format!("{} with {} samples each", args.prompts, args.samples),
                remedy: format!("give at most {PROGRAMS_MAX} programs together"),
            });
        }
        let mut notes = Vec::new();
        if papers.is_none() {
            notes.push(format!(
                "There are no published tool times for {}: those of {} are used.",
                model.name,
                agent.name()
            ));
        }
        Ok(Self {
            comparison: Comparison::new(cell).map_err(SimError::Comparison)?,
            trace: None,
            notes,
        })
    }

    fn recorded(args: &SimArgs, cell: Cell, path: &Path) -> Result<Self, SimError> {
        let limit = Comparison::context_limit_tokens(&cell).map_err(SimError::Comparison)?;
        let mut notes = Vec::new();
        let runs = load("--trace", path, args, limit, &mut notes)?;
        let history = if let Some(path) = &args.history {
            load("--history", path, args, limit, &mut notes)?
        } else {
            notes.push("No --history: predictors begin without having learnt.".to_owned());
            Vec::new()
        };
        let name = path.file_stem().unwrap_or(path.as_os_str());
        Ok(Self {
            comparison: Comparison::of_runs(cell, runs, history).map_err(SimError::Comparison)?,
            trace: Some(name.to_string_lossy().into_owned()),
            notes,
        })
    }

    /// What is rolled out on what.
    pub(super) fn title(&self) -> String {
        let cell = self.comparison.cell();
        let (gpu, model) = (cell.gpu.name, cell.model().name);
        format!("{}, {model}, {} {gpu}", self.workload(), cell.gpus)
    }

    /// The agent's name, or the trace's.
    pub(super) fn workload(&self) -> &str {
        let trace = self.trace.as_deref();
        trace.unwrap_or(self.comparison.cell().task.name())
    }
}

fn load(
    option: &'static str,
    path: &Path,
    args: &SimArgs,
    context_limit_tokens: u32,
    notes: &mut Vec<String>,
) -> Result<Vec<AgentRun>, SimError> {
    let file = File::open(path).map_err(|cause| SimError::File {
        option,
        path: path.to_owned(),
        cause,
    })?;
    let options = TraceOptions {
        programs: args
            .programs
            .map_or(usize::MAX, |programs| programs as usize),
        seed: args.seed,
        token_divisor: args.token_divisor,
        tool_cap_s: TOOL_CAP_S,
        context_limit_tokens,
    };
    let sample = load_trace(BufReader::new(file), &options)
        .map_err(|cause| SimError::Trace { option, cause })?;
    if sample.runs.len() as u64 > PROGRAMS_MAX {
        return Err(SimError::Option {
            option,
            value: format!("{} programs", sample.runs.len()),
            remedy: format!("take at most {PROGRAMS_MAX} of them with --programs"),
        });
    }
    notes.push(format!(
        "{option}: {} of {} programs; {} cut at {context_limit_tokens} tokens of context, {} of \
         them left out as their first step is longer. Gaps are cut to {TOOL_CAP_S} s.",
        sample.runs.len(),
        sample.available_runs,
        sample.truncated_runs,
        sample.dropped_runs,
    ));
    Ok(sample.runs)
}
