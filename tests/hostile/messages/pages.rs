//! Pages of engines: models, metrics, and the properties of llama.cpp and SGLang.

use treadle_model::TOKENS_MAX;
use treadle_wire::engines::{llama_cpp, prometheus, sglang, vllm};
use treadle_wire::{EngineReading, models_of};

use super::{Target, ensure};

pub(super) const TARGET: Target = Target {
    name: "pages",
    words: &[
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b"\"",
        b"\\\"",
        b"\\",
        b"\n",
        b"# ",
        b" 1e300",
        b" NaN",
        b" -1",
        b" 18446744073709551615",
        b"null",
        b"\"max_model_len\":",
        b"\"n_ctx\":",
        b"\"id\":",
        b"vllm:kv_cache_usage_perc",
        b"vllm:cache_config_info{num_gpu_blocks=\"9\"} 1",
        b"sglang:token_usage",
        b"llamacpp:",
        b"\"data\":[",
        b"\"max_total_num_tokens\":",
    ],
    check,
    accepts,
};

fn accepts(page: &[u8]) -> bool {
    let text = String::from_utf8_lossy(page);
    let readings = [
        llama_cpp::reading_of_props(page).unwrap_or_default(),
        llama_cpp::reading_of_slots(page).unwrap_or_default(),
        sglang::reading_of_server_info(page).unwrap_or_default(),
        llama_cpp::reading_of_metrics(&text),
        sglang::reading_of_metrics(&text),
        vllm::reading_of_metrics(&text),
    ];
    let reads = |reading: &EngineReading| *reading != EngineReading::default();
    readings.iter().any(reads) || !models_of(page).is_empty()
}

fn check(page: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(page);
    let readings = [
        llama_cpp::reading_of_props(page),
        llama_cpp::reading_of_slots(page),
        sglang::reading_of_server_info(page),
        Some(llama_cpp::reading_of_metrics(&text)),
        Some(sglang::reading_of_metrics(&text)),
        Some(vllm::reading_of_metrics(&text)),
    ];
    readings.into_iter().flatten().try_for_each(plausible)?;
    for model in models_of(page) {
        ensure(
            model.context_tokens_max.is_none_or(|t| t <= TOKENS_MAX),
            || format!("an absurd model: {model:?}"),
        )?;
    }
    llama_cpp::slots_of(page);
    // A line that is cut off is no sample of another metric.
    let whole = prometheus::samples(&text, "vllm:kv_cache_usage_perc").count();
    let lines = text
        .lines()
        .filter(|line| line.contains("vllm:kv_cache_usage_perc"));
    ensure(whole <= lines.count(), || {
        "more samples than lines".to_owned()
    })
}

fn plausible(reading: EngineReading) -> Result<(), String> {
    let tokens = [
        reading.capacity_tokens,
        reading.context_tokens_max,
        reading.used_tokens,
    ];
    let most = tokens.into_iter().flatten().max();
    ensure(most.is_none_or(|most| most <= TOKENS_MAX), || {
        format!("an absurd reading: {reading:?}")
    })
}
