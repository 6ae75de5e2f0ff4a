//! Running a command in a shell, and the response for it.

use super::errors::{BAD_SYNTAX, COMMAND_TIMEOUT, NO_EXIT_CODE, NON_ZERO, Problem, VALUE};
use super::execute::bound;
use super::sessions::{SessionType, default_name, ended, unknown};
use super::text::{decoded, of_terminal, repr};
use super::{KIND, seconds};
use regex::bytes::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;
use treadle_actions::Capture;
use treadle_runs::sandboxes::{
    Became, CommandAction, Host, PROMPT, Shell, Task, WITHDRAWN, is_typable,
};
use treadle_sandbox::{End, Event, Exec, Input, Sandbox, Share};
use utoipa::ToSchema;

/// Longest command.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Most patterns of a command.
const PATTERNS_MAX: usize = 16;
/// Largest compiled pattern.
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// Timeout of the syntax check.
const SYNTAX_MAX: Duration = Duration::from_secs(10);
/// Longest output of the syntax check.
const SYNTAX_BYTES_MAX: usize = 64 << 10;

/// How the exit code is handled.
#[derive(Clone, Copy, Default, Deserialize, Eq, PartialEq, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Check {
    /// It is returned.
    Silent,
    /// An exit code other than 0 is an error.
    #[default]
    Raise,
    /// It is not returned.
    Ignore,
}

/// A command in a shell.
#[derive(Deserialize, ToSchema)]
pub(super) struct SwerexBash {
    /// The command for bash.
    command: String,
    /// The shell's name.
    #[serde(default = "default_name")]
    session: String,
    /// Timeout in seconds; default none.
    #[serde(default)]
    timeout: Option<f64>,
    /// Whether it is typed unchanged, as input for an interactive program.
    #[serde(default)]
    is_interactive_command: bool,
    /// Whether it is typed unchanged and ends an interactive program.
    #[serde(default)]
    is_interactive_quit: bool,
    /// How the exit code is handled: `silent`, `raise` or `ignore`.
    #[serde(default)]
    check: Check,
    /// Prefix of the message if the exit code is an error.
    #[serde(default)]
    error_msg: String,
    /// Regular expressions that, like the prompt, end the wait.
    #[serde(default)]
    expect: Vec<String>,
}

/// The result of a command.
#[derive(Serialize, ToSchema)]
pub(super) struct SwerexObservation {
    /// Its output and its errors.
    output: String,
    /// Its exit code, if returned.
    exit_code: Option<i32>,
    /// Empty.
    failure_reason: &'static str,
    /// The pattern that matched.
    expect_string: String,
    /// `bash`.
    session_type: SessionType,
}

impl SwerexObservation {
    pub(super) fn new(output: String, exit_code: Option<i32>, came: &str) -> Self {
        Self {
            output,
            exit_code,
            failure_reason: "",
            expect_string: came.to_owned(),
            session_type: SessionType::Bash,
        }
    }
}

/// Checks that a text can be a command.
pub(super) fn check_text(text: &str) -> Result<(), Problem> {
    if text.contains('\0') {
        return Err(Problem::new(VALUE, "embedded null byte"));
    }
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("the command has more than {TEXT_BYTES_MAX} bytes; write a file");
        return Err(Problem::new(VALUE, message));
    }
    Ok(())
}

impl SwerexBash {
    fn is_interactive(&self) -> bool {
        self.is_interactive_command || self.is_interactive_quit
    }

    /// Checks the request before anything runs. Returns the patterns to wait for in a shell with
    /// this prompt.
    fn check(&self, prompt: &str) -> Result<Vec<Regex>, Problem> {
        if self.is_interactive_command && self.is_interactive_quit {
            let message =
                "`is_interactive_command` and `is_interactive_quit` exclude each other; send one";
            return Err(Problem::new("builtins.AssertionError", message));
        }
        check_text(&self.command)?;
        if self.is_interactive() && !is_typable(&self.command) {
            let message = "a line is too long for a terminal; send at most 3,900 bytes";
            return Err(Problem::new(VALUE, message));
        }
        if self.expect.len() > PATTERNS_MAX {
            let message = format!("`expect` has more than {PATTERNS_MAX} patterns; send fewer");
            return Err(Problem::new(VALUE, message));
        }
        let own = self.expect.iter().map(|text| match text.as_str() {
            PROMPT => prompt,
            text => text,
        });
        // The prompt is a pattern only if there is no other sign of a command's end.
        let prompt = self.is_interactive().then_some(prompt);
        own.chain(prompt).map(pattern).collect()
    }

