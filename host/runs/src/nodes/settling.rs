//! Compares, after each connection, the attempts that the daemon assumes at a node with the node's
//! own.
//!
//! If the driver stops meanwhile, the next daemon settles the rest.

use super::frames::{AttemptKey, Ended, Known, ToNode};
use super::{ActionHost, Nodes, node_of};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::collections::{BTreeMap, BTreeSet};
use treadle_core::actions::{ActionEvent, Outcome};
use treadle_model::ActionId;
use treadle_scheduler::{DriverStopped, NotRecorded};

/// A connection of a node.
#[derive(Clone, Debug)]
pub(super) struct At {
    pub(super) mark: String,
    pub(super) connection: u64,
}

/// The scheduler has stopped, so nothing is known of attempts.
#[derive(Debug)]
pub(super) struct Stopped;

impl From<DriverStopped> for Stopped {
    fn from(_: DriverStopped) -> Self {
        Self
    }
}

impl From<NotRecorded> for Stopped {
    fn from(_: NotRecorded) -> Self {
        Self
    }
}

fn ended((action, attempt): AttemptKey, outcome: Outcome) -> ActionEvent {
    ActionEvent::ActionEnded {
        action,
        attempt,
        outcome,
        output: None,
    }
}

impl Nodes {
    /// Compares both sides' attempts. Those that certainly never started are started again.
    pub(super) async fn settle(
        &self,
        actions: &dyn ActionHost,
        at: &At,
        ends: Vec<Ended>,
        known: Known,
    ) -> Result<(), Stopped> {
        let here = self.here(at).await?;
        {
            let mut state = self.lock();
            for attempt in &here {
                state.placed.insert(*attempt, at.mark.clone());
            }
            for action in &known.waiting {
                state.held.insert(*action, at.mark.clone());
            }
        }
        // Waits until their starts are on record: none may start earlier. Later starts are sent as
        // usual.
        self.driver.recorded().await?;
        let mut ends: BTreeMap<_, _> = ends.into_iter().map(|end| (end.attempt, end)).collect();
        let running: BTreeSet<_> = known.running.into_iter().collect();
        for attempt in &here {
            if let Some(end) = ends.remove(attempt) {
                self.ended(actions, at, end).await?;
            } else if running.contains(attempt) {
                self.began(at, *attempt).await?;
            } else if !self.was_told(at, *attempt) {
                self.absent(actions, at, *attempt, known.is_all).await;
            }
        }
        // Their ends may only be in memory: nodes keep them until they are on record.
        self.driver.recorded().await?;
        for attempt in ends.into_keys() {
            self.say(at, ToNode::Acknowledge { attempt });
        }
        for attempt in running.difference(&here) {
            self.say(at, ToNode::Stop { attempt: *attempt });
        }
        for action in known.waiting {
            self.tell_if_over(action).await?;
        }
        let here = self.here(at).await?;
        self.settled(at, &here);
        Ok(())
    }

    /// Attempts that the core assumes at a node.
    async fn here(&self, at: &At) -> Result<BTreeSet<AttemptKey>, Stopped> {
        let here = self.driver.actions_on(&format!("@{}", at.mark)).await?;
        Ok(here.into_iter().collect())
    }

    /// Handles an attempt that the node does not have.
    async fn absent(&self, actions: &dyn ActionHost, at: &At, attempt: AttemptKey, is_all: bool) {
        if !is_all {
            return self.driver.event(ended(attempt, Outcome::Unknown).into());
        }
        if let Some(start) = actions.start(attempt.0, attempt.1).await {
            return self.start_on(at, start);
        }
        // It was being stopped, which is recorded as its end.
        let cause = "it never began".into();
        let outcome = Outcome::InfrastructureFailure { cause };
        self.driver.event(ended(attempt, outcome).into());
    }

    /// Handles a node's report that an attempt ended. If it had already ended, it is acknowledged
    /// once that is on record.
    pub(super) async fn ended(
        &self,
        actions: &dyn ActionHost,
        at: &At,
        end: Ended,
    ) -> Result<(), Stopped> {
        let (action, attempt) = end.attempt;
        if !self.runs_at(at, end.attempt).await? {
            self.driver.recorded().await?;
            let attempt = end.attempt;
            self.say(at, ToNode::Acknowledge { attempt });
            return Ok(());
        }
        let bytes = STANDARD.decode(&end.output).unwrap_or_default();
        let (outcome, output) = match actions.keep_output(action, bytes).await {
            Ok(output) => (end.outcome, output),
            Err(cause) => (Outcome::InfrastructureFailure { cause }, None),
        };
        let event = ActionEvent::ActionEnded {
            action,
            attempt,
            outcome,
            output,
        };
        self.driver.event(event.into());
        Ok(())
    }

    /// Handles a node's report that an attempt started.
    pub(super) async fn began(
        &self,
        at: &At,
        (action, attempt): AttemptKey,
    ) -> Result<(), Stopped> {
        if self.runs_at(at, (action, attempt)).await? {
            let event = ActionEvent::ActionBegan { action, attempt };
            self.driver.event(event.into());
        }
        Ok(())
    }

    /// Whether an attempt belongs to this node: reports about others' attempts are ignored.
    async fn runs_at(&self, at: &At, attempt: AttemptKey) -> Result<bool, Stopped> {
        let known = self.driver.action(attempt.0).await?;
        let is_placed = self.lock().placed.get(&attempt) == Some(&at.mark);
        Ok(known.is_some_and(|known| {
            let started = known.started();
            known.attempt == attempt.1
                && started
                    .is_some_and(|started| is_placed || node_of(&started.grants) == Some(&*at.mark))
        }))
    }

    /// Notifies the handler that waits for an action if it has ended, which may have happened
    /// before the handler was registered.
    pub(super) async fn tell_if_over(&self, action: ActionId) -> Result<(), Stopped> {
        let known = self.driver.action(action).await?;
        if known.is_none_or(|known| known.ended().is_some()) {
            self.over(action);
        }
        Ok(())
    }
}
