//! One generation request: identified, scheduled, sent on, and its answer passed back.

mod attempt;
mod continuation;
mod generate;
mod interruption;
mod isolation;
mod parts;
mod refusal;
mod stream;

pub use generate::{GatewayState, generate};
pub use refusal::not_recorded;
