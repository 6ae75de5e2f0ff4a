//! The profile of a modelled engine: speeds, memory and limits, as plain integers.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Tokens per paged-KV block in every preset.
pub const BLOCK_TOKENS: u32 = 16;

/// Speeds and limits of one modelled engine.
///
/// Presets are modelled figures: arithmetic from the size of the weights and the memory bandwidth
/// of the part, not measurements of a machine. [`of`](Self::of) computes one from a GPU and a
/// model; `treadle calibrate` measures one and writes it as JSON (see
/// [`from_json`](Self::from_json)). There, the fields that no preset needs can be left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineProfile {
    /// Its name: a preset's, or one for what was calibrated.
    pub name: Cow<'static, str>,
    /// Compute-bound speed of prefill, in tokens a second.
    pub prefill_tokens_per_s: u64,
    /// Shortest iteration: the time to read the weights once, in microseconds.
    pub decode_base_us: u64,
    /// Times to read only a part of the weights, for mixtures of experts: below
    /// [`decode_base_us`](Self::decode_base_us), by tokens in the iteration, ascending, with linear
    /// interpolation; beyond the last all weights are read. Empty for dense models.
    #[serde(default)]
    pub weights: Vec<TokensTime>,
    /// Overhead of every iteration (launches, latencies of collective communication), in
    /// microseconds.
    #[serde(default)]
    pub iteration_overhead_us: u64,
    /// Communication time of an iteration's first tokens, by tokens, ascending, with linear
    /// interpolation from zero.
    #[serde(default)]
    pub communication: Vec<TokensTime>,
    /// Additional communication time per token beyond the last of those, in nanoseconds.
    #[serde(default)]
    pub token_overhead_ns: u64,
    /// Additional compute time of a prompt token per 1,024 tokens of context before it (attention),
    /// in picoseconds.
    #[serde(default)]
    pub prefill_per_kilotoken_context_ps: u64,
    /// Additional time of each pass after the first in an iteration, in microseconds. llama.cpp
    /// computes an iteration in several passes: one for each prompt chunk, as chunks differ in
    /// length, and one for each row of neighbouring slots that decode. 0 for engines with a single
    /// pass.
    #[serde(default)]
    pub pass_us: u64,
    /// Time between sending a request and its first iteration on an idle engine, in microseconds:
    /// connection, parsing, queueing. The engine model ignores it: the driver adds it before
    /// [`Engine::submit`](super::Engine::submit). 0 in presets.
    #[serde(default)]
    pub request_overhead_us: u64,
    /// Additional time per decoding sequence in an iteration, in microseconds.
    pub decode_per_sequence_us: u64,
    /// Additional time to read 1,024 tokens of KV of decoding sequences, in nanoseconds.
    pub decode_per_kilotoken_context_ns: u64,
    /// Maximum number of tokens computed in one iteration; longer prompts are split into chunks.
    pub batched_tokens_max: u32,
    /// Maximum number of running sequences.
    pub running_max: u32,
    /// Number of blocks of KV memory.
    pub kv_blocks: u32,
    /// Number of blocks of host memory to which the engine offloads evicted blocks itself; 0 for
    /// none.
    #[serde(default)]
    pub host_blocks: u32,
    /// Speed at which these are loaded, in tokens per second.
    #[serde(default)]
    pub host_tokens_per_s: u64,
    /// Tokens per block.
    pub block_tokens: u32,
    /// Maximum length of prompt plus output, in tokens.
    pub context_limit_tokens: u32,
    /// Tokens per [`Output::Tokens`](super::Output::Tokens); the first token is always reported at
    /// once. With `u32::MAX` no such report is made at all, not even of the rest at the end: only
    /// the first token and the finish are reported.
    pub stream_interval_tokens: u32,
    /// Whether a waiting request that outranks the last running one (strictly more urgent) and has
    /// no slot or no memory preempts it, as SGLang's priority scheduling does with preemption on
    /// (Heddle §4.2, Algorithm 1). The preempted one leaves its computed blocks in the prefix cache
    /// and waits at its position in the order. Off, priority orders the waiting queue only, as in
    /// vLLM: there a running request is preempted only for a lack of memory.
    #[serde(default)]
    pub preempt_by_priority: bool,
}

