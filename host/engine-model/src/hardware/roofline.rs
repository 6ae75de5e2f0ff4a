//! Computes an engine's profile from hardware and model: a roofline with inefficiencies.

use std::borrow::Cow;

use super::{Gpu, LanguageModel};
use crate::engine::{EngineProfile, TokensTime};

/// Modelled degrees of tensor parallelism, in GPUs of one node.
pub const DEGREES: [u32; 4] = [1, 2, 4, 8];

/// Message sizes with a given all-reduce time, in bytes.
pub const MESSAGES_BYTES: [u64; 3] = [32_768, 262_144, 1_048_576];

/// Inefficiencies of the hardware, and settings of engines. All are integers; their sources are in
/// `docs/simulation-parameters.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assumptions {
    /// Share of the peak that matrix products reach, in percent.
    pub compute_percent: u64,
    /// Share of the memory bandwidth that reading weights and KV reaches, in percent.
    pub memory_percent: u64,
    /// Share of one direction of NVLink that collectives reach, in percent.
    pub nvlink_percent: u64,
    /// Time of an all-reduce of [`MESSAGES_BYTES`] at degrees 1, 2, 4 and 8, in nanoseconds. The
    /// first is taken as the latency; beyond the last, bandwidth counts.
    pub all_reduce_ns: [[u64; 3]; 4],
    /// Time of a layer besides matrix products and attention (norms, rotations, activations, gaps
    /// between kernels), in nanoseconds.
    pub layer_overhead_ns: u64,
    /// Time of an iteration besides its layers (scheduling, sampling), in microseconds.
    pub iteration_overhead_us: u64,
    /// Additional time per decoding sequence (sampling, bookkeeping), in microseconds.
    pub sequence_overhead_us: u64,
    /// Share of GPU memory that the engine uses, in percent.
    pub memory_used_percent: u64,
    /// Part of that memory used for activations and captured graphs on each GPU, in bytes.
    pub reserve_bytes: u64,
    /// Maximum number of tokens computed in one iteration.
    pub batched_tokens_max: u32,
    /// Maximum number of running sequences.
    pub running_max: u32,
    /// Tokens per block of KV, the granularity of the simulated prefix cache.
    pub block_tokens: u32,
    /// Maximum length of prompt plus output, in tokens.
    pub context_limit_tokens: u32,
}

impl Default for Assumptions {
    fn default() -> Self {
        Self {
            compute_percent: 50,
            memory_percent: 80,
            nvlink_percent: 80,
            all_reduce_ns: [
                [0, 0, 0],
                [4_500, 7_900, 19_900],
                [4_800, 13_900, 31_100],
                [7_800, 16_700, 33_800],
            ],
            layer_overhead_ns: 55_000,
            iteration_overhead_us: 500,
            sequence_overhead_us: 5,
            memory_used_percent: 90,
            reserve_bytes: 4_000_000_000,
            batched_tokens_max: 8_192,
            running_max: 256,
            block_tokens: 64,
            context_limit_tokens: 131_072,
        }
    }
}

/// Why a profile can't be computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HardwareError {
    /// The degree is not modelled.
    #[error("tensor-parallel degree {0}: use 1, 2, 4 or 8")]
    Degree(u32),
    /// There is no room for weights and one block.
    #[error("{model} does not fit on {degree} x {gpu}: use a higher degree or a larger GPU")]
    DoesNotFit {
        /// The model.
        model: &'static str,
        /// The GPU.
        gpu: &'static str,
        /// Number of GPUs.
        degree: u32,
    },
}

impl EngineProfile {
    /// An engine that runs `model` on `degree` GPUs of one node, split by tensor parallelism.
    ///
    /// Weights, compute and KV are divided by the degree; KV at most by the number of KV heads,
    /// beyond which they are replicated. The other time of a layer is not divided. Two all-reduces
    /// per layer are added, of one vector per token: with measured times for small messages, and
    /// for larger ones `2 (degree - 1) / degree` times their size over one direction of NVLink.
    pub fn of(
        gpu: &Gpu,
        model: &LanguageModel,
        degree: u32,
        assumptions: &Assumptions,
    ) -> Result<Self, HardwareError> {
        let place = DEGREES.iter().position(|each| *each == degree);
        let place = place.ok_or(HardwareError::Degree(degree))?;
        let split = Split {
            gpu,
            model,
            degree: f64::from(degree),
            assumptions,
        };
        let all_reduces = 2 * model.layers;
        let overhead_ns = assumptions.layer_overhead_ns * model.layers
            + assumptions.all_reduce_ns[place][0] * all_reduces;
        let profile = Self {
            name: Cow::Owned(format!(
                "{}-{degree}x{}",
                model.name,
                gpu.name.to_lowercase()
            )),
            prefill_tokens_per_s: split.tokens_per_s() as u64,
            decode_base_us: split.weights_ns(u64::MAX).div_ceil(1_000),
            weights: split.weights(),
            iteration_overhead_us: assumptions.iteration_overhead_us + overhead_ns.div_ceil(1_000),
            communication: split.communication(assumptions.all_reduce_ns[place], all_reduces),
            token_overhead_ns: split.communication_ns(all_reduces),
            prefill_per_kilotoken_context_ps: split.attention_ps(),
            pass_us: 0,
            request_overhead_us: 0,
            decode_per_sequence_us: assumptions.sequence_overhead_us,
            decode_per_kilotoken_context_ns: split.context_ns(),
            batched_tokens_max: assumptions.batched_tokens_max,
            running_max: assumptions.running_max,
            kv_blocks: 1,
            host_blocks: 0,
            host_tokens_per_s: 0,
            block_tokens: assumptions.block_tokens,
            context_limit_tokens: assumptions.context_limit_tokens,
            stream_interval_tokens: 1,
            preempt_by_priority: false,
        };
        let kv_tokens = split.kv_tokens();
        if kv_tokens < u64::from(assumptions.block_tokens) {
            return Err(HardwareError::DoesNotFit {
                model: model.name,
                gpu: gpu.name,
                degree,
            });
        }
        Ok(profile.with_kv_tokens(kv_tokens))
    }
}

