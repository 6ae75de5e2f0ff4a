//! The page that lists every parameter of the models with its source.

use std::fmt::{Display, Write as _};

use super::{Assumptions, DEGREES, Gpu, LanguageModel};
use crate::engine::{EngineProfile, IterationLoad};
use crate::links;

const HEAD: &str = "# Simulation parameters

What the simulated engines and links are made of. Each figure has its source; if none was \
published, it says `assumption` and why. The figures were fixed before any policy was run; a later \
change needs its reason in the CHANGELOG. This page is generated from the code by `UPDATE_DOCS=1 \
cargo test -p treadle-engine-model parameters`.

";

/// The whole page, as Markdown.
pub fn parameters_markdown() -> String {
    let mut page = HEAD.to_owned();
    page.push_str(
        "## Parameters\n\n| Of | Parameter | Value | Unit | Source |\n|---|---|--:|---|---|\n",
    );
    let rows = gpu_rows()
        .into_iter()
        .chain(model_rows())
        .chain(speed_rows())
        .chain(limit_rows())
        .chain(link_rows());
    for [of, parameter, value, unit, source] in rows {
        let _ = writeln!(page, "| {of} | {parameter} | {value} | {unit} | {source} |");
    }
    page.push_str(
        "
## What follows from them

An iteration takes the longer of reading the weights and computing its tokens, plus reading the KV \
of decoding sequences, plus overheads and communication. Below, decoding with 4,096 tokens of context \
for each sequence. MBU is the share of the memory bandwidth that reading the weights alone is of the \
whole time at batch 1; interference is the time at batch 100 over that at batch 1.

| Engine | ms per token, batch 1 | MBU | ms per token, batch 100 | tokens/s, batch 100 | \
interference | prefill tokens/s | KV tokens |
|---|--:|--:|--:|--:|--:|--:|--:|
",
    );
    for gpu in Gpu::ALL {
        for model in LanguageModel::ALL {
            for degree in DEGREES {
                page.push_str(&derived_row(&gpu, &model, degree));
            }
        }
    }
    page
}

type Row = [String; 5];

fn row(of: &str, parameter: &str, value: &dyn Display, unit: &str, source: &str) -> Row {
    [of, parameter, &value.to_string(), unit, source].map(str::to_owned)
}

fn gpu_rows() -> Vec<Row> {
    let (giga, gibi) = (1_000_000_000, 1 << 30);
    Gpu::ALL
        .iter()
        .flat_map(|gpu| {
            let row =
                |parameter, value: String, unit| row(gpu.name, parameter, &value, unit, gpu.source);
            [
                row("bf16, dense", decimal(gpu.bf16_gflops, 1_000), "TFLOP/s"),
                row("memory", (gpu.memory_bytes / gibi).to_string(), "GiB"),
                row(
                    "memory bandwidth",
                    (gpu.memory_bytes_per_s / giga).to_string(),
                    "GB/s",
                ),
                row(
                    "NVLink, both directions",
                    (gpu.nvlink_bytes_per_s / giga).to_string(),
                    "GB/s",
                ),
            ]
        })
        .collect()
}

fn model_rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for model in LanguageModel::ALL {
        let mut add = |parameter, value: String, unit| {
            rows.push(row(model.name, parameter, &value, unit, model.source));
        };
        add(
            "parameters",
            decimal(model.parameters, 1_000_000_000),
            "10^9",
        );
        let active = decimal(model.active_parameters, 1_000_000_000);
        add("active parameters", active, "10^9");
        add(
            "layers / width / vocabulary",
            format!("{} / {} / {}", model.layers, model.hidden, model.vocabulary),
            "",
        );
        add(
            "heads / KV heads / head width",
            format!("{} / {} / {}", model.heads, model.kv_heads, model.head_dim),
            "",
        );
        add("bytes per weight", model.weight_bytes.to_string(), "bytes");
        if let Some(experts) = model.experts {
            add(
                "experts: layers / count / per token / width",
                format!(
                    "{} / {} / {} / {}",
                    experts.layers, experts.count, experts.per_token, experts.hidden
                ),
                "",
            );
        }
        let kv = (model.kv_bytes_per_token() / 1_024).to_string();
        rows.push(row(
            model.name,
            "KV per token",
            &kv,
            "KiB",
            "2 x layers x KV heads x head width x 2 bytes",
        ));
    }
    rows
}

