//! The command line of `treadle calibrate`.

use std::path::PathBuf;

use clap::Args;

/// Measure an inference engine, and write a profile that the simulator reads.
///
/// The engine should have nothing else to do meanwhile.
#[derive(Args, Clone, Debug)]
pub struct CalibrateArgs {
    /// The engine's address.
    #[arg(long, default_value = "http://127.0.0.1:8000")]
    pub url: String,
    /// The model to ask for; by default the first that the engine lists.
    #[arg(long)]
    pub model: Option<String>,
    /// Write the profile to this file.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Read the profile from this file instead of measuring one.
    #[arg(long, value_name = "FILE", conflicts_with = "out")]
    pub from: Option<PathBuf>,
    /// Then run this number of small agent workloads on the engine and in the simulator, and compare
    /// their makespans.
    #[arg(long, value_name = "RUNS", num_args = 0..=1, default_missing_value = "1",
          value_parser = clap::value_parser!(u32).range(1..=100))]
    pub validate: Option<u32>,
    /// Seed of the first workload; each further one has the next.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The profile's name; by default the model's.
    #[arg(long)]
    pub name: Option<String>,
    /// Longest prompt to measure, in tokens; shorter where the engine holds less.
    #[arg(long, default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(64..=1_048_576))]
    pub context_max: u32,
    /// Most sequences to measure at once; fewer where the engine has fewer slots.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub batch_max: u32,
    /// Tokens that each sequence decodes.
    #[arg(long, default_value_t = 48, value_parser = clap::value_parser!(u32).range(8..=1_024))]
    pub output_tokens: u32,
    /// Times that each measurement is made; medians count.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeats: u32,
    /// KV memory of the engine in tokens, where it does not report it.
    #[arg(long, value_parser = clap::value_parser!(u64).range(64..=1_000_000_000))]
    pub kv_tokens: Option<u64>,
    /// Sequences that the engine runs at once at most, where it does not report it.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub running_max: Option<u32>,
    /// Tokens that one iteration computes at most, where the measurement does not show it.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub batched_tokens_max: Option<u32>,
    /// Give up after this number of seconds.
    #[arg(long, default_value_t = 1_800, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout_s: u64,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}
