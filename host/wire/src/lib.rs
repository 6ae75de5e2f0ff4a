//! Message formats of the protocols between RL jobs, treadle and inference engines.
//!
//! This crate parses and prints; it does no IO, keeps no clock and knows no HTTP library.
//! It is on the path of every request, so bodies are read in one pass into borrowed structs
//! and never into a tree of values; those of training jobs that feed tokens are ([`history`]).

pub mod elided;
pub mod endpoint;
pub mod engines;
pub mod error;
pub mod error_event;
pub mod history;
pub mod insert_field;
pub mod prefix_index;
pub mod request;
pub mod sse;
pub mod tenant;
pub mod tokens;
pub mod turned_away;
pub mod usage;

pub use elided::Elided;
pub use endpoint::Endpoint;
pub use engines::{EngineReading, ModelInfo, models_of};
pub use error::{ErrorBody, ErrorCode, RequestError};
pub use error_event::{event_of_answer, words_of};
pub use insert_field::{insert_fields, remove_fields};
pub use prefix_index::PrefixIndex;
pub use request::{
    Forwarded, ForwardedHead, MediaTargets, Named, NamedParent, OwnedField, OwnedKind,
    PrefixSegment, PromptSize, RequestHead, salt_field,
};
pub use sse::{SseError, SseScanner};
pub use tenant::without_tenant;
pub use tokens::{
    AnswerTokens, KIND_PROMPT, LogprobKind, NamedSpan, NotCaptured, Shown, TokenReader,
    TokenRequest,
};
pub use turned_away::TurnedAway;
pub use usage::{Finish, StepUsage, StreamUsage, WeightVersion, usage_of_body};