/// A model on several GPUs. Its arithmetic consists of sums, products and quotients, rounded at the
/// end, so it is the same on every machine.
struct Split<'a> {
    gpu: &'a Gpu,
    model: &'a LanguageModel,
    degree: f64,
    assumptions: &'a Assumptions,
}

impl Split<'_> {
    /// Compute of all GPUs together, in floating-point operations per second.
    fn flops(&self) -> f64 {
        let share = self.assumptions.compute_percent as f64 / 100.0;
        self.gpu.bf16_gflops as f64 * 1e9 * share * self.degree
    }

    /// Memory bandwidth of one GPU, in bytes per nanosecond.
    fn memory_bytes_per_ns(&self) -> f64 {
        let share = self.assumptions.memory_percent as f64 / 100.0;
        self.gpu.memory_bytes_per_s as f64 * share / 1e9
    }

    /// Number of GPUs that KV is divided over.
    fn kv_split(&self) -> f64 {
        self.degree.min(self.model.kv_heads as f64)
    }

    fn tokens_per_s(&self) -> f64 {
        let multiplied = self.model.active_parameters - self.model.embedding_parameters();
        self.flops() / (2.0 * multiplied as f64)
    }

    fn weights_ns(&self, tokens: u64) -> u64 {
        let bytes = self.model.weights_read_bytes(tokens) / self.degree;
        (bytes / self.memory_bytes_per_ns()) as u64
    }

    /// Points at powers of two, until the next would read all but a hundredth of the weights.
    fn weights(&self) -> Vec<TokensTime> {
        if self.model.experts.is_none() {
            return Vec::new();
        }
        let all_ns = self.weights_ns(u64::MAX);
        let times = (0..16).map(|power| TokensTime {
            tokens: 1 << power,
            ns: self.weights_ns(1 << power),
        });
        times
            .take_while(|time| time.ns < all_ns / 100 * 99)
            .collect()
    }

    /// Scores and values: four operations for every pair of a query's dimension and a token before
    /// it.
    fn attention_ps(&self) -> u64 {
        let width = self.model.layers * self.model.heads * self.model.head_dim;
        (4.0 * width as f64 * 1_024.0 / self.flops() * 1e12) as u64
    }

    fn context_ns(&self) -> u64 {
        let bytes = self.model.kv_bytes_per_token() as f64 * 1_024.0 / self.kv_split();
        (bytes / self.memory_bytes_per_ns()) as u64
    }

    /// Measured times without the latency, which every iteration has anyway.
    fn communication(&self, times_ns: [u64; 3], all_reduces: u64) -> Vec<TokensTime> {
        if self.degree <= 1.0 {
            return Vec::new();
        }
        let [latency_ns, measured @ ..] = times_ns;
        let [_, messages @ ..] = MESSAGES_BYTES;
        let point = |(bytes, ns): (u64, u64)| TokensTime {
            tokens: bytes / (self.model.hidden * 2),
            ns: (ns - latency_ns) * all_reduces,
        };
        messages.into_iter().zip(measured).map(point).collect()
    }

    fn communication_ns(&self, all_reduces: u64) -> u64 {
        let share = self.assumptions.nvlink_percent as f64 / 100.0;
        let one_way = self.gpu.nvlink_bytes_per_s as f64 / 2.0 * share / 1e9;
        let passes = 2.0 * (self.degree - 1.0) / self.degree;
        let vector_bytes = self.model.hidden as f64 * 2.0;
        (all_reduces as f64 * passes * vector_bytes / one_way) as u64
    }

    fn kv_tokens(&self) -> u64 {
        let used = self.assumptions.memory_used_percent as f64 / 100.0;
        let weights = (self.model.parameters * self.model.weight_bytes) as f64 / self.degree;
        let reserve = self.assumptions.reserve_bytes as f64;
        let left = self.gpu.memory_bytes as f64 * used - weights - reserve;
        let tokens = left.max(0.0) * self.kv_split() / self.model.kv_bytes_per_token() as f64;
        tokens as u64
    }
}