/// A time that depends on the number of tokens in an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokensTime {
    /// Tokens in the iteration.
    pub tokens: u64,
    /// Time, in nanoseconds.
    pub ns: u64,
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
            decode_base_us: 25_000,
            decode_per_sequence_us: 40,
            decode_per_kilotoken_context_ns: 80_000,
            batched_tokens_max: 8_192,
            running_max: 256,
            kv_blocks: 8_192,
            host_blocks: 0,
            host_tokens_per_s: 0,
            block_tokens: BLOCK_TOKENS,
            context_limit_tokens: 131_072,
            stream_interval_tokens: 1,
            weights: Vec::new(),
            iteration_overhead_us: 0,
            communication: Vec::new(),
            token_overhead_ns: 0,
            prefill_per_kilotoken_context_ps: 0,
            pass_us: 0,
            request_overhead_us: 0,
            preempt_by_priority: false,
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

    /// An engine whose iterations all take one microsecond, for tests of other parts.
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

    /// The preset with that name, or `None`.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "glm-4.6-8xh100" => Some(Self::glm46_8xh100()),
            "qwen3-32b-h100" => Some(Self::qwen3_32b_h100()),
            "qwen3-8b-h100" => Some(Self::qwen3_8b_h100()),
            "instant" => Some(Self::instant()),
            _ => None,
        }
    }

    /// This profile with KV memory for `tokens`, rounded down to whole blocks, at least one.
    #[must_use]
    pub fn with_kv_tokens(mut self, tokens: u64) -> Self {
        let blocks = (tokens / u64::from(self.block_tokens)).clamp(1, u64::from(u32::MAX - 1));
        self.kv_blocks = blocks as u32;
        self
    }

    /// This profile with host memory for `tokens` of KV, loaded back at `tokens_per_s`.
    #[must_use]
    pub fn with_host_tokens(mut self, tokens: u64, tokens_per_s: u64) -> Self {
        let blocks = (tokens / u64::from(self.block_tokens)).min(u64::from(u32::MAX - 1));
        self.host_blocks = blocks as u32;
        self.host_tokens_per_s = tokens_per_s;
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
    /// counts; reading the KV of the decoding sequences, their bookkeeping, communication and
    /// launches come on top.
    pub fn iteration_us(&self, load: IterationLoad) -> u64 {
        self.with_context_us(self.without_context_ns(load), load.decode_context_tokens)
    }

    /// Duration of an iteration without the context of its decoding sequences, in nanoseconds.
    pub(super) fn without_context_ns(&self, load: IterationLoad) -> u64 {
        let tokens = load.prefill_tokens + load.decode_sequences;
        let linear_ns = (tokens * 1_000_000_000).div_ceil(self.prefill_tokens_per_s.max(1));
        let attention_ns =
            load.prefill_context_tokens * self.prefill_per_kilotoken_context_ps / 1_024_000;
        let sequences_ns = load.decode_sequences * self.decode_per_sequence_us * 1_000;
        (linear_ns + attention_ns).max(self.weights_ns(tokens))
            + sequences_ns
            + self.iteration_overhead_us * 1_000
            + load.passes_milli.saturating_sub(1_000) * self.pass_us
            + self.communication_ns(tokens)
    }

    /// The whole duration of an iteration, in microseconds.
    #[inline]
    pub(super) fn with_context_us(&self, without_ns: u64, decode_context_tokens: u64) -> u64 {
        let context_ns = decode_context_tokens * self.decode_per_kilotoken_context_ns / 1_024;
        (without_ns + context_ns).div_ceil(1_000).max(1)
    }

    /// Time to read the weights for this many tokens, in nanoseconds.
    fn weights_ns(&self, tokens: u64) -> u64 {
        let all_ns = self.decode_base_us * 1_000;
        on_line(&self.weights, tokens).map_or(all_ns, |ns| ns.min(all_ns))
    }

    /// Number of passes for decoding sequences, in thousandths: the average number of rows of
    /// neighbours that this many slots form. The model does not know which slots they use.
    pub(super) fn decode_passes_milli(&self, sequences: u64) -> u64 {
        let slots = u64::from(self.running_max).max(sequences).max(1);
        1_000 * sequences * (slots + 1 - sequences) / slots
    }

    fn communication_ns(&self, tokens: u64) -> u64 {
        on_line(&self.communication, tokens).unwrap_or_else(|| {
            let last = self.communication.last();
            let (first, ns) = last.map_or((0, 0), |last| (last.tokens, last.ns));
            ns + (tokens - first) * self.token_overhead_ns
        })
    }

    /// Time per token of a sequence that runs by itself, and the additional time of each further one up
    /// to `batch`, all with the same context; in microseconds.
    pub fn decode_line_us(&self, context_tokens: u64, batch: u64) -> (u64, u64) {
        let iteration_us = |sequences: u64| {
            self.iteration_us(IterationLoad {
                decode_sequences: sequences,
                decode_context_tokens: context_tokens * sequences,
                passes_milli: self.decode_passes_milli(sequences),
                ..IterationLoad::default()
            })
        };
        let further = batch.min(u64::from(self.running_max)).saturating_sub(1);
        let alone_us = iteration_us(1);
        let further_us = (iteration_us(further + 1) - alone_us) / further.max(1);
        (alone_us, further_us)
    }

    /// Speed of computing a prompt of this length (or the engine's maximum), in tokens per second.
    pub fn prompt_tokens_per_s(&self, tokens: u64) -> u64 {
        let limit = u64::from(self.sequence_limit_tokens()).saturating_sub(1);
        let tokens = tokens.min(limit).max(1);
        let us = self.ideal_step_us(tokens, 1, tokens, 1);
        tokens * 1_000_000 / us.max(1)
    }

    /// Time of an undisturbed step, in microseconds: `uncached_tokens` of prefill, then
    /// `output_tokens` decoded in a batch of `batch` sequences with `context_tokens` each. Without
    /// the request's overhead.
    pub fn ideal_step_us(
        &self,
        uncached_tokens: u64,
        output_tokens: u64,
        context_tokens: u64,
        batch: u64,
    ) -> u64 {
        let budget = u64::from(self.batched_tokens_max.max(1));
        let uncached_tokens = uncached_tokens.max(1);
        let mut from = context_tokens.saturating_sub(uncached_tokens);
        let mut rest = uncached_tokens;
        let mut prefill_us = 0;
        while rest > 0 {
            let prefill_tokens = rest.min(budget);
            let mut load = IterationLoad::default();
            load.add_chunk(from, prefill_tokens);
            prefill_us += self.iteration_us(load);
            from += prefill_tokens;
            rest -= prefill_tokens;
        }
        let decode_us = self.iteration_us(IterationLoad {
            decode_sequences: batch,
            decode_context_tokens: context_tokens * batch,
            passes_milli: self.decode_passes_milli(batch),
            ..IterationLoad::default()
        });
        prefill_us + output_tokens.saturating_sub(1) * decode_us
    }
}

