//! Times of an A/B comparison: batches of either side in turn, so that other load on the machine
//! affects both.

use super::comparison::Comparison;
use std::time::{Duration, Instant};
use treadle_policy_runtime::PolicyFault;
use treadle_report::latencies::Latencies;

/// A batch lasts about so long, so that the clock's own time does not count.
const BATCH: Duration = Duration::from_micros(40);
/// Calls of a batch at most.
const BATCH_CALLS_MAX: u32 = 1_000;
/// Batches of each side at least, however long they last.
const BATCHES_MIN: usize = 9;
/// Single calls that are timed at most.
const SINGLES_MAX: usize = 100_000;

/// Median times of one call, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) native_ns: f64,
    pub(super) sandboxed_ns: f64,
}

impl Times {
    pub(super) fn ratio(self) -> f64 {
        self.sandboxed_ns / self.native_ns
    }

    pub(super) fn difference_ns(self) -> f64 {
        self.sandboxed_ns - self.native_ns
    }
}

/// Lets both sides answer in turn for about `time`.
pub(super) fn time_ab(comparison: &mut Comparison, time: Duration) -> Result<Times, PolicyFault> {
    let native_calls = calls_of_a_batch(|| {
        (comparison.native)();
        Ok(())
    })?;
    let sandboxed_calls = calls_of_a_batch(&mut comparison.sandboxed)?;
    let (mut native, mut sandboxed) = (Vec::new(), Vec::new());
    let began = Instant::now();
    while native.len() < BATCHES_MIN || began.elapsed() < time {
        let started = Instant::now();
        for _ in 0..native_calls {
            (comparison.native)();
        }
        native.push(per_call_ns(started, native_calls));
        let started = Instant::now();
        for _ in 0..sandboxed_calls {
            (comparison.sandboxed)()?;
        }
        sandboxed.push(per_call_ns(started, sandboxed_calls));
    }
    Ok(Times {
        native_ns: median(&mut native),
        sandboxed_ns: median(&mut sandboxed),
    })
}

/// Times of single sandboxed calls, for about `time`.
pub(super) fn singles(
    comparison: &mut Comparison,
    time: Duration,
) -> Result<Latencies, PolicyFault> {
    let mut times = Latencies::default();
    let began = Instant::now();
    while times.count() < SINGLES_MAX && (times.count() < BATCHES_MIN || began.elapsed() < time) {
        let started = Instant::now();
        (comparison.sandboxed)()?;
        times.push(started.elapsed());
    }
    Ok(times)
}

/// Warms up, and determines how many calls make a batch.
fn calls_of_a_batch(mut call: impl FnMut() -> Result<(), PolicyFault>) -> Result<u32, PolicyFault> {
    let began = Instant::now();
    let mut calls = 0;
    while calls < BATCH_CALLS_MAX && began.elapsed() < BATCH * 10 {
        call()?;
        calls += 1;
    }
    Ok((calls / 10).max(1))
}

fn per_call_ns(started: Instant, calls: u32) -> f64 {
    started.elapsed().as_nanos() as f64 / f64::from(calls)
}

/// The middle value; without any, not a number.
pub(super) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn both_sides_are_asked_and_a_fault_ends_it() {
        let asked = Rc::new(Cell::new((0_u32, 0_u32)));
        let (one, other) = (asked.clone(), asked.clone());
        let mut comparison = Comparison {
            native: Box::new(move || one.set((one.get().0 + 1, one.get().1))),
            sandboxed: Box::new(move || {
                other.set((other.get().0, other.get().1 + 1));
                Ok(())
            }),
        };
        let times = time_ab(&mut comparison, Duration::ZERO).unwrap();
        assert!(times.native_ns >= 0.0 && times.sandboxed_ns >= 0.0);
        let (native, sandboxed) = asked.get();
        assert!(native >= 18 && sandboxed >= 18, "{native} {sandboxed}");
        let mut times = singles(&mut comparison, Duration::ZERO).unwrap();
        assert_eq!(times.count(), BATCHES_MIN);
        assert!(times.percentile(1.0) < Duration::from_mins(1));
        comparison.sandboxed = Box::new(|| Err(PolicyFault::NotSupported));
        assert!(time_ab(&mut comparison, Duration::ZERO).is_err());
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert!((median(&mut [3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!(median(&mut []).is_nan());
    }
}
