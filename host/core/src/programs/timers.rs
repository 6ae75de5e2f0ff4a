//! Timers of programs.

use serde::{Deserialize, Serialize};
use treadle_model::{AskId, ProgramId, StepId};

/// What a deadline is for.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub enum Timer {
    /// The periodic check for thrashing.
    Tick,
    /// A question without an answer.
    Ask(AskId),
    /// A step that has waited up to the limit.
    StepWait(StepId),
    /// A program that may be idle; the handler checks again.
    ProgramIdle(ProgramId),
    /// New programs have been gathered long enough.
    Gather,
    /// The migration question is due.
    Migrate,
    /// A transfer that takes too long.
    Transfer(ProgramId),
    /// A link becomes available to offloads again.
    Link,
}

/// The pending deadlines of programs.
pub(crate) type Timers = crate::timers::Timers<Timer>;
