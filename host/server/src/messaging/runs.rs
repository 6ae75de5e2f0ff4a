//! Actions that arrive over the broker: recorded, and answered if the message has a `reply_to`.
//!
//! A message with `reply_to` stays unsettled until its action has ended and its reply is confirmed,
//! so that it is redelivered if the daemon dies. Its id identifies the action, so that it is not
//! run again.

use super::commands::{Consumer, Failure as Reason};
use super::effects;
use crate::app::App;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use treadle_broker::{Broker, BrokerError, Delivery, Reply};
use treadle_endpoints::arguments::parse;
use treadle_model::Tenant;
use treadle_outbox::{Outcome, Status};
use treadle_runs::actions::{ActionView, Actions, Admitted, Failure, OutputView, Submission};
use treadle_wire::{ErrorBody, ErrorCode};

/// Most unsettled messages, whose clients wait for a reply.
pub(super) const PREFETCH: u16 = 1_024;
/// Pause before a retry.
const PAUSE: Duration = Duration::from_millis(500);
/// How long one wait for an end takes; another one follows.
const WAIT: Duration = Duration::from_hours(1);

/// Consumes actions until stopped; unanswered messages are then redelivered.
pub(super) async fn run(mut consumer: Consumer, broker: Arc<dyn Broker>) {
    let mut open = JoinSet::new();
    while let Some(delivery) = consumer.next().await {
        while open.try_join_next().is_some() {}
        let request = Request {
            app: consumer.app.clone(),
            broker: broker.clone(),
            status: consumer.status.clone(),
        };
        open.spawn(async move { request.handle(delivery).await });
    }
}

struct Request {
    app: App,
    broker: Arc<dyn Broker>,
    status: Arc<Status>,
}

/// Why a message did not become an action.
enum Unable {
    /// The message is refused.
    Refused(ErrorBody),
    /// The daemon stops: the message is redelivered.
    Over,
}

impl Request {
    async fn handle(&self, delivery: Delivery) {
        let (outcome, body) = match self.admit(delivery.id.clone(), &delivery.body).await {
            Ok((actions, tenant, admitted)) => {
                let outcome = if admitted.repeated {
                    Outcome::Repeated
                } else {
                    Outcome::Done
                };
                if delivery.reply_to.is_none() {
                    self.status.settled(outcome);
                    return settled(delivery.ack().await);
                }
                match ended(&actions, &tenant, admitted).await {
                    Some(body) => (outcome, body),
                    None => return,
                }
            }
            Err(Unable::Refused(error)) if delivery.reply_to.is_some() => {
                (Outcome::Refused, error.to_json())
            }
            Err(Unable::Refused(error)) => {
                tracing::warn!(
                    id = delivery.id,
                    reason = error.message,
                    "an action is refused"
                );
                self.status.settled(Outcome::Refused);
                return settled(delivery.reject(&error.message).await);
            }
            Err(Unable::Over) => return,
        };
        let message = Reply {
            to: delivery.reply_to.clone().unwrap_or_default(),
            correlation_id: delivery.correlation_id.clone(),
            id: delivery.id.clone().unwrap_or_default(),
            body,
        };
        reply(&*self.broker, message).await;
        self.status.settled(outcome);
        settled(delivery.ack().await);
    }

    /// Records a message's action.
    async fn admit(
        &self,
        id: Option<String>,
        body: &[u8],
    ) -> Result<(Arc<Actions>, Tenant, Admitted), Unable> {
        let mut written: Value = parse(body).map_err(Unable::Refused)?;
        let fields = written.as_object_mut();
        let tenant = fields.and_then(|fields| fields.remove("tenant"));
        let tenant = match &tenant {
            None | Some(Value::Null) => None,
            Some(Value::String(name)) => Some(name.as_str()),
            Some(_) => return refused("`tenant` must be text", "tenant"),
        };
        let tenant = match effects::tenant_of(&self.app, tenant) {
            Ok(tenant) => tenant,
            Err(Reason::Refused(reason)) => return refused(&reason, "tenant"),
            Err(_) => return Err(Unable::Over),
        };
        let Some(actions) = self.app.actions.clone() else {
            let message = "this daemon runs no actions; set actions.enabled = true";
            return Err(Unable::Refused(ErrorBody::new(
                ErrorCode::ActionsDisabled,
                message,
            )));
        };
        let id = id.filter(|id| !id.is_empty());
        if id.is_none() && written.get("idempotency_key").is_none() {
            let message = "the message has no id, which is needed to run its action once; set \
                           message-id, or `idempotency_key`";
            return refused(message, "idempotency_key");
        }
        loop {
            let submission: Submission =
                parse(written.to_string().as_bytes()).map_err(Unable::Refused)?;
            let submission = submission.named(|| id.clone().unwrap_or_default());
            match actions.submit(&tenant, submission, &written).await {
                Ok(admitted) => return Ok((actions, tenant, admitted)),
                Err(Failure::Refused(error)) => return Err(Unable::Refused(error)),
                Err(Failure::Stopped) => return Err(Unable::Over),
                Err(Failure::Store(error)) => {
                    tracing::warn!(%error, "an action waits for the store");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

/// Sends a reply until the broker confirms it, or it is undeliverable.
pub(super) async fn reply(broker: &dyn Broker, reply: Reply) {
    loop {
        match broker.answer(&reply).await {
            Ok(_) => return,
            Err(
                error @ (BrokerError::ReplyTo { .. }
                | BrokerError::TooLarge { .. }
                | BrokerError::Closed),
            ) => {
                tracing::warn!(to = reply.to, %error, "a reply can't be sent");
                return;
            }
            Err(error) => {
                tracing::debug!(%error, "a reply waits for the broker");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn refused<T>(message: &str, param: &str) -> Result<T, Unable> {
    let error = ErrorBody::new(ErrorCode::InvalidField, message);
    Err(Unable::Refused(error.with_param(param)))
}

/// The action as it ended; `None` if the daemon stops.
async fn ended(actions: &Actions, tenant: &Tenant, admitted: Admitted) -> Option<Vec<u8>> {
    let row = loop {
        match actions.ended(tenant, admitted.action, WAIT).await {
            Ok(row) if row.ended_at_us.is_some() => break row,
            Ok(_) => {}
            Err(Failure::Stopped) => return None,
            // It was pruned, too many clients wait, or the store fails.
            Err(Failure::Refused(error)) if error.code == ErrorCode::ActionUnknown => {
                return Some(error.to_json());
            }
            Err(Failure::Refused(_) | Failure::Store(_)) => tokio::time::sleep(PAUSE).await,
        }
    };
    let view = ActionView::of(tenant, row)?;
    let output = match view.output_digest() {
        Some(digest) => actions.output(tenant, digest).await.ok().flatten(),
        None => None,
    };
    let view = view.with_output(output.as_deref().map(OutputView::of));
    serde_json::to_vec(&view).ok()
}

pub(super) fn settled(done: Result<(), BrokerError>) {
    if let Err(cause) = done {
        // It will be redelivered, and recognised by its id.
        tracing::debug!(%cause, "a message was not settled");
    }
}
