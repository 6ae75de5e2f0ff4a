//! Which part of a table to read, and how much of it to keep.

use crate::{Names, ProgramRow, StepRow};

/// Which end of a table comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Rising.
    #[default]
    OldestFirst,
    /// Falling.
    NewestFirst,
}

impl Order {
    /// Rising, or falling.
    pub const fn of(ascending: bool) -> Self {
        if ascending {
            Self::OldestFirst
        } else {
            Self::NewestFirst
        }
    }
}

/// A stretch of sequence numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeqPage {
    /// Only greater ones.
    pub after: Option<u64>,
    /// Only smaller ones.
    pub before: Option<u64>,
    /// Only what happened at this time or later, in microseconds.
    pub since_us: Option<u64>,
    /// Which end comes first, and so which end a `limit` leaves out.
    pub order: Order,
    /// Most rows; at most [`crate::PAGE_ROWS_MAX`].
    pub limit: u32,
}

/// Which events to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventPage {
    /// Only those of this job.
    pub job: Option<String>,
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

/// Which decisions to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecisionPage {
    /// Only those about this program.
    pub program: Option<String>,
    /// Only those of this kind.
    pub kind: Option<String>,
    /// Only those about this worker.
    pub worker: Option<String>,
    /// Only those of this policy, with its version.
    pub policy: Option<String>,
    /// Only those about programs of this job.
    pub job: Option<String>,
    /// Only those about programs with these names.
    pub names: Names,
    /// Which stretch of them.
    pub range: SeqPage,
}

/// A column that programs are sorted by; their names decide between equal ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProgramColumn {
    /// When it was first seen.
    #[default]
    CreatedAtUs,
    /// When it last changed.
    UpdatedAtUs,
    /// Length of its context.
    ContextTokens,
    /// Steps so far.
    Steps,
    /// Tokens of prompt and output of all its steps.
    TokensTotal,
    /// Its reward; those without one come last, whatever the order.
    Reward,
    /// How long it has lasted: to its end, or so far.
    Lasted,
}

impl ProgramColumn {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::CreatedAtUs,
        Self::UpdatedAtUs,
        Self::ContextTokens,
        Self::Steps,
        Self::TokensTotal,
        Self::Reward,
        Self::Lasted,
    ];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CreatedAtUs => "created_at_us",
            Self::UpdatedAtUs => "updated_at_us",
            Self::ContextTokens => "context_tokens",
            Self::Steps => "steps",
            Self::TokensTotal => "tokens_total",
            Self::Reward => "reward",
            Self::Lasted => "lasted",
        }
    }
}

/// A number as the databases have it.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What stands for a reward that is not there: it comes after all others.
pub(crate) const fn no_reward(ascending: bool) -> i64 {
    let beyond = 1 << 62;
    if ascending { beyond } else { -beyond }
}

/// Where a page of programs ended: the last row that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramCursor {
    /// What that row has in the column that the pages are sorted by.
    pub value: i64,
    /// `program` of that row.
    pub program: String,
}

/// Which programs to read, newest first unless another order is named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramPage {
    /// Only those of this job.
    pub job: Option<String>,
    /// Only those that this program started.
    pub parent: Option<String>,
    /// Only those of this status.
    pub status: Option<String>,
    /// Only those on this worker.
    pub worker: Option<String>,
    /// Only those with this in their names; letters of ASCII count alike, great and small.
    pub search: Option<String>,
    /// Only those that changed at this time or later, in microseconds.
    pub since_us: Option<u64>,
    /// Only those with these names.
    pub names: Names,
    /// What they are sorted by.
    pub column: ProgramColumn,
    /// By when live programs have lasted so far, where that is what they are sorted by: the same on
    /// all pages of a list.
    pub now_us: u64,
    /// Whether the smallest comes first.
    pub ascending: bool,
    /// Only those that come after this one.
    pub after: Option<ProgramCursor>,
    /// Most rows; at most [`crate::PAGE_ROWS_MAX`].
    pub limit: u32,
}

