//! Training samples of programs, token by token: the steps that engines reported, the sequences
//! that they form, and how both are stored.
//!
//! A [`Step`] is what an engine says it saw and sampled. Nothing here tokenises text, and no token
//! of a step is ever changed. [`assemble`] merges the steps of a program by one rule: a step
//! continues the longest earlier step whose prompt and output are an exact prefix of its prompt;
//! a step that continues none begins a sequence.
//!
//! The result keeps one invariant: to the left of each trained token stand exactly the tokens that
//! the engine had there when it sampled it, and each sampled token is trained in exactly one
//! sequence, or its step is listed as excluded with a reason.
//!
//! This crate does no IO.

mod assemble;
mod batch;
mod breaks;
mod call;
mod check;
mod delta;
mod frame;
mod grow;
mod layout;
mod media;
mod prefix;
mod step;
mod stored;

pub use assemble::{Assembly, Exclusion, Sampled, Sequence, assemble};
pub use batch::{BatchError, Scored, VersionRange};
pub use breaks::Break;
pub use call::{Call, CallError, CallFacts, Output, calls_of, name_of_call, number_in};
pub use check::{Fault, check};
pub use delta::{Delta, DeltaError, Deltas, restore};
pub use frame::{Ends, Frame};
pub use grow::{Begins, Growing, Placed};
pub use layout::{Excluded, Layout, Meta};
pub use media::places_of_media;
pub use step::{Delivery, LOGPROB_FLOOR, Medium, Span, Step, TOKENS_MAX};
pub use stored::{Sample, digest, load, mixed, store};
