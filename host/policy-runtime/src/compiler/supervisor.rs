//! The parent's side: starts a child, feeds it, reads its answer, and kills it at its deadline.

use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::child::{EXIT_FAILED, EXIT_UNAVAILABLE};
use super::order::Order;
use super::{CompileFault, CompilerCommand, CompilerLimits};

/// Maximum length of the child's message.
const WORDS_BYTES_MAX: u64 = 2_048;
/// Messages of the language's runtime before it aborts for lack of memory.
const OUT_OF_MEMORY: [&str; 3] = [
    "memory allocation of",
    "out of memory",
    "Cannot allocate memory",
];
/// Poll interval for the end of a child whose answer is complete.
const EXIT_LOOK: Duration = Duration::from_millis(1);

/// The result of a child.
struct Answer {
    status: ExitStatus,
    sealed: Vec<u8>,
    words: String,
}

/// Has a child compile `component`; returns the sealed code, unchecked.
pub(crate) fn run(
    command: &CompilerCommand,
    limits: &CompilerLimits,
    order: &Order,
    component: &[u8],
) -> Result<Vec<u8>, CompileFault> {
    let deadline = Instant::now() + Duration::from_secs(limits.wall_s_max);
    let mut running = Running::start(command)?;
    let answer = running.ask(limits, order, component, deadline)?;
    classify(answer, limits)
}

fn unavailable(what: &str, error: &std::io::Error) -> CompileFault {
    CompileFault::Unavailable {
        detail: format!("{what}: {error}"),
    }
}

/// A child that is killed and reaped when dropped.
struct Running {
    child: Child,
}

impl Running {
    fn start(command: &CompilerCommand) -> Result<Self, CompileFault> {
        let child = Command::new(&command.program)
            .args(&command.args)
            // It needs nothing of the daemon's environment, least of all its secrets.
            .env_clear()
            .current_dir("/")
            // A process group of its own, so that its own children end with it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| unavailable(&command.program.display().to_string(), &error))?;
        Ok(Self { child })
    }

    /// Threads feed and read the child, so that a child that does neither cannot block this one.
    /// They end with the child's pipes.
    fn ask(
        &mut self,
        limits: &CompilerLimits,
        order: &Order,
        component: &[u8],
        deadline: Instant,
    ) -> Result<Answer, CompileFault> {
        let (Some(stdin), Some(stdout), Some(stderr)) = (
            self.child.stdin.take(),
            self.child.stdout.take(),
            self.child.stderr.take(),
        ) else {
            let detail = "its pipes are gone".to_owned();
            return Err(CompileFault::Unavailable { detail });
        };
        feed(stdin, order.line(), component.to_vec())?;
        let bytes_max = limits.artifact_bytes_max;
        let sealed = read(stdout, bytes_max.saturating_add(1))?;
        let words = read_words(stderr)?;
        let timeout = || CompileFault::Timeout {
            limit: format!("{} s on the clock", limits.wall_s_max),
        };
        let sealed = within(&sealed, deadline).ok_or_else(timeout)?;
        if sealed.len() as u64 > bytes_max {
            return Err(CompileFault::ArtifactTooLarge { max: bytes_max });
        }
        let words = within(&words, deadline).ok_or_else(timeout)?;
        let status = self.wait(deadline)?.ok_or_else(timeout)?;
        Ok(Answer {
            status,
            sealed,
            words: String::from_utf8_lossy(&words).trim().to_owned(),
        })
    }

    /// `None` at the deadline.
    fn wait(&mut self, deadline: Instant) -> Result<Option<ExitStatus>, CompileFault> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Ok(Some(status)),
                Ok(None) if Instant::now() >= deadline => return Ok(None),
                Ok(None) => std::thread::sleep(EXIT_LOOK),
                Err(error) => return Err(unavailable("its end cannot be seen", &error)),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Already reaped: the id may belong to another process by now.
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let killed = group.map(|group| kill_process_group(group, Signal::KILL));
        if !matches!(killed, Some(Ok(()))) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

fn feed(mut stdin: ChildStdin, line: String, component: Vec<u8>) -> Result<(), CompileFault> {
    thread("compiler-feed", move || {
        // A child that ends early gives the reason by its exit code.
        let _ = stdin
            .write_all(line.as_bytes())
            .and_then(|()| stdin.write_all(&component));
    })
}

/// At most `bytes_max` bytes; a child that writes more than that is ended.
fn read(stdout: ChildStdout, bytes_max: u64) -> Result<Receiver<Vec<u8>>, CompileFault> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread("compiler-read", move || {
        let mut bytes = Vec::new();
        let _ = stdout.take(bytes_max).read_to_end(&mut bytes);
        let _ = sender.send(bytes);
    })?;
    Ok(receiver)
}

/// Reads the beginning of its output; the rest is dropped.
fn read_words(mut stderr: ChildStderr) -> Result<Receiver<Vec<u8>>, CompileFault> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread("compiler-words", move || {
        let mut bytes = Vec::new();
        let _ = (&mut stderr).take(WORDS_BYTES_MAX).read_to_end(&mut bytes);
        let _ = std::io::copy(&mut stderr, &mut std::io::sink());
        let _ = sender.send(bytes);
    })?;
    Ok(receiver)
}

fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), CompileFault> {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    started
        .map(|_| ())
        .map_err(|error| unavailable("a thread does not start", &error))
}

fn within(receiver: &Receiver<Vec<u8>>, deadline: Instant) -> Option<Vec<u8>> {
    match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok(bytes) => Some(bytes),
        Err(RecvTimeoutError::Timeout) => None,
        // The thread panicked: no answer, and the exit code shows the rest.
        Err(RecvTimeoutError::Disconnected) => Some(Vec::new()),
    }
}

/// What the child's end says about the component.
fn classify(answer: Answer, limits: &CompilerLimits) -> Result<Vec<u8>, CompileFault> {
    let Answer {
        status,
        sealed,
        words,
    } = answer;
    if status.success() {
        return Ok(sealed);
    }
    let memory = CompileFault::Memory {
        max: limits.memory_bytes_max,
    };
    let is_memory = OUT_OF_MEMORY.iter().any(|sign| words.contains(sign));
    let signal = status.signal().and_then(Signal::from_named_raw);
    Err(match (status.code(), signal) {
        (Some(code), _) if code == i32::from(EXIT_UNAVAILABLE) => {
            CompileFault::Unavailable { detail: words }
        }
        _ if is_memory => memory,
        (Some(code), _) if code == i32::from(EXIT_FAILED) => CompileFault::Failed { detail: words },
        (_, Some(Signal::XCPU)) => CompileFault::Timeout {
            limit: format!("{} s on a processor", limits.cpu_s_max),
        },
        // Only the system kills it, if the machine is short of memory.
        (_, Some(Signal::KILL)) => memory,
        (Some(code), _) if words.contains("panicked") => CompileFault::Failed {
            detail: format!("the compiler gave up (exit code {code}): {words}"),
        },
        (Some(code), _) => CompileFault::Unavailable {
            detail: format!("exit code {code}: {words}"),
        },
        (None, _) => CompileFault::Failed {
            detail: format!("the compiler crashed ({status}) {words}"),
        },
    })
}

#[cfg(test)]
mod tests;
