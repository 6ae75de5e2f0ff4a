//! envd's `process.Process`: commands of a sandbox.

use super::connect::{self, Code, Fault, Sender};
use super::input::{self, Messages};
use super::routing::{Reached, reach};
use super::start::{self, follow};
use super::users::bytes_of;
use super::{CONNECT_JSON, JSON};
use axum::extract::{Request, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use treadle_auth::Caller;
use treadle_endpoints::arguments::InPath;
use treadle_runs::sandboxes::{Process, SandboxApp};

/// Default timeout of a unary call.
const CALL_MAX: Duration = Duration::from_mins(1);
/// `SIGTERM`.
const TERM: i32 = 15;

/// A command, by its process id or its client's tag.
#[derive(Default, Deserialize)]
pub(super) struct Selector {
    pid: Option<u32>,
    tag: Option<String>,
}

/// A client's request about a running command.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ProcessRequest {
    process: Option<Selector>,
    input: Option<Input>,
    signal: Option<Value>,
    /// Whether stored earlier output is sent too.
    replay: Option<Value>,
}

#[derive(Deserialize)]
struct Input {
    stdin: Option<String>,
    pty: Option<String>,
}

/// A message of a stream of input.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Inward {
    start: Option<ProcessRequest>,
    data: Option<ProcessRequest>,
}

pub(super) async fn serve(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(method): InPath<String>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let reached = match reach(&app, &caller, &parts.headers, None).await {
        Ok(reached) => reached,
        Err(refusal) => return refusal,
    };
    let is_stream = matches!(&*method, "Start" | "Connect" | "StreamInput");
    let kind = if is_stream { CONNECT_JSON } else { JSON };
    if !connect::is_of_kind(&parts.headers, kind) {
        return connect::other_kind(kind);
    }
    if method == "StreamInput" {
        return connect::stream(move |sender| async move {
            stream_input(&reached, Messages::of(body)).await?;
            sender.send(&json!({})).await;
            Ok(())
        });
    }
    let bytes = match input::whole(&app, &reached.principal, &parts.headers, body).await {
        Ok(bytes) => bytes,
        Err(error) => return connect::refuse(Fault::from(&error), is_stream),
    };
    let headers = parts.headers;
    match &*method {
        "Start" => connect::stream(|sender| start::start(reached, headers, bytes, sender)),
        "Connect" => {
            let until = connect::timeout(&headers).map(|max| Instant::now() + max);
            let keepalive = connect::keepalive(&headers);
            connect::stream(move |sender| async move {
                attach(&reached, &bytes, &sender, keepalive, until).await
            })
        }
        _ => {
            let max = connect::timeout(&headers).unwrap_or(CALL_MAX).min(CALL_MAX);
            let answered = timeout_at(Instant::now() + max, call(&reached, &method, &bytes)).await;
            connect::unary(answered.unwrap_or_else(|_| Err(connect::late())))
        }
    }
}

async fn call(reached: &Reached, method: &str, bytes: &[u8]) -> Result<Value, Fault> {
    if method == "List" {
        let processes = reached.host.processes.list(reached.sandbox.id());
        let processes: Vec<Value> = processes.iter().map(|process| listed(process)).collect();
        return Ok(json!({"processes": processes}));
    }
    let request: ProcessRequest = connect::message(bytes)?;
    match method {
        "SendInput" => {
            let process = find(reached, request.process.as_ref())?;
            write(&process, request.input).await?;
        }
        "CloseStdin" => {
            find(reached, request.process.as_ref())?.close_stdin().await;
        }
        "SendSignal" => {
            let process = find(reached, request.process.as_ref())?;
            signal(&process, request.signal.as_ref()).await?;
        }
        "Update" => return Err(without_pty()),
        _ => {
            let message = format!("treadle does not serve process.Process/{method} of envd");
            return Err(Fault::new(Code::Unimplemented, message));
        }
    }
    Ok(json!({}))
}

