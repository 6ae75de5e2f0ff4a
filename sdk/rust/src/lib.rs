//! What a policy author needs to write a treadle policy in Rust.
//!
//! Implement [`Policy`] and the trait of a world, name the type in the macro of that
//! world, and build for `wasm32-unknown-unknown`; `scripts/build-guests.sh` does so
//! for all crates in `plugins/`. Name, version and summary of the policy are those of
//! its `Cargo.toml`. The same crate builds natively, where the macro adds nothing, so
//! policies are tested as ordinary Rust.
//!
//! ```
//! use treadle_plugin::{Policy, PolicyError, PriorityPolicy, QueueColumns};
//!
//! struct ShortestFirst;
//!
//! impl Policy for ShortestFirst {
//!     fn configure(_json: &str) -> Result<Self, PolicyError> {
//!         Ok(Self)
//!     }
//! }
//!
//! impl PriorityPolicy for ShortestFirst {
//!     fn score(&mut self, programs: &QueueColumns<'_>) -> Result<Vec<f64>, PolicyError> {
//!         Ok(programs.tokens.iter().map(|&tokens| -(tokens as f64)).collect())
//!     }
//! }
//!
//! treadle_plugin::priority_policy!(ShortestFirst);
//! ```

mod allocation;
mod columns;
mod error;
mod eviction;
#[doc(hidden)]
pub mod guest;
#[cfg(not(target_family = "wasm"))]
pub mod harness;
pub mod host;
mod placement;
mod policy;
mod prediction;
mod priority;
pub mod random;
mod reward;

pub use allocation::{AllocationPolicy, GrantColumns, ParallelismColumns, RedundancyColumns};
pub use error::PolicyError;
pub use eviction::{ActingColumns, ActiveColumns, EvictionPolicy, ServiceColumns, WaitingColumns};
pub use placement::{
    AssignColumns, MigrateColumns, NOWHERE, PlacementPolicy, RouteColumns, WorkerColumns,
};
pub use policy::Policy;
pub use prediction::{Estimates, FinishedColumns, LiveColumns, PredictionPolicy};
pub use priority::{PreemptColumns, PriorityPolicy, QueueColumns};
pub use reward::{AnswerColumns, CandidateColumns, RewardPolicy, Scores};
