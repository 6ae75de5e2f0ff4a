//! What a gateway needs for `/v1/responses`: answers that may be continued by their ids, and which
//! engines have no such path.

mod body;
mod held;
mod lacking;

pub(crate) use body::{Holding, Responding};
pub(crate) use held::Held;

use held::HeldResponses;
use lacking::Lacking;
use std::hash::{BuildHasher, RandomState};
use treadle_model::StepId;

/// Bytes of answers that are held so that they can be continued, of all tenants together.
const HELD_BYTES_MAX: u64 = 256 << 20;

/// What the requests to `/v1/responses` share.
pub struct Responses {
    pub(crate) held: HeldResponses,
    pub(crate) lacking: Lacking,
    /// Keeps the answers of several daemons apart.
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
    /// What the ids of a step's answer are made of.
    pub(crate) fn name_of(&self, step: StepId) -> String {
        format!("{:016x}{:016x}", self.daemon, step.0)
    }
}
