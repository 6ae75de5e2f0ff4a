//! Commands that arrive over the broker.
//!
//! A command is acknowledged once its effect is on disk. Its id is stored before it is executed and
//! settled afterwards, so that a redelivered command is not executed again.

use super::effects::{self, Effect};
use crate::app::App;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use treadle_auth::now_us;
use treadle_broker::{Deliveries, Delivery};
use treadle_outbox::{Outcome, Status};
use treadle_scheduler::NotRecorded;
use treadle_store::{CommandRow, EventPage, SeqPage, StoreError};

/// Longest id of a command, in bytes.
const ID_BYTES_MAX: usize = 255;
/// Largest command, in bytes.
const BODY_BYTES_MAX: usize = 64 << 10;
/// How long a command's id is remembered.
const KEPT_US: u64 = 7 * 86_400 * 1_000_000;
/// How often older ones are removed.
const CLEANUP_INTERVAL: Duration = Duration::from_hours(1);
/// Pause before a command is retried after a failure of the store.
const PAUSE: Duration = Duration::from_millis(500);
/// Prefix of the outcome of an unsettled command, followed by the last event before it.
const PENDING: &str = "pending after ";

/// A command. Names are those that clients use.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Command {
    /// Ends a program.
    ReleaseProgram {
        /// Its tenant; default the default tenant.
        tenant: Option<String>,
        /// The job to which it must belong, if given.
        job: Option<String>,
        /// The program.
        program: String,
        /// Its reward, if known.
        reward: Option<f64>,
    },
    /// Reports the reward of a live or ended program.
    RewardProgram {
        /// Its tenant; default the default tenant.
        tenant: Option<String>,
        /// The program.
        program: String,
        /// Its reward.
        reward: f64,
    },
    /// Ends all live programs of a job.
    ReleaseJob {
        /// Its tenant; default the default tenant.
        tenant: Option<String>,
        /// The job.
        job: String,
        /// Also removes its training run.
        #[serde(default)]
        forget: bool,
    },
    /// Registers an engine.
    AddWorker {
        /// Its URL.
        url: String,
        /// Its software; detected if absent.
        kind: Option<String>,
        /// Its KV memory in tokens; detected if absent.
        capacity_tokens: Option<u64>,
        /// Its class of hardware.
        class: Option<String>,
        /// Its role.
        role: Option<String>,
    },
    /// Removes an engine.
    RemoveWorker {
        /// Its URL or id.
        worker: String,
    },
}

impl Command {
    const fn kind(&self) -> &'static str {
        match self {
            Self::ReleaseProgram { .. } => "release_program",
            Self::RewardProgram { .. } => "reward_program",
            Self::ReleaseJob { .. } => "release_job",
            Self::AddWorker { .. } => "add_worker",
            Self::RemoveWorker { .. } => "remove_worker",
        }
    }
}

/// Why a command was not executed.
#[derive(Debug)]
pub(super) enum Failure {
    /// It can never be executed.
    Refused(String),
    /// It can't be executed at present.
    Unable(String),
    /// This daemon executes no more commands: it stops, or another one leads.
    Over,
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Fenced { .. } => Self::Over,
            error if error.is_permanent() => Self::Refused(error.to_string()),
            error => Self::Unable(error.to_string()),
        }
    }
}

impl From<NotRecorded> for Failure {
    fn from(error: NotRecorded) -> Self {
        match error {
            NotRecorded::Stopped => Self::Over,
            NotRecorded::Refused => Self::Refused(error.to_string()),
        }
    }
}

/// Consumes one queue.
pub(super) struct Consumer<A = App> {
    pub(super) app: A,
    pub(super) deliveries: Deliveries,
    pub(super) status: Arc<Status>,
    pub(super) stop: watch::Receiver<bool>,
}

impl<A> Consumer<A> {
    /// The next delivery; `None` when the consumer must end.
    pub(super) async fn next(&mut self) -> Option<Delivery> {
        tokio::select! {
            biased;
            _ = self.stop.wait_for(|stop| *stop) => None,
            delivery = self.deliveries.next() => delivery,
        }
    }
}

