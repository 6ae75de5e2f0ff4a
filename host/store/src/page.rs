//! Filters and ranges for reading tables, and retention.

use crate::sql::signed;
use crate::{Names, ProgramRow, StepRow};

/// The order of rows by their number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Ascending.
    #[default]
    OldestFirst,
    /// Descending.
    NewestFirst,
}

impl Order {
    /// Ascending or descending.
    pub const fn of(ascending: bool) -> Self {
        if ascending {
            Self::OldestFirst
        } else {
            Self::NewestFirst
        }
    }
}

/// A range of sequence numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeqPage {
    /// Only greater ones.
    pub after: Option<u64>,
    /// Only smaller ones.
    pub before: Option<u64>,
    /// Only rows from this time or later, in microseconds.
    pub since_us: Option<u64>,
    /// The order, which decides which end a `limit` cuts off.
    pub order: Order,
    /// Most rows; at most [`crate::PAGE_ROWS_MAX`].
    pub limit: u32,
}

/// Filter for events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventPage {
    /// Only those of this job.
    pub job: Option<String>,
    /// Only those of this program.
    pub program: Option<String>,
    /// Only those of this kind.
    pub kind: Option<String>,
    /// Only events of programs with these names, and events without a program.
    pub names: Names,
    /// Of the events without a program, only these kinds; all of them if absent.
    pub shared_kinds: Option<&'static [&'static str]>,
    /// The range to read.
    pub range: SeqPage,
}

/// Filter for decisions.
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
    /// The range to read.
    pub range: SeqPage,
}

/// A column that programs are sorted by; ties are broken by name.
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
    /// Its duration: until its end, or until now.
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

/// Sort value of a missing reward; it comes after all others.
pub(crate) const fn no_reward(ascending: bool) -> i64 {
    let beyond = 1 << 62;
    if ascending { beyond } else { -beyond }
}

/// The last row of a page of programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramCursor {
    /// That row's value in the sort column.
    pub value: i64,
    /// `program` of that row.
    pub program: String,
}

/// Filter for programs, newest first by default.
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
    /// Only those with this text in their names, ignoring the case of ASCII letters.
    pub search: Option<String>,
    /// Only programs that changed at or after this time, in microseconds.
    pub since_us: Option<u64>,
    /// Only those with these names.
    pub names: Names,
    /// The sort column.
    pub column: ProgramColumn,
    /// The time up to which the duration of live programs is measured, if they are sorted by it;
    /// the same for all pages of a list.
    pub now_us: u64,
    /// Whether the smallest comes first.
    pub ascending: bool,
    /// Only those after this row.
    pub after: Option<ProgramCursor>,
    /// Most rows; at most [`crate::PAGE_ROWS_MAX`].
    pub limit: u32,
}

impl ProgramPage {
    /// The value of a row in the sort column, as the query computes it.
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

/// Filter for samples, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SamplePage {
    /// Only those at this time or later.
    pub since_us: u64,
    /// Only those at this time or earlier.
    pub until_us: u64,
    /// The latest sample of each interval of this length.
    pub each_us: u64,
    /// Most rows; at most [`crate::PAGE_ROWS_MAX`].
    pub limit: u32,
}

/// Filter for the steps of a program, by rising number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepPage {
    /// Only steps with a greater number.
    pub after: Option<u64>,
    /// Most rows; at most [`crate::PAGE_ROWS_MAX`].
    pub limit: u32,
}

/// A column that listed steps are sorted by; ties are broken by program and number.
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
    /// The columns that steps of all programs can be sorted by.
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

    /// The value of a step in this column; `None` if it has not ended.
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

/// The last row of a page of listed steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepCursor {
    /// That row's value in the sort column.
    pub value: u64,
    /// `program` of that row.
    pub program: String,
    /// `step` of that row.
    pub step: u64,
}

/// Filter for ended steps, newest first by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedPage {
    /// Only those of this program.
    pub program: Option<String>,
    /// Only those of this job.
    pub job: Option<String>,
    /// Only those that this worker served.
    pub worker: Option<String>,
    /// Only those with this outcome.
    pub outcome: Option<String>,
    /// Only those that waited at least this long before dispatch.
    pub waited_us_min: Option<u64>,
    /// Only those that ended at this time or later.
    pub since_us: Option<u64>,
    /// Only those that ended before this time.
    pub until_us: Option<u64>,
    /// Only those of programs with these names.
    pub names: Names,
    /// The sort column.
    pub column: StepColumn,
    /// Whether the smallest comes first.
    pub ascending: bool,
    /// Only those after this row.
    pub after: Option<StepCursor>,
    /// Most rows; at most [`crate::PAGE_ROWS_MAX`].
    pub limit: u32,
}

/// Filter for actions, newest first.
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

/// Retention limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Number of newest events that are kept, with the decisions that they led to. A store that
    /// removes events by whole partitions may keep up to a partition more. Fewer are kept if they
    /// have more than [`crate::EVENT_BYTES`] each on average; whole partitions are removed for that.
    pub keep_events: u64,
    /// Programs that ended and have not changed since this time are removed, with their steps.
    pub ended_before_us: u64,
    /// Maximum number of events kept for sinks that have not received them.
    pub sink_lag_events_max: u64,
}

/// Numbers of removed rows.
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
