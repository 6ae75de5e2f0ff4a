//! State of `/v1/responses`: stored responses that may be continued by their ids, and engines
//! without this path.

mod body;
mod stored;
mod unsupported;

pub(crate) use body::{Holding, Responding};
pub(crate) use stored::StoredResponse;

use std::hash::{BuildHasher, RandomState};
use stored::StoredResponses;
use treadle_model::StepId;
use unsupported::UnsupportedEngines;

/// Most bytes of stored responses, over all tenants.
const STORED_BYTES_MAX: u64 = 256 << 20;

/// State that requests to `/v1/responses` share.
pub struct Responses {
    pub(crate) held: StoredResponses,
    pub(crate) unsupported: UnsupportedEngines,
    /// Distinguishes the responses of several daemons.
    daemon: u64,
}

impl Default for Responses {
    fn default() -> Self {
        Self {
            held: StoredResponses::new(STORED_BYTES_MAX),
            unsupported: UnsupportedEngines::default(),
            daemon: RandomState::new().hash_one("responses"),
        }
    }
}

impl Responses {
    /// The stem of the ids of a step's response.
    pub(crate) fn name_of(&self, step: StepId) -> String {
        format!("{:016x}{:016x}", self.daemon, step.0)
    }
}