impl Consumer {
    /// Executes commands, one after the other, until stopped.
    pub(super) async fn run(mut self) {
        let mut cleaned_up: Option<Instant> = None;
        while let Some(delivery) = self.next().await {
            if cleaned_up.is_none_or(|at| at.elapsed() >= CLEANUP_INTERVAL) {
                cleaned_up = Some(Instant::now());
                let before_us = now_us().saturating_sub(KEPT_US);
                if let Err(error) = self.app.store.prune_commands(before_us).await {
                    tracing::warn!(%error, "old commands could not be removed");
                }
            }
            if !self.carry_out(delivery).await {
                return;
            }
        }
    }

    /// Executes one command and settles it; `false` when the consumer must end.
    async fn carry_out(&mut self, delivery: Delivery) -> bool {
        loop {
            // In a separate task: a command that panics is returned to the queue, and finally goes
            // to the dead letters.
            let (id, body) = (delivery.id.clone(), delivery.body.clone());
            let app = self.app.clone();
            let work = tokio::spawn(async move { execute(&app, id, &body).await });
            let settled = match work.await {
                Ok(Ok(outcome)) => {
                    self.status.settled(outcome);
                    delivery.ack().await
                }
                Ok(Err(Failure::Refused(reason))) => {
                    tracing::warn!(id = delivery.id, reason, "a command is refused");
                    self.status.settled(Outcome::Refused);
                    delivery.reject(&reason).await
                }
                Ok(Err(Failure::Unable(cause))) => {
                    tracing::warn!(id = delivery.id, cause, "a command waits");
                    if self.pause().await {
                        continue;
                    }
                    return false;
                }
                Ok(Err(Failure::Over)) => return false,
                Err(panic) => {
                    tracing::error!(id = delivery.id, %panic, "a command could not be handled");
                    delivery.requeue().await
                }
            };
            if let Err(cause) = settled {
                // It will be redelivered, and recognised by its id.
                tracing::debug!(%cause, "a command was not settled");
            }
            return true;
        }
    }

    /// Waits before a retry; `false` if stopped meanwhile.
    async fn pause(&mut self) -> bool {
        let stopped = self.stop.wait_for(|stop| *stop);
        tokio::time::timeout(PAUSE, stopped).await.is_err()
    }
}

/// Executes a command, unless it was executed before.
async fn execute(app: &App, id: Option<String>, body: &[u8]) -> Result<Outcome, Failure> {
    let (id, command) = parse(id, body).map_err(Failure::Refused)?;
    let effect = effects::check(app, &command).await?;
    let row = CommandRow {
        command: id.clone(),
        kind: command.kind().to_owned(),
        at_us: now_us(),
        outcome: format!("{PENDING}{}", app.store.last_seq().await?),
    };
    if !app.store.note_command(&row).await?
        && let Some(known) = app.store.command(&id).await?
    {
        let Some(after) = known.outcome.strip_prefix(PENDING) else {
            return Ok(Outcome::Repeated);
        };
        // It arrived before and was not settled: the journal shows whether it was executed.
        if was_released(app, &effect, after.parse().unwrap_or_default()).await? {
            app.store.settle_command(&id, "released").await?;
            return Ok(Outcome::Repeated);
        }
    }
    let outcome = effects::carry_out(app, &id, effect).await?;
    app.store.settle_command(&id, &outcome).await?;
    Ok(Outcome::Done)
}

/// Whether the command's program was released after an event. Other commands are idempotent.
async fn was_released(app: &App, effect: &Effect, after: u64) -> Result<bool, Failure> {
    let Effect::Release { key, .. } = effect else {
        return Ok(false);
    };
    let page = EventPage {
        program: Some(key.clone()),
        kind: Some("program_released".to_owned()),
        range: SeqPage {
            after: Some(after),
            limit: 1,
            ..SeqPage::default()
        },
        ..EventPage::default()
    };
    Ok(!app.store.events_page(&page).await?.is_empty())
}

