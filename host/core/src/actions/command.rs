//! What to do with actions.

use crate::actions::question::ElasticQuestion;
use crate::actions::resource::{Grant, Instance};
use treadle_model::{ActionId, AskId, Timestamp};

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub enum ActionCommand {
    /// Run an action. It begins once what led to this is on record: it runs at most once.
    StartAction {
        /// The action.
        action: ActionId,
        /// Which attempt, from 1.
        attempt: u32,
        /// What it has until it ends.
        grants: Vec<Grant>,
        /// What its devices must get first.
        load: Option<Load>,
    },
    /// Stop a running action; its end is reported as usual.
    StopAction {
        /// The action.
        action: ActionId,
        /// Which attempt.
        attempt: u32,
    },
    /// Ask the allocation policy which of the waiting actions start, and with how much.
    AskElastic {
        /// Names the answer.
        ask: AskId,
        /// The question.
        question: Box<ElasticQuestion>,
        /// After this the core answers it itself.
        deadline: Timestamp,
    },
    /// An action is over: whoever waits for it is told, once that is on record.
    AnswerAction {
        /// The action.
        action: ActionId,
    },
}

/// What changes on the devices of an action before it begins (§5.3).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Load {
    /// The service that comes onto all devices of the action, if one does.
    pub service: Option<Box<str>>,
    /// The instances that go first.
    pub evicted: Vec<Instance>,
}
