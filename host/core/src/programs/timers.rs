//! What programs have deadlines for.

use serde::{Deserialize, Serialize};
use treadle_model::{AskId, ProgramId, StepId};

/// What a deadline is for.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub enum Timer {
    /// The periodic check for thrashing.
    Tick,
    /// A question without an answer.
    Ask(AskId),
    /// A step that waits too long.
    StepWait(StepId),
    /// A program that may be idle; the handler checks again.
    ProgramIdle(ProgramId),
    /// New programs have been gathered long enough.
    Gather,
    /// The question which programs should be elsewhere.
    Migrate,
    /// A transfer that takes too long.
    Transfer(ProgramId),
    /// A link that offloads may use again.
    Link,
}

/// The pending deadlines of programs.
pub(crate) type Timers = crate::timers::Timers<Timer>;