/// The id of a command and the command, or why it is invalid.
fn parse(id: Option<String>, body: &[u8]) -> Result<(String, Command), String> {
    if body.len() > BODY_BYTES_MAX {
        return Err(format!(
            "the command has more than {BODY_BYTES_MAX} bytes; send less"
        ));
    }
    let mut fields: Map<String, Value> = serde_json::from_slice(body).map_err(|error| {
        format!("the body is not a JSON object ({error}); send {{\"command\": \"...\"}}")
    })?;
    let own = match fields.remove("id") {
        None | Some(Value::Null) => None,
        Some(Value::String(own)) => Some(own),
        Some(_) => return Err("`id` must be text".to_owned()),
    };
    let id = id_of(id, own)?;
    let command = serde_json::from_value(Value::Object(fields)).map_err(|error| {
        format!("{error}; docs/messaging.md lists all commands with their fields")
    })?;
    Ok((id, command))
}

/// The id of a command, from its message and from its fields, or why it has none.
pub(super) fn id_of(id: Option<String>, own: Option<String>) -> Result<String, String> {
    let id = match (id.filter(|id| !id.is_empty()), own) {
        (Some(id), Some(own)) if id != own => {
            return Err("`id` and the message's id differ; send one of them".to_owned());
        }
        (Some(id), _) | (None, Some(id)) if !id.is_empty() => id,
        _ => {
            return Err(
                "the command has no id, which is needed to execute it once; set message-id, or `id`"
                    .to_owned(),
            );
        }
    };
    if id.len() > ID_BYTES_MAX {
        return Err(format!("the id is longer than {ID_BYTES_MAX} bytes"));
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(id: Option<&str>, body: &str) -> String {
        parse(id.map(Into::into), body.as_bytes()).expect_err("it is refused")
    }

    #[test]
    fn a_command_is_read() {
        let body = r#"{"command":"release_program","job":"math","program":"p-1"}"#;
        let (id, command) = parse(Some("c-1".into()), body.as_bytes()).expect("it is read");
        assert_eq!(id, "c-1");
        let expected = Command::ReleaseProgram {
            tenant: None,
            job: Some("math".into()),
            program: "p-1".into(),
            reward: None,
        };
        assert_eq!((command.kind(), command), ("release_program", expected));
        let body = r#"{"id":"c-2","command":"remove_worker","worker":"http://e:1"}"#;
        assert_eq!(parse(None, body.as_bytes()).expect("it is read").0, "c-2");
        assert!(parse(Some("c-2".into()), body.as_bytes()).is_ok());
    }

    #[test]
    fn a_command_may_have_a_reward() {
        let read =
            |body: &str| parse(Some("c".into()), body.as_bytes()).map(|(_, command)| command);
        let release = read(r#"{"command":"release_program","program":"p","reward":0.5}"#);
        assert!(matches!(
            release,
            Ok(Command::ReleaseProgram {
                reward: Some(0.5),
                ..
            })
        ));
        let reward = read(r#"{"command":"reward_program","program":"p","reward":-1}"#);
        assert_eq!(reward.expect("it is read").kind(), "reward_program");
        let none = read(r#"{"command":"reward_program","program":"p"}"#);
        assert!(
            none.expect_err("it has none")
                .contains("missing field `reward`")
        );
    }

    #[test]
    fn what_is_no_command_is_refused_with_a_reason() {
        let release = r#"{"command":"release_program","program":"p"}"#;
        for (id, body, words) in [
            (Some("1"), "no json", "not a JSON object"),
            (Some("1"), "[]", "not a JSON object"),
            (None, release, "has no id"),
            (Some(""), release, "has no id"),
            (
                Some("1"),
                r#"{"id":"2","command":"release_program"}"#,
                "differ",
            ),
            (Some("1"), r#"{"id":2}"#, "must be text"),
            (
                Some("1"),
                r#"{"command":"dance"}"#,
                "unknown variant `dance`",
            ),
            (
                Some("1"),
                r#"{"command":"release_program"}"#,
                "missing field `program`",
            ),
            (
                Some("1"),
                r#"{"command":"release_program","program":"p","force":true}"#,
                "unknown field `force`",
            ),
        ] {
            let reason = refused(id, body);
            assert!(reason.contains(words), "{body}: {reason}");
        }
        assert!(refused(Some(&"x".repeat(256)), release).contains("longer than"));
    }
}
