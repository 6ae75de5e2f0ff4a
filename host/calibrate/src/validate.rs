//! A workload on the engine and on its model: measured makespan beside predicted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::Instant;
use treadle_engine_model::engine::EngineProfile;

use super::CalibrateError;
use super::client::{Request, Target, micros};
use super::disturbance::Watch;
use super::prompts::Prompts;
use super::workload::{Program, Step, predict, programs};

/// Programs of a validation.
const PROGRAMS: u32 = 12;
/// Times that a workload is run until nothing disturbs it.
const ATTEMPTS_MAX: u32 = 3;
/// An engine that waited for a processor for more than this share of a run was disturbed.
const WAITED_SHARE_MAX: f64 = 0.1;

/// One workload on the engine and on its model.
#[derive(Clone, Debug, Serialize)]
pub struct Validation {
    /// Seed of the workload.
    pub seed: u64,
    /// Programs of it.
    pub programs: usize,
    /// Steps of all programs.
    pub steps: usize,
    /// Programs at once.
    pub lanes: u32,
    /// From the first request to the last answer on the engine, in seconds.
    pub measured_makespan_s: f64,
    /// The same on its model.
    pub predicted_makespan_s: f64,
    /// Predicted by measured.
    pub makespan_ratio: f64,
    /// A step's mean time on the engine, in seconds.
    pub measured_step_s: f64,
    /// The same on its model.
    pub predicted_step_s: f64,
    /// For how long the engine's busiest thread was ready to run and had no processor, as a share
    /// of the makespan; `None` if that is unknown.
    pub waited_share: Option<f64>,
    /// Predicted by measured less that wait: an estimate of what an idle machine would have shown.
    pub calm_ratio: Option<f64>,
    /// Whether that is so much that the measured times are those of what ran beside it.
    pub is_disturbed: bool,
}

/// A workload, and its runs before that were disturbed.
pub(super) struct Validated {
    pub(super) kept: Validation,
    pub(super) discarded: Vec<Validation>,
}

/// Runs a workload until nothing disturbs the engine; the last run is kept in any case.
pub(super) async fn validate(
    target: &Target,
    profile: &EngineProfile,
    seed: u64,
) -> Result<Validated, CalibrateError> {
    let mut discarded = Vec::new();
    loop {
        let kept = validate_once(target, profile, seed).await?;
        if !kept.is_disturbed || discarded.len() as u32 + 1 >= ATTEMPTS_MAX {
            return Ok(Validated { kept, discarded });
        }
        discarded.push(kept);
    }
}

/// Runs the workload of a seed on the engine, then on its model.
async fn validate_once(
    target: &Target,
    profile: &EngineProfile,
    seed: u64,
) -> Result<Validation, CalibrateError> {
    let lanes = PROGRAMS.min(profile.running_max.max(1));
    let planned = programs(PROGRAMS, lanes, profile, seed);
    let watch = target.watch();
    let before = watch.as_ref().map(Watch::look);
    let ran = run(target, planned, lanes).await?;
    let waited = watch.and_then(|watch| Some(watch.look().waited_since(&before?)));
    let waited_share = waited.map(|waited| micros(waited) / ran.makespan_us);
    let told = predict(&ran.programs, lanes, profile).map_err(|_| {
        CalibrateError::Workload(
            "the workload is longer than the profile's context_limit_tokens; calibrate this \
             engine instead of validating another's profile",
        )
    })?;
    let mean = |sum_us: f64, count: usize| sum_us / 1e6 / count.max(1) as f64;
    let predicted_makespan_s = told.makespan_us as f64 / 1e6;
    let ratio = predicted_makespan_s * 1e6 / ran.makespan_us;
    Ok(Validation {
        seed,
        programs: ran.programs.len(),
        steps: ran.steps_us.len(),
        lanes,
        measured_makespan_s: ran.makespan_us / 1e6,
        predicted_makespan_s,
        makespan_ratio: ratio,
        measured_step_s: mean(ran.steps_us.iter().sum(), ran.steps_us.len()),
        predicted_step_s: mean(
            told.steps_us.iter().sum::<u64>() as f64,
            told.steps_us.len(),
        ),
        waited_share,
        calm_ratio: waited_share.map(|share| ratio / (1.0 - share).max(f64::MIN_POSITIVE)),
        is_disturbed: waited_share.is_some_and(|share| share > WAITED_SHARE_MAX),
    })
}

