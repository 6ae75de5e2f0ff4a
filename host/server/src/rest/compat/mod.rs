//! Paths of other routers, served where their clients expect them.

pub(super) mod sglang_router;
pub(super) mod thunderagent;
