//! The cluster of a contest: profiles by degree, workers on nodes, and what
//! policies are told of them.

use super::Cell;
use crate::engine::{EngineProfile, IterationLoad};
use crate::hardware::{Assumptions, DEGREES, HardwareError, LanguageModel};
use crate::rollout::RolloutWorker;
use heddle_allocation::HeddleAllocation;
use serde_json::{Value, json};
use treadle_plugin::{AllocationPolicy, ParallelismColumns, Policy};

/// GPUs of one node.
const NODE_GPUS: u32 = 8;
/// Batch sizes at which the slowdown by other programs is told.
const BATCHES: [u64; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 192, 256];

/// Engines of every degree that the model fits on.
pub(super) struct Degrees {
    pub(super) degree: Vec<u32>,
    pub(super) profile: Vec<EngineProfile>,
    /// Context of a program at mean, in tokens.
    context_tokens: u64,
}

impl Degrees {
    /// `running_max` of an engine is for each of its GPUs, `context_tokens` the
    /// mean context of a program.
    pub(super) fn of(cell: &Cell, context_tokens: u64) -> Result<Self, HardwareError> {
        let mut degrees = Self {
            degree: Vec::new(),
            profile: Vec::new(),
            context_tokens,
        };
        for degree in DEGREES {
            let assumptions = Assumptions::default();
            match EngineProfile::of(&cell.gpu, &cell.model(), degree, &assumptions) {
                Ok(mut profile) => {
                    profile.stream_interval_tokens = u32::MAX;
                    degrees.degree.push(degree);
                    degrees.profile.push(profile);
                }
                Err(HardwareError::DoesNotFit { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(degrees)
    }

    pub(super) fn profile(&self, degree: u32) -> Option<&EngineProfile> {
        let place = self.degree.iter().position(|each| *each == degree)?;
        Some(&self.profile[place])
    }

    /// Time per token of one program alone at mean context, in microseconds.
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

    /// What `heddle-placement` is told of workers.
    pub(super) fn placement_config(&self) -> String {
        let class = |profile: &EngineProfile| {
            json!({
                "capacity_tokens": profile.kv_tokens(),
                "token_us": self.token_us(profile),
                "interference": self.interference(profile),
            })
        };
        let classes: Vec<Value> = self.profile.iter().map(class).collect();
        json!({ "classes": classes, "objective": "drained", "order": "speed", "kv_bound": 1.0 })
            .to_string()
    }

    /// Workers of each degree, as `heddle-allocation` wants them for programs of
    /// these lengths.
    pub(super) fn allocate(&self, gpus: u32, expected_tokens: &[u64]) -> Vec<u32> {
        let class = |(degree, profile): (&u32, &EngineProfile)| json!({ "degree": degree, "interference": self.interference(profile) });
        let classes: Vec<Value> = self.degree.iter().zip(&self.profile).map(class).collect();
        let config = json!({
            "classes": classes,
            "objective": "drained",
            "seed": 1,
            "prompt_tokens": 0,
        });
        let token_us: Vec<f64> = self.profile.iter().map(|p| self.token_us(p)).collect();
        let capacity_tokens: Vec<u64> = self.profile.iter().map(|p| p.kv_tokens()).collect();
        let columns = ParallelismColumns {
            gpus,
            degree: &self.degree,
            token_us: &token_us,
            capacity_tokens: &capacity_tokens,
            expected_tokens,
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
