//! Simulated training (`treadle-bench training`): whole training runs in virtual time, beside the
//! figures of `RollArt` and `DARTS`.
//!
//! Real are the core's machine of groups, batches and versions, and the shaping policies. Models are
//! engines ([`treadle_engine_model`]), environments, judges, the trainer, weights on their way, and
//! the lengths of what is sampled. Baselines run on the same machine with other settings; what they
//! do that the machine does not is in [`Simulation`](simulation).

mod bias;
mod contest;
mod control;
mod darts;
mod fleet;
mod hardware;
mod judges;
mod outcome;
mod parameters;
mod programs;
mod rollart;
mod shaper;
mod simulation;
mod stream;
mod suite;
mod system;
mod table;
#[cfg(test)]
mod tests;
mod trainer;
mod workload;

pub use parameters::parameters;
pub use simulation::SetupError;
pub use suite::{Options, Part, Suite};
pub use table::{Row, text};
