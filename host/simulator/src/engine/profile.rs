//! What the modelled engine can do: speeds, memory and limits, as plain integers.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Tokens per paged-KV block in every preset.
pub const BLOCK_TOKENS: u32 = 16;

/// Speeds and limits of one modelled engine.
///
/// Presets are modelled figures: arithmetic from the size of the weights and the memory bandwidth
/// of the part, not measurements of a machine. `treadle calibrate` measures one and writes it as
/// JSON (see [`from_json`](Self::from_json)).
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct EngineProfile {
    /// The preset's name, or what a measured engine was called.
    pub name: Cow<'static, str>,
    /// Compute-bound speed of prefill, in tokens a second.
    pub prefill_tokens_per_s: u64,
    /// What one prompt token adds for each 1,024 tokens before it, in nanoseconds: the part of
    /// attention that grows with the square of a prompt. 0 in presets, whose rate of prefill is
    /// that of their usual contexts.
    #[serde(default)]
    pub prefill_per_kilotoken_context_ns: u64,
    /// Shortest iteration: the time to read the weights once, in microseconds.
    pub decode_base_us: u64,
    /// What one decoding sequence adds to an iteration, in microseconds.
    pub decode_per_sequence_us: u64,
    /// What reading 1,024 tokens of KV of decoding sequences adds, in nanoseconds.
    pub decode_per_kilotoken_context_ns: u64,
    /// What a request adds to the iteration that it joins, in microseconds: setting up its seat,
    /// while everybody else waits. 0 in presets.
    #[serde(default)]
    pub admission_us: u64,
    /// What every iteration takes besides, whatever it computes, in microseconds: scheduling,
    /// launching, sampling. 0 in presets, whose shortest iteration has it.
    #[serde(default)]
    pub iteration_overhead_us: u64,
    /// Time between a request's sending and its first iteration on an idle engine, in
    /// microseconds: connection, parsing, queueing. The engine model does not know it: who drives
    /// one adds it before [`Engine::submit`](super::Engine::submit). 0 in presets.
    #[serde(default)]
    pub request_overhead_us: u64,
    /// Tokens that one iteration computes at most; longer prompts are cut into chunks.
    pub batched_tokens_max: u32,
    /// Sequences that run at once at most.
    pub running_max: u32,
    /// Blocks of KV memory.
    pub kv_blocks: u32,
    /// Tokens per block.
    pub block_tokens: u32,
    /// Longest prompt plus output, in tokens.
    pub context_limit_tokens: u32,
    /// Tokens per [`Output::Tokens`](super::Output::Tokens); the first token is always reported at
    /// once.
    pub stream_interval_tokens: u32,
}

impl EngineProfile {
    /// Names that [`named`](Self::named) knows.
    pub const NAMES: [&'static str; 4] = [
        "glm-4.6-8xh100",
        "qwen3-32b-h100",
        "qwen3-8b-h100",
        "instant",
    ];

    /// GLM-4.6 (355B parameters, 32B of them active) in FP8 on a node of eight H100: the setting of
    /// ThunderAgent's evaluation (§5.1).
    ///
    /// 32B active parameters make 64 GFLOP a token; at a fifth of the node's peak with chunked
    /// prefill of long contexts that is 15,000 tok/s. KV is 368 KiB a token, read at 8 x 3.35 TB/s,
    /// 14 us per kilotoken. Eight times 80 GB less the weights and a reserve leave 700,000 tokens.
    pub fn glm46_8xh100() -> Self {
        Self {
            name: Cow::Borrowed("glm-4.6-8xh100"),
            prefill_tokens_per_s: 15_000,
            decode_base_us: 22_000,
            decode_per_sequence_us: 60,
            decode_per_kilotoken_context_ns: 14_000,
            kv_blocks: 43_750,
            ..Self::qwen3_32b_h100()
        }
    }

    /// A 32B dense model in bf16 on one H100-class part.
    ///
    /// 64 GB of weights at 3.35 TB/s and launch overhead make 25 ms; 9,000 tok/s of prefill brings
    /// 26K tokens back in 2.9 s; 256 KiB of KV a token read at the same bandwidth is 80 us per
    /// kilotoken. The 131,072 tokens of KV are what is left of 96 GB: set your own with
    /// [`with_kv_tokens`](Self::with_kv_tokens).
    pub fn qwen3_32b_h100() -> Self {
        Self {
            name: Cow::Borrowed("qwen3-32b-h100"),
            prefill_tokens_per_s: 9_000,
            prefill_per_kilotoken_context_ns: 0,
            decode_base_us: 25_000,
            decode_per_sequence_us: 40,
            decode_per_kilotoken_context_ns: 80_000,
            admission_us: 0,
            iteration_overhead_us: 0,
            request_overhead_us: 0,
            batched_tokens_max: 8_192,
            running_max: 256,
            kv_blocks: 8_192,
            block_tokens: BLOCK_TOKENS,
            context_limit_tokens: 131_072,
            stream_interval_tokens: 1,
        }
    }

