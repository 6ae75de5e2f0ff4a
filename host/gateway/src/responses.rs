//! State of `/v1/responses`: stored responses that may be continued by their ids, and engines
//! without this path.

mod body;
mod held;
mod lacking;

pub(crate) use body::{Holding, Responding};
pub(crate) use held::Held;

use held::HeldResponses;
use lacking::Lacking;
use std::hash::{BuildHasher, RandomState};
use treadle_model::StepId;

/// Most bytes of stored responses, over all tenants.
const HELD_BYTES_MAX: u64 = 256 << 20;

/// State that requests to `/v1/responses` share.
pub struct Responses {
    pub(crate) held: HeldResponses,
    pub(crate) lacking: Lacking,
    /// Distinguishes the responses of several daemons.
    daemon: u64,
}

impl Default for Responses {
    fn default() -> Self {
        Self {
            held: HeldResponses::new(HELD_BYTES_MAX),
            lacking: Lacking::default(),
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
