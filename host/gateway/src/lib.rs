//! The gateway: LLM calls in, the same LLM calls out, with scheduling between.
//!
//! Bodies are read but not rewritten, except for a few fields such as the slot on engines with
//! slots; bytes of event streams are relayed as they arrive. Forwarding waits for placement, never
//! for a disk.

mod answer_cache;
mod bodies;
mod captures;
mod count_tokens;
mod excerpt;
mod forward;
mod guard;
mod headers;
mod identity;
mod metrics;
mod model_names;
mod models;
mod request;
mod requests;
mod responses;
pub mod routing;
mod trace;
mod withdraw;

pub use bodies::{Counted, PayloadWriter};
pub use captures::Captures;
pub use count_tokens::count_tokens;
pub use forward::{forward, forward_body};
pub use identity::Identities;
pub use metrics::Metrics;
pub use models::{model, models};
pub use request::{GatewayState, Room, generate, not_recorded};
pub use requests::RequestIds;
pub use responses::Responses;
pub use trace::TRACE_TARGET;

use axum::http::request::Parts;
use std::sync::Arc;
use treadle_auth::Principal;
use treadle_wire::{ErrorBody, ErrorCode};

/// The authenticated sender of a request.
fn principal_of(parts: &Parts) -> Result<Arc<Principal>, ErrorBody> {
    parts
        .extensions
        .get::<Arc<Principal>>()
        .cloned()
        .ok_or_else(|| {
            let message = "the request was not checked; please report this";
            ErrorBody::new(ErrorCode::Internal, message)
        })
}
