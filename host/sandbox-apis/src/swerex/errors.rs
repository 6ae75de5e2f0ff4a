//! Errors in the format of SWE-ReX's server: the client raises the named class.

use super::text::repr;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use treadle_runs::actions::Failure;
use treadle_sandbox::SandboxError;
use utoipa::ToSchema;

/// The class of errors without a class of their own.
const ANY: &str = "swerex.exceptions.SwerexException";
pub(super) const BAD_SYNTAX: &str = "swerex.exceptions.BashIncorrectSyntaxError";
pub(super) const COMMAND_TIMEOUT: &str = "swerex.exceptions.CommandTimeoutError";
pub(super) const ENDED: &str = "pexpect.exceptions.EOF";
pub(super) const NO_EXIT_CODE: &str = "swerex.exceptions.NoExitCodeError";
pub(super) const NON_ZERO: &str = "swerex.exceptions.NonZeroExitCodeError";
pub(super) const SESSION_EXISTS: &str = "swerex.exceptions.SessionExistsError";
pub(super) const SESSION_UNKNOWN: &str = "swerex.exceptions.SessionDoesNotExistError";
pub(super) const TIMEOUT: &str = "pexpect.exceptions.TIMEOUT";
pub(super) const BAD_ARCHIVE: &str = "zipfile.BadZipFile";
pub(super) const VALUE: &str = "builtins.ValueError";
const FILE_MISSING: &str = "builtins.FileNotFoundError";

/// An error that the client raises.
#[derive(Debug)]
pub(super) struct Problem {
    class: &'static str,
    message: String,
    extra: BTreeMap<&'static str, String>,
}

/// An error that the client raises.
#[derive(Serialize, ToSchema)]
pub(super) struct SwerexFailed {
    swerexception: SwerexException,
}

/// An exception of the client's.
#[derive(Serialize, ToSchema)]
struct SwerexException {
    message: String,
    /// The class, after its module.
    class_path: &'static str,
    /// Empty.
    traceback: &'static str,
    /// For errors of a syntax check: `bash_stdout` and `bash_stderr`.
    extra_info: BTreeMap<&'static str, String>,
}

impl Problem {
    pub(super) fn new(class: &'static str, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
            extra: BTreeMap::new(),
        }
    }

    /// An error without a class of its own.
    pub(super) fn plain(message: impl Into<String>) -> Self {
        Self::new(ANY, message)
    }

    pub(super) fn with(mut self, name: &'static str, text: String) -> Self {
        self.extra.insert(name, text);
        self
    }

    /// The exception that Python raises for an error of a file.
    pub(super) fn of_file(path: &str, error: &io::Error) -> Self {
        let known = KINDS.iter().find(|(kind, ..)| *kind == error.kind());
        if let Some((_, class, number, words)) = known {
            return Self::new(class, format!("[Errno {number}] {words}: {}", repr(path)));
        }
        Self::new("builtins.OSError", format!("{path}: {error}"))
    }
}

/// Errors of files: class, errno and message.
const KINDS: [(io::ErrorKind, &str, i32, &str); 8] = [
    (
        io::ErrorKind::NotFound,
        FILE_MISSING,
        2,
        "No such file or directory",
    ),
    (
        io::ErrorKind::PermissionDenied,
        "builtins.PermissionError",
        13,
        "Permission denied",
    ),
    (
        io::ErrorKind::AlreadyExists,
        "builtins.FileExistsError",
        17,
        "File exists",
    ),
    (
        io::ErrorKind::NotADirectory,
        "builtins.NotADirectoryError",
        20,
        "Not a directory",
    ),
    (
        io::ErrorKind::IsADirectory,
        "builtins.IsADirectoryError",
        21,
        "Is a directory",
    ),
    (
        io::ErrorKind::FileTooLarge,
        "builtins.OSError",
        27,
        "File too large",
    ),
    (
        io::ErrorKind::StorageFull,
        "builtins.OSError",
        28,
        "No space left on device",
    ),
    (
        io::ErrorKind::ReadOnlyFilesystem,
        "builtins.OSError",
        30,
        "Read-only file system",
    ),
];

impl From<SandboxError> for Problem {
    fn from(error: SandboxError) -> Self {
        match &error {
            SandboxError::File { path, error } => Self::of_file(path, error),
            SandboxError::Command(cause) => of_command(cause),
            _ => Self::plain(error.to_string()),
        }
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(error) if error.param.as_deref() == Some("command") => {
                of_command(&error.message)
            }
            Failure::Refused(error) => Self::plain(error.message),
            Failure::Stopped => Self::plain("treadle is shutting down"),
            Failure::Store(error) => {
                tracing::error!(%error, "the store failed");
                Self::plain("the store failed; see the log")
            }
        }
    }
}

/// The exception that Python raises if a program can't be started, from the sandbox's error.
fn of_command(cause: &str) -> Problem {
    if let Some(cwd) = cause.strip_prefix("cwd: ") {
        let path = cwd.split(": ").next().unwrap_or(cwd);
        let path = path.strip_suffix(" is not a folder").unwrap_or(path);
        return Problem::of_file(path, &io::ErrorKind::NotFound.into());
    }
    let (program, why) = cause.rsplit_once(": ").unwrap_or((cause, ""));
    if why == "not found" {
        return Problem::of_file(program, &io::ErrorKind::NotFound.into());
    }
    if why.starts_with("Permission denied") {
        return Problem::of_file(program, &io::ErrorKind::PermissionDenied.into());
    }
    Problem::new("builtins.OSError", cause)
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = SwerexFailed {
            swerexception: SwerexException {
                message: self.message,
                class_path: self.class,
                traceback: "",
                extra_info: self.extra,
            },
        };
        (StatusCode::NETWORK_AUTHENTICATION_REQUIRED, Json(body)).into_response()
    }
}

impl From<Problem> for Response {
    fn from(problem: Problem) -> Self {
        problem.into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_does_not_start_has_pythons_error() {
        for (cause, class, message) in [
            (
                "x y: not found",
                FILE_MISSING,
                "[Errno 2] No such file or directory: 'x y'",
            ),
            (
                "cwd: /no: No such",
                FILE_MISSING,
                "[Errno 2] No such file or directory: '/no'",
            ),
            (
                "cwd: /f is not a folder",
                FILE_MISSING,
                "[Errno 2] No such file or directory: '/f'",
            ),
            (
                "/etc/f: Permission denied (os error 13)",
                "builtins.PermissionError",
                "[Errno 13] Permission denied: '/etc/f'",
            ),
        ] {
            let problem = of_command(cause);
            assert_eq!((problem.class, problem.message.as_str()), (class, message));
        }
    }
}
