//! Commands outside of shells, as `subprocess.run` runs them.

use super::errors::{COMMAND_TIMEOUT, NON_ZERO, Problem, VALUE};
use super::text::{decoded, repr};
use super::{JsonBody, KIND, OUTPUT_BYTES_MAX, own, seconds};
use axum::extract::State;
use axum::response::Json;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use treadle_auth::Caller;
use treadle_endpoints::arguments::InPath;
use treadle_endpoints::signature::Answer;
use treadle_runs::sandboxes::{SandboxApp, Task, WITHDRAWN};
use treadle_sandbox::{End, Exec};
use utoipa::ToSchema;

/// A command outside of shells.
#[derive(Deserialize, ToSchema)]
pub(super) struct SwerexCommand {
    /// A program, a program with its arguments, or with `shell` a shell command.
    command: Words,
    /// Timeout in seconds.
    #[serde(default)]
    timeout: Option<f64>,
    /// Whether a shell reads it.
    #[serde(default)]
    shell: bool,
    /// Whether an exit code other than 0 is an error.
    #[serde(default)]
    check: bool,
    /// Prefix of the message of that error.
    #[serde(default)]
    error_msg: String,
    /// All its environment variables; default those of the sandbox.
    #[serde(default)]
    env: Option<BTreeMap<String, String>>,
    /// Its working directory; default root's home.
    #[serde(default)]
    cwd: Option<String>,
    /// Whether its standard error is merged into its output.
    #[serde(default)]
    merge_output_streams: bool,
}

/// Text, or a list of words.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
enum Words {
    /// Text.
    Text(String),
    /// Words.
    List(Vec<String>),
}

/// The result of a command.
#[derive(Serialize, ToSchema)]
pub(super) struct SwerexOutput {
    /// Its output.
    stdout: String,
    /// Its standard error.
    stderr: String,
    /// The exit code; the negated signal if one ended it.
    exit_code: i32,
}

impl SwerexCommand {
    /// The program and its arguments.
    fn words(&self) -> Result<Vec<String>, Problem> {
        let mut words = match (&self.command, self.shell) {
            (Words::Text(text), false) => vec![text.clone()],
            (Words::List(list), false) => list.clone(),
            (Words::Text(text), true) => vec!["/bin/sh".into(), "-c".into(), text.clone()],
            (Words::List(list), true) => {
                let shell = ["/bin/sh".to_owned(), "-c".to_owned()];
                shell.into_iter().chain(list.iter().cloned()).collect()
            }
        };
        let is_empty = words.is_empty() || (self.shell && words.len() < 3);
        let variables = self.env.iter().flatten();
        let is_wrong = variables.clone().any(|(name, value)| {
            name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
        });
        if is_empty || is_wrong || words.iter().any(|word| word.contains('\0')) {
            let message = "the command is empty, has a NUL character, or sets a variable with an \
                           invalid name";
            return Err(Problem::new(VALUE, message));
        }
        if self.env.is_some() {
            // The sandbox's variables must not be visible then.
            let mut before = vec!["/usr/bin/env".to_owned(), "-i".to_owned()];
            before.extend(variables.map(|(name, value)| format!("{name}={value}")));
            words.splice(0..0, before);
        }
        Ok(words)
    }

    fn repr(&self) -> String {
        match &self.command {
            Words::Text(text) => repr(text),
            Words::List(list) => {
                let words: Vec<_> = list.iter().map(|word| repr(word)).collect();
                format!("[{}]", words.join(", "))
            }
        }
    }
}

pub(super) async fn execute(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(id): InPath<String>,
    JsonBody(command): JsonBody<SwerexCommand>,
) -> Answer<SwerexOutput> {
    let (host, sandbox) = own(&app, &caller, &id)?;
    let words = command.words()?;
    let task = Task {
        kind: KIND,
        what: match &command.command {
            Words::Text(text) => text.clone(),
            Words::List(list) => list.join(" "),
        },
        run_max: seconds("timeout", command.timeout)?,
    };
    let exec = Exec {
        cwd: command.cwd.clone().unwrap_or_default(),
        merged: command.merge_output_streams,
        ..Exec::new(words)
    };
    let work = host.run(&sandbox, task, exec).await;
    let mut work = work.map_err(Problem::from)?;
    let (output, told, end) = work.follow(OUTPUT_BYTES_MAX).await;
    let mut result = SwerexOutput {
        stdout: decoded(&output),
        stderr: decoded(&told),
        exit_code: 0,
    };
    if work.is_late() {
        let after = command.timeout.unwrap_or_default();
        let message = format!("Timeout ({after:?}s) exceeded while running command");
        return Err(Problem::new(COMMAND_TIMEOUT, message).into());
    }
    if work.is_withdrawn() {
        return Err(Problem::plain(WITHDRAWN).into());
    }
    result.exit_code = exit_code(end)?;
    if let Some(why) = bound(end) {
        let place = if command.merge_output_streams {
            &mut result.stdout
        } else {
            &mut result.stderr
        };
        place.push_str(why);
    }
    if command.check && result.exit_code != 0 {
        return Err(non_zero(&command, &result).into());
    }
    Ok(Json(result))
}

fn non_zero(command: &SwerexCommand, result: &SwerexOutput) -> Problem {
    let before = match command.error_msg.as_str() {
        "" => String::new(),
        text => format!("{text}: "),
    };
    let message = format!(
        "{before}Command {} failed with exit code {}. Stdout:\n{}\nStderr:\n{}",
        command.repr(),
        result.exit_code,
        repr(&result.stdout),
        repr(&result.stderr)
    );
    Problem::new(NON_ZERO, message)
}

/// The exit code in Python's convention.
fn exit_code(end: End) -> Result<i32, Problem> {
    match end {
        End::Exited(code) => Ok(code),
        End::Killed(signal) => Ok(-signal),
        End::OutOfMemory | End::OutOfDisk => Ok(-9),
        End::Gone => Err(Problem::plain(
            "the sandbox's processes ended while the command ran",
        )),
    }
}

/// The limit that ended the command, which its own output can't show.
pub(super) fn bound(end: End) -> Option<&'static str> {
    match end {
        End::OutOfMemory => Some("\n[treadle: the sandbox ran out of memory]\n"),
        End::OutOfDisk => Some("\n[treadle: the sandbox exceeded its disk limit]\n"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn words(request: Value) -> Option<Vec<String>> {
        let command: SwerexCommand = serde_json::from_value(request).expect("a command");
        command.words().ok()
    }

    #[test]
    fn a_command_becomes_what_subprocess_makes_of_it() {
        for (request, expected) in [
            (json!({"command": "echo hi"}), vec!["echo hi"]),
            (json!({"command": ["a", "b"]}), vec!["a", "b"]),
            (
                json!({"command": "a b", "shell": true}),
                vec!["/bin/sh", "-c", "a b"],
            ),
            (
                json!({"command": ["a", "b"], "shell": true}),
                vec!["/bin/sh", "-c", "a", "b"],
            ),
            (
                json!({"command": "a", "env": {"A": "1"}}),
                vec!["/usr/bin/env", "-i", "A=1", "a"],
            ),
        ] {
            assert_eq!(words(request).expect("right"), expected);
        }
        assert!(words(json!({"command": []})).is_none());
        assert!(words(json!({"command": [], "shell": true})).is_none());
        assert!(words(json!({"command": "a", "env": {"A=": "1"}})).is_none());
    }
}