    fn late(&self) -> Problem {
        let after = self.timeout.unwrap_or_default();
        let command = repr(&self.command);
        let message = format!("timeout after {after:?} seconds while running command {command}");
        Problem::new(COMMAND_TIMEOUT, message)
    }

    /// The response for a command that ended.
    fn observed(&self, output: String, code: i32) -> Result<SwerexObservation, Problem> {
        if self.check == Check::Raise && code != 0 {
            let before = match self.error_msg.as_str() {
                "" => String::new(),
                text => format!("{text}: "),
            };
            let message = format!(
                "{before}Command {} failed with exit code {code}. Here is the output:\n{}",
                repr(&self.command),
                repr(&output)
            );
            return Err(Problem::new(NON_ZERO, message));
        }
        let code = (self.check != Check::Ignore).then_some(code);
        Ok(SwerexObservation::new(output, code, PROMPT))
    }

    /// The response for an interactive program.
    fn answered(&self, output: &[u8], which: usize) -> Result<SwerexObservation, Problem> {
        let output = of_terminal(output);
        let output = if self.is_interactive_command {
            // A program may echo what it reads.
            let text = output.trim_start();
            let text = text.strip_prefix(&self.command).unwrap_or(text);
            text.trim().to_owned()
        } else {
            output
        };
        let came = self.expect.get(which).map_or(PROMPT, String::as_str);
        if self.is_interactive() {
            return Ok(SwerexObservation::new(output, Some(0), came));
        }
        if self.check == Check::Raise {
            return Err(Problem::new(
                NO_EXIT_CODE,
                "timeout while getting exit code",
            ));
        }
        Ok(SwerexObservation::new(output, None, came))
    }
}

fn pattern(text: &str) -> Result<Regex, Problem> {
    let mut pattern = RegexBuilder::new(text);
    // As in Python with `re.DOTALL`, which is what clients' patterns are compiled with.
    pattern
        .dot_matches_new_line(true)
        .size_limit(PATTERN_BYTES_MAX);
    pattern.build().map_err(|error| {
        let message = format!(
            "`expect` has {}, which is not a supported pattern: {error}",
            repr(text)
        );
        Problem::new(VALUE, message)
    })
}

/// Runs a command in a shell of a sandbox.
pub(super) async fn run(
    host: &Host,
    sandbox: &Arc<Sandbox>,
    bash: &SwerexBash,
) -> Result<SwerexObservation, Problem> {
    let shell = host.shells.get(sandbox.id(), &bash.session);
    let shell = shell.ok_or_else(|| unknown(&bash.session))?;
    let patterns = bash.check(shell.prompt())?;
    let max = seconds("timeout", bash.timeout)?;
    sandbox.resume().await?;
    let turn = shell.turn(max.map(|max| Instant::now() + max)).await;
    let turn = turn.ok_or_else(|| bash.late())?;
    // A command that still runs there may take long: cores are not held meanwhile.
    if !bash.is_interactive() && !shell.rests(max.map(|max| Instant::now() + max)).await {
        return Err(bash.late());
    }
    let task = Task {
        kind: KIND,
        what: bash.command.clone(),
        run_max: max,
    };
    let mut held = CommandAction::wait(host, sandbox, &task).await?;
    if !bash.is_interactive() {
        let checked = check_syntax(sandbox, &shell, &turn, &bash.command, held.share()).await;
        if let Err(problem) = checked {
            held.end(End::Exited(2), false, Vec::new());
            return Err(problem);
        }
    }
    let until = max.map(|max| Instant::now() + max);
    let became = tokio::select! {
        became = typed(&shell, &turn, bash, &patterns, until) => became,
        () = held.stopped() => {
            held.withdraw();
            drop(turn);
            let _ = shell.interrupt(1, Duration::ZERO).await;
            return Err(Problem::plain(WITHDRAWN));
        }
    };
    let became = became.map_err(|error| Problem::plain(error.to_string()))?;
    told(bash, held, became)
}

