//! The child's side: sets its own limits, reads, compiles, and answers.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, setrlimit};
use wasmtime::Engine;

use super::order::{LINE_BYTES_MAX, Order};
use super::{CompileFault, compile};
use crate::artifacts::{Artifact, ArtifactKey};

/// Exit code if the order is at fault, not the component.
pub(crate) const EXIT_UNAVAILABLE: u8 = 3;
/// Exit code if the component does not compile.
pub(crate) const EXIT_FAILED: u8 = 4;
/// Compiling is not urgent: on a busy machine it gets about a tenth of a processor.
const NICENESS: i32 = 10;
/// Standard input, output and error; no further file is opened.
const FILES_MAX: u64 = 3;

/// The main function of a [`CompilerCommand`](super::CompilerCommand): reads an order and a
/// component, limits itself, compiles, and writes the code. Prints the reason for a failure on
/// standard error. Call it first thing in a process that does nothing else and has no other thread:
/// the limits hold for the whole process, permanently.
pub fn compiler_main(stdin: impl Read, mut stdout: impl Write) -> ExitCode {
    let answer = order_of(stdin)
        .map_err(|detail| (EXIT_UNAVAILABLE, detail))
        .and_then(|(order, component)| obey(&order, &component))
        .and_then(|artifact| {
            let written = stdout
                .write_all(artifact.sealed())
                .and_then(|()| stdout.flush());
            written.map_err(|error| (EXIT_UNAVAILABLE, error.to_string()))
        });
    match answer {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, detail)) => {
            eprintln!("{detail}");
            ExitCode::from(code)
        }
    }
}

fn order_of(stdin: impl Read) -> Result<(Order, Vec<u8>), String> {
    let mut stdin = BufReader::new(stdin);
    let mut line = String::new();
    (&mut stdin)
        .take(LINE_BYTES_MAX)
        .read_line(&mut line)
        .map_err(|error| format!("the order cannot be read: {error}"))?;
    let order: Order = serde_json::from_str(&line)
        .map_err(|error| format!("standard input holds no order to compile: {error}"))?;
    // Before the component is read: reading it must not exceed the limits either.
    limit(&order).map_err(|error| format!("the limits cannot be set: {error}"))?;
    let mut component = Vec::new();
    stdin
        .read_to_end(&mut component)
        .map_err(|error| format!("the component cannot be read: {error}"))?;
    Ok((order, component))
}

fn limit(order: &Order) -> rustix::io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    // The soft limit sends a signal that shows the cause.
    let set = |resource, soft, hard| {
        let (current, maximum) = (Some(soft), Some(hard));
        setrlimit(resource, Rlimit { current, maximum })
    };
    set(Resource::Cpu, order.cpu_s_max, order.cpu_s_max + 1)?;
    set(Resource::As, order.memory_bytes_max, order.memory_bytes_max)?;
    set(Resource::Core, 0, 0)?;
    set(Resource::Fsize, 0, 0)?;
    set(Resource::Nofile, FILES_MAX, FILES_MAX)?;
    rustix::process::nice(NICENESS).map(|_| ())
}

pub(super) fn obey(order: &Order, component: &[u8]) -> Result<Artifact, (u8, String)> {
    let engine = Engine::new(&order.settings.config())
        .map_err(|error| (EXIT_UNAVAILABLE, format!("{error:#}")))?;
    let key = ArtifactKey::of(&engine, component);
    if key.engine_hex() != order.engine {
        let detail = "the child has another engine than its parent; run the same program";
        return Err((EXIT_UNAVAILABLE, detail.to_owned()));
    }
    match compile(&engine, component) {
        Ok(code) => Ok(Artifact::seal(&code, &key)),
        Err(CompileFault::Failed { detail }) => Err((EXIT_FAILED, detail)),
        Err(other) => Err((EXIT_FAILED, other.to_string())),
    }
}
