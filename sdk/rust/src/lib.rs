//! What a policy author needs to write a treadle policy in Rust.
//!
//! Implement the trait of a world, name the type in the macro of that world, and
//! build for `wasm32-unknown-unknown`; `scripts/build-guests.sh` does so for all
//! crates in `plugins/`. Name, version and summary of the policy are those of its
//! `Cargo.toml`. The same crate builds natively, where the macro adds nothing, so
//! policies are tested as ordinary Rust.
//!
//! ```
//! use treadle_plugin::{ActingColumns, ActiveColumns, EvictionPolicy, PolicyError, WaitingColumns};
//!
//! struct LargestFirst;
//!
//! impl EvictionPolicy for LargestFirst {
//!     fn configure(_json: &str) -> Result<Self, PolicyError> {
//!         Ok(Self)
//!     }
//!     fn weigh(&self, programs: &ActingColumns<'_>) -> Result<Vec<f64>, PolicyError> {
//!         Ok(vec![1.0; programs.len()])
//!     }
//!     fn pause_order(&self, programs: &ActiveColumns<'_>) -> Result<Vec<f64>, PolicyError> {
//!         Ok(programs.tokens.iter().map(|&tokens| tokens as f64).collect())
//!     }
//!     fn restore_order(&self, programs: &WaitingColumns<'_>) -> Result<Vec<f64>, PolicyError> {
//!         Ok(programs.waited_ms.iter().map(|&waited| waited as f64).collect())
//!     }
//! }
//!
//! treadle_plugin::eviction_policy!(LargestFirst);
//! ```

mod error;
mod eviction;
#[doc(hidden)]
#[cfg(target_family = "wasm")]
pub mod guest;
pub mod host;

pub use error::PolicyError;
pub use eviction::{ActingColumns, ActiveColumns, EvictionPolicy, WaitingColumns};