/// Linear interpolation between the origin and these points; `None` beyond the last.
fn on_line(points: &[TokensTime], tokens: u64) -> Option<u64> {
    let place = points.partition_point(|each| each.tokens < tokens);
    let after = points.get(place)?;
    let before = place.checked_sub(1).map(|index| points[index]);
    let (first, ns) = before.map_or((0, 0), |before| (before.tokens, before.ns));
    let rise_ns = after.ns.saturating_sub(ns);
    let width = (after.tokens - first).max(1);
    Some(ns + rise_ns * (tokens - first) / width)
}

/// What one iteration computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IterationLoad {
    /// Prompt tokens computed, all chunks together.
    pub prefill_tokens: u64,
    /// Sequences that decode one token each.
    pub decode_sequences: u64,
    /// KV tokens that those sequences read.
    pub decode_context_tokens: u64,
    /// Sum over all chunks of their tokens times the tokens before their middle.
    pub prefill_context_tokens: u64,
    /// Number of passes of an engine with several (see [`EngineProfile::pass_us`]), in thousandths.
    pub passes_milli: u64,
}

impl IterationLoad {
    /// Adds a chunk of `tokens` of a prompt that follow `before` others.
    pub fn add_chunk(&mut self, before: u64, tokens: u64) {
        self.prefill_tokens += tokens;
        self.prefill_context_tokens += tokens * (before + tokens / 2);
        self.passes_milli += 1_000;
    }
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
    fn a_line_through_decode_times_is_what_iterations_take() {
        let profile = EngineProfile::qwen3_32b_h100();
        let us = |decode_sequences| {
            profile.iteration_us(IterationLoad {
                decode_sequences,
                decode_context_tokens: decode_sequences * 4_096,
                ..IterationLoad::default()
            })
        };
        let (alone, further) = profile.decode_line_us(4_096, 16);
        assert_eq!(alone, us(1));
        assert!(us(16).abs_diff(alone + 15 * further) < 16, "{further}");
        let one = EngineProfile {
            running_max: 1,
            ..EngineProfile::qwen3_32b_h100()
        };
        assert_eq!(one.decode_line_us(4_096, 16), (alone, 0));
        let speed = profile.prompt_tokens_per_s(8_192);
        let most = profile.prefill_tokens_per_s;
        assert!((most * 3 / 4..=most).contains(&speed), "{speed} of {most}");
    }

