//! Commands to training runs, answered if the message has a `reply_to`.
//!
//! Those that change something are carried out one after the other, in the order of the queue, and
//! once per id; their answers are kept. Those that may wait or only read are carried out beside
//! them. A message is settled once its reply is confirmed.

use super::commands::{Consumer, Failure, id_of};
use super::{effects, runs};
use axum::body::to_bytes;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use treadle_auth::{Caller, now_us};
use treadle_broker::{BODY_BYTES_MAX, Broker, Delivery, Reply};
use treadle_outbox::{Outcome, Status};
use treadle_store::CommandRow;
use treadle_training::{Command, TrainingApp};
use treadle_wire::{ErrorBody, ErrorCode};

#[cfg(test)]
mod tests;

/// Most unsettled messages.
pub(super) const PREFETCH: u16 = 512;
/// Most commands that wait at once, so that there is room for those that they wait for.
const WAITING_MAX: usize = 256;
/// Pause before a command is carried out again after a failure of the store.
const PAUSE: Duration = Duration::from_millis(500);

/// Consumes commands until stopped; unanswered messages are then delivered again.
pub(super) async fn run(mut consumer: Consumer<TrainingApp>, broker: Arc<dyn Broker>) {
    let room = Arc::new(Semaphore::new(WAITING_MAX));
    let mut open = JoinSet::new();
    while let Some(delivery) = consumer.next().await {
        while open.try_join_next().is_some() {}
        let request = Request {
            app: consumer.app.clone(),
            broker: broker.clone(),
            status: consumer.status.clone(),
        };
        let mut command = read(&delivery.body);
        let is_change = command.as_ref().is_ok_and(Command::is_change);
        let mut place = None;
        if let Ok(command) = &mut command
            && command.waits()
        {
            place = room.clone().try_acquire_owned().ok();
            if place.is_none() {
                command.answer_at_once();
            }
        }
        let (carried_out, done) = oneshot::channel::<()>();
        open.spawn(async move {
            let answer = request.answer(delivery.id.clone(), command).await;
            drop((carried_out, place));
            request.settle(delivery, answer).await;
        });
        if is_change {
            // Nothing is sent: it ends with the command, even with one that panics.
            let _ = done.await;
        }
    }
}

fn read(body: &[u8]) -> Result<Command, ErrorBody> {
    if body.len() > BODY_BYTES_MAX {
        let message = format!(
            "the message has more than {BODY_BYTES_MAX} bytes; send less, or a larger sample over \
             HTTP"
        );
        return Err(ErrorBody::new(ErrorCode::BodyTooLarge, message));
    }
    Command::parse(body)
}

struct Request {
    app: TrainingApp,
    broker: Arc<dyn Broker>,
    status: Arc<Status>,
}

/// What became of a command.
struct Answer {
    outcome: Outcome,
    body: Vec<u8>,
}

impl Answer {
    fn refused(error: &ErrorBody) -> Self {
        Self {
            outcome: Outcome::Refused,
            body: error.to_json(),
        }
    }
}

impl Request {
    /// Carries a command out; `None` if the daemon stops.
    async fn answer(
        &self,
        id: Option<String>,
        command: Result<Command, ErrorBody>,
    ) -> Option<Answer> {
        loop {
            let attempt = match command.clone() {
                Ok(command) => self.attempt(id.clone(), command).await,
                Err(error) => Ok(Answer::refused(&error)),
            };
            match attempt {
                Ok(answer) => return Some(answer),
                Err(Failure::Refused(reason)) => {
                    let error = ErrorBody::new(ErrorCode::InvalidField, reason);
                    return Some(Answer::refused(&error));
                }
                Err(Failure::Unable(cause)) => {
                    tracing::warn!(id, cause, "a command to a training run waits");
                    tokio::time::sleep(PAUSE).await;
                }
                Err(Failure::Over) => return None,
            }
        }
    }

