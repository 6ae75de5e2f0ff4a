//! One attempt from its start to its end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use treadle_core::actions::{ActionEvent, Chunk, Outcome};
use treadle_model::Span;
use treadle_model::tenant::split;

use super::{ActionOrder, Parts, Slot, blocking};
use crate::body::{ActionBody, HttpRequest};
use crate::markers::{AttemptId, End};
use crate::process::{Stop, mark, stopped};
use crate::requests::{Answer, Message, Server};

/// The result of an attempt.
enum AttemptEnd {
    Over(Outcome, Vec<u8>),
    /// The server refused it because of a quota, for this time.
    Refused(Span),
}

impl AttemptEnd {
    pub(super) fn failed(cause: impl Into<Box<str>>) -> Self {
        Self::Over(failed(cause), Vec::new())
    }
}

pub(super) fn failed(cause: impl Into<Box<str>>) -> Outcome {
    let cause = cause.into();
    Outcome::InfrastructureFailure { cause }
}

/// A running attempt and its resources.
pub(super) struct Attempt {
    pub(super) parts: Arc<Parts>,
    pub(super) id: AttemptId,
    pub(super) mark: String,
    pub(super) order: ActionOrder,
    pub(super) stop: watch::Receiver<Stop>,
}

/// Reports that there is no room for an attempt. It has no marker, because it did not begin.
pub(super) async fn refuse(parts: Arc<Parts>, id: AttemptId) {
    let cause = "actions are running or not yet recorded as ended; the limit is reached";
    let cause = format!("{} {cause}", parts.config.attempts_max);
    let event = ended(id, failed(cause), None);
    let _ = parts.reports.send(event).await;
}

pub(super) async fn run(slot: Slot, order: ActionOrder, stop: watch::Receiver<Stop>) {
    let (parts, id) = (slot.parts.clone(), slot.id);
    let quota = order.body.quota().map(Box::from);
    let tenant = order.tenant.clone();
    let attempt = Attempt {
        parts: parts.clone(),
        id,
        mark: mark(),
        order,
        stop,
    };
    let event = match attempt.run().await {
        AttemptEnd::Over(outcome, output) => record(&parts, id, outcome, &tenant, output).await,
        AttemptEnd::Refused(retry_after) => {
            forget(&parts, id, quota.unwrap_or_default(), retry_after).await
        }
    };
    // Freed before the end is reported, because the client may submit the next action at once.
    drop(slot);
    // If this fails, nobody receives events any more: the daemon is stopping.
    let _ = parts.reports.send(event).await;
}

fn ended(id: AttemptId, outcome: Outcome, output: Option<Box<str>>) -> ActionEvent {
    let AttemptId { action, attempt } = id;
    ActionEvent::ActionEnded {
        action,
        attempt,
        outcome,
        output,
    }
}

/// Stores the output, and records the end.
async fn record(
    parts: &Arc<Parts>,
    id: AttemptId,
    outcome: Outcome,
    tenant: &str,
    bytes: Vec<u8>,
) -> ActionEvent {
    let kept = if bytes.is_empty() {
        Ok(None)
    } else {
        parts.outputs.put(tenant, bytes).await.map(Some)
    };
    let (outcome, output) = match kept {
        Ok(output) => (outcome, output),
        Err(error) => (failed(error.to_string()), None),
    };
    let event = ended(id, outcome.clone(), output.clone());
    let (markers, end) = (parts.markers.clone(), End { outcome, output });
    if let Err(error) = blocking(move || markers.ended(id, &end)).await {
        tracing::error!(%id, %error, "could not write the end marker of an action; after a crash its result is unknown");
    }
    event
}

/// Removes the marker of an attempt that was not executed.
async fn forget(
    parts: &Arc<Parts>,
    id: AttemptId,
    resource: Box<str>,
    retry_after: Span,
) -> ActionEvent {
    let markers = parts.markers.clone();
    if let Err(error) = blocking(move || markers.erase(id)).await {
        let outcome = failed(format!("could not remove its marker: {error}"));
        return record(parts, id, outcome, "", Vec::new()).await;
    }
    parts.lock().held.remove(&id);
    let action = Some((id.action, id.attempt));
    ActionEvent::QuotaRefused {
        resource,
        retry_after,
        action,
    }
}

