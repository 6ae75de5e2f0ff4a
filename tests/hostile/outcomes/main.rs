//! The outcome of each hostile policy: the refusal or the fault is the expected one, memory
//! stays within its bound, and the next good call is answered.

mod calls;
mod compile;
mod documentation;
mod messages;
mod mutations;
mod process;
mod uploads;
