//! Paths of other routers, served where their clients expect them.

#![allow(
    clippy::result_large_err,
    reason = "an early answer is a whole response; it is returned once, not propagated"
)]

pub(crate) mod sglang_router;
pub(crate) mod thunderagent;
