//! The trial run of an upload: every function, on generated programs, at several lengths.

mod calls;
mod rows;

use std::time::Instant;

use serde::Serialize;

use crate::call::{CallContext, Urgency};
use crate::error::{PolicyFault, UploadRefusal};
use crate::limits::Limits;
use crate::module::PolicyInstance;

use rows::Rows;

const ROWS: [usize; 3] = [0, 1, 100];
/// Number of calls. The fastest one counts, because a busy machine slows some.
const REPEATS: usize = 5;

/// The duration of a call of the trial run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SmokeTiming {
    /// The function.
    pub call: &'static str,
    /// Rows of the call.
    pub rows: usize,
    /// The fastest of five calls.
    pub best_ns: u64,
}

/// A running trial.
struct Trial<'a> {
    limits: &'a Limits,
    rows: usize,
    timings: Vec<SmokeTiming>,
}

/// Runs all functions, or reports which failed and how. Functions that the policy leaves to the
/// host are skipped.
pub(crate) fn run(
    policy: &mut PolicyInstance,
    limits: &Limits,
) -> Result<Vec<SmokeTiming>, UploadRefusal> {
    let mut trial = Trial {
        limits,
        rows: 0,
        timings: Vec::new(),
    };
    for rows in ROWS {
        trial.rows = rows;
        let columns = policy.description().columns.len();
        calls::all(&mut trial, policy, &Rows::generate(rows, columns))?;
    }
    Ok(trial.timings)
}

impl Trial<'_> {
    fn time<T>(
        &mut self,
        call: &'static str,
        urgency: Urgency,
        mut ask: impl FnMut(&CallContext) -> Result<T, PolicyFault>,
    ) -> Result<(), UploadRefusal> {
        let place = format!("call {call} with {} generated rows", self.rows);
        let deadline_ms = match urgency {
            Urgency::Hot => self.limits.hot_deadline_ms,
            Urgency::Background => self.limits.background_deadline_ms,
        };
        let context = CallContext {
            now_ms: 1,
            seed: 1,
            deadline_ms: Some(self.limits.background_deadline_ms),
        };
        let mut best_ns = u64::MAX;
        for _ in 0..REPEATS {
            let begin = Instant::now();
            match ask(&context) {
                Ok(_) => {}
                Err(PolicyFault::NotSupported) => return Ok(()),
                Err(fault) => return Err(refusal(&fault, place)),
            }
            best_ns = best_ns.min(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        if best_ns > deadline_ms.saturating_mul(1_000_000) {
            let what = format!("takes {best_ns} ns at best, its deadline is {deadline_ms} ms");
            let remedy = "do less per row, or build with optimisation (release profile)";
            return Err(UploadRefusal::new("too-slow", what, place, remedy));
        }
        self.timings.push(SmokeTiming {
            call,
            rows: self.rows,
            best_ns,
        });
        Ok(())
    }
}

/// The refusal for a fault in a trial run.
pub(crate) fn refusal(fault: &PolicyFault, place: String) -> UploadRefusal {
    let (code, remedy) = match fault {
        PolicyFault::Timeout { .. } | PolicyFault::Fuel { .. } => (
            "smoke-timeout",
            "look for a loop that does not end; the answer must come within the deadline",
        ),
        PolicyFault::Trap { .. } => (
            "smoke-trap",
            "run the policy's own tests with these lengths; return an error, do not panic",
        ),
        PolicyFault::Memory { .. } => (
            "smoke-memory",
            "keep nothing between calls that grows, or ask for a higher limit",
        ),
        PolicyFault::Stack => ("smoke-stack", "replace deep recursion by a loop"),
        PolicyFault::BadOutput { .. } => (
            "smoke-bad-output",
            "answer every row within the bounds that the world's WIT file states",
        ),
        PolicyFault::PolicyError(_) => (
            "smoke-policy-error",
            "with the configuration {} all functions that describe names must be answered",
        ),
        PolicyFault::NotSupported => (
            "smoke-policy-error",
            "describe, configure, snapshot and restore must be answered",
        ),
        PolicyFault::BadInput { .. } => ("smoke-bad-input", "raise the limit of rows"),
    };
    UploadRefusal::new(code, fault.to_string(), place, remedy)
}