    /// An 8B dense model in bf16 on one H100-class part: 16 GB of weights, 144 KiB of KV a token.
    pub fn qwen3_8b_h100() -> Self {
        Self {
            name: Cow::Borrowed("qwen3-8b-h100"),
            prefill_tokens_per_s: 32_000,
            decode_base_us: 7_500,
            decode_per_sequence_us: 30,
            decode_per_kilotoken_context_ns: 45_000,
            kv_blocks: 22_528,
            ..Self::qwen3_32b_h100()
        }
    }

    /// An engine whose iterations all take one microsecond: for tests of what surrounds it.
    pub fn instant() -> Self {
        Self {
            name: Cow::Borrowed("instant"),
            prefill_tokens_per_s: u64::MAX,
            decode_base_us: 0,
            decode_per_sequence_us: 0,
            decode_per_kilotoken_context_ns: 0,
            ..Self::qwen3_32b_h100()
        }
    }

    /// The preset of that name, or `None`.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "glm-4.6-8xh100" => Some(Self::glm46_8xh100()),
            "qwen3-32b-h100" => Some(Self::qwen3_32b_h100()),
            "qwen3-8b-h100" => Some(Self::qwen3_8b_h100()),
            "instant" => Some(Self::instant()),
            _ => None,
        }
    }

    /// The same engine with room for `tokens` of KV, rounded down to whole blocks, at least one.
    #[must_use]
    pub fn with_kv_tokens(mut self, tokens: u64) -> Self {
        let blocks = (tokens / u64::from(self.block_tokens)).clamp(1, u64::from(u32::MAX - 1));
        self.kv_blocks = blocks as u32;
        self
    }

    /// KV memory in tokens.
    pub fn kv_tokens(&self) -> u64 {
        u64::from(self.kv_blocks) * u64::from(self.block_tokens)
    }

    /// The longest prompt plus output that the engine accepts: its context limit, or its whole
    /// memory where that is smaller, in tokens.
    pub fn sequence_limit_tokens(&self) -> u32 {
        let memory = self.kv_tokens().min(u64::from(u32::MAX)) as u32;
        self.context_limit_tokens.min(memory)
    }

    /// Duration of one iteration in microseconds, at least one.
    ///
    /// A roofline: reading the weights and computing the tokens overlap, so the longer of the two
    /// counts; reading the KV of the decoding sequences and bookkeeping come on top.
    pub fn iteration_us(&self, load: IterationLoad) -> u64 {
        let tokens = load.prefill_tokens + load.decode_sequences;
        let compute_ns = (tokens * 1_000_000_000).div_ceil(self.prefill_tokens_per_s.max(1))
            + self.attention_ns(load.prefill_context_tokens);
        let context_ns = load.decode_context_tokens * self.decode_per_kilotoken_context_ns / 1_024;
        let sequences_ns = load.decode_sequences * self.decode_per_sequence_us * 1_000;
        let total_ns = compute_ns.max(self.decode_base_us * 1_000)
            + (self.iteration_overhead_us + load.admissions * self.admission_us) * 1_000
            + context_ns
            + sequences_ns;
        total_ns.div_ceil(1_000).max(1)
    }

    /// Nanoseconds of attention of prompt tokens that have so many tokens before them, added up.
    fn attention_ns(&self, prefill_context_tokens: u64) -> u64 {
        prefill_context_tokens.saturating_mul(self.prefill_per_kilotoken_context_ns) / 1_024
    }

    /// Time for a step that nothing else disturbs, in microseconds: `uncached_tokens` of prefill,
    /// then `output_tokens` decoded in a batch of `batch` sequences that each hold
    /// `context_tokens`. The request's overhead is not in it.
    pub fn ideal_step_us(
        &self,
        uncached_tokens: u64,
        output_tokens: u64,
        context_tokens: u64,
        batch: u64,
    ) -> u64 {
        let budget = u64::from(self.batched_tokens_max.max(1));
        let uncached_tokens = uncached_tokens.max(1);
        let chunk = |prefill_tokens| {
            let load = IterationLoad {
                prefill_tokens,
                ..IterationLoad::default()
            };
            self.iteration_us(load)
        };
        let rest = uncached_tokens % budget;
        let prefill_us =
            uncached_tokens / budget * chunk(budget) + if rest > 0 { chunk(rest) } else { 0 };
        let before = context_tokens.saturating_sub(uncached_tokens);
        let attention_ns = self.attention_ns(tokens_before(before, uncached_tokens));
        let decode_us = self.iteration_us(IterationLoad {
            decode_sequences: batch,
            decode_context_tokens: context_tokens * batch,
            ..IterationLoad::default()
        });
        self.admission_us
            + prefill_us
            + attention_ns / 1_000
            + output_tokens.saturating_sub(1) * decode_us
    }
}

