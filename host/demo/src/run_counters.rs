//! Measurements of the agents within the window.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use treadle_report::latencies::Latencies;

/// Lag beyond which figures are unreliable, in scaled milliseconds.
pub const LAG_MAX_MS: f64 = 1_000.0;

const MINUTE_US: f64 = 60e6;

/// The measurement window, in scaled microseconds since the start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// The end of the warm-up.
    pub from_us: u64,
    /// The end of the run.
    pub to_us: u64,
}

impl Window {
    /// A window of `minutes` after a warm-up, both in scaled minutes.
    pub fn new(warmup_minutes: f64, minutes: f64) -> Self {
        let from_us = (warmup_minutes * MINUTE_US) as u64;
        let to_us = from_us + (minutes * MINUTE_US) as u64;
        Self { from_us, to_us }
    }

    /// The window's length in minutes.
    pub fn minutes(self) -> f64 {
        (self.to_us - self.from_us) as f64 / MINUTE_US
    }
}

/// Token counts of a prompt, from the response's usage.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PromptTokens {
    /// All tokens.
    pub all: u64,
    /// Tokens that the engine found in its cache.
    pub cached: u64,
}

impl PromptTokens {
    /// Share of tokens found in caches.
    pub fn hit_rate(self) -> f64 {
        self.cached as f64 / self.all.max(1) as f64
    }

    fn add(&mut self, more: Self) {
        self.all += more.all;
        self.cached += more.cached;
    }
}

/// The measurements. Times are scaled unless noted otherwise.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Number of answered steps since the start, warm-up included.
    pub answered: u64,
    /// Number of steps answered within the window.
    pub steps: u64,
    /// Latencies of these steps, and the ages of steps still open at the window's end.
    pub latencies: Latencies,
    /// Token counts of their prompts.
    pub prompt: PromptTokens,
    /// Number of failed requests, warm-up included.
    pub failures: u64,
    /// Cause of the first failure.
    pub first_failure: Option<String>,
    /// How much the agents overslept, in real time.
    pub lag: Latencies,
}

/// The progress of a run. Times are scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Look {
    /// Time since the start, in microseconds.
    pub now_us: u64,
    /// Number of answered steps since the start.
    pub answered: u64,
    /// Number of steps answered within the window.
    pub steps: u64,
    /// Token counts of all prompts since the start.
    pub prompt: PromptTokens,
    /// Median latency of steps within the window, in seconds.
    pub step_p50_s: Option<f64>,
    /// 99th percentile of these latencies, in seconds.
    pub step_p99_s: Option<f64>,
}

#[derive(Default)]
struct Inner {
    /// When each slot's open step was sent.
    open: Vec<Option<u64>>,
    /// Token counts of all prompts, warm-up included.
    all_prompts: PromptTokens,
    measured: Measured,
}

/// Counts the agents' events; events after the window's end are ignored.
pub(super) struct RunCounters {
    window: Window,
    inner: Mutex<Inner>,
}

impl RunCounters {
    /// Counters for `slots` slots.
    pub(super) fn new(slots: usize, window: Window) -> Self {
        let inner = Inner {
            open: vec![None; slots],
            ..Inner::default()
        };
        Self {
            window,
            inner: Mutex::new(inner),
        }
    }

    /// Records that a slot sent a step.
    pub(super) fn sent(&self, slot: usize, now_us: u64) {
        if let Some(mut inner) = self.listening(now_us) {
            inner.open[slot] = Some(now_us);
        }
    }

    /// Records the answer to a slot's step.
    pub(super) fn answered(&self, slot: usize, now_us: u64, prompt: PromptTokens) {
        let Some(mut inner) = self.listening(now_us) else {
            return;
        };
        let open = inner.open[slot].take();
        if open.is_some() {
            inner.measured.answered += 1;
            inner.all_prompts.add(prompt);
        }
        if let Some(sent_us) = open.filter(|_| now_us >= self.window.from_us) {
            let measured = &mut inner.measured;
            measured.steps += 1;
            let took_us = now_us.saturating_sub(sent_us);
            measured.latencies.push(Duration::from_micros(took_us));
            measured.prompt.add(prompt);
        }
    }