impl Attempt {
    async fn run(mut self) -> AttemptEnd {
        let service = match self.load().await {
            Ok(service) => service,
            Err(outcome) => return AttemptEnd::Over(outcome, Vec::new()),
        };
        let body = self.order.body.clone();
        match (&*body, service) {
            (ActionBody::Process(body), service) => {
                let (outcome, output) = self.process(body, service).await;
                AttemptEnd::Over(outcome, output)
            }
            (ActionBody::Sandbox(command), _) => {
                let (outcome, output) = self.sandboxed(command).await;
                AttemptEnd::Over(outcome, output)
            }
            (ActionBody::Held(work), _) => {
                let (outcome, output) = self.held(work).await;
                AttemptEnd::Over(outcome, output)
            }
            (ActionBody::Http(request), _) => self.http(request).await,
            (ActionBody::Service(call), Some(server)) => {
                let message = Message::to_service(call);
                match self.exchange(&server, message).await {
                    Ok((outcome, output, _)) => AttemptEnd::Over(outcome, output),
                    Err(outcome) => AttemptEnd::Over(outcome, Vec::new()),
                }
            }
            (ActionBody::Service(call), None) => {
                AttemptEnd::failed(format!("service {} is not available", call.name))
            }
        }
    }

    /// Loads the action's service on its devices, or unloads them; returns the service's address.
    async fn load(&mut self) -> Result<Option<Server>, Outcome> {
        let load = self.order.load.as_ref();
        let name = load.and_then(|load| load.service.as_deref());
        let name = name.map(|inside| split(inside).1);
        let name = self.order.body.service().or(name).map(str::to_owned);
        let (services, chunk) = (self.parts.services.clone(), self.chunk());
        let tenant = self.order.tenant.clone();
        if name.is_none() && chunk.is_none() {
            return Ok(None);
        }
        // Continues even if the action is stopped, so that devices are never left half changed.
        let changed = tokio::spawn(async move {
            match (name, chunk) {
                (Some(name), chunk) => services.ensure(&tenant, &name, chunk).await.map(Some),
                (None, Some(chunk)) => services.vacate(chunk).await.map(|()| None),
                (None, None) => Ok(None),
            }
        });
        tokio::select! {
            changed = changed => match changed {
                Ok(changed) => changed.map_err(failed),
                Err(error) => Err(failed(error.to_string())),
            },
            () = stopped(&mut self.stop) => Err(self.why_stopped()),
        }
    }

    pub(super) fn chunk(&self) -> Option<Chunk> {
        self.order.grants.iter().find_map(|grant| grant.chunk)
    }

    pub(super) fn granted(&self, resource: &str) -> Option<u64> {
        let mut grants = self.order.grants.iter();
        let grant = grants.find(|grant| *grant.resource == *resource);
        grant.map(|grant| grant.units)
    }

    pub(super) fn why_stopped(&self) -> Outcome {
        match *self.stop.borrow() {
            Stop::Cancelled => Outcome::Cancelled,
            // The next daemon runs it again.
            Stop::Shutdown if self.order.idempotent => Outcome::Unknown,
            Stop::Not | Stop::Shutdown => failed("the daemon stopped while it ran"),
        }
    }

    pub(super) async fn tell_began(&self) {
        let AttemptId { action, attempt } = self.id;
        let event = ActionEvent::ActionBegan { action, attempt };
        let _ = self.parts.reports.send(event).await;
    }

    /// Records the beginning of something that does not outlive this daemon.
    pub(super) async fn begin(&self) -> Result<(), Outcome> {
        let (markers, id) = (self.parts.markers.clone(), self.id);
        let left = markers.leftover(&self.mark, None, None);
        let began = blocking(move || markers.began(id, &left)).await;
        began.map_err(|error| failed(format!("could not record its start: {error}")))?;
        self.tell_began().await;
        Ok(())
    }

    async fn http(self, request: &HttpRequest) -> AttemptEnd {
        let (server, message) = match Message::of(request, &self.order.tenant) {
            Ok(message) => message,
            Err(error) => return AttemptEnd::failed(error.to_string()),
        };
        match self.exchange(&server, message).await {
            Ok((Outcome::Exited { code: 429 }, _, Some(retry_after)))
                if request.quota.is_some() =>
            {
                AttemptEnd::Refused(retry_after)
            }
            Ok((outcome, output, _)) => AttemptEnd::Over(outcome, output),
            Err(outcome) => AttemptEnd::Over(outcome, Vec::new()),
        }
    }

    /// Sends a request; returns its outcome and response, and the time after which it may be sent
    /// again, if the server says that.
    async fn exchange(
        mut self,
        server: &Server,
        message: Message,
    ) -> Result<(Outcome, Vec<u8>, Option<Span>), Outcome> {
        self.begin().await?;
        let limit = Duration::from_micros(self.order.run_max.micros());
        let requests = self.parts.requests.clone();
        let answer = tokio::select! {
            answer = requests.send(server, message, limit) => answer,
            () = stopped(&mut self.stop) => return Err(self.why_stopped()),
        };
        match answer {
            Answer::Answered {
                status,
                output,
                retry_after,
            } => {
                let code = i32::from(status.as_u16());
                if let Some(wait) = retry_after {
                    self.parts.lock().pause(self.id.action, wait);
                }
                Ok((Outcome::Exited { code }, output, retry_after))
            }
            Answer::TimedOut => Err(Outcome::TimedOut),
            Answer::Failed(cause) => Err(failed(cause)),
        }
    }
}
