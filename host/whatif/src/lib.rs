//! What-if replay: recorded work repeated under other policies, in the background.
//!
//! [`window`] reads the work out of the journal, [`sets`] says which policies are compared,
//! [`profile`] what the engines are like, [`execute`] runs the replays, and [`queue`] keeps the runs of
//! a daemon. `treadle what-if compare` does the same without a daemon ([`compare`]). What is repeated and
//! how is in [`recorded`] and in `docs/what-if.md`.

pub mod arguments;
pub mod compare;
mod error;
pub mod execute;
pub mod policies;
pub mod profile;
pub mod queue;
pub mod recorded;
pub mod request;
mod runs;
pub mod sets;
pub mod text;
mod time_parsing;
pub mod trace;
mod turns;
pub mod window;

pub use error::WhatIfError;
pub use queue::WhatIfQueue;
pub use runs::RunView;

/// Sets of policies in one run.
pub const SETS_MAX: usize = 8;
/// Seeds of one run.
pub const SEEDS_MAX: u32 = 32;
/// Decisions that differ, listed for each set.
pub const DIFFERENCES_MAX: usize = 200;
/// Events in one window.
pub const EVENTS_MAX: u64 = 2_000_000;
/// Longest that one run of a daemon may take, in seconds of real time; at the shell unless another
/// limit is given.
pub const RUN_S_MAX: u64 = 900;
/// Longest limit at the shell: a week.
pub const LOCAL_RUN_S_MAX: u64 = 604_800;
/// KV blocks of all engines of a replay together: each costs memory here.
pub const BLOCKS_MAX: u64 = 1 << 24;
