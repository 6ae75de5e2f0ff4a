//! The policy lab: recorded work repeated under other policies, in the background.
//!
//! [`window`] reads the work out of the journal, [`sets`] says which policies are compared,
//! [`profile`] what the engines are like, [`execute`] runs the replays, and [`book`] keeps the runs of
//! a daemon. `treadle lab compare` does the same without a daemon ([`compare`]). What is repeated and
//! how is in `treadle_simulator::lab` and in `docs/policy-lab.md`.

pub(crate) mod arguments;
pub(crate) mod book;
pub(crate) mod compare;
mod error;
pub(crate) mod execute;
mod moments;
pub(crate) mod policies;
pub(crate) mod profile;
pub(crate) mod request;
mod runs;
pub(crate) mod sets;
pub(crate) mod text;
mod turns;
pub(crate) mod window;

pub use book::LabBook;
pub use error::LabFailure;

/// Sets of policies in one run.
pub(crate) const SETS_MAX: usize = 8;
/// Seeds of one run.
pub(crate) const SEEDS_MAX: u32 = 32;
/// Decisions that differ, told of each set.
pub(crate) const DIFFERENCES_MAX: usize = 200;
/// Events in one window.
pub(crate) const EVENTS_MAX: u64 = 2_000_000;
/// Longest that one run of a daemon may take, in seconds of real time; at the shell unless another
/// limit is given.
pub(crate) const RUN_S_MAX: u64 = 900;
/// Longest limit at the shell: a week.
pub(crate) const LOCAL_RUN_S_MAX: u64 = 604_800;
/// KV blocks of all engines of a replay together: each costs memory here.
pub(crate) const BLOCKS_MAX: u64 = 1 << 24;
