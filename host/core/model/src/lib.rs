//! Ids and vocabularies that every crate of treadle shares.
//!
//! This crate knows nothing of scheduling, storage or wire formats: it only fixes what a program, a
//! step, a worker, a world and an instant are called, so that crates which must not depend on one
//! another still mean the same thing.

mod bound;
mod endpoint;
mod id;
mod name;
pub mod tenant;
mod time;
mod vocabulary;

pub use bound::{BYTES_MAX, REWARD_MILLIONTHS_MAX, TOKENS_MAX, WEIGHTS_BYTES_MAX, reported_tokens};
pub use endpoint::endpoint_of;
pub use id::{ActionId, AskId, GATEWAYS_MAX, GatewayId, ProgramId, StepId, WorkerId};
pub use name::{CLASS_BYTES_MAX, ClientName, NAME_BYTES_MAX, NameError};
pub use tenant::Tenant;
pub use time::{Span, Timestamp};
pub use vocabulary::{End, EngineKind, FinishReason, Phase, PolicyRef, Role, Status, World};

/// Whether a value is the default, which serde leaves out.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
