//! What the agents saw within the window.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use treadle_report::latencies::Latencies;

/// Lag beyond which figures are not to be relied on, in scaled milliseconds.
pub const LAG_MAX_MS: f64 = 1_000.0;

const MINUTE_US: f64 = 60e6;

/// The time that figures cover, since the beginning, in scaled microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// The end of the warm-up.
    pub from_us: u64,
    /// The end of all.
    pub to_us: u64,
}

impl Window {
    /// So many scaled minutes after a warm-up of so many.
    pub fn new(warmup_minutes: f64, minutes: f64) -> Self {
        let from_us = (warmup_minutes * MINUTE_US) as u64;
        let to_us = from_us + (minutes * MINUTE_US) as u64;
        Self { from_us, to_us }
    }

    /// Its length in minutes.
    pub fn minutes(self) -> f64 {
        (self.to_us - self.from_us) as f64 / MINUTE_US
    }
}

/// Tokens of an answer, from its usage.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PromptTokens {
    /// Those of the prompt.
    pub all: u64,
    /// Those of them that the engine had in a cache.
    pub cached: u64,
}

impl PromptTokens {
    /// Share of them that was found in caches.
    pub fn hit_rate(self) -> f64 {
        self.cached as f64 / self.all.max(1) as f64
    }

    fn add(&mut self, more: Self) {
        self.all += more.all;
        self.cached += more.cached;
    }
}

/// What was measured. Times are scaled unless noted otherwise.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Steps answered since the beginning, in the warm-up too.
    pub answered: u64,
    /// Steps answered within the window.
    pub steps: u64,
    /// Their times, and the ages of steps still open at its end.
    pub latencies: Latencies,
    /// Tokens of their prompts.
    pub prompt: PromptTokens,
    /// Requests that failed, in the warm-up too.
    pub failures: u64,
    /// What the first of them ended with.
    pub first_failure: Option<String>,
    /// How much longer than asked for the agents slept, in real time.
    pub lag: Latencies,
}

/// How far a run is. Times are scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Look {
    /// Since the beginning, in microseconds.
    pub now_us: u64,
    /// Steps answered since the beginning.
    pub answered: u64,
    /// Steps answered within the window.
    pub steps: u64,
    /// Tokens of the prompts of all of them.
    pub prompt: PromptTokens,
    /// Median time of those within the window, in seconds.
    pub step_p50_s: Option<f64>,
    /// The 99th percentile of the same.
    pub step_p99_s: Option<f64>,
}

#[derive(Default)]
struct Inner {
    /// When each slot's open step was sent.
    open: Vec<Option<u64>>,
    /// Tokens of the prompts of all steps, in the warm-up too.
    all_prompts: PromptTokens,
    measured: Measured,
}

/// Counts what the agents report; reports after the window's end are ignored.
pub(super) struct RunCounters {
    window: Window,
    inner: Mutex<Inner>,
}

impl RunCounters {
    /// Counters for so many slots.
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

    /// A slot sent a step.
    pub(super) fn sent(&self, slot: usize, now_us: u64) {
        if let Some(mut inner) = self.listening(now_us) {
            inner.open[slot] = Some(now_us);
        }
    }

    /// The slot's step was answered.
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

    /// A request of the slot failed.
    pub(super) fn failed(&self, slot: usize, now_us: u64, cause: String) {
        if let Some(mut inner) = self.listening(now_us) {
            inner.open[slot] = None;
            inner.measured.failures += 1;
            inner.measured.first_failure.get_or_insert(cause);
        }
    }

    /// An agent woke so much too late, in real time.
    pub(super) fn overslept(&self, now_us: u64, lag: Duration) {
        if let Some(mut inner) = self.listening(now_us) {
            inner.measured.lag.push(lag);
        }
    }

    /// How far it is at this time.
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

    /// All that was measured, once the window has ended.
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
        // After `close` there are no slots any more.
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