/// The result of a workload on the engine.
struct Ran {
    /// The programs with the token counts that the engine reported: the model cannot know when an
    /// answer ends.
    programs: Vec<Program>,
    makespan_us: f64,
    steps_us: Vec<f64>,
}

/// Runs programs on the engine, `lanes` at once, each lane in a slot of its own.
async fn run(target: &Target, planned: Vec<Program>, lanes: u32) -> Result<Ran, CalibrateError> {
    let planned = Arc::new(planned);
    let next = Arc::new(AtomicUsize::new(0));
    let mut running = JoinSet::new();
    let began = Instant::now();
    for lane in 0..lanes {
        let lane = Lane {
            target: target.clone(),
            slot: lane,
            planned: planned.clone(),
            next: next.clone(),
        };
        running.spawn(lane.run());
    }
    let mut ran: Vec<Option<Program>> = vec![None; planned.len()];
    let mut steps_us = Vec::new();
    let mut last = began;
    while let Some(lane) = running.join_next().await {
        let broken = |error: tokio::task::JoinError| CalibrateError::Broken(error.to_string());
        for done in lane.map_err(broken)?? {
            last = last.max(done.ended_at);
            steps_us.extend(done.steps_us);
            ran[done.number] = Some(done.program);
        }
    }
    Ok(Ran {
        programs: ran.into_iter().flatten().collect(),
        makespan_us: micros(last - began),
        steps_us,
    })
}

struct Lane {
    target: Target,
    slot: u32,
    planned: Arc<Vec<Program>>,
    next: Arc<AtomicUsize>,
}

struct ProgramRun {
    number: usize,
    program: Program,
    steps_us: Vec<f64>,
    ended_at: Instant,
}

impl Lane {
    async fn run(self) -> Result<Vec<ProgramRun>, CalibrateError> {
        let mut all = Vec::new();
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(program) = self.planned.get(number) else {
                return Ok(all);
            };
            all.push(self.program(number, program).await?);
        }
    }

    async fn program(
        &self,
        number: usize,
        program: &Program,
    ) -> Result<ProgramRun, CalibrateError> {
        let mut prompts = Prompts::fresh();
        let mut prompt = Vec::new();
        let mut steps = Vec::new();
        let mut steps_us = Vec::new();
        let mut before_tokens = 0;
        let mut ended_at = Instant::now();
        for (index, step) in program.steps.iter().enumerate() {
            prompt.extend(prompts.ids(step.new_tokens));
            let request = Request {
                prompt: prompt.clone(),
                output_tokens: step.output_tokens,
                slot: Some(self.slot),
            };
            let answer = self.target.complete(request).await?;
            ended_at = answer.ended_at;
            steps_us.push(micros(ended_at - answer.sent_at));
            let prompt_tokens = u32::try_from(answer.prompt_tokens).unwrap_or(u32::MAX);
            steps.push(Step {
                new_tokens: prompt_tokens.saturating_sub(before_tokens).max(1),
                output_tokens: u32::try_from(answer.output_tokens).unwrap_or(u32::MAX),
                tool_us: step.tool_us,
            });
            before_tokens = prompt_tokens;
            if index + 1 < program.steps.len() {
                tokio::time::sleep(Duration::from_micros(step.tool_us)).await;
            }
        }
        let program = Program { steps };
        Ok(ProgramRun {
            number,
            program,
            steps_us,
            ended_at,
        })
    }
}
