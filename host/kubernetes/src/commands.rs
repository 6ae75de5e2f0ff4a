//! Commands in pods: start, streams and end.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::{FileType, fstat};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use treadle_sandbox::{End, Order, SandboxError, Started, random_name};

use crate::client::{Failure, short};
use crate::connection::Connection;
use crate::exec::{self, ExecEnd, exec_end, in_short};
use crate::fate::Ending;
use crate::ready_pod::{Command, ReadyPod};
use crate::script::{self, NOT_STARTED, STARTED};

/// Timeout for the start of a command.
const START_MAX: Duration = Duration::from_secs(30);
/// How long a pod's status may lag behind.
const LAG_MAX: Duration = Duration::from_secs(1);
/// How long to wait for the last output of a command after its pod has ended.
const LAST_WORDS_MAX: Duration = Duration::from_secs(2);
/// Maximum length of the line with a process id.
const LINE_BYTES_MAX: usize = 8 << 10;
/// Length of a command's mark.
const MARK_CHARS: usize = 16;
/// `SIGKILL`.
const KILL: i32 = 9;
/// Offset of exit codes for signals in shells and container runtimes.
const SIGNALLED: i32 = 128;

type Reader = Box<dyn AsyncRead + Send + Unpin>;

/// Starts a command with these streams.
pub(crate) async fn spawn(
    pod: ReadyPod,
    order: Order,
    streams: [OwnedFd; 3],
) -> Result<Started, SandboxError> {
    let system = |error| SandboxError::System("the command's streams", error);
    let [input, output, errors] = streams;
    let streams = Streams {
        input: input_of(input).map_err(system)?,
        output: pipe::Sender::from_owned_fd(output).map_err(system)?,
        errors: pipe::Sender::from_owned_fd(errors).map_err(system)?,
    };
    let has_input = streams.input.is_some();
    let mark = random_name(MARK_CHARS).map_err(|error| SandboxError::System("a name", error))?;
    let text = script::command(&pod.name, &mark, &order, has_input);
    let (tell, started) = oneshot::channel();
    // Runs to its end even if nobody waits for it any more, because a started command must be
    // tracked or ended.
    tokio::spawn(async move {
        let starting = tokio::time::timeout(START_MAX, begin(&pod, &text, has_input));
        let begun = tokio::select! {
            begun = starting => begun.unwrap_or(Err(SandboxError::Gone)),
            _ = pod.ending() => Err(SandboxError::Gone),
        };
        let (connection, pid) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                let may_run = matches!(error, SandboxError::Gone) && !pod.has_ended();
                let _ = tell.send(Err(error));
                if may_run {
                    end_lost(&pod, None, &mark).await;
                }
                return;
            }
        };
        let sent = BTreeSet::new();
        let id = pod.started(Command {
            pid,
            mark: mark.clone(),
            sent,
        });
        let (end, ended) = oneshot::channel();
        if tell.send(Ok(Started { id, pid, ended })).is_err() {
            end_lost(&pod, Some(pid), &mark).await;
        }
        let told = follow(&pod, connection, streams).await;
        let meant = meant(&pod, told, id).await;
        if meant == End::Gone && !pod.has_ended() {
            // Only its connection may be lost.
            end_lost(&pod, Some(pid), &mark).await;
        }
        pod.ended(id);
        let _ = end.send(meant);
    });
    started.await.map_err(|_| SandboxError::Gone)?
}

/// Ends a command whose end can't be observed any more.
async fn end_lost(pod: &ReadyPod, pid: Option<i32>, mark: &str) {
    if let Err(error) = pod.end_command(pid, mark).await {
        tracing::warn!(pod = %pod.name, %error, "a command without a connection may still be running");
    }
}

/// The standard input of a command, unless it is empty.
fn input_of(input: OwnedFd) -> io::Result<Option<Reader>> {
    let stat = fstat(&input)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Fifo {
        return Ok(Some(Box::new(pipe::Receiver::from_owned_fd(input)?)));
    }
    let file = tokio::fs::File::from_std(File::from(input));
    Ok((stat.st_size > 0).then(|| Box::new(file) as Reader))
}

