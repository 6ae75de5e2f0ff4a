//! The closed vocabularies: one name for one thing, spelled the same in code, API, journal and
//! console.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! vocabulary {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident => $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $word)] $variant),+
        }

        impl $name {
            /// Every name of this vocabulary, in its fixed order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name as it is spelled everywhere.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            /// The variant that `word` names, if any.
            pub fn from_name(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

vocabulary!(
    /// What a policy decides.
    World {
        /// Remaining tokens and tool time of programs.
        Prediction => "prediction",
        /// Scores of queue entries; whether to preempt.
        Priority => "priority",
        /// Which worker a program or step goes to; migrations.
        Placement => "placement",
        /// Units for actions, parallelism of workers.
        Allocation => "allocation",
        /// The order in which to pause and to restore.
        Eviction => "eviction",
        /// The worth of a finished program.
        Reward => "reward",
        /// How many members of training runs' groups are sampled, cut and trained.
        Shaping => "shaping",
    }
);

vocabulary!(
    /// Where a program is in its own loop (`ThunderAgent` §4.1, tau).
    Phase {
        /// A step is waiting or running.
        Reasoning => "reasoning",
        /// The program is busy outside: a tool, a sandbox, a reward service.
        Acting => "acting",
    }
);

vocabulary!(
    /// The scheduler's state of a program (`ThunderAgent` §4.1, s).
    Status {
        /// New: its first step waits for placement.
        Queued => "queued",
        /// It is placed on a worker.
        Active => "active",
        /// It was placed and gave its memory up.
        Paused => "paused",
        /// Released by its client, or idle beyond the bound.
        Finished => "finished",
        /// Released with a step under way, or with its whole job.
        Aborted => "aborted",
    }
);

vocabulary!(
    /// How a program ended.
    End {
        /// Its client released it, or marked its last request.
        Released => "released",
        /// It was idle beyond the bound: its client may have abandoned it.
        Expired => "expired",
        /// It was released with a step under way, or with its whole job.
        Aborted => "aborted",
    }
);

vocabulary!(
    /// Why a step's generation ended.
    FinishReason {
        /// The model ended its turn.
        Stop => "stop",
        /// The output limit was reached.
        Length => "length",
        /// The model asked for tools.
        ToolCalls => "tool_calls",
        /// The engine was ordered to stop.
        Abort => "abort",
        /// The engine gave a reason that treadle does not know, or none.
        Other => "other",
    }
);

vocabulary!(
    /// The software behind a worker.
    EngineKind {
        /// vLLM's OpenAI server.
        Vllm => "vllm",
        /// `SGLang`'s server.
        Sglang => "sglang",
        /// llama.cpp's server.
        Llamacpp => "llamacpp",
        /// Anything else that speaks the `OpenAI` API.
        Openai => "openai",
    }
);

vocabulary!(
    /// What a policy does in a binding.
    Role {
        /// It answers.
        Active => "active",
        /// It answers for a share of the programs.
        Canary => "canary",
        /// It is asked and compared, never obeyed.
        Shadow => "shadow",
        /// It answered before.
        Previous => "previous",
    }
);

/// Which policy made a decision: `name@version`, and for an uploaded policy
/// the first 12 hex digits of its digest.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PolicyRef(pub String);

impl fmt::Display for PolicyRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
