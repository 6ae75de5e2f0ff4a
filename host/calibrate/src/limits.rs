//! What the engine holds, and what is measured within that.

use treadle_engine_model::engine::{BLOCK_TOKENS, EngineProfile};
use treadle_model::EngineKind;

use super::args::CalibrateArgs;
use super::client::Target;
use super::error::CalibrateError;
use super::measure::Plan;

/// Shortest prompt that is measured, in tokens.
const PROMPT_TOKENS_MIN: u32 = 32;
/// Sequences at once where the engine does not report it: vLLM's default.
const RUNNING: u32 = 256;
/// Tokens of one iteration where no prompt was cut: llama.cpp's `n_batch`.
const BATCHED_TOKENS_LLAMACPP: u32 = 2_048;
/// The same of vLLM and SGLang on large parts.
const BATCHED_TOKENS: u32 = 8_192;

/// A profile with the engine's limits and no speeds yet.
pub(super) fn blank_profile(
    args: &CalibrateArgs,
    target: &Target,
) -> Result<EngineProfile, CalibrateError> {
    let capacity = target.capacity;
    let kv_tokens = args.kv_tokens.or(capacity.tokens);
    let kv_tokens = kv_tokens.ok_or(CalibrateError::Unknown {
        what: "how many tokens its KV memory holds",
        option: "--kv-tokens",
    })?;
    let is_llamacpp = target.kind == EngineKind::Llamacpp;
    let batched = if is_llamacpp {
        BATCHED_TOKENS_LLAMACPP
    } else {
        BATCHED_TOKENS
    };
    let name = args.name.as_deref().unwrap_or(&target.model);
    let context = capacity.context_tokens_max.unwrap_or(kv_tokens);
    let profile = EngineProfile {
        name: name.to_owned().into(),
        prefill_tokens_per_s: 1,
        decode_base_us: 0,
        decode_per_sequence_us: 0,
        decode_per_kilotoken_context_ns: 0,
        batched_tokens_max: args.batched_tokens_max.unwrap_or(batched),
        running_max: args.running_max.or(capacity.slots).unwrap_or(RUNNING),
        kv_blocks: 1,
        // llama.cpp's caches are shared to the token.
        block_tokens: if is_llamacpp { 1 } else { BLOCK_TOKENS },
        context_limit_tokens: u32::try_from(context).unwrap_or(u32::MAX),
        stream_interval_tokens: 1,
        // No speeds, no overheads and no tables.
        ..EngineProfile::instant()
    };
    Ok(profile.with_kv_tokens(kv_tokens))
}

/// What is measured of an engine with these limits.
pub(super) fn plan(args: &CalibrateArgs, target: &Target, limits: &EngineProfile) -> Plan {
    let output_tokens = args.output_tokens;
    // A prompt is continued once, and a sequence beside one decodes twice as long.
    let spare = 2 * output_tokens.max(PROMPT_TOKENS_MIN) + PROMPT_TOKENS_MIN;
    let room = limits.sequence_limit_tokens().saturating_sub(spare);
    let longest = args.context_max.min(room).max(PROMPT_TOKENS_MIN);
    let mut prompts: Vec<u32> =
        std::iter::successors(Some(PROMPT_TOKENS_MIN), |n| n.checked_mul(2))
            .take_while(|tokens| *tokens < longest)
            .collect();
    prompts.push(longest);
    let batch_slots = args.batch_max.min(limits.running_max);
    let batch_slots = target
        .capacity
        .slots
        .map_or(batch_slots, |slots| batch_slots.min(slots))
        .max(1);
    let mut batches: Vec<u32> = std::iter::successors(Some(1_u32), |n| n.checked_mul(2))
        .take_while(|sequences| *sequences < batch_slots)
        .collect();
    batches.push(batch_slots);
    let half_of_kv = limits.kv_tokens() / 2;
    Plan {
        prompts,
        batches,
        context_tokens_max: longest,
        batch_tokens_max: half_of_kv.min(4 * u64::from(longest)),
        output_tokens,
        repeats: args.repeats,
        slots: target
            .capacity
            .slots
            .filter(|_| target.has_slots())
            .unwrap_or(0),
    }
}
