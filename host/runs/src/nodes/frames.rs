//! The protocol between a node's agent and its daemon: one JSON object per line.

use crate::held_action::HeldAction;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use treadle_actions::ActionBody;
use treadle_core::actions::{Grant, Outcome};
use treadle_model::ActionId;
use treadle_wire::{ErrorBody, ErrorCode};

/// The daemon's path for agents' connections.
pub const PATH: &str = "/internal/nodes/link";
/// The protocol of the HTTP upgrade.
pub const PROTOCOL: &str = "treadle-node/1";
/// The agent's path that lists a tenant's sandboxes for its daemon.
pub const LIST_PATH: &str = "/internal/nodes/sandboxes";
/// The agent's path that lists a tenant's snapshots.
pub const SNAPSHOTS_PATH: &str = "/internal/nodes/snapshots";
/// The agent's path that finds the sandbox of a signed URL, followed by `read` or `write`.
pub const SIGNED_PATH: &str = "/internal/nodes/signed";
/// Length of a node's mark, the suffix of its sandboxes' names.
pub const MARK_CHARS: usize = 5;
/// Length of a sandbox's name.
pub(crate) const ID_CHARS: usize = 21;

/// An attempt of an action.
pub type AttemptKey = (ActionId, u32);

/// A message from an agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum FromNode {
    /// The first line.
    Hello(Hello),
    /// Its open attempts, after the ends that are not on record.
    Known(Known),
    /// An attempt has started.
    Began {
        /// The attempt.
        attempt: AttemptKey,
    },
    /// An attempt has ended.
    Ended(Box<Ended>),
    /// Its load, every second.
    Load(NodeLoad),
    /// A question, which is answered with the same number.
    Ask {
        /// The number.
        id: u64,
        /// The question.
        question: Question,
    },
    /// Cancels an action whose handler has stopped waiting.
    Cancel {
        /// Its tenant.
        tenant: String,
        /// The action.
        action: ActionId,
    },
}

/// The identity of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Its mark, the suffix of its sandboxes' names; stored in its folder.
    pub mark: String,
    /// Its name.
    pub name: String,
    /// Differs for each start of the agent.
    pub run: String,
    /// Its URL for the daemon.
    pub url: String,
    /// treadle's version.
    pub version: String,
    /// Cores that actions may use.
    pub cores: u64,
    /// Memory that actions may use, in MiB.
    pub memory_mib: u64,
    /// Its limit on sandboxes.
    pub sandboxes_max: u64,
    /// Whether it is cordoned: it gets no new sandboxes.
    pub cordoned: bool,
}

/// An agent's open attempts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Known {
    /// Attempts that it has received.
    pub running: Vec<AttemptKey>,
    /// Actions whose handlers wait to run.
    pub waiting: Vec<ActionId>,
    /// Whether attempts that are not listed certainly never started.
    pub is_all: bool,
}

/// How an attempt ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ended {
    /// The attempt.
    pub attempt: AttemptKey,
    /// How it ended.
    pub outcome: Outcome,
    /// Its output, in Base64.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
}

/// The load of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeLoad {
    /// Number of sandboxes.
    pub sandboxes: u64,
    /// Free memory of the machine, in MiB.
    pub memory_free_mib: u64,
    /// Names of its images.
    pub images: Vec<String>,
    /// The owning tenant of each image that is not shared.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub image_owners: BTreeMap<String, String>,
}

impl NodeLoad {
    /// The images that a tenant may use.
    pub fn images_of(&self, tenant: &str) -> impl Iterator<Item = &String> {
        let is_own = move |image: &&String| {
            let owner = self.image_owners.get(*image);
            owner.is_none_or(|owner| owner == tenant)
        };
        self.images.iter().filter(is_own)
    }
}

/// A question of an agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Question {
    /// Record a handler's action.
    Hold {
        /// Its tenant.
        tenant: String,
        /// Identifies the handler.
        token: String,
        /// The action.
        action: HeldAction,
    },
    /// Which of these programs are live.
    Live {
        /// The programs, by tenant and name.
        programs: Vec<(String, String)>,
    },
}

/// The answer to a question.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Answer {
    /// The action is on record.
    Held {
        /// Its number.
        action: ActionId,
    },
    /// Whether each program is live.
    Live {
        /// In the order of the question.
        live: Vec<bool>,
    },
    /// The request is refused.
    Refused {
        /// The code of the error.
        code: String,
        /// What is wrong, and the remedy.
        message: String,
    },
}

impl Answer {
    /// The answer for an error.
    pub(crate) fn refused(error: &ErrorBody) -> Self {
        Self::Refused {
            code: error.code.as_str().to_owned(),
            message: error.message.clone(),
        }
    }
}

/// The error of a received refusal.
pub fn refusal(code: &str, message: String) -> ErrorBody {
    let known = ErrorCode::ALL.iter().find(|known| known.as_str() == code);
    ErrorBody::new(known.copied().unwrap_or(ErrorCode::Internal), message)
}

/// A message from a daemon.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum ToNode {
    /// The answer to a hello.
    Welcome,
    /// The node is refused.
    Unwelcome {
        /// Why.
        cause: String,
    },
    /// The open attempts have been compared and recorded.
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
    /// An action that a handler waits for has ended.
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
    /// Cordons the node, or takes it back.
    Cordon {
        /// Whether it is cordoned.
        cordoned: bool,
    },
}

/// An attempt to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    /// The attempt.
    pub attempt: AttemptKey,
    /// Its resources, by the node's names.
    pub grants: Vec<Grant>,
    /// The command.
    pub body: ActionBody,
    /// Time limit in microseconds.
    pub run_max_us: u64,
    /// Whether it may be run again if its progress is unknown.
    #[serde(default)]
    pub idempotent: bool,
    /// The RL run that it belongs to.
    pub job: String,
    /// Its tenant.
    pub tenant: String,
}
