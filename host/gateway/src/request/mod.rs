//! One generation request: identified, scheduled, sent on, and its answer passed back.

mod attempt;
mod continuation;
mod counts;
mod generate;
mod interruption;
mod isolation;
mod joined;
mod native;
mod obstacles;
mod parts;
mod refusal;
mod responses;
mod rest;
mod stream;

pub(crate) use generate::body_limits;
pub use generate::{GatewayState, Room, generate};
pub use refusal::not_recorded;
