//! Tests of transfers between engines that are simulated.

mod engines;
mod nodes;
mod over_http;
mod refusals;
mod slots;
mod tls;
