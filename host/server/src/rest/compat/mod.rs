//! Paths of other routers, served where their clients expect them.

pub(super) mod e2b;
pub(super) mod fusion;
pub(super) mod sglang_router;
pub(super) mod swerex;
pub(super) mod thunderagent;
