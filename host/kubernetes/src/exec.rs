//! Runs scripts in a pod to their end.

use std::fs::File;
use std::io;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::Api;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use treadle_sandbox::random_name;

use crate::client::{Failure, short};
use crate::connection::{Connection, connect};
use crate::script;

/// Length of the last line of a script.
const LAST_CHARS: usize = 24;
/// Maximum size of the kept error output.
const ERRORS_BYTES_MAX: u64 = 4 << 10;

/// The result of a script.
#[derive(Debug)]
pub(crate) struct ScriptResult {
    /// Its exit status.
    pub(crate) code: i32,
    /// Its error output, shortened.
    pub(crate) errors: String,
}

/// The end of an `exec`, as reported by the API server.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum ExecEnd {
    /// It exited with a status.
    Exited(i32),
    /// It did not run to its end, for this reason.
    Failed(String),
    /// The connection broke; its end is unknown.
    Unknown,
}

/// The meaning of the status of an `exec`.
pub(crate) fn exec_end(status: Option<Status>) -> ExecEnd {
    let Some(status) = status else {
        return ExecEnd::Unknown;
    };
    if status.status.as_deref() == Some("Success") {
        return ExecEnd::Exited(0);
    }
    let causes = status
        .details
        .and_then(|details| details.causes)
        .unwrap_or_default();
    let mut codes = causes
        .into_iter()
        .filter(|cause| cause.reason.as_deref() == Some("ExitCode"));
    let code = codes
        .next()
        .and_then(|cause| cause.message?.trim().parse().ok());
    match code.filter(|_| status.reason.as_deref() == Some("NonZeroExitCode")) {
        Some(code) => ExecEnd::Exited(code),
        None => ExecEnd::Failed(short(&status.message.unwrap_or_default())),
    }
}

/// Starts a script in a pod. Its input follows; if it `has_input`, the protocol must be able to
/// close that.
pub(crate) async fn begin(
    api: &Api<Pod>,
    pod: &str,
    text: &str,
    has_input: bool,
) -> Result<Connection, Failure> {
    let last = random_name(LAST_CHARS).map_err(|error| Failure::Lost(error.to_string()))?;
    let mut connection = connect(api, pod, &script::READER, has_input).await?;
    let sent = connection.stdin.write_all(&script::read(&last, text)).await;
    sent.map_err(|_| Failure::Broken)?;
    Ok(connection)
}

/// Runs a script with a file as its input, and reads at most `output_max` bytes of output.
///
/// # Errors
/// If its result is unknown, or it took longer than `max`.
pub(crate) async fn run(
    api: &Api<Pod>,
    pod: &str,
    text: &str,
    input: Option<File>,
    output: impl AsyncWrite + Send + Unpin,
    output_max: u64,
    max: Duration,
) -> io::Result<ScriptResult> {
    let carried = carry(api, pod, text, input, output, output_max);
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the pod did not answer in time");
    tokio::time::timeout(max, carried).await.map_err(late)?
}

async fn carry(
    api: &Api<Pod>,
    pod: &str,
    text: &str,
    input: Option<File>,
    mut output: impl AsyncWrite + Send + Unpin,
    output_max: u64,
) -> io::Result<ScriptResult> {
    // Scripts know how many bytes to read, so the input is not closed.
    let begun = begin(api, pod, text, false).await;
    let Connection {
        mut stdin,
        stdout,
        stderr,
        status,
        passing: _passing,
    } = begun.map_err(|failure| io::Error::other(failure.to_string()))?;
    let sending = async {
        if let Some(input) = input {
            // If the script ends before reading everything, its result says why.
            let _ = tokio::io::copy(&mut tokio::fs::File::from_std(input), &mut stdin).await;
        }
    };
    let taking = async {
        let mut stdout = stdout.take(output_max);
        tokio::io::copy(&mut stdout, &mut output).await?;
        output.flush().await
    };
    let ((), taken, errors) = tokio::join!(sending, taking, in_short(stderr));
    taken?;
    let ended = status.await.ok();
    match exec_end(ended) {
        ExecEnd::Exited(code) => Ok(ScriptResult { code, errors }),
        ExecEnd::Unknown => Err(io::Error::other(Failure::Broken.to_string())),
        ExecEnd::Failed(why) => Err(io::Error::other(
            format!("{why} {errors}").trim().to_owned(),
        )),
    }
}

/// Reads all error output, and keeps the beginning.
pub(crate) async fn in_short(mut from: impl AsyncRead + Unpin) -> String {
    let mut kept = Vec::new();
    let _ = (&mut from)
        .take(ERRORS_BYTES_MAX)
        .read_to_end(&mut kept)
        .await;
    let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    short(&String::from_utf8_lossy(&kept))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_end_of_an_exec_is_read_from_its_status() {
        let of = |status| exec_end(serde_json::from_value(status).expect("a status"));
        assert_eq!(of(json!({"status": "Success"})), ExecEnd::Exited(0));
        let exited = |reason: &str, code: &str| {
            json!({
                "status": "Failure", "reason": reason, "message": "m",
                "details": {"causes": [{"reason": "ExitCode", "message": code}]},
            })
        };
        assert_eq!(of(exited("NonZeroExitCode", "7")), ExecEnd::Exited(7));
        assert_eq!(
            of(exited("NonZeroExitCode", "x")),
            ExecEnd::Failed("m".to_owned())
        );
        assert_eq!(
            of(exited("InternalError", "7")),
            ExecEnd::Failed("m".to_owned())
        );
        assert_eq!(exec_end(None), ExecEnd::Unknown);
    }
}
