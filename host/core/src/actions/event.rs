//! What happened to actions.

use crate::actions::question::ElasticAnswer;
use crate::actions::resource::Resource;
use crate::actions::shares::Shares;
use crate::actions::spec::ActionSpec;
use serde::{Deserialize, Serialize};
use treadle_model::{ActionId, AskId, PolicyRef, Span};

/// How an action ended.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It ran to its end.
    Exited {
        /// Its exit code, or the status of its answer.
        code: i32,
    },
    /// It was ended by a signal that was not ours.
    Killed {
        /// The signal.
        signal: i32,
    },
    /// It went beyond its memory.
    OutOfMemory,
    /// It ran for longer than it may.
    TimedOut,
    /// It could not be run, by no fault of its own.
    InfrastructureFailure {
        /// A short cause for people.
        cause: Box<str>,
    },
    /// Nobody knows whether it ran.
    Unknown,
    /// Its client withdrew it.
    Cancelled,
    /// It waited for too long.
    Expired,
}

/// Something that happened to an action or to what actions draw from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ActionEvent {
    /// What there is, as a daemon begins; it replaces what there was.
    ResourcesSet {
        /// All resources.
        resources: Vec<Resource>,
    },
    /// A machine is gone for good, with all of these: of what was started on it nobody knows whether it
    /// ran, and what waits for it is over.
    ResourcesLost {
        /// Their names.
        resources: Vec<Box<str>>,
    },
    /// A service that devices may hold, as a job declares it; it replaces one of that name.
    ServiceDeclared {
        /// Its name.
        service: Box<str>,
        /// How long it takes to get it onto devices; learnt from then on.
        load: Span,
    },
    /// What groups of jobs may hold of each resource at once; none where all may hold all of it.
    SharesSet {
        /// Their shares.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shares: Option<Shares>,
    },
    /// A client submitted an action, with an id that its driver chose.
    ActionSubmitted {
        /// The action.
        action: ActionId,
        /// What it is.
        spec: Box<ActionSpec>,
    },
    /// Its process or request began.
    ActionBegan {
        /// The action.
        action: ActionId,
        /// Which attempt.
        attempt: u32,
    },
    /// It is over.
    ActionEnded {
        /// The action.
        action: ActionId,
        /// Which attempt.
        attempt: u32,
        /// How.
        outcome: Outcome,
        /// Digest of its output, where it has any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Box<str>>,
    },
    /// Its client withdrew it.
    ActionCancelled {
        /// The action.
        action: ActionId,
    },
    /// A service that others own refused a request for a time.
    QuotaRefused {
        /// The quota.
        resource: Box<str>,
        /// How long nothing more is asked of it; 0 where that was not said.
        retry_after: Span,
        /// The action that was refused and its attempt: it did not run, and waits again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        action: Option<(ActionId, u32)>,
    },
    /// A policy, or the built-in default in its stead, shared out units.
    ElasticAnswered {
        /// The question.
        ask: AskId,
        /// Who answered.
        policy: PolicyRef,
        /// The answer.
        answer: ElasticAnswer,
    },
    /// After a restart of the daemon its driver has reported all that the executor knows: of every
    /// other action that was started before nobody knows whether it ran.
    ActionsRecovered,
}

impl ActionEvent {
    /// The event's name, as it is in the journal.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::ResourcesSet { .. } => "resources_set",
            Self::ResourcesLost { .. } => "resources_lost",
            Self::ServiceDeclared { .. } => "service_declared",
            Self::SharesSet { .. } => "shares_set",
            Self::ActionSubmitted { .. } => "action_submitted",
            Self::ActionBegan { .. } => "action_began",
            Self::ActionEnded { .. } => "action_ended",
            Self::ActionCancelled { .. } => "action_cancelled",
            Self::QuotaRefused { .. } => "quota_refused",
            Self::ElasticAnswered { .. } => "elastic_answered",
            Self::ActionsRecovered => "actions_recovered",
        }
    }
}