    async fn attempt(&self, id: Option<String>, mut command: Command) -> Result<Answer, Failure> {
        let (own, tenant): (_, Option<String>) = match (command.take("id"), command.take("tenant"))
        {
            (Ok(own), Ok(tenant)) => (own, tenant),
            (Err(error), _) | (_, Err(error)) => return Ok(Answer::refused(&error)),
        };
        let id = match id_of(id, own) {
            // What changes nothing needs none.
            Err(_) if !command.is_change() => String::new(),
            id => id.map_err(Failure::Refused)?,
        };
        let caller = effects::caller(&self.app.auth, tenant.as_deref(), &id)?;
        if !command.is_change() {
            return self.carry_out(command, caller).await;
        }
        let row = CommandRow {
            command: id.clone(),
            kind: command.name().to_owned(),
            at_us: now_us(),
            outcome: String::new(),
        };
        let store = &self.app.store;
        if !store.note_command(&row).await?
            && let Some(known) = store.command(&id).await?
        {
            if known.kind != row.kind {
                let message = format!(
                    "`{id}` is the id of another command, `{}`; give each its own",
                    known.kind
                );
                let error = ErrorBody::new(ErrorCode::IdempotencyKeyTaken, message);
                return Ok(Answer::refused(&error));
            }
            if !known.outcome.is_empty() {
                return Ok(Answer {
                    outcome: Outcome::Repeated,
                    body: known.outcome.into_bytes(),
                });
            }
            // It was carried out or not, and none that came after it was: it may be again.
        }
        let answer = self.carry_out(command, caller).await?;
        if answer.outcome == Outcome::Done {
            let kept = String::from_utf8_lossy(&answer.body);
            store.settle_command(&id, &kept).await?;
        }
        Ok(answer)
    }

    async fn carry_out(&self, command: Command, caller: Caller) -> Result<Answer, Failure> {
        let response = command.carry_out(&self.app, caller).await;
        let status = response.status();
        let body = to_bytes(response.into_body(), usize::MAX).await;
        let body = body.map_err(|error| Failure::Unable(error.to_string()))?;
        if status.as_u16() == ErrorCode::Overloaded.status() {
            return Err(Failure::Over);
        }
        if status.is_server_error() {
            // While the store is unavailable, the command waits.
            self.app.store.last_seq().await?;
        }
        Ok(Answer {
            outcome: if status.is_success() {
                Outcome::Done
            } else {
                Outcome::Refused
            },
            body: body.into(),
        })
    }

    /// Answers a message, and settles it.
    async fn settle(&self, delivery: Delivery, answer: Option<Answer>) {
        let Some(Answer { outcome, body }) = answer else {
            return;
        };
        self.status.settled(outcome);
        let settled = if let Some(to) = delivery.reply_to.clone() {
            let reply = Reply {
                to,
                correlation_id: delivery.correlation_id.clone(),
                id: delivery.id.clone().unwrap_or_default(),
                body: sendable(body),
            };
            runs::reply(&*self.broker, reply).await;
            delivery.ack().await
        } else if outcome == Outcome::Refused {
            let reason = reason_in(&body);
            tracing::warn!(
                id = delivery.id,
                reason,
                "a command to a training run is refused"
            );
            delivery.reject(&reason).await
        } else {
            delivery.ack().await
        };
        runs::settled(settled);
    }
}

/// A body, or the error that it is too large for a message.
fn sendable(body: Vec<u8>) -> Vec<u8> {
    if body.len() <= BODY_BYTES_MAX {
        return body;
    }
    let message = format!(
        "the answer has {} bytes, and a message at most {BODY_BYTES_MAX}; get a batch in slices, \
         with `rank` and `of`, or ask over HTTP",
        body.len()
    );
    ErrorBody::new(ErrorCode::AnswerTooLarge, message).to_json()
}

/// The message of an error.
fn reason_in(body: &[u8]) -> String {
    let error: Value = serde_json::from_slice(body).unwrap_or_default();
    let message = error["error"]["message"].as_str();
    message.unwrap_or("the command is refused").to_owned()
}