/// What one iteration computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IterationLoad {
    /// Prompt tokens computed, all chunks together.
    pub prefill_tokens: u64,
    /// Tokens that stand before each of those in its sequence, added up ([`tokens_before`]).
    pub prefill_context_tokens: u64,
    /// Sequences that decode one token each.
    pub decode_sequences: u64,
    /// KV tokens that those sequences read.
    pub decode_context_tokens: u64,
    /// Requests that join with it.
    pub admissions: u64,
}

/// For `count` tokens that follow `before` others: how many stand before each, added up.
pub fn tokens_before(before: u64, count: u64) -> u64 {
    count * before + count * count.saturating_sub(1) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bringing_back_26k_tokens_takes_2_9_seconds() {
        let us = EngineProfile::qwen3_32b_h100().ideal_step_us(26_000, 1, 26_000, 1);
        assert!((2_850_000..2_950_000).contains(&us), "{us}");
    }

    #[test]
    fn a_lone_decode_step_takes_the_time_to_read_the_weights_and_its_context() {
        let load = IterationLoad {
            decode_sequences: 1,
            decode_context_tokens: 10_240,
            ..IterationLoad::default()
        };
        assert_eq!(
            EngineProfile::qwen3_32b_h100().iteration_us(load),
            25_000 + 800 + 40
        );
    }

    #[test]
    fn every_listed_name_has_its_preset() {
        for name in EngineProfile::NAMES {
            assert_eq!(
                EngineProfile::named(name).map(|p| p.name).as_deref(),
                Some(name)
            );
        }
        assert_eq!(EngineProfile::named("gpt-9"), None);
    }

    #[test]
    fn attention_grows_with_the_square_of_a_prompt_however_it_is_cut() {
        assert_eq!(tokens_before(0, 4), 1 + 2 + 3);
        assert_eq!(tokens_before(10, 3), 10 + 11 + 12);
        let halves = tokens_before(0, 2_048) + tokens_before(2_048, 2_048);
        assert_eq!(tokens_before(0, 4_096), halves);
        let profile = EngineProfile {
            prefill_per_kilotoken_context_ns: 2_000,
            ..EngineProfile::qwen3_32b_h100()
        };
        let load = IterationLoad {
            prefill_tokens: 4_096,
            prefill_context_tokens: tokens_before(0, 4_096),
            ..IterationLoad::default()
        };
        let linear = EngineProfile::qwen3_32b_h100().iteration_us(load);
        // 4,096 tokens with 2,047.5 before each on average, at 2 us a kilotoken.
        let square = (4_096 * 4_095 / 2 * 2_000_u64 / 1_024).div_ceil(1_000);
        assert!(profile.iteration_us(load).abs_diff(linear + square) <= 1);
    }

    #[test]
    fn a_request_that_joins_holds_everybody_up() {
        let profile = EngineProfile {
            admission_us: 900,
            ..EngineProfile::qwen3_32b_h100()
        };
        let load = |admissions| IterationLoad {
            decode_sequences: 4,
            admissions,
            ..IterationLoad::default()
        };
        let more = profile.iteration_us(load(2)) - profile.iteration_us(load(0));
        assert_eq!(more, 1_800);
    }

    #[test]
    fn instant_iterations_take_a_microsecond() {
        let load = IterationLoad {
            prefill_tokens: 8_192,
            prefill_context_tokens: 1 << 25,
            decode_sequences: 64,
            decode_context_tokens: 1 << 20,
            admissions: 3,
        };
        assert_eq!(EngineProfile::instant().iteration_us(load), 1);
    }
}
