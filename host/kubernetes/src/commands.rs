//! Commands in pods: their start, their streams and their end.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use rustix::fs::{FileType, fstat};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use treadle_sandbox::{End, Order, SandboxError, Started, random_name};

use crate::client::{Failure, short};
use crate::exec::{self, Told, in_short, told};
use crate::fate::{Ending, Fate};
use crate::ready_pod::{Command, ReadyPod};
use crate::script::{self, NOT_STARTED, STARTED};

/// How long a command has to be started.
const START_MAX: Duration = Duration::from_secs(30);
/// How long the status of a pod may lag behind what happened in it.
const LAG_MAX: Duration = Duration::from_secs(1);
/// How long what a command wrote last is waited for, once its pod has ended.
const LAST_WORDS_MAX: Duration = Duration::from_secs(2);
/// Bytes of the line that tells the number of a process.
const LINE_BYTES_MAX: usize = 8 << 10;
/// Letters of a command's mark.
const MARK_CHARS: usize = 16;
/// `SIGKILL`.
const KILL: i32 = 9;
/// What shells and container runtimes add to a signal's number.
const SIGNALLED: i32 = 128;

type Reader = Box<dyn AsyncRead + Send + Unpin>;
type Writer = Box<dyn AsyncWrite + Send + Unpin>;
type StatusTold = Pin<Box<dyn Future<Output = Option<Status>> + Send>>;

/// An `exec` of which the command has begun.
struct Begun {
    /// Kept, for the connection ends with it.
    _process: kube::api::AttachedProcess,
    stdin: Writer,
    stdout: Reader,
    stderr: Reader,
    status: StatusTold,
}

/// Starts a command with these streams.
pub(crate) async fn spawn(
    pod: ReadyPod,
    order: Order,
    streams: [OwnedFd; 3],
) -> Result<Started, SandboxError> {
    let system = |error| SandboxError::System("the command's streams", error);
    let [input, output, errors] = streams;
    let input = input_of(input).map_err(system)?;
    let output = pipe::Sender::from_owned_fd(output).map_err(system)?;
    let errors = pipe::Sender::from_owned_fd(errors).map_err(system)?;
    let mark = random_name(MARK_CHARS).map_err(|error| SandboxError::System("a name", error))?;
    let text = script::command(&pod.name, &mark, &order, input.is_some());
    let starting = tokio::time::timeout(START_MAX, begin(&pod, &text));
    let (begun, pid) = tokio::select! {
        begun = starting => begun.map_err(|_| SandboxError::Gone)??,
        _ = pod.ending() => return Err(SandboxError::Gone),
    };
    let id = pod.started(Command {
        pid,
        mark,
        sent: BTreeSet::new(),
    });
    let (end, ended) = oneshot::channel();
    tokio::spawn(async move {
        let told = follow(&pod, begun, (input, output, errors)).await;
        let sent = pod.ended(id);
        let _ = end.send(match told {
            End::Exited(code) => meant(&pod, code, &sent).await,
            other => other,
        });
    });
    Ok(Started { id, pid, ended })
}

/// What a command reads, unless that is nothing.
fn input_of(input: OwnedFd) -> io::Result<Option<Reader>> {
    let stat = fstat(&input)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Fifo {
        return Ok(Some(Box::new(pipe::Receiver::from_owned_fd(input)?)));
    }
    let file = tokio::fs::File::from_std(File::from(input));
    Ok((stat.st_size > 0).then(|| Box::new(file) as Reader))
}

