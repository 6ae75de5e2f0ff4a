//! The cluster of a comparison: profiles by degree, workers on nodes, and the columns of them that
//! policies are given.

use super::Cell;
use heddle_allocation::HeddleAllocation;
use serde_json::{Value, json};
use treadle_engine_model::engine::{EngineProfile, IterationLoad};
use treadle_engine_model::hardware::{Assumptions, DEGREES, HardwareError, LanguageModel};
use treadle_plugin::{AllocationPolicy, ParallelismColumns, Policy};
use treadle_simulator::rollout::RolloutWorker;
use treadle_simulator::workload::AgentRun;

/// GPUs of one node.
const NODE_GPUS: u32 = 8;
/// Programs at once at a worker whose only bound is memory: the rollout's batch is
/// the same for all (§7.1).
const RUNNING_MAX: u32 = 1_024;
/// Batch sizes at which the slowdown by other programs is given.
const BATCHES: [u64; 10] = [1, 4, 16, 32, 64, 128, 256, 512, 768, 1_024];

/// Engines of every degree that the model fits on.
pub(super) struct Degrees {
    pub(super) degree: Vec<u32>,
    pub(super) profile: Vec<EngineProfile>,
    /// Context of a program at mean, in tokens.
    context_tokens: u64,
    /// Its first prompt at mean, in tokens.
    prompt_tokens: f64,
    /// By how much a context grows with each generated token.
    pub(super) growth: f64,
    /// Time in tools for each generated token, in microseconds.
    tool_us: f64,
    /// Tokens of the longest program.
    longest_tokens: u64,
}

