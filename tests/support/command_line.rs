//! The command line as an operator uses it: the built binary, its output and its exit code.

use std::process::{Command, Output};

use serde_json::Value;

use super::process::binary;

/// The output and exit code of a command.
#[derive(Debug)]
pub struct Ended {
    /// Whether it ended with code 0.
    pub success: bool,
    /// The code that it ended with.
    pub code: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Ended {
    /// The standard output as JSON of a command that must succeed.
    pub fn ok(self) -> Value {
        assert!(self.success, "{}{}", self.stdout, self.stderr);
        let parsed = serde_json::from_str(&self.stdout);
        parsed.unwrap_or_else(|error| panic!("no JSON, {error}: {}", self.stdout))
    }

    /// The standard error of a command that must fail.
    pub fn refused(self) -> String {
        assert!(!self.success, "it succeeded: {}", self.stdout);
        self.stderr
    }

    /// All that it printed.
    pub fn all(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

/// Runs `treadle` with these arguments until it ends.
pub fn treadle(arguments: &[&str]) -> Ended {
    let output = Command::new(binary()).args(arguments).output();
    ended(&output.expect("the binary runs"))
}

/// Runs another program that must succeed; returns its output.
pub fn said(command: &mut Command) -> String {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?} does not run: {error}"));
    let ended = ended(&output);
    assert!(ended.success, "{command:?}: {}", ended.all());
    ended.stdout
}

fn ended(output: &Output) -> Ended {
    Ended {
        success: output.status.success(),
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
