//! The `treadle-bench` binary.

use clap::Parser;
use std::io::Write;
use std::process::ExitCode;
use treadle_bench::bench::{BenchArgs, BenchError};

/// Measure treadle: the benchmarks behind docs/results.md.
#[derive(Parser, Debug)]
#[command(name = "treadle-bench", version)]
struct Line {
    #[command(flatten)]
    args: BenchArgs,
}

fn main() -> ExitCode {
    let line = Line::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(cause) => return ended(&BenchError::Output(cause)),
    };
    let result = runtime.block_on(line.args.run());
    runtime.shutdown_background();
    result.map_or_else(|error| ended(&error), |()| ExitCode::SUCCESS)
}

fn ended(error: &BenchError) -> ExitCode {
    if error.is_silent() {
        return ExitCode::SUCCESS;
    }
    // Standard error may be closed as well.
    let _ = writeln!(std::io::stderr(), "error: {error}");
    ExitCode::from(if error.is_usage() { 2 } else { 1 })
}
