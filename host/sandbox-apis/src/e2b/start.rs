//! Starting commands as envd does, and sending their output as its events.

use super::connect::{self, Code, Fault, Sender};
use super::process::without_pty;
use super::routing::Reached;
use super::users::{User, Users, base64_of, named_user};
use axum::body::Bytes;
use axum::http::{HeaderMap, header};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};
use treadle_runs::sandboxes::{
    CommandDescription, Finish, LogMessage, NotStarted, Order, Reader, Way,
};
use treadle_sandbox::{End, Exec, Input, SandboxError};

/// The tool name of these commands.
const KIND: &str = "e2b";

/// A command to be started.
#[derive(Deserialize)]
struct Starting {
    process: Option<Config>,
    pty: Option<Value>,
    tag: Option<String>,
    /// Whether it gets input; default true.
    stdin: Option<bool>,
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    cmd: String,
    args: Option<Vec<String>>,
    envs: Option<BTreeMap<String, String>>,
    cwd: Option<String>,
}

/// Starts a command and streams its events. A command without a timeout runs in the background; any
/// other is an action and ends at the client's timeout.
pub(super) async fn start(
    reached: Reached,
    headers: HeaderMap,
    bytes: Bytes,
    sender: Sender,
) -> Result<(), Fault> {
    let until = connect::timeout(&headers).map(|max| Instant::now() + max);
    let starting: Starting = connect::only(&bytes)?;
    drop(bytes);
    let authorization = headers.get(header::AUTHORIZATION);
    let name = named_user(authorization.and_then(|value| value.to_str().ok()));
    let order = order(&reached, starting, &name, until).await?;
    let Reached { host, sandbox, .. } = &reached;
    let started = host.processes.start(host, sandbox, order).await;
    let reader = started.map_err(|error| match error {
        NotStarted::Late => connect::late(),
        NotStarted::Failed(failure) => Fault::from(failure),
    })?;
    // The process itself ends at its time.
    follow(reader, &sender, connect::keepalive(&headers), None).await
}

async fn order(
    reached: &Reached,
    starting: Starting,
    user: &str,
    until: Option<Instant>,
) -> Result<Order, Fault> {
    if starting.pty.is_some() {
        return Err(without_pty());
    }
    let tag = starting.tag.as_deref().unwrap_or_default();
    if tag.contains(char::is_control) {
        return Err(Fault::invalid(
            "`tag` has a control character; leave it out",
        ));
    }
    let config = starting.process.filter(|config| !config.cmd.is_empty());
    let config = config.ok_or_else(|| Fault::invalid("`process.cmd` is missing"))?;
    let user = Users::of(&reached.sandbox)
        .await
        .find(user)
        .ok_or_else(|| {
            Fault::new(
                Code::Unauthenticated,
                format!("no user {user} in the sandbox"),
            )
        })?;
    let cwd = user
        .path(config.cwd.as_deref().unwrap_or_default())
        .map_err(Fault::invalid)?;
    if cwd == user.home {
        make_home(reached, &user).await?;
    }
    let description = CommandDescription {
        program: config.cmd,
        args: config.args.unwrap_or_default(),
        env: config.envs.unwrap_or_default(),
        cwd: config.cwd,
        tag: starting.tag,
    };
    let command = std::iter::once(&description.program)
        .chain(&description.args)
        .cloned();
    let own = reached.sandbox.status().spec.env;
    let exec = Exec {
        env: variables(&user, &own, &description.env),
        cwd,
        user: Some(user.ids),
        input: if starting.stdin == Some(false) {
            Input::Nothing
        } else {
            Input::Piped
        },
        ..Exec::new(command)
    };
    Ok(Order {
        what: what(&description),
        description,
        exec,
        kind: KIND,
        until,
    })
}

/// Images need not have the user's home.
async fn make_home(reached: &Reached, user: &User) -> Result<(), Fault> {
    match reached.sandbox.stat(&user.home).await {
        Err(SandboxError::File { error, .. }) if error.kind() == ErrorKind::NotFound => {
            reached.sandbox.make_folder_as(user.ids, &user.home).await?;
            Ok(())
        }
        Err(error) => Err(error.into()),
        Ok(_) => Ok(()),
    }
}

/// Environment variables: the command's own override the sandbox's, and those override the user's.
fn variables(
    user: &User,
    of_sandbox: &BTreeMap<String, String>,
    own: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let of_user = [
        ("HOME", &user.home),
        ("USER", &user.name),
        ("LOGNAME", &user.name),
    ];
    let of_user = of_user
        .into_iter()
        .filter(|(name, _)| !of_sandbox.contains_key(*name));
    let mut all: BTreeMap<String, String> = of_user
        .map(|(name, value)| (name.to_owned(), value.clone()))
        .collect();
    all.extend(own.clone());
    all
}

/// A command for display: the text for a shell, or all words.
fn what(description: &CommandDescription) -> String {
    match &description.args[..] {
        [flags @ .., script] if flags.iter().any(|flag| flag == "-c") => script.clone(),
        args => format!("{} {}", description.program, args.join(" ")),
    }
}

