//! What a node's agent and its daemon say to each other: one JSON object a line.

use crate::held_action::HeldAction;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use treadle_actions::ActionBody;
use treadle_core::actions::{Grant, Outcome};
use treadle_model::ActionId;
use treadle_wire::{ErrorBody, ErrorCode};

/// Where a daemon takes agents' connections.
pub(crate) const PATH: &str = "/internal/nodes/link";
/// What both ends upgrade to.
pub(crate) const PROTOCOL: &str = "treadle-node/1";
/// Where an agent lists a tenant's sandboxes for its daemon.
pub(crate) const LIST_PATH: &str = "/internal/nodes/sandboxes";
/// Where a node lists its snapshots.
pub(crate) const SNAPSHOTS_PATH: &str = "/internal/nodes/snapshots";
/// Where an agent tells which of its sandboxes a URL was signed for, followed by `read` or `write`.
pub(crate) const SIGNED_PATH: &str = "/internal/nodes/signed";
/// Letters of the mark that names of a node's sandboxes end with.
pub(crate) const MARK_CHARS: usize = 5;
/// Letters of a sandbox's name.
pub(crate) const ID_CHARS: usize = 21;

/// An attempt of an action.
pub(crate) type AttemptKey = (ActionId, u32);

/// From an agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub(crate) enum FromNode {
    /// The first line.
    Hello(Hello),
    /// What it knows of attempts, after the ends that are not on record.
    Known(Known),
    /// An attempt began.
    Began {
        /// The attempt.
        attempt: AttemptKey,
    },
    /// An attempt is over.
    Ended(Box<Ended>),
    /// What it has, each second.
    Load(NodeLoad),
    /// A question, which is answered under its number.
    Ask {
        /// The number.
        id: u64,
        /// The question.
        question: Question,
    },
    /// An action whose handler has given up waiting.
    Cancel {
        /// Its tenant.
        tenant: String,
        /// The action.
        action: ActionId,
    },
}

/// Which node it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// What names of its sandboxes end with; it outlives the agent with its folder.
    pub(crate) mark: String,
    /// What people call it.
    pub(crate) name: String,
    /// Differs for each start of the agent.
    pub(crate) run: String,
    /// Where the daemon reaches it.
    pub(crate) url: String,
    /// treadle's version.
    pub(crate) version: String,
    /// Cores that actions may use.
    pub(crate) cores: u64,
    /// Memory that actions may use, in MiB.
    pub(crate) memory_mib: u64,
    /// Sandboxes that it may have.
    pub(crate) sandboxes_max: u64,
    /// Whether it takes no new sandboxes.
    pub(crate) cordoned: bool,
}

/// What an agent knows of attempts that have not ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Known {
    /// Attempts that were received.
    pub(crate) running: Vec<AttemptKey>,
    /// Actions whose handlers wait for their turn.
    pub(crate) waiting: Vec<ActionId>,
    /// Whether what is not among its attempts never began.
    pub(crate) is_all: bool,
}

/// How an attempt ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// The attempt.
    pub(crate) attempt: AttemptKey,
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// What it wrote, in Base64.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) output: String,
}

/// What a node has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeLoad {
    /// Sandboxes.
    pub(crate) sandboxes: u64,
    /// Memory of the machine that is free, in MiB.
    pub(crate) memory_free_mib: u64,
    /// Names of its images.
    pub(crate) images: Vec<String>,
    /// Tenants by the images that are theirs alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) image_owners: BTreeMap<String, String>,
}

impl NodeLoad {
    /// The images that a tenant may make sandboxes of.
    pub(crate) fn images_of(&self, tenant: &str) -> impl Iterator<Item = &String> {
        let is_own = move |image: &&String| {
            let owner = self.image_owners.get(*image);
            owner.is_none_or(|owner| owner == tenant)
        };
        self.images.iter().filter(is_own)
    }
}

/// A question of an agent's.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub(crate) enum Question {
    /// A handler's action is to be put on record.
    Hold {
        /// Its tenant.
        tenant: String,
        /// By which the handler is found.
        token: String,
        /// The action.
        action: HeldAction,
    },
    /// Which of these programs live, by tenant and name.
    Live {
        /// The programs.
        programs: Vec<(String, String)>,
    },
}

/// The answer to a question.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub(crate) enum Answer {
    /// The action is on record.
    Held {
        /// Its number.
        action: ActionId,
    },
    /// Whether each program lives.
    Live {
        /// In the order of the question.
        live: Vec<bool>,
    },
    /// It can't be done.
    Refused {
        /// The code of the error.
        code: String,
        /// What is wrong, and the remedy.
        message: String,
    },
}

impl Answer {
    /// What can't be done.
    pub(crate) fn refused(error: &ErrorBody) -> Self {
        Self::Refused {
            code: error.code.as_str().to_owned(),
            message: error.message.clone(),
        }
    }
}

/// A refusal that came from elsewhere.
pub(crate) fn refusal(code: &str, message: String) -> ErrorBody {
    let known = ErrorCode::ALL.iter().find(|known| known.as_str() == code);
    ErrorBody::new(known.copied().unwrap_or(ErrorCode::Internal), message)
}

/// From a daemon.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub(crate) enum ToNode {
    /// The answer to a hello.
    Welcome,
    /// It is not taken in.
    Unwelcome {
        /// Why.
        cause: String,
    },
    /// What was known of attempts is on record.
    Settled,
    /// Run an attempt, whose start is on record.
    Start(Box<Start>),
    /// Stop an attempt.
    Stop {
        /// The attempt.
        attempt: AttemptKey,
    },
    /// The end of an attempt is on record.
    Acknowledge {
        /// The attempt.
        attempt: AttemptKey,
    },
    /// An action is over that a handler waits for.
    Over {
        /// The action.
        action: ActionId,
    },
    /// The answer to a question.
    Answer {
        /// Its number.
        id: u64,
        /// The answer.
        answer: Answer,
    },
    /// A program has ended, and with it its sandboxes.
    ProgramEnded {
        /// Its tenant.
        tenant: String,
        /// The program.
        program: String,
    },
    /// Whether it is to take new sandboxes.
    Cordon {
        /// It is not.
        cordoned: bool,
    },
}

/// An attempt to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    /// The attempt.
    pub(crate) attempt: AttemptKey,
    /// What it has until it ends, by the names that the node knows.
    pub(crate) grants: Vec<Grant>,
    /// What to run.
    pub(crate) body: ActionBody,
    /// After so many microseconds it is stopped.
    pub(crate) run_max_us: u64,
    /// Whether it may be run again where nobody knows how far it came.
    #[serde(default)]
    pub(crate) idempotent: bool,
    /// The RL run that it belongs to.
    pub(crate) job: String,
    /// Whose it is.
    pub(crate) tenant: String,
}
