//! Actions: how they are submitted, and what their executor is told.

use super::{DriverHandle, Input};
use crate::recording::{DriverStopped, NotRecorded, Recorder, Recording};
use std::collections::BTreeMap;
use tokio::sync::oneshot;
use treadle_core::actions::{
    Action, ActionError, ActionSpec, Admission, Counters, Grant, Load, Pool, Service,
};
use treadle_model::{ActionId, Span, Timestamp};

/// Something for the executor of actions, which waits until what led to it is on record.
#[derive(Debug)]
pub struct ActionInstruction {
    /// Completes once what led to it is on record.
    pub recorded: Recording,
    /// What to do.
    pub work: ActionWork,
}

/// What to do with an action.
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
    /// It is over; whoever waits for it is told.
    Over {
        /// The action.
        action: ActionId,
        /// Its last attempt; 0 if there was none.
        attempt: u32,
        /// How long it waited for what it needs, until it began, and how long it ran.
        times: (Span, Span, Span),
    },
}

/// An attempt to run.
#[derive(Debug)]
pub struct ActionStart {
    /// The action.
    pub action: ActionId,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// What it has until it ends.
    pub grants: Vec<Grant>,
    /// What its devices must get first.
    pub load: Option<Load>,
    /// What was submitted.
    pub spec: Box<ActionSpec>,
}

/// An action that is submitted, and where to report what becomes of it.
pub(crate) struct SubmitAction {
    pub(super) spec: Box<ActionSpec>,
    pub(super) start_max: Option<Span>,
    pub(super) reply: oneshot::Sender<Result<Admission, ActionError>>,
    pub(super) recorder: Recorder,
}

/// What actions draw from, and how many there are.
#[derive(Clone, Debug)]
pub struct ActionsOverview {
    /// The time of the answer.
    pub now: Timestamp,
    /// The resources.
    pub pools: Vec<Pool>,
    /// The services.
    pub services: BTreeMap<Box<str>, Service>,
    /// Actions that wait.
    pub waiting: usize,
    /// Actions that have been started.
    pub started: usize,
    /// What happened so far.
    pub counters: Counters,
}

impl DriverHandle {
    /// Submits an action, which is given up if it has not started after `start_max`. It is on
    /// record when this completes.
    ///
    /// # Errors
    /// It is not on record; inside, it may not be submitted, and nothing has changed.
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

    /// What would become of an action.
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

    /// Actions that were started before the daemon did, and of which nothing was heard since.
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

    /// Attempts that are started and have something of a resource whose name ends so.
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

    /// What actions draw from, and how many there are.
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
