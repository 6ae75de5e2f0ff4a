//! The same scores by another sandbox: Extism, which takes bytes and gives bytes.
//!
//! It runs as a process of its own, built from `tests/bench/extism`, because it
//! needs another version of the WebAssembly engine, which nothing else should have
//! to compile. Its process and this one work in turn.

use super::ab_timer::median;
use super::comparison::policy_of;
use super::rows::Draw;
use crate::bench::BenchError;
use clap::Args;
use default_priority::DefaultPriority;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use treadle_model::World;
use treadle_plugin::PriorityPolicy;
use treadle_plugin::harness::Queue;
use treadle_policy_runtime::{CallContext, InstanceOptions, PolicyModule};

/// Calls of a batch.
const BATCH_CALLS: u32 = 50;
/// Batches of each side at least.
const BATCHES_MIN: usize = 9;
/// What builds the other side.
pub(super) const REMEDY: &str = "run scripts/build-bench-extism.sh first";

/// Where the other sandbox is.
#[derive(Args, Clone, Debug)]
pub(super) struct BaselineProgram {
    /// Program that runs the same scores by Extism; scripts/build-bench-extism.sh
    /// builds it.
    #[arg(
        long,
        default_value = "target/bench/extism-scores",
        value_name = "PROGRAM"
    )]
    extism: PathBuf,
}

impl Default for BaselineProgram {
    fn default() -> Self {
        Self {
            extism: "target/bench/extism-scores".into(),
        }
    }
}

impl BaselineProgram {
    /// Whether it has been built.
    pub(super) fn is_there(&self) -> bool {
        self.extism.is_file()
    }

    /// How many times as long as ours its calls with so many rows take.
    pub(super) fn ratio(
        &self,
        ours: &PolicyModule,
        rows: usize,
        time: Duration,
    ) -> Result<f64, BenchError> {
        let queue = Draw::new().queue(rows);
        let instance = ours.instance(&InstanceOptions::default());
        let mut instance = instance.map_err(|error| failed(&error))?;
        let policy = instance.as_priority_mut();
        let policy = policy.ok_or_else(|| failed(&"it is of another world"))?;
        let mut baseline = Baseline::start(&self.extism).map_err(|error| failed(&error))?;
        let input = bytes_of(&queue);
        let given = baseline.call(&input, 1).map_err(|error| failed(&error))?;
        let expected = DefaultPriority::default().score(&queue.columns());
        let expected = expected.map_err(|error| failed(&error))?;
        let expected: Vec<u8> = expected.iter().flat_map(|s| s.to_le_bytes()).collect();
        if given.output != expected {
            return Err(failed(&"Extism gives other scores; rebuild it"));
        }
        let context = CallContext {
            deadline_ms: Some(10_000),
            ..CallContext::default()
        };
        let (mut theirs, mut own) = (Vec::new(), Vec::new());
        let began = Instant::now();
        while own.len() < BATCHES_MIN || began.elapsed() < time {
            let given = baseline.call(&input, BATCH_CALLS);
            theirs.push(given.map_err(|error| failed(&error))?.took_ns as f64);
            let started = Instant::now();
            for _ in 0..BATCH_CALLS {
                let scores = policy.score(&context, std::hint::black_box(&queue.columns()));
                std::hint::black_box(scores.map_err(|fault| failed(&fault))?);
            }
            own.push(started.elapsed().as_nanos() as f64);
        }
        Ok(median(&mut theirs) / median(&mut own))
    }
}

/// The process. It takes a line, `<bytes of the input> <calls>`, and the input; it
/// answers with a line, `<nanoseconds> <bytes of the output>`, and the last output.
struct Baseline {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

struct Given {
    took_ns: u64,
    output: Vec<u8>,
}

impl Baseline {
    fn start(program: &PathBuf) -> std::io::Result<Self> {
        let mut process = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let piped = |what| std::io::Error::other(format!("{what} is not piped"));
        let input = process.stdin.take().ok_or_else(|| piped("its input"))?;
        let output = process.stdout.take().ok_or_else(|| piped("its output"))?;
        Ok(Self {
            process,
            input,
            output: BufReader::new(output),
        })
    }

    fn call(&mut self, input: &[u8], calls: u32) -> std::io::Result<Given> {
        writeln!(self.input, "{} {calls}", input.len())?;
        self.input.write_all(input)?;
        self.input.flush()?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let odd = || std::io::Error::other(format!("it says {line:?}"));
        let (took_ns, length) = line.trim().split_once(' ').ok_or_else(odd)?;
        let took_ns = took_ns.parse().map_err(|_| odd())?;
        let mut output = vec![0; length.parse().map_err(|_| odd())?];
        self.output.read_exact(&mut output)?;
        Ok(Given { took_ns, output })
    }
}

impl Drop for Baseline {
    fn drop(&mut self) {
        // It may have exited on its own.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The columns one after the other, little-endian.
fn bytes_of(queue: &Queue) -> Vec<u8> {
    let wide = [&queue.tokens, &queue.output_tokens, &queue.waited_ms];
    let real = [&queue.remaining_tokens, &queue.remaining_tool_s];
    let wide = wide.into_iter().flatten().flat_map(|v| v.to_le_bytes());
    let real = real.into_iter().flatten().flat_map(|v| v.to_le_bytes());
    let narrow = queue.steps.iter().flat_map(|v| v.to_le_bytes());
    wide.chain(real).chain(narrow).collect()
}

fn failed(cause: &dyn std::fmt::Display) -> BenchError {
    BenchError::Comparison {
        policy: format!("{} beside Extism", policy_of(World::Priority)),
        cause: cause.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_sent_whole() {
        let queue = Draw::new().queue(10);
        let bytes = bytes_of(&queue);
        assert_eq!(bytes.len(), 10 * (5 * 8 + 4));
        assert_eq!(bytes[..8], queue.tokens[0].to_le_bytes());
        assert_eq!(bytes[400..404], queue.steps[0].to_le_bytes());
    }

    #[test]
    fn a_missing_program_is_reported() {
        let program = BaselineProgram {
            extism: "no/such/program".into(),
        };
        assert!(!program.is_there());
    }
}
