//! What-if replay: runs recorded work again under other policies, in the background.
//!
//! [`window`] reads the work from the journal, [`sets`] defines the sets of policies, [`profile`]
//! the engines, [`execute`] runs the replays, and [`queue`] holds the runs of a daemon. `treadle
//! what-if compare` does the same without a daemon ([`compare`]). [`recorded`] and
//! `docs/what-if.md` describe what is replayed and how.

pub mod arguments;
pub mod compare;
mod error;
pub mod execute;
mod fair_queue;
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
pub mod window;

pub use error::WhatIfError;
pub use queue::WhatIfQueue;
pub use runs::RunView;

/// Maximum number of sets in a run.
pub const SETS_MAX: usize = 8;
/// Maximum number of seeds of a run.
pub const SEEDS_MAX: u32 = 32;
/// Maximum number of differing decisions listed for each set.
pub const DIFFERENCES_MAX: usize = 200;
/// Maximum number of events in a window.
pub const EVENTS_MAX: u64 = 2_000_000;
/// Time limit of a daemon's run, in seconds of real time; also the default of the command line.
pub const RUN_S_MAX: u64 = 900;
/// Largest time limit on the command line: a week.
pub const LOCAL_RUN_S_MAX: u64 = 604_800;
/// Maximum number of KV blocks of all engines of a replay, as each takes memory.
pub const BLOCKS_MAX: u64 = 1 << 24;
