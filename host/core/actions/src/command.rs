//! Commands for actions.

use crate::question::ElasticQuestion;
use crate::resource::{Grant, Instance};
use treadle_model::{ActionId, AskId, Timestamp};

/// A command for an action.
#[derive(Clone, Debug, PartialEq)]
pub enum ActionCommand {
    /// Run an action. It is sent only once the events that led to it are on record, so that it runs
    /// at most once.
    StartAction {
        /// The action.
        action: ActionId,
        /// Its attempt, from 1.
        attempt: u32,
        /// The resources that it holds until it ends.
        grants: Vec<Grant>,
        /// What must be loaded onto its devices first.
        load: Option<Load>,
    },
    /// Stop a running action; its end is reported as usual.
    StopAction {
        /// The action.
        action: ActionId,
        /// Its attempt.
        attempt: u32,
    },
    /// Ask the allocation policy which of the waiting actions start, and with how much.
    AskElastic {
        /// The question's id.
        ask: AskId,
        /// The question.
        question: Box<ElasticQuestion>,
        /// The core answers itself after this.
        deadline: Timestamp,
    },
    /// An action is over: once that is on record, send the result to the clients that wait for it.
    AnswerAction {
        /// The action.
        action: ActionId,
    },
}

/// Changes on the devices of an action before it begins (§5.3).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Load {
    /// The service to load onto all devices of the action, if any.
    pub service: Option<Box<str>>,
    /// The instances to evict first.
    pub evicted: Vec<Instance>,
}