pub(super) fn without_pty() -> Fault {
    let message = "treadle's sandboxes have no pty (pseudo-terminal); run the command without one";
    Fault::new(Code::Unimplemented, message)
}

fn listed(process: &Process) -> Value {
    let description = &process.description;
    let mut config =
        json!({"cmd": description.program, "args": description.args, "envs": description.env});
    if let Some(cwd) = &description.cwd {
        config["cwd"] = json!(cwd);
    }
    let mut listed = json!({"config": config, "pid": process.pid});
    if let Some(tag) = &description.tag {
        listed["tag"] = json!(tag);
    }
    listed
}

fn find(reached: &Reached, selector: Option<&Selector>) -> Result<Arc<Process>, Fault> {
    let all = reached.host.processes.list(reached.sandbox.id());
    let found = match selector {
        Some(Selector { pid: Some(pid), .. }) => all.into_iter().find(|one| one.pid == *pid),
        Some(Selector {
            tag: tag @ Some(_), ..
        }) => all.into_iter().find(|one| one.description.tag == *tag),
        _ => return Err(Fault::invalid("`process` must have `pid` or `tag`")),
    };
    found.ok_or_else(|| {
        let message = "no such process, or it has ended";
        Fault::new(Code::NotFound, message)
    })
}

async fn write(process: &Process, input: Option<Input>) -> Result<(), Fault> {
    let text = match input {
        Some(Input { pty: Some(_), .. }) => return Err(without_pty()),
        Some(Input {
            stdin: Some(text), ..
        }) => text,
        _ => return Err(Fault::invalid("`input` must have `stdin`")),
    };
    let bytes = bytes_of(&text).ok_or_else(|| Fault::invalid("`stdin` is not base64"))?;
    let written = process.write(&bytes).await;
    written.map_err(|error| {
        let message = format!("the process does not read its input: {error}");
        Fault::new(Code::FailedPrecondition, message)
    })
}

async fn signal(process: &Process, signal: Option<&Value>) -> Result<(), Fault> {
    let sent = match signal {
        Some(Value::String(name)) if name == "SIGNAL_SIGKILL" => process.kill().await,
        Some(Value::String(name)) if name == "SIGNAL_SIGTERM" => process.terminate(TERM).await,
        Some(Value::Number(number)) if number.as_u64() == Some(9) => process.kill().await,
        Some(Value::Number(number)) if number.as_u64() == Some(15) => process.terminate(TERM).await,
        _ => {
            let message = "`signal` must be SIGNAL_SIGKILL or SIGNAL_SIGTERM";
            return Err(Fault::invalid(message));
        }
    };
    sent.map_err(|_| Fault::gone())
}

/// Streams a process's output to a client.
async fn attach(
    reached: &Reached,
    bytes: &[u8],
    sender: &Sender,
    keepalive: Duration,
    until: Option<Instant>,
) -> Result<(), Fault> {
    let request: ProcessRequest = connect::only(bytes)?;
    let process = find(reached, request.process.as_ref())?;
    let with_before = matches!(request.replay, Some(Value::Bool(true)));
    let reader = process.attach(with_before).ok_or_else(|| {
        let message =
            "the limit on clients that read the process is reached; close another stream first";
        Fault::new(Code::ResourceExhausted, message)
    })?;
    follow(reader, sender, keepalive, until).await
}

/// Streams a client's input to a process.
async fn stream_input(reached: &Reached, mut messages: Messages) -> Result<(), Fault> {
    let mut process = None;
    while let Some(envelope) = messages.next().await? {
        let [message] = connect::envelopes(&envelope)?[..] else {
            continue;
        };
        let inward: Inward = connect::message(message)?;
        if let Some(start) = inward.start {
            process = Some(find(reached, start.process.as_ref())?);
        }
        if let Some(data) = inward.data {
            let process = process
                .as_ref()
                .ok_or_else(|| Fault::invalid("`start` must come first"))?;
            write(process, data.input).await?;
        }
    }
    Ok(())
}