impl Degrees {
    /// `history` shows how contexts grow.
    pub(super) fn of(cell: &Cell, history: &[AgentRun]) -> Result<Self, HardwareError> {
        let sum = |of: fn(&AgentRun) -> u64| history.iter().map(of).sum::<u64>() as f64;
        let programs = (history.len() as f64).max(1.0);
        let last = sum(|run| run.final_context_tokens().into());
        let first = sum(|run| run.steps.first().map_or(0, |step| step.input_tokens.into()));
        let output = sum(AgentRun::output_tokens).max(1.0);
        let longest = history.iter().map(AgentRun::output_tokens).max();
        let longest = longest.unwrap_or(1);
        let mut degrees = Self {
            degree: Vec::new(),
            profile: Vec::new(),
            // Half of what is added is there on average while a program grows.
            context_tokens: (f64::midpoint(first, last) / programs) as u64,
            prompt_tokens: first / programs,
            growth: (last - first) / output,
            tool_us: sum(|run| run.steps.iter().map(|step| step.tool_us).sum()) / output,
            longest_tokens: longest.max(1),
        };
        for degree in DEGREES {
            let assumptions = Assumptions::default();
            match EngineProfile::of(&cell.gpu, &cell.model(), degree, &assumptions) {
                Ok(mut profile) => {
                    profile.stream_interval_tokens = u32::MAX;
                    profile.running_max = RUNNING_MAX;
                    degrees.degree.push(degree);
                    degrees.profile.push(profile);
                }
                Err(HardwareError::DoesNotFit { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(degrees)
    }

    /// Time per token of one program by itself at mean context, in microseconds.
    pub(super) fn token_us(&self, profile: &EngineProfile) -> f64 {
        self.batch_us(profile, 1)
    }

    fn batch_us(&self, profile: &EngineProfile, batch: u64) -> f64 {
        profile.iteration_us(IterationLoad {
            decode_sequences: batch,
            decode_context_tokens: batch * self.context_tokens,
            ..IterationLoad::default()
        }) as f64
    }

    /// How much slower a token is in a batch, as points of batch and factor.
    fn interference(&self, profile: &EngineProfile) -> Value {
        let alone = self.batch_us(profile, 1);
        let point = |batch: &u64| json!([batch, self.batch_us(profile, *batch) / alone]);
        BATCHES.iter().map(point).collect()
    }

    /// What an iteration takes, as a straight line through a lone program and a
    /// full batch.
    fn pace(profile: &EngineProfile) -> Value {
        let at = |batch: u64, context: u64| {
            profile.iteration_us(IterationLoad {
                decode_sequences: batch,
                decode_context_tokens: context,
                ..IterationLoad::default()
            }) as f64
        };
        let chunk = u64::from(profile.batched_tokens_max);
        let prefill_us = profile.iteration_us(IterationLoad {
            prefill_tokens: chunk,
            ..IterationLoad::default()
        }) as f64
            / chunk as f64;
        let batch = u64::from(profile.running_max.clamp(2, 256));
        let program_us = (at(batch, 0) - at(1, 0)) / (batch - 1) as f64;
        json!({
            "base_us": at(1, 0) - program_us,
            "program_us": program_us,
            "kilotoken_us": (at(1, 1_000_000) - at(1, 0)) / 1_000.0,
            "prefill_us": prefill_us,
            "batch_max": profile.running_max,
        })
    }

    /// The worker columns of `heddle-placement`.
    pub(super) fn placement_config(&self) -> String {
        let class = |profile: &EngineProfile| {
            json!({
                "capacity_tokens": profile.kv_tokens(),
                "token_us": self.token_us(profile),
                "interference": self.interference(profile),
                "pace": Self::pace(profile),
            })
        };
        let classes: Vec<Value> = self.profile.iter().map(class).collect();
        json!({
            "classes": classes,
            "objective": "mixed",
            "gain": 0.02,
            "moves_max": 16,
            "growth": self.growth,
            "tool_us": self.tool_us,
            "longest_tokens": self.longest_tokens,
        })
        .to_string()
    }

    /// Workers of each degree, as `heddle-allocation` chooses them for programs of these lengths.
    pub(super) fn allocate(&self, gpus: u32, expected_tokens: &[u64]) -> Vec<u32> {
        let class = |(degree, profile): (&u32, &EngineProfile)| {
            json!({
                "degree": degree,
                "interference": self.interference(profile),
                "pace": Self::pace(profile),
            })
        };
        let classes: Vec<Value> = self.degree.iter().zip(&self.profile).map(class).collect();
        let config = json!({
            "classes": classes,
            "objective": "fluid",
            "seed": 1,
            "prompt_tokens": self.prompt_tokens,
            "growth": self.growth,
            "tool_us": self.tool_us,
        });
        let token_us: Vec<f64> = self.profile.iter().map(|p| self.token_us(p)).collect();
        let capacity_tokens: Vec<u64> = self.profile.iter().map(EngineProfile::kv_tokens).collect();
        // The classes have it.
        let unknown = vec![-1.0; self.degree.len()];
        let columns = ParallelismColumns {
            gpus,
            degree: &self.degree,
            token_us: &token_us,
            capacity_tokens: &capacity_tokens,
            expected_tokens,
            step_us: &unknown,
            prefill_us: &unknown,
            prompt_tokens: 0,
            growth: -1.0,
            tool_us: -1.0,
        };
        HeddleAllocation::configure(&config.to_string())
            .and_then(|mut policy| policy.parallelism(&columns))
            .unwrap_or_else(|_| vec![0; self.degree.len()])
    }

    /// The workers of a plan, the fastest first; no worker spans two nodes.
    pub(super) fn workers(&self, counts: &[u32], shape: &Shape) -> Vec<RolloutWorker> {
        let mut workers = Vec::new();
        let mut gpus_taken = 0;
        for (place, count) in counts.iter().enumerate().rev() {
            let degree = self.degree[place];
            for _ in 0..*count {
                let mut profile = self.profile[place].clone();
                profile.preempt_by_priority = shape.preempt;
                profile.running_max = shape.running_max.unwrap_or(profile.running_max);
                workers.push(RolloutWorker {
                    profile,
                    node: gpus_taken / NODE_GPUS,
                    gpus: degree,
                });
                gpus_taken += degree;
            }
        }
        workers
    }
}

/// How engines are run.
pub(super) struct Shape {
    /// The more urgent interrupts.
    pub(super) preempt: bool,
    /// Programs at once; `None` for the profile's bound.
    pub(super) running_max: Option<u32>,
}

/// KV cache of one token.
pub(super) fn kv_bytes_per_token(model: &LanguageModel) -> u64 {
    model.kv_bytes_per_token()
}
