//! What-if replay: how a recorded workload would have run under other policies.
//!
//! A [`Recorder`] takes the events of a window of the journal and gives a [`Workload`]: programs,
//! their steps and tools, and who waited for whom. [`replay`] runs it in the cluster of virtual time
//! ([`treadle_simulator::cluster`]): the core of the daemon, its settings, policies, and models of the engines.
//! [`Comparison`] puts the outcomes of several seeds and sets of policies side by side.
//!
//! `docs/what-if.md` describes for users what is replayed as recorded, what is inferred, and
//! what is left out.

mod actions;
mod arrivals;
mod divergence;
mod names;
mod prefixes;
mod recorder;
mod replay;
mod report;
mod serving;
mod statistics;
#[cfg(test)]
mod tests;
mod workload;

pub use divergence::{Choice, Choices, Difference};
pub use recorder::{Recorder, RecorderOptions};
pub use replay::{JobOutcome, Outcome, PolicyRecord, ReplayOptions, replay};
pub use report::{AskedPolicy, Change, Comparison, Interval, SetReport};
pub use statistics::{Estimate, jain_index};
pub use workload::{Cuts, Recorded, RecordedWorker, ReplayError, Workload};
