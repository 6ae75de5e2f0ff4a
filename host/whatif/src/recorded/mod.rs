//! What-if replay: how a recorded workload would have run under other policies.
//!
//! A [`Recorder`] turns the events of a window of the journal into a [`Workload`]: programs, their
//! steps and tools, and their dependencies. [`replay`] runs it in virtual time
//! ([`treadle_simulator::cluster`]) with the daemon's core, its settings, policies, and models of
//! the engines. [`Comparison`] compares the outcomes of several seeds and sets of policies.
//!
//! `docs/what-if.md` describes for users what is replayed as recorded, what is inferred, and
//! what is left out.

mod actions;
mod affinity;
mod arrivals;
mod contexts;
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
pub use report::{Change, Comparison, Interval, SetReport, WhatIfPolicy};
pub use statistics::{Estimate, jain_index};
pub use workload::{Cuts, Recorded, RecordedWorker, ReplayError, Workload};
