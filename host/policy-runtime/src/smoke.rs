//! The trial run of an upload: every function, on generated programs, at several
//! lengths.

use std::time::Instant;

use serde::Serialize;

use crate::error::{PolicyFault, UploadRefusal};
use crate::limits::Limits;
use crate::worlds::eviction::{ActingColumns, ActiveColumns, EvictionInstance, WaitingColumns};

const ROWS: [usize; 3] = [0, 1, 100];
/// The fastest of so many calls counts, because a busy machine slows some.
const REPEATS: usize = 5;

/// How long a call of the trial run took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SmokeTiming {
    /// The function.
    pub call: &'static str,
    /// Rows of the call.
    pub rows: usize,
    /// The fastest of five calls.
    pub best_ns: u64,
}

/// Programs as a busy worker has them: contexts from nothing to long, all phases,
/// times from none to hours.
struct Programs {
    tokens: Vec<u64>,
    phase: Vec<u8>,
    times_ms: Vec<u64>,
    steps: Vec<u32>,
}

impl Programs {
    fn generate(rows: usize) -> Self {
        // A fixed sequence, so that an upload is judged the same way every time.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut draw = |bound: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        let mut programs = Self {
            tokens: Vec::with_capacity(rows),
            phase: Vec::with_capacity(rows),
            times_ms: Vec::with_capacity(rows),
            steps: Vec::with_capacity(rows),
        };
        for row in 0..rows {
            programs
                .tokens
                .push(if row == 0 { 0 } else { draw(200_000) });
            programs.phase.push(draw(2) as u8);
            let magnitude = draw(8) as u32;
            programs.times_ms.push(draw(10_u64.pow(magnitude)));
            programs.steps.push(draw(100) as u32);
        }
        programs
    }
}

/// Runs all functions, or says which failed and how.
pub(crate) fn run(
    instance: &mut EvictionInstance,
    limits: &Limits,
) -> Result<Vec<SmokeTiming>, UploadRefusal> {
    let deadline_ms = limits.background_deadline_ms;
    let mut timings = Vec::new();
    for rows in ROWS {
        let programs = Programs::generate(rows);
        timings.push(time("weigh", rows, limits, || {
            let columns = ActingColumns {
                now_ms: 1,
                tokens: &programs.tokens,
                phase_ms: &programs.times_ms,
                extra: &[],
            };
            instance.weigh_within(deadline_ms, &columns)
        })?);
        timings.push(time("pause-order", rows, limits, || {
            let columns = ActiveColumns {
                now_ms: 1,
                tokens: &programs.tokens,
                acting: &programs.phase,
                phase_ms: &programs.times_ms,
                steps: &programs.steps,
                extra: &[],
            };
            instance.pause_order_within(deadline_ms, &columns)
        })?);
        timings.push(time("restore-order", rows, limits, || {
            let columns = WaitingColumns {
                now_ms: 1,
                tokens: &programs.tokens,
                reasoning: &programs.phase,
                waited_ms: &programs.times_ms,
                steps: &programs.steps,
                extra: &[],
            };
            instance.restore_order_within(deadline_ms, &columns)
        })?);
    }
    Ok(timings)
}

fn time(
    call: &'static str,
    rows: usize,
    limits: &Limits,
    mut ask: impl FnMut() -> Result<Vec<f64>, PolicyFault>,
) -> Result<SmokeTiming, UploadRefusal> {
    let place = format!("call {call} with {rows} generated rows");
    let mut best_ns = u64::MAX;
    for _ in 0..REPEATS {
        let begin = Instant::now();
        ask().map_err(|fault| refusal(&fault, place.clone()))?;
        best_ns = best_ns.min(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    if best_ns > limits.hot_deadline_ms * 1_000_000 {
        let what = format!(
            "takes {best_ns} ns at best, its deadline is {} ms",
            limits.hot_deadline_ms
        );
        let remedy = "do less per row, or build with optimisation (release profile)";
        return Err(UploadRefusal::new("too-slow", what, place, remedy));
    }
    Ok(SmokeTiming {
        call,
        rows,
        best_ns,
    })
}

/// What a fault in a trial run means for the author.
pub(crate) fn refusal(fault: &PolicyFault, place: String) -> UploadRefusal {
    let (code, remedy) = match fault {
        PolicyFault::Timeout { .. } => (
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
            "answer one finite number per row; weights lie within 0 and 1",
        ),
        PolicyFault::PolicyError(_) => (
            "smoke-policy-error",
            "the configuration {} and programs without extra columns must be answered",
        ),
        PolicyFault::BadInput { .. } => ("smoke-bad-input", "raise the limit of rows"),
    };
    UploadRefusal::new(code, fault.to_string(), place, remedy)
}
