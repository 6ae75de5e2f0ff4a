//! Checks a training run from outside: from the events that treadle has on record, and from the
//! batches as the trainer received them. It shares no code with treadle, so that a mistake in the
//! scheduler is not made a second time here. `docs/training.md` has the rules and both formats.
//!
//! [`read_events`] and [`read_batches`] read the input, which is bounded and may be hostile;
//! [`check`] compares both. [`assembled`] finds the samples that treadle assembled from captured
//! steps, and [`Samples::prove`] compares one with these steps. No rule accuses a correct run. The journal does not say when a batch
//! was cut, only that this was after it was first requested and before the first event that proves
//! it to exist; what could have changed in between may have either value.
//!
//! It covers the last run of a job: if the job was removed and declared again, what happened
//! before does not count.

mod assembled;
mod batch;
mod check;
mod error;
mod event;
mod history;
mod index;
mod member;
mod payload;
mod prefix;
mod prove;
mod report;
mod run;
mod steps;
mod versions;

pub use assembled::{Assembled, Samples, assembled};
pub use batch::{Received, read_batches};
pub use check::check;
pub use error::Error;
pub use event::{Recorded, read_events};
pub use report::{Report, Rule, VIOLATIONS_MAX, Violation};

#[cfg(test)]
mod tests;
