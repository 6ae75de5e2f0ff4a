//! What happened to actions.

use crate::question::ElasticAnswer;
use crate::resource::Resource;
use crate::shares::Shares;
use crate::spec::ActionSpec;
use serde::{Deserialize, Serialize};
use treadle_machine::kinds;
use treadle_model::{ActionId, AskId, PolicyRef, Span};

/// How an action ended.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It ran and exited.
    Exited {
        /// Its exit code, or the status of the HTTP response.
        code: i32,
    },
    /// A signal ended it that treadle did not send.
    Killed {
        /// The signal.
        signal: i32,
    },
    /// It exceeded its memory limit.
    OutOfMemory,
    /// It exceeded its run time limit.
    TimedOut,
    /// It could not be run, for a reason outside the action.
    InfrastructureFailure {
        /// A short cause, in words.
        cause: Box<str>,
    },
    /// It is unknown whether it ran.
    Unknown,
    /// Its client withdrew it.
    Cancelled,
    /// It waited beyond its start limit.
    Expired,
}

/// Something that happened to an action or to the resources of actions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ActionEvent {
    /// The resources of a daemon as it starts; they replace the previous ones.
    ResourcesSet {
        /// All resources.
        resources: Vec<Resource>,
    },
    /// A machine was lost for good, with these resources: it is unknown whether actions started on
    /// it ran, and actions that wait for it end.
    ResourcesLost {
        /// Their names.
        resources: Vec<Box<str>>,
    },
    /// A job declared a service that devices may hold; it replaces one of the same name.
    ServiceDeclared {
        /// Its name.
        service: Box<str>,
        /// Time to load it onto devices; measured from then on.
        load: Span,
    },
    /// Limits on what groups of jobs may hold of each resource at once; none for no limits.
    SharesSet {
        /// Their shares.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shares: Option<Shares>,
    },
    /// A client submitted an action, with an id that the driver chose.
    ActionSubmitted {
        /// The action.
        action: ActionId,
        /// Its specification.
        spec: Box<ActionSpec>,
    },
    /// Its process or request began.
    ActionBegan {
        /// The action.
        action: ActionId,
        /// Its attempt.
        attempt: u32,
    },
    /// An action ended.
    ActionEnded {
        /// The action.
        action: ActionId,
        /// Its attempt.
        attempt: u32,
        /// How it ended.
        outcome: Outcome,
        /// Digest of its output, if it has any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Box<str>>,
    },
    /// The client withdrew an action.
    ActionCancelled {
        /// The action.
        action: ActionId,
    },
    /// An external service refused a request for a time.
    QuotaRefused {
        /// The quota.
        resource: Box<str>,
        /// How long to send no further request; 0 if the service did not say.
        retry_after: Span,
        /// The refused action and its attempt: it did not run, and waits again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        action: Option<(ActionId, u32)>,
    },
    /// A policy, or the built-in default in its place, shared out units.
    ElasticAnswered {
        /// The question.
        ask: AskId,
        /// Who answered.
        policy: PolicyRef,
        /// The answer.
        answer: ElasticAnswer,
    },
    /// After a restart of the daemon, the driver has reported everything that the executor knows:
    /// for any other action started before, it is unknown whether it ran.
    ActionsRecovered,
}

kinds! {
    ActionEvent {
        ResourcesSet = "resources_set",
        ResourcesLost = "resources_lost",
        ServiceDeclared = "service_declared",
        SharesSet = "shares_set",
        ActionSubmitted = "action_submitted",
        ActionBegan = "action_began",
        ActionEnded = "action_ended",
        ActionCancelled = "action_cancelled",
        QuotaRefused = "quota_refused",
        ElasticAnswered = "elastic_answered",
        ActionsRecovered = "actions_recovered",
    }
}