    /// Records the failure of a slot's request.
    pub(super) fn failed(&self, slot: usize, now_us: u64, cause: String) {
        if let Some(mut inner) = self.listening(now_us) {
            inner.open[slot] = None;
            inner.measured.failures += 1;
            inner.measured.first_failure.get_or_insert(cause);
        }
    }

    /// Records by how much an agent overslept, in real time.
    pub(super) fn overslept(&self, now_us: u64, lag: Duration) {
        if let Some(mut inner) = self.listening(now_us) {
            inner.measured.lag.push(lag);
        }
    }

    /// The progress at this time.
    pub(super) fn look(&self, now_us: u64) -> Look {
        let mut inner = self.lock();
        let Inner {
            measured,
            all_prompts,
            ..
        } = &mut *inner;
        let percentile = |latencies: &mut Latencies, share| {
            (latencies.count() > 0).then(|| latencies.percentile(share).as_secs_f64())
        };
        Look {
            now_us,
            answered: measured.answered,
            steps: measured.steps,
            prompt: *all_prompts,
            step_p50_s: percentile(&mut measured.latencies, 0.50),
            step_p99_s: percentile(&mut measured.latencies, 0.99),
        }
    }

    /// Closes the counters and returns the measurements.
    pub(super) fn close(&self) -> Measured {
        let mut inner = self.lock();
        let mut measured = std::mem::take(&mut inner.measured);
        for sent_us in inner.open.drain(..).flatten() {
            let age_us = self.window.to_us - sent_us;
            measured.latencies.push(Duration::from_micros(age_us));
        }
        measured
    }

    fn listening(&self, now_us: u64) -> Option<MutexGuard<'_, Inner>> {
        let inner = (now_us < self.window.to_us).then(|| self.lock())?;
        // After `close` there are no slots.
        (!inner.open.is_empty()).then_some(inner)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Counters stay valid after a panic elsewhere.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMPT: PromptTokens = PromptTokens {
        all: 100,
        cached: 40,
    };

    #[test]
    fn only_what_ends_in_the_window_counts_and_what_stays_open_has_its_age() {
        let window = Window {
            from_us: 1_000,
            to_us: 2_000,
        };
        let run_counters = RunCounters::new(4, window);
        run_counters.sent(0, 10);
        run_counters.answered(0, 900, PROMPT);
        run_counters.sent(0, 950);
        run_counters.answered(0, 1_150, PROMPT);
        run_counters.sent(1, 100);
        run_counters.sent(2, 1_990);
        run_counters.answered(2, 2_000, PROMPT);
        run_counters.sent(2, 2_010);
        let look = run_counters.look(2_010);
        assert_eq!((look.answered, look.steps), (2, 1));
        assert_eq!((look.prompt.all, look.prompt.hit_rate()), (200, 0.4));
        assert_eq!((look.step_p50_s, look.step_p99_s), (Some(2e-4), Some(2e-4)));
        let mut measured = run_counters.close();
        assert_eq!((measured.answered, measured.steps), (2, 1));
        assert_eq!(measured.prompt, PROMPT);
        // 200 was answered, 1,900 and 10 are ages.
        assert_eq!(measured.latencies.count(), 3);
        let at = [0.33, 0.66, 1.0].map(|share| measured.latencies.percentile(share).as_micros());
        assert_eq!(at, [10, 200, 1_900]);
    }

    #[test]
    fn failures_are_no_steps_and_nothing_is_heard_after_the_end() {
        let window = Window {
            from_us: 0,
            to_us: 100,
        };
        let run_counters = RunCounters::new(1, window);
        run_counters.sent(0, 1);
        run_counters.failed(0, 2, "status 503".to_owned());
        run_counters.failed(0, 3, "status 500".to_owned());
        let lag = Duration::from_millis(7);
        run_counters.overslept(4, lag);
        let mut measured = run_counters.close();
        assert_eq!((measured.failures, measured.steps), (2, 0));
        assert_eq!(measured.first_failure.as_deref(), Some("status 503"));
        assert_eq!(
            (measured.latencies.count(), measured.lag.percentile(0.5)),
            (0, lag)
        );
        run_counters.failed(0, 5, String::new());
        run_counters.sent(0, 5);
        assert_eq!(run_counters.close().failures, 0);
    }
}