impl ProgramPage {
    /// What a row has in the column that the page is sorted by, as the page counts it.
    pub fn value_of(&self, row: &ProgramRow) -> i64 {
        match self.column {
            ProgramColumn::CreatedAtUs => signed(row.created_at_us),
            ProgramColumn::UpdatedAtUs => signed(row.updated_at_us),
            ProgramColumn::ContextTokens => signed(row.context_tokens),
            ProgramColumn::Steps => signed(row.steps),
            ProgramColumn::TokensTotal => signed(row.tokens_total),
            ProgramColumn::Reward => {
                let none = no_reward(self.ascending);
                row.reward_millionths.unwrap_or(none)
            }
            ProgramColumn::Lasted => {
                let ended = row.ended.as_ref().map(|_| row.updated_at_us);
                signed(ended.unwrap_or(self.now_us)) - signed(row.created_at_us)
            }
        }
    }
}

/// Which samples to read, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SamplePage {
    /// Only those at this time or later.
    pub since_us: u64,
    /// Only those at this time or earlier.
    pub until_us: u64,
    /// The latest one of each stretch of this length.
    pub each_us: u64,
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

/// What listed steps are sorted by; program and number decide between equal ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StepColumn {
    /// When it ended.
    #[default]
    FinishedAtUs,
    /// Time from its arrival to its end.
    TookUs,
    /// When it arrived: for the steps of one program, which several gateways may have numbered.
    ArrivedAtUs,
    /// Its number: for the steps of one program.
    Step,
}

impl StepColumn {
    /// Those that steps of all programs can be sorted by.
    pub const ALL: [Self; 2] = [Self::FinishedAtUs, Self::TookUs];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FinishedAtUs => "finished_at_us",
            Self::TookUs => "took_us",
            Self::ArrivedAtUs => "arrived_at_us",
            Self::Step => "step",
        }
    }

    /// What a step has there; nothing for one that has not ended.
    pub fn of(self, row: &StepRow) -> Option<u64> {
        let finished = row.finished_at_us?;
        Some(match self {
            Self::FinishedAtUs => finished,
            Self::TookUs => finished.saturating_sub(row.arrived_at_us),
            Self::ArrivedAtUs => row.arrived_at_us,
            Self::Step => row.step,
        })
    }
}

/// Where a page of listed steps ended: the last row that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepCursor {
    /// What that row has in the column that the pages are sorted by.
    pub value: u64,
    /// `program` of that row.
    pub program: String,
    /// `step` of that row.
    pub step: u64,
}

/// Which ended steps to list, newest first unless another order is named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedPage {
    /// Only those of this program.
    pub program: Option<String>,
    /// Only those of this job.
    pub job: Option<String>,
    /// Only those that this worker served.
    pub worker: Option<String>,
    /// Only those that ended this way.
    pub outcome: Option<String>,
    /// Only those that were held back at least so long.
    pub waited_us_min: Option<u64>,
    /// Only those that ended at this time or later.
    pub since_us: Option<u64>,
    /// Only those that ended before this time.
    pub until_us: Option<u64>,
    /// Only those of programs with these names.
    pub names: Names,
    /// What they are sorted by.
    pub column: StepColumn,
    /// Whether the smallest comes first.
    pub ascending: bool,
    /// Only those that come after this one.
    pub after: Option<StepCursor>,
    /// Most rows; at most [`crate::PAGE_ROWS_MAX`].
    pub limit: u32,
}

/// Which actions to read, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActionPage {
    /// Only those of this job.
    pub job: Option<String>,
    /// Only those of this program.
    pub program: Option<String>,
    /// Only those of this status.
    pub status: Option<String>,
    /// Only those of jobs with these names.
    pub names: Names,
    /// Only those with a smaller number.
    pub before: Option<u64>,
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