async fn typed(
    shell: &Shell,
    turn: &OwnedMutexGuard<()>,
    bash: &SwerexBash,
    patterns: &[Regex],
    until: Option<Instant>,
) -> std::io::Result<Became> {
    if !bash.is_interactive() {
        return shell.run(turn, &bash.command, patterns, until).await;
    }
    let became = shell.talk(turn, &bash.command, patterns, until).await?;
    let is_prompt = |which: usize| patterns[which].as_str() == shell.prompt();
    let is_back = matches!(became, Became::Matched(_, which) if is_prompt(which));
    if bash.is_interactive_quit && is_back {
        // The program may have turned the echo on.
        let soon = Some(Instant::now() + SYNTAX_MAX);
        shell.run(turn, "stty -echo </dev/tty", &[], soon).await?;
    }
    Ok(became)
}

/// Ends the action, and returns the response.
fn told(
    bash: &SwerexBash,
    held: CommandAction,
    became: Became,
) -> Result<SwerexObservation, Problem> {
    match became {
        Became::Ended(output, code) => {
            let end = held.end(End::Exited(code), false, output.clone());
            let mut output = of_terminal(&output);
            output.push_str(bound(end).unwrap_or_default());
            bash.observed(output, code)
        }
        Became::Matched(output, which) => {
            held.end(End::Exited(0), false, output.clone());
            bash.answered(&output, which)
        }
        Became::Late => {
            held.end(End::Gone, true, Vec::new());
            Err(bash.late())
        }
        Became::Gone(output) => {
            held.end(End::Gone, false, output.clone());
            Err(ended(&output))
        }
    }
}

/// Checks that a shell can parse a command.
async fn check_syntax(
    sandbox: &Arc<Sandbox>,
    shell: &Shell,
    turn: &OwnedMutexGuard<()>,
    text: &str,
    share: Share,
) -> Result<(), Problem> {
    let Err(problem) = read_by_bash(sandbox, &[], text, share.clone()).await else {
        return Ok(());
    };
    // Shell options may make it valid: those that are set, or that the command sets first.
    let mut options = shell.reads_so(turn).await;
    if text.contains("shopt -s") && text.contains("extglob") {
        options.extend(["-O", "extglob"]);
    }
    if options.is_empty() {
        return Err(problem);
    }
    read_by_bash(sandbox, &options, text, share).await
}

/// Whether another bash with these options can parse a command.
async fn read_by_bash(
    sandbox: &Arc<Sandbox>,
    options: &[&str],
    text: &str,
    share: Share,
) -> Result<(), Problem> {
    let exec = Exec {
        input: Input::Bytes(text.as_bytes().to_vec()),
        share,
        ..Exec::new(
            ["/usr/bin/env", "bash", "-n"]
                .iter()
                .chain(options)
                .copied(),
        )
    };
    let mut running = sandbox.run(exec).await?;
    let mut output = Capture::new(SYNTAX_BYTES_MAX);
    let mut errors = Capture::new(SYNTAX_BYTES_MAX);
    let take = |event: &Event| match event {
        Event::Output(bytes) => output.take(bytes),
        Event::Errors(bytes) => errors.take(bytes),
        Event::Ended(_) => {}
    };
    let (end, _) = running.follow(SYNTAX_MAX, take).await;
    let End::Exited(code @ 1..=2) = end else {
        return Ok(());
    };
    let (output, errors) = (decoded(&output.finish()), decoded(&errors.finish()));
    let message = format!(
        "Error (exit code {code}) while checking bash command \n{}\n---- Stderr ----\n{errors}\n\
         ---- Stdout ----\n{output}",
        repr(text)
    );
    let problem = Problem::new(BAD_SYNTAX, message);
    Err(problem
        .with("bash_stdout", output)
        .with("bash_stderr", errors))
}