/// Starts the script, and waits for the number of the command's process.
async fn begin(pod: &ReadyPod, text: &str) -> Result<(Begun, i32), SandboxError> {
    let begun = exec::begin(&pod.api, &pod.name, text).await;
    let (mut process, stdin) = begun.map_err(|failure| match failure {
        Failure::NotFound => SandboxError::Gone,
        other => SandboxError::Command(other.to_string()),
    })?;
    let (Some(stdout), Some(stderr), Some(status)) =
        (process.stdout(), process.stderr(), process.take_status())
    else {
        return Err(SandboxError::Gone);
    };
    let mut begun = Begun {
        _process: process,
        stdin: Box::new(stdin),
        stdout: Box::new(stdout),
        stderr: Box::new(stderr),
        status: Box::pin(status),
    };
    let line = first_line(&mut begun.stdout).await;
    if let Some(pid) = line.strip_prefix(STARTED).and_then(|pid| pid.parse().ok()) {
        return Ok((begun, pid));
    }
    if let Some(why) = line.strip_prefix(NOT_STARTED) {
        return Err(SandboxError::Command(short(why)));
    }
    // It never came to the command: the shell, or what starts it, has told why.
    let errors = in_short(Some(begun.stderr)).await;
    let why = match told(begun.status.await) {
        Told::Failed(why) => why,
        Told::Exited(code) => format!("its shell exited with {code}"),
    };
    let told = format!("{why} {line} {errors}");
    if told.contains("\"sh\"") || told.contains("setpriv") {
        let remedy = "use an image with `sh`, and with `setpriv` for commands of other users";
        return Err(SandboxError::Command(format!("{}; {remedy}", short(&told))));
    }
    Err(SandboxError::Command(short(&told)))
}

/// The first line, byte by byte: what follows is the command's.
async fn first_line(from: &mut Reader) -> String {
    let mut line = Vec::new();
    while line.len() < LINE_BYTES_MAX {
        match from.read_u8().await {
            Ok(b'\n') | Err(_) => break,
            Ok(byte) => line.push(byte),
        }
    }
    String::from_utf8_lossy(&line).into_owned()
}

/// Passes streams on until the command has ended, or its pod.
async fn follow(
    pod: &ReadyPod,
    begun: Begun,
    (input, mut output, mut errors): (Option<Reader>, pipe::Sender, pipe::Sender),
) -> End {
    let Begun {
        _process,
        mut stdin,
        mut stdout,
        mut stderr,
        status,
    } = begun;
    let sending = async {
        if let Some(mut input) = input {
            let _ = tokio::io::copy(&mut input, &mut stdin).await;
            let _ = stdin.shutdown().await;
        }
        // Nothing more is read, but the end of the input may end a connection.
        std::future::pending::<()>().await;
    };
    let taking = async {
        let out = tokio::io::copy(&mut stdout, &mut output);
        let err = tokio::io::copy(&mut stderr, &mut errors);
        let _ = tokio::join!(out, err);
        status.await
    };
    tokio::pin!(taking);
    let status = tokio::select! {
        status = &mut taking => status,
        () = sending => None,
        ending = pod.ending() => {
            let _ = tokio::time::timeout(LAST_WORDS_MAX, taking).await;
            return ending.end;
        }
    };
    match told(status) {
        Told::Exited(code) => End::Exited(code),
        Told::Failed(why) => {
            tracing::warn!(pod = %pod.name, %why, "nobody knows how a command ended");
            ended_soon(pod).await.map_or(End::Gone, |ending| ending.end)
        }
    }
}

/// How the pod ended, if it has or does so now.
async fn ended_soon(pod: &ReadyPod) -> Option<Ending> {
    if let Fate::Ended(ending) = &*pod.fate.borrow() {
        return Some(ending.clone());
    }
    tokio::time::timeout(LAG_MAX, pod.ending()).await.ok()
}

/// What an exit status means, where these signals were sent. Without that nobody can tell a signal from
/// the exit status that stands for it.
async fn meant(pod: &ReadyPod, code: i32, sent: &BTreeSet<i32>) -> End {
    let signal = code - SIGNALLED;
    if sent.contains(&signal) {
        return End::Killed(signal);
    }
    if signal == KILL
        && let Some(ending) = ended_soon(pod).await
    {
        return ending.end;
    }
    End::Exited(code)
}
