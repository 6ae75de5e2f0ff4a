//! Commands that clients can send over REST and over the broker.

use crate::app::App;
use axum::response::Response;
use serde::Deserialize;
use std::sync::atomic::Ordering;
use treadle_auth::Caller;
use treadle_core::Event;
use treadle_core::programs::ProgramEvent;
use treadle_core::programs::Worker;
use treadle_engines::{Declared, WORKERS_MAX};
use treadle_model::{ClientName, REWARD_MILLIONTHS_MAX, Tenant, WorkerId, endpoint_of};
use treadle_training::forget;
use treadle_trust::{base_url, url_remedy};
use treadle_wire::{ErrorBody, ErrorCode};
use utoipa::ToSchema;

/// Rewards are stored in millionths.
const MILLION: f64 = 1_000_000.0;

/// Forgets the training run of a job. Returns whether there was one.
pub(crate) async fn forget_run(
    app: &App,
    caller: &Caller,
    job: &ClientName,
) -> Result<bool, Response> {
    let forgotten = forget(&app.training, caller, job.clone()).await?;
    if let Some(captures) = app.gateway.captures.as_ref().filter(|_| forgotten) {
        captures.forget(&caller.principal.inside(job));
    }
    Ok(forgotten)
}

/// The stage of an action.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ActionStage {
    /// It has begun.
    Started,
    /// It is over.
    Finished,
}

/// A tool runner's report about an action.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ActionReport {
    /// The action's program.
    pub(crate) program_id: String,
    /// Distinguishes it from other actions of the program.
    pub(crate) action_id: String,
    /// Whether it has started or finished.
    pub(crate) event: ActionStage,
    /// The tool; required if it has started.
    #[serde(default)]
    pub(crate) tool: Option<String>,
    /// Whether it succeeded, once it has finished; default true.
    #[serde(default)]
    pub(crate) ok: Option<bool>,
}

impl ActionReport {
    /// The event of a tenant's report.
    ///
    /// # Errors
    /// The field that is empty, or holds no name.
    pub(crate) fn event(&self, tenant: &Tenant) -> Result<Event, ErrorBody> {
        let program = tenant.inside(&name("program_id", &self.program_id)?).into();
        let action = name("action_id", &self.action_id)?.to_string().into();
        match self.event {
            ActionStage::Started => Ok(Event::Program(ProgramEvent::ActionStarted {
                program,
                action,
                tool: name("tool", self.tool.as_deref().unwrap_or_default())?
                    .to_string()
                    .into(),
            })),
            ActionStage::Finished => Ok(Event::Program(ProgramEvent::ActionFinished {
                program,
                action,
                ok: self.ok.unwrap_or(true),
            })),
        }
    }
}

/// The event of a program's reward.
///
/// # Errors
/// `reward` is not finite, or too large.
pub(crate) fn rewarded(key: &str, reward: f64) -> Result<Event, ErrorBody> {
    let millionths = reward * MILLION;
    if !millionths.is_finite() || millionths.abs() > REWARD_MILLIONTHS_MAX as f64 {
        let most = REWARD_MILLIONTHS_MAX as f64 / MILLION;
        let message = format!("`reward` is {reward:?}; send a number from -{most} to {most}");
        return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_param("reward"));
    }
    Ok(Event::Program(ProgramEvent::ProgramRewarded {
        program: key.into(),
        reward_millionths: millionths.round() as i64,
    }))
}

/// A reward as clients see it.
pub(crate) fn reward_of(millionths: i64) -> f64 {
    millionths as f64 / MILLION
}

/// Registers an engine unless it is registered; returns its id and whether it is new.
///
/// # Errors
/// The address is refused, there are too many workers, or the scheduler has stopped.
pub(crate) async fn register(
    app: &App,
    url: &str,
    declared: Declared,
) -> Result<(WorkerId, bool), ErrorBody> {
    let admitted = app.node.connector().admit(url).await;
    admitted.map_err(|why| {
        let remedy = match base_url(url) {
            Ok(_) => String::new(),
            Err(_) => format!("; {}", url_remedy(url)),
        };
        let message = format!("`url` can't be registered: {why}{remedy}");
        ErrorBody::new(ErrorCode::InvalidField, message).with_param("url")
    })?;
    let workers = app.driver.workers().await.map_err(|_| {
        let message = "treadle is shutting down";
        ErrorBody::new(ErrorCode::Overloaded, message)
    })?;
    let known = worker_at(&workers, url).map(|worker| worker.id);
    if known.is_none() && workers.len() >= WORKERS_MAX {
        let message = format!("{WORKERS_MAX} workers are registered; remove one first");
        return Err(ErrorBody::new(ErrorCode::QueueFull, message));
    }
    let new = || WorkerId(app.next_worker.fetch_add(1, Ordering::Relaxed));
    let worker = known.unwrap_or_else(new);
    app.engines.register(worker, url, declared).await;
    Ok((worker, known.is_none()))
}

/// The worker that is registered at a URL.
fn worker_at<'w>(workers: &'w [Worker], url: &'w str) -> Option<&'w Worker> {
    workers_named(workers, url).next()
}

/// The registered workers with an id or a URL: the URL of an endpoint is that of all its ranks.
pub(crate) fn workers_named<'w>(
    workers: &'w [Worker],
    reference: &'w str,
) -> impl Iterator<Item = &'w Worker> {
    let (endpoint, rank) = endpoint_of(reference);
    workers.iter().filter(move |worker| {
        let is_named = worker.id.0.to_string() == reference;
        let at = endpoint_of(&worker.url);
        let is_at = at.0 == endpoint && (rank.is_none() || at.1 == rank);
        !worker.leaving && (is_named || is_at)
    })
}

/// The name in a required field of a body; an empty one counts as absent.
fn name(field: &str, text: &str) -> Result<ClientName, ErrorBody> {
    if text.is_empty() {
        let problem = format!("`{field}` is missing; send a string");
        return Err(ErrorBody::new(ErrorCode::MissingField, problem).with_param(field));
    }
    Ok(ClientName::parse(field, text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reward_is_a_number_within_bounds() {
        for (reward, expected) in [(0.7, 700_000), (-1.25, -1_250_000), (1e-7, 0), (-0.0, 0)] {
            let event = rewarded("p", reward).expect("it is a reward");
            let Event::Program(ProgramEvent::ProgramRewarded {
                reward_millionths, ..
            }) = event
            else {
                panic!("{event:?}");
            };
            assert_eq!(reward_millionths, expected, "{reward}");
            assert!((reward_of(reward_millionths) - reward).abs() < 1e-6);
        }
        for reward in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.1e9, -1e300] {
            let error = rewarded("p", reward).expect_err("no reward");
            assert_eq!(error.param.as_deref(), Some("reward"), "{reward}");
            assert!(
                error.message.contains("from -1000000000"),
                "{}",
                error.message
            );
        }
    }
}
