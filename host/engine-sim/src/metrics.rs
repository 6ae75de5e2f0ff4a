//! The engine's metrics in Prometheus format: vLLM's, and a few of its own.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use treadle_engine_model::engine::{Counters, EngineProfile, EngineSnapshot};

use super::Shared;
use super::shape::End;

/// KV memory of a token, approximately that of `GLM-4.6`.
const KIB_PER_TOKEN: f64 = 368.0;
const KIB_PER_GIB: f64 = 1_048_576.0;

/// Totals counted outside the model.
#[derive(Default)]
pub(super) struct Totals {
    length: AtomicU64,
    stop: AtomicU64,
    abort: AtomicU64,
    instant_prompt_tokens: AtomicU64,
    instant_output_tokens: AtomicU64,
}

impl Totals {
    pub(super) fn count(&self, end: End) {
        let counter = match end {
            End::Length => &self.length,
            End::Stop | End::ToolCalls => &self.stop,
            End::Abort => &self.abort,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_tokens(&self, prompt: u64, output: u64) {
        self.instant_prompt_tokens
            .fetch_add(prompt, Ordering::Relaxed);
        self.instant_output_tokens
            .fetch_add(output, Ordering::Relaxed);
    }
}

/// The whole page, of the state of each rank. What is counted outside of the model is counted for
/// the first.
pub(super) fn render(shared: &Shared, mut ranks: Vec<EngineSnapshot>) -> String {
    let totals = &shared.totals;
    if let Some(first) = ranks.first_mut() {
        let counters = &mut first.counters;
        counters.prompt_tokens += totals.instant_prompt_tokens.load(Ordering::Relaxed);
        counters.generation_tokens += totals.instant_output_tokens.load(Ordering::Relaxed);
    }
    let mut page = Page {
        text: String::new(),
        model: &shared.model_json,
        ranks,
    };
    page.gauge("vllm:num_requests_running", |rank| f64::from(rank.running));
    page.gauge("vllm:num_requests_waiting", |rank| f64::from(rank.waiting));
    page.gauge("vllm:kv_cache_usage_perc", EngineSnapshot::kv_usage);
    page.counter("vllm:prefix_cache_queries_total", |c| {
        c.prefix_queries_tokens
    });
    // As in vLLM, host memory is queried for what the engine's own cache lacks.
    let own_hits = |c: &Counters| c.prefix_hits_tokens - c.host_hits_tokens;
    page.counter("vllm:prefix_cache_hits_total", own_hits);
    page.counter("vllm:external_prefix_cache_queries_total", |c| {
        c.prefix_queries_tokens - own_hits(c)
    });
    page.counter("vllm:external_prefix_cache_hits_total", |c| {
        c.host_hits_tokens
    });
    page.counter("vllm:num_preemptions_total", |c| c.preemptions);
    page.counter("vllm:prompt_tokens_total", |c| c.prompt_tokens);
    page.counter("vllm:generation_tokens_total", |c| c.generation_tokens);
    page.family("vllm:request_success_total", "counter");
    let ends = [
        (End::Length, &totals.length),
        (End::Stop, &totals.stop),
        (End::Abort, &totals.abort),
    ];
    for (end, count) in ends {
        let label = format!(",finished_reason=\"{}\"", end.name());
        let count = count.load(Ordering::Relaxed) as f64;
        page.sample("vllm:request_success_total", 0, &label, count);
    }
    page.cache_config(&shared.profile);
    page.counter("treadle_engine_sim_prefilled_tokens_total", |c| {
        c.prefilled_tokens
    });
    page.counter("treadle_engine_sim_recomputed_tokens_total", |c| {
        c.recomputed_tokens
    });
    page.counter("treadle_engine_sim_evicted_blocks_total", |c| {
        c.evicted_blocks
    });
    page.counter("treadle_engine_sim_iterations_total", |c| c.iterations);
    page.counter("treadle_engine_sim_busy_virtual_us_total", |c| c.busy_us);
    page.text
}

struct Page<'a> {
    text: String,
    /// The model's name as JSON; Prometheus escapes quotes and backslashes in the same way.
    model: &'a str,
    ranks: Vec<EngineSnapshot>,
}

impl Page<'_> {
    /// vLLM's cache configuration: cache size, and size of the host memory for offloading.
    fn cache_config(&mut self, profile: &EngineProfile) {
        let host_tokens = u64::from(profile.host_blocks) * u64::from(profile.block_tokens);
        // vLLM has the size in GiB; the conversion from tokens exists only here.
        let host = match host_tokens {
            0 => "None".to_owned(),
            tokens => (tokens as f64 * KIB_PER_TOKEN / KIB_PER_GIB).to_string(),
        };
        self.family("vllm:cache_config_info", "gauge");
        let label = format!(
            ",block_size=\"{}\",num_gpu_blocks=\"{}\",kv_cache_size_tokens=\"{}\",\
             enable_prefix_caching=\"True\",kv_offloading_size=\"{host}\"",
            profile.block_tokens,
            profile.kv_blocks,
            profile.kv_tokens(),
        );
        for rank in 0..self.ranks.len() {
            self.sample("vllm:cache_config_info", rank, &label, 1.0);
        }
    }

    fn gauge(&mut self, name: &str, value: impl Fn(&EngineSnapshot) -> f64) {
        self.family(name, "gauge");
        self.samples(name, value);
    }

    fn counter(&mut self, name: &str, value: impl Fn(&Counters) -> u64) {
        self.family(name, "counter");
        self.samples(name, |rank| value(&rank.counters) as f64);
    }

    fn samples(&mut self, name: &str, value: impl Fn(&EngineSnapshot) -> f64) {
        let values: Vec<f64> = self.ranks.iter().map(value).collect();
        for (rank, value) in values.into_iter().enumerate() {
            self.sample(name, rank, "", value);
        }
    }

    fn family(&mut self, name: &str, kind: &str) {
        let _ = writeln!(self.text, "# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, rank: usize, labels: &str, value: f64) {
        let model = self.model;
        let _ = writeln!(
            self.text,
            "{name}{{engine=\"{rank}\",model_name={model}{labels}}} {value}"
        );
    }
}