    #[test]
    fn every_listed_name_has_its_preset() {
        for name in EngineProfile::NAMES {
            assert_eq!(
                EngineProfile::named(name).map(|p| p.name),
                Some(name.into())
            );
        }
        assert_eq!(EngineProfile::named("gpt-9"), None);
    }

    #[test]
    fn attention_grows_with_the_square_of_a_prompt_however_it_is_cut() {
        let load = |chunks: &[u64]| {
            let (mut load, mut before) = (IterationLoad::default(), 0);
            for tokens in chunks {
                load.add_chunk(before, *tokens);
                before += tokens;
            }
            load.prefill_context_tokens
        };
        assert_eq!(load(&[4_096]), 4_096 * 2_048);
        assert_eq!(load(&[4_096]), load(&[1_024, 3_072]));
    }

    #[test]
    fn passes_count_where_they_cost() {
        let profile = EngineProfile {
            pass_us: 900,
            running_max: 4,
            ..EngineProfile::qwen3_32b_h100()
        };
        let us = |chunks, decode_sequences| {
            let mut load = IterationLoad {
                decode_sequences,
                passes_milli: profile.decode_passes_milli(decode_sequences),
                ..IterationLoad::default()
            };
            for _ in 0..chunks {
                load.add_chunk(0, 10);
            }
            profile.iteration_us(load) - EngineProfile::qwen3_32b_h100().iteration_us(load)
        };
        assert_eq!([us(1, 0), us(0, 1), us(0, 4), us(2, 0)], [0, 0, 0, 900]);
        assert_eq!([us(1, 1), us(2, 4)], [900, 1_800]);
        // Of the six ways to use two of four slots, three have them side by side.
        assert_eq!([us(0, 2), us(0, 3)], [450, 450]);
    }

    #[test]
    fn instant_iterations_take_a_microsecond() {
        let load = IterationLoad {
            prefill_tokens: 8_192,
            decode_sequences: 64,
            decode_context_tokens: 1 << 20,
            prefill_context_tokens: 1 << 25,
            passes_milli: 5_000,
        };
        assert_eq!(EngineProfile::instant().iteration_us(load), 1);
    }
}