/// Starts the script, and waits for the pid of the command.
async fn begin(
    pod: &ReadyPod,
    text: &str,
    has_input: bool,
) -> Result<(Connection, i32), SandboxError> {
    let mut begun = exec::begin(&pod.api, &pod.name, text, has_input)
        .await
        .map_err(|failure| match failure {
            Failure::NotFound | Failure::Broken => SandboxError::Gone,
            Failure::Refused(why) => SandboxError::Command(why),
            other => SandboxError::System("the API server", io::Error::other(other.to_string())),
        })?;
    let line = first_line(&mut begun.stdout).await;
    if let Some(pid) = line.strip_prefix(STARTED).and_then(|pid| pid.parse().ok()) {
        return Ok((begun, pid));
    }
    if let Some(why) = line.strip_prefix(NOT_STARTED) {
        return Err(SandboxError::Command(short(why)));
    }
    // The command was not started: the shell, or the container runtime, reports why.
    let errors = in_short(begun.stderr).await;
    let why = match exec_end(begun.status.await.ok()) {
        ExecEnd::Unknown => return Err(SandboxError::Gone),
        ExecEnd::Failed(why) => why,
        ExecEnd::Exited(code) => format!("its shell exited with {code}"),
    };
    let told = format!("{why} {line} {errors}");
    if told.contains("\"sh\"") || told.contains("setpriv") {
        let remedy = "use an image with `sh`, and with `setpriv` for commands of other users";
        return Err(SandboxError::Command(format!("{}; {remedy}", short(&told))));
    }
    Err(SandboxError::Command(short(&told)))
}

/// Reads the first line byte by byte, because the rest is the command's output.
async fn first_line(from: &mut (impl AsyncRead + Unpin)) -> String {
    let mut line = Vec::new();
    while line.len() < LINE_BYTES_MAX {
        match from.read_u8().await {
            Ok(b'\n') | Err(_) => break,
            Ok(byte) => line.push(byte),
        }
    }
    String::from_utf8_lossy(&line).into_owned()
}

/// A command's standard streams.
struct Streams {
    input: Option<Reader>,
    output: pipe::Sender,
    errors: pipe::Sender,
}

/// Forwards streams until the command or its pod has ended.
async fn follow(pod: &ReadyPod, begun: Connection, streams: Streams) -> ExecEnd {
    let Streams {
        input,
        mut output,
        mut errors,
    } = streams;
    let Connection {
        mut stdin,
        mut stdout,
        mut stderr,
        status,
        passing: _passing,
    } = begun;
    let sending = async {
        if let Some(mut input) = input {
            let _ = tokio::io::copy(&mut input, &mut stdin).await;
            let _ = stdin.shutdown().await;
        }
        std::future::pending::<()>().await;
    };
    let taking = async {
        tokio::join!(
            pass(&mut stdout, &mut output),
            pass(&mut stderr, &mut errors)
        );
        exec_end(status.await.ok())
    };
    tokio::pin!(taking);
    tokio::select! {
        told = &mut taking => told,
        () = sending => ExecEnd::Unknown,
        _ = pod.ending() => {
            // Its last output may still be in transit.
            let _ = tokio::time::timeout(LAST_WORDS_MAX, taking).await;
            ExecEnd::Unknown
        }
    }
}

/// Forwards output, and discards it if nobody reads any more, because what follows is needed.
async fn pass(from: &mut (impl AsyncRead + Unpin), to: &mut pipe::Sender) {
    let _ = tokio::io::copy(from, to).await;
    let _ = tokio::io::copy(from, &mut tokio::io::sink()).await;
}

/// How the pod ended, if it has ended or ends soon.
async fn ended_soon(pod: &ReadyPod) -> Option<Ending> {
    tokio::time::timeout(LAG_MAX, pod.ending()).await.ok()
}

/// The end of a command by its exit status. A signal can't be distinguished from the exit code that
/// represents it, unless treadle sent it.
async fn meant(pod: &ReadyPod, told: ExecEnd, id: u64) -> End {
    let code = match told {
        ExecEnd::Exited(code) => code,
        ExecEnd::Failed(why) => {
            tracing::warn!(pod = %pod.name, %why, "the end of a command is unknown");
            return ended_soon(pod).await.map_or(End::Gone, |ending| ending.end);
        }
        ExecEnd::Unknown => return ended_soon(pod).await.map_or(End::Gone, |ending| ending.end),
    };
    let signal = code - SIGNALLED;
    if pod.was_sent(id, signal) {
        return End::Killed(signal);
    }
    // A pod's status is updated after its processes have ended.
    let ending = if signal == KILL {
        ended_soon(pod).await
    } else {
        None
    };
    ending.map_or(End::Exited(code), |ending| ending.end)
}
