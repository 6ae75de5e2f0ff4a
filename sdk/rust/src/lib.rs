//! The SDK for treadle policies in Rust.
//!
//! The columns and traits are shared by guests, by natively linked policies, and by the host. The
//! crate does not depend on the host.
//!
//! The rest of this page is the crate's `README.md`.
#![doc = include_str!("../README.md")]
// The README shows what a test of a policy looks like.
#![allow(clippy::test_attr_in_doctest)]

pub mod affinity;
mod allocation;
mod arrangement;
mod columns;
#[doc(hidden)]
pub mod configuration;
mod error;
mod eviction;
pub mod exact;
#[doc(hidden)]
pub mod guest;
#[cfg(not(target_family = "wasm"))]
pub mod harness;
pub mod host;
mod phase;
mod placement;
mod policy;
mod prediction;
mod priority;
pub mod random;
pub mod recent;
mod reward;
pub mod ridge;
pub mod running;
pub mod shaping;

pub use allocation::{
    ActionColumns, AllocationPolicy, ParallelismColumns, PoolColumns, RunningColumns,
};
pub use arrangement::{Arrangement, FreeUnits};
pub use configuration::{Config, ConfigValue, NoConfig};
pub use error::PolicyError;
pub use eviction::{
    ActingColumns, ActiveColumns, CacheAction, EvictionPolicy, RetentionColumns, WaitingColumns,
};
pub use phase::Phase;
pub use placement::{
    AssignColumns, MigrateColumns, NO_CLASS, NO_GROUP, NOWHERE, PlacementPolicy, RouteColumns,
    WorkerColumns,
};
pub use policy::Policy;
pub use prediction::{Estimates, FinishedColumns, LiveColumns, PredictionPolicy};
pub use priority::{PreemptColumns, PriorityPolicy, QueueColumns};
pub use reward::{AnswerColumns, RewardPolicy, Scores};
#[doc(hidden)]
pub use serde_json;
pub use shaping::{GroupColumns, MemberColumns, ShapingPolicy, Verdict};
