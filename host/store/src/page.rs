//! Which part of a table to read, and how much of it to keep.

use crate::Names;

/// Which end of a table comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Rising.
    #[default]
    OldestFirst,
    /// Falling.
    NewestFirst,
}

/// A stretch of sequence numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeqPage {
    /// Only greater ones.
    pub after: Option<u64>,
    /// Only smaller ones.
    pub before: Option<u64>,
    /// Which end comes first, and so which end a `limit` leaves out.
    pub order: Order,
    /// Most rows; at most [`crate::PAGE_ROWS_MAX`].
    pub limit: u32,
}

/// Which events to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventPage {
    /// Only those of this program.
    pub program: Option<String>,
    /// Only those of this kind.
    pub kind: Option<String>,
    /// Only those of programs with these names, and of no program.
    pub names: Names,
    /// Of those of no program only these kinds; all of them where absent.
    pub shared_kinds: Option<&'static [&'static str]>,
    /// Which stretch of them.
    pub range: SeqPage,
}

/// Where a page of programs ended: the last row that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramCursor {
    /// `created_at_us` of that row.
    pub created_at_us: u64,
    /// `program` of that row.
    pub program: String,
}

/// Which programs to read, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramPage {
    /// Only those of this job.
    pub job: Option<String>,
    /// Only those of this status.
    pub status: Option<String>,
    /// Only those with these names.
    pub names: Names,
    /// Only those that come after this one, that is older ones.
    pub after: Option<ProgramCursor>,
    /// Most rows; at most [`crate::PAGE_ROWS_MAX`].
    pub limit: u32,
}

/// Which steps of a program to read, by rising number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepPage {
    /// Only steps with a greater number.
    pub after: Option<u64>,
    /// Most rows; at most [`crate::PAGE_ROWS_MAX`].
    pub limit: u32,
}

/// What to keep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// The newest so many events stay, with the decisions that they led to. A store that keeps
    /// events in partitions and removes them as a whole may keep up to a partition more.
    pub keep_events: u64,
    /// Programs that have ended and have not changed since this time go, with their steps.
    pub ended_before_us: u64,
    /// Events that a sink has not passed stay too, up to so many of the newest.
    pub sink_lag_events_max: u64,
}

/// What was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Events.
    pub events: u64,
    /// Decisions.
    pub decisions: u64,
    /// Programs; their steps go with them and are not counted.
    pub programs: u64,
    /// Whether a bound was reached and there may be more to remove.
    pub more: bool,
}