fn speed_rows() -> Vec<Row> {
    let given = Assumptions::default();
    let all_reduce = |parameter, size: usize| {
        let [_, two, four, eight] = given.all_reduce_ns.map(|times| times[size]);
        let value = format!("{two} / {four} / {eight}");
        let source = "SGLang pull request 2904, its own kernel on H100, sizes taken as bytes";
        row("engine", parameter, &value, "ns", source)
    };
    let row = |parameter, value: u64, unit, source| row("engine", parameter, &value, unit, source);
    vec![
        row(
            "matrix products",
            given.compute_percent,
            "% of peak",
            "assumption: serving engines report 40-60% in prefill",
        ),
        row(
            "reading weights and KV",
            given.memory_percent,
            "% of peak",
            "assumption: streaming kernels reach 75-90% of HBM's rate; what is left of it after overheads is the MBU below",
        ),
        row(
            "collectives of more than 1 MB",
            given.nvlink_percent,
            "% of one direction of NVLink",
            "all-reduce bus bandwidth of 366 GB/s on H100 (waynehacking8.github.io, nccl-nvlink-bandwidth), of 450 GB/s",
        ),
        all_reduce("all-reduce of 32 KB on 2 / 4 / 8 GPUs", 0),
        all_reduce("all-reduce of 256 KB on 2 / 4 / 8 GPUs", 1),
        all_reduce("all-reduce of 1 MB on 2 / 4 / 8 GPUs", 2),
        row(
            "a layer besides products and attention",
            given.layer_overhead_ns,
            "ns",
            "Qwen3-0.6B on one H20 in SGLang: 414 tokens/s at batch 1 (Qwen documentation, Speed Benchmark), less reading its weights and the row below, over its 28 layers",
        ),
        row(
            "an iteration besides layers",
            given.iteration_overhead_us,
            "us",
            "assumption: scheduling and sampling that the GPU waits for",
        ),
        row(
            "a decoding sequence",
            given.sequence_overhead_us,
            "us",
            "assumption; with it Qwen3-8B on H100 at 396 sequences is within 15% of a published 13,322 tokens/s (silybench, decode-128-1024, bf16)",
        ),
    ]
}

fn limit_rows() -> Vec<Row> {
    let given = Assumptions::default();
    let row = |parameter, value: u64, unit, source| row("engine", parameter, &value, unit, source);
    vec![
        row(
            "memory that the engine uses",
            given.memory_used_percent,
            "%",
            "vLLM, default of gpu_memory_utilization",
        ),
        row(
            "of it activations and graphs",
            given.reserve_bytes / 1_000_000_000,
            "GB per GPU",
            "assumption",
        ),
        row(
            "tokens per iteration at most",
            given.batched_tokens_max.into(),
            "tokens",
            "chunked prefill size of SGLang and vLLM on Hopper",
        ),
        row(
            "sequences at once at most",
            given.running_max.into(),
            "sequences",
            "vLLM, max_num_seqs",
        ),
        row(
            "grain of the prefix cache",
            given.block_tokens.into(),
            "tokens",
            "assumption: between SGLang's 1 and long pages; loses at most 63 tokens of a prefix",
        ),
        row(
            "longest sequence",
            given.context_limit_tokens.into(),
            "tokens",
            "Qwen3 with YaRN",
        ),
        self::row(
            "engine",
            "experts that a batch reads",
            &"expectation",
            "",
            "assumption: each token visits experts evenly and independently",
        ),
    ]
}

fn link_rows() -> Vec<Row> {
    let row = |parameter, value: u64, unit, source| row("links", parameter, &value, unit, source);
    let giga = |bytes: u64| bytes / 1_000_000_000;
    vec![
        row(
            "NVLink of a GPU, both directions",
            giga(links::NVLINK_BYTES_PER_S),
            "GB/s",
            "Heddle §7",
        ),
        row(
            "InfiniBand of a node, one direction",
            giga(links::INFINIBAND_BYTES_PER_S),
            "GB/s",
            "Heddle §7: 400 Gb/s; taken as one card a node, as no number of cards is given",
        ),
        row(
            "Ethernet between clusters, one direction",
            giga(links::ETHERNET_BYTES_PER_S),
            "GB/s",
            "RollArt §7.1: 200 Gb/s",
        ),
        row(
            "PCIe of a GPU, one direction",
            giga(links::PCIE_BYTES_PER_S),
            "GB/s",
            "PCI-SIG: PCIe 5.0 with 16 lanes",
        ),
        row(
            "what transfers reach",
            links::LINK_PERCENT,
            "%",
            "assumption: as collectives on NVLink",
        ),
    ]
}

fn derived_row(gpu: &Gpu, model: &LanguageModel, degree: u32) -> String {
    let given = Assumptions::default();
    let Ok(profile) = EngineProfile::of(gpu, model, degree, &given) else {
        return String::new();
    };
    let decode_us = |batch: u64| {
        profile.iteration_us(IterationLoad {
            decode_sequences: batch,
            decode_context_tokens: batch * 4_096,
            ..IterationLoad::default()
        })
    };
    let (one_us, hundred_us) = (decode_us(1), decode_us(100));
    let peak_us =
        model.weights_read_bytes(1) / f64::from(degree) / (gpu.memory_bytes_per_s as f64 / 1e6);
    format!(
        "| {} | {} | {}% | {} | {} | {} | {} | {} |\n",
        profile.name,
        decimal(one_us, 1_000),
        (peak_us * 100.0 / one_us as f64) as u64,
        decimal(hundred_us, 1_000),
        100 * 1_000_000 / hundred_us,
        decimal(hundred_us * 100 / one_us, 100),
        profile.prefill_tokens_per_s,
        profile.kv_tokens(),
    )
}

/// A quotient with up to three decimals, truncated, without trailing zeros.
fn decimal(value: u64, unit: u64) -> String {
    let thousandths = u128::from(value) * 1_000 / u128::from(unit);
    let text = format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
