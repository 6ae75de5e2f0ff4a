//! Handling of generation requests: identify, schedule, forward, and relay the response.

mod as_sampled;
mod attempt;
mod begin;
mod capture;
mod captured;
mod cause;
mod continuation;
mod counts;
mod end;
mod first_event;
mod gathered;
mod generate;
mod interruption;
mod isolation;
mod joined;
mod keepalive;
mod large;
mod media;
mod messages;
mod native;
mod obstacles;
mod parts;
mod prefill;
mod refusal;
mod responses;
mod rest;
mod scores;
mod stream;
mod versions;
mod waiting;

pub use generate::{GatewayState, Room, generate};
pub(crate) use generate::{PARSE_INLINE_BYTES_MAX, body_limits};
pub use refusal::not_recorded;