/// Streams a process's events to a client, from its start to its end.
pub(super) async fn follow(
    mut reader: Reader,
    sender: &Sender,
    keepalive: Duration,
    until: Option<Instant>,
) -> Result<(), Fault> {
    let pid = reader.process().pid;
    sender
        .send(&json!({"event": {"start": {"pid": pid}}}))
        .await;
    loop {
        let message = tokio::select! {
            message = reader.next() => message,
            () = sleep(keepalive) => {
                sender.send(&json!({"event": {"keepalive": {}}})).await;
                continue;
            }
            () = at(until), if until.is_some() => return Err(connect::late()),
        };
        match message {
            LogMessage::Wrote(way, bytes) => {
                let way = if way == Way::Output {
                    "stdout"
                } else {
                    "stderr"
                };
                let text = base64_of(&bytes);
                sender.send(&json!({"event": {"data": {way: text}}})).await;
            }
            LogMessage::LeftOut(bytes) => {
                let mark = format!("[treadle: {bytes} earlier bytes were dropped]\n");
                let text = base64_of(mark.as_bytes());
                sender
                    .send(&json!({"event": {"data": {"stderr": text}}}))
                    .await;
            }
            LogMessage::LeftBehind => {
                let message = "the client reads too slowly";
                return Err(Fault::new(Code::ResourceExhausted, message));
            }
            LogMessage::Finished(finish) => {
                let end = end(finish)?;
                sender.send(&json!({"event": {"end": end}})).await;
                return Ok(());
            }
        }
    }
}

async fn at(until: Option<Instant>) {
    if let Some(until) = until {
        sleep_until(until).await;
    }
}

/// How a process ended, in envd's format, which is Go's.
fn end(finish: Finish) -> Result<Value, Fault> {
    let end = match finish {
        Finish::Late => return Err(connect::late()),
        // The command may have been correct.
        Finish::Withdrawn => {
            let message = treadle_runs::sandboxes::WITHDRAWN;
            return Err(Fault::new(Code::Internal, message));
        }
        Finish::Ended(End::Gone) => return Err(Fault::gone()),
        Finish::Ended(end) => end,
    };
    let killed = |status: &str, error: &str| json!({"exitCode": -1, "exited": false, "status": status, "error": error});
    Ok(match end {
        End::Exited(0) => json!({"exited": true, "status": "exit status 0"}),
        End::Exited(code) => {
            let status = format!("exit status {code}");
            json!({"exitCode": code, "exited": true, "status": status, "error": status})
        }
        End::Killed(signal) => {
            let status = match signal {
                1 => "signal: hangup".to_owned(),
                2 => "signal: interrupt".to_owned(),
                6 => "signal: aborted".to_owned(),
                9 => "signal: killed".to_owned(),
                11 => "signal: segmentation fault".to_owned(),
                13 => "signal: broken pipe".to_owned(),
                15 => "signal: terminated".to_owned(),
                other => format!("signal: {other}"),
            };
            killed(&status, &status)
        }
        End::OutOfMemory => killed("signal: killed", "the sandbox ran out of memory"),
        End::OutOfDisk => killed("signal: killed", "the sandbox exceeded its disk limit"),
        End::Gone => return Err(Fault::gone()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_told_as_envd_tells_them() {
        let exited = |code| end(Finish::Ended(End::Exited(code))).expect("it ended");
        assert_eq!(
            exited(0),
            json!({"exited": true, "status": "exit status 0"})
        );
        assert_eq!(exited(7)["error"], "exit status 7");
        let killed = end(Finish::Ended(End::Killed(9))).expect("it ended");
        assert_eq!(
            (&killed["exitCode"], &killed["error"]),
            (&json!(-1), &json!("signal: killed"))
        );
        assert_eq!(
            end(Finish::Late).expect_err("late").code,
            Code::DeadlineExceeded
        );
        assert_eq!(
            end(Finish::Withdrawn).expect_err("withdrawn").code,
            Code::Internal
        );
        assert_eq!(
            end(Finish::Ended(End::Gone)).expect_err("gone").code,
            Code::Unavailable
        );
    }

    #[test]
    fn variables_lie_over_each_other() {
        let map = |pairs: &[(&str, &str)]| {
            let pairs = pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            pairs.collect::<BTreeMap<_, _>>()
        };
        let user = Users::default().find("").expect("always there");
        let all = variables(
            &user,
            &map(&[("HOME", "/h"), ("A", "1")]),
            &map(&[("USER", "me")]),
        );
        assert_eq!(all, map(&[("LOGNAME", "user"), ("USER", "me")]));
    }

    #[test]
    fn a_shells_command_is_told_as_it_was_written() {
        let description = |args: &[&str]| {
            let args = args.iter().map(|arg| (*arg).to_owned()).collect();
            what(&CommandDescription {
                program: "bash".to_owned(),
                args,
                ..CommandDescription::default()
            })
        };
        assert_eq!(description(&["-l", "-c", "echo a"]), "echo a");
        assert_eq!(description(&["-x", "y"]), "bash -x y");
    }
}
