//! Submission of actions, and instructions to their executor.

use super::{DriverHandle, Input};
use crate::recording::{DriverStopped, NotRecorded, Recorder, Recording};
use std::collections::BTreeMap;
use tokio::sync::oneshot;
use treadle_core::actions::{
    Action, ActionError, ActionSpec, Admission, Counters, Grant, Load, Pool, Service,
};
use treadle_model::{ActionId, Span, Timestamp};

/// An instruction to the executor of actions, to be carried out once the events that led to it are
/// on record.
#[derive(Debug)]
pub struct ActionInstruction {
    /// Completes once those events are on record.
    pub recorded: Recording,
    /// The instruction.
    pub work: ActionWork,
}

/// An instruction about an action.
#[derive(Debug)]
pub enum ActionWork {
    /// Run an attempt.
    Start(Box<ActionStart>),
    /// Stop an attempt; its end is reported as usual.
    Stop {
        /// The action.
        action: ActionId,
        /// The attempt.
        attempt: u32,
    },
    /// The action is over; send the result to the clients that wait for it.
    Over {
        /// The action.
        action: ActionId,
        /// Its last attempt; 0 if there was none.
        attempt: u32,
        /// How long it waited for its resources, how long it then took to begin, and how long it
        /// ran.
        times: (Span, Span, Span),
    },
}

/// An attempt to run.
#[derive(Debug)]
pub struct ActionStart {
    /// The action.
    pub action: ActionId,
    /// Its number, from 1.
    pub attempt: u32,
    /// The resources that it holds until it ends.
    pub grants: Vec<Grant>,
    /// What must be loaded onto its devices first.
    pub load: Option<Load>,
    /// The specification.
    pub spec: Box<ActionSpec>,
}

/// A submitted action, and where to report the result of the submission.
pub(crate) struct SubmitAction {
    pub(super) spec: Box<ActionSpec>,
    pub(super) start_max: Option<Span>,
    pub(super) reply: oneshot::Sender<Result<Admission, ActionError>>,
    pub(super) recorder: Recorder,
}

/// The resources of actions, and the numbers of actions.
#[derive(Clone, Debug)]
pub struct ActionsOverview {
    /// The time of the overview.
    pub now: Timestamp,
    /// The resources.
    pub pools: Vec<Pool>,
    /// The services.
    pub services: BTreeMap<Box<str>, Service>,
    /// Number of waiting actions.
    pub waiting: usize,
    /// Number of started actions.
    pub started: usize,
    /// Counters since the state began.
    pub counters: Counters,
}

impl DriverHandle {
    /// Submits an action, which expires if it has not started after `start_max`. It is on record
    /// when this completes.
    ///
    /// # Errors
    /// It is not on record. The inner error means that it was refused, and nothing has changed.
    pub async fn submit_action(
        &self,
        spec: ActionSpec,
        start_max: Option<Span>,
    ) -> Result<Result<Admission, ActionError>, NotRecorded> {
        let (reply, admitted) = oneshot::channel();
        let (recorder, done) = Recording::new();
        let input = SubmitAction {
            spec: Box::new(spec),
            start_max,
            reply,
            recorder,
        };
        self.send(Input::SubmitAction(Box::new(input)))
            .map_err(|_| NotRecorded::Stopped)?;
        let admitted = admitted.await.map_err(|_| NotRecorded::Stopped)?;
        if admitted.is_ok() {
            done.await?;
        }
        Ok(admitted)
    }

    /// Checks whether an action would be accepted, without submitting it.
    pub async fn check_action(
        &self,
        spec: ActionSpec,
    ) -> Result<Result<Admission, ActionError>, DriverStopped> {
        self.read(move |view| view.core.check_action(&spec)).await
    }

    /// An action that has not ended, or one of the latest that have.
    pub async fn action(&self, action: ActionId) -> Result<Option<Action>, DriverStopped> {
        self.read(move |view| view.core.actions().action(action).cloned())
            .await
    }

    /// Actions that were started before the daemon's start, and that have not been reported since.
    pub async fn actions_left(&self) -> Result<Vec<(ActionId, Action)>, DriverStopped> {
        self.read(|view| {
            let state = view.core.actions();
            let is_left = |action: &Action| {
                let started = action.started();
                started.is_some_and(|started| started.run != state.run)
            };
            let left = state.live.iter().filter(|(_, action)| is_left(action));
            left.map(|(id, action)| (*id, action.clone())).collect()
        })
        .await
    }

    /// Started attempts that hold a resource whose name ends with `resource`.
    pub async fn actions_on(&self, resource: &str) -> Result<Vec<(ActionId, u32)>, DriverStopped> {
        let ending = resource.to_owned();
        self.read(move |view| {
            let is_on = |action: &Action| {
                let grants = action.started().map(|started| &started.grants);
                let mut grants = grants.into_iter().flatten();
                grants.any(|grant| grant.resource.ends_with(&ending))
            };
            let live = view.core.actions().live.iter();
            let on = live.filter(|(_, action)| is_on(action));
            on.map(|(id, action)| (*id, action.attempt)).collect()
        })
        .await
    }

    /// The resources of actions, and the numbers of actions.
    pub async fn actions_overview(&self) -> Result<ActionsOverview, DriverStopped> {
        self.read(|view| {
            let state = view.core.actions();
            let started = |action: &&Action| action.started().is_some();
            let started = state.live.values().filter(started).count();
            ActionsOverview {
                now: view.now,
                pools: state.pools.clone(),
                services: state.services.clone(),
                waiting: state.live.len() - started,
                started,
                counters: state.counters,
            }
        })
        .await
    }
}
