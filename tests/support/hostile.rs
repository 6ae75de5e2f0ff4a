//! Policies that misbehave, for uploads through the daemon.

pub use treadle_hostile::{
    ARMED, ARMED_ALWAYS, ARMED_FROM_ROWS, HostilePolicy, Outcome, POLICIES, build,
};
