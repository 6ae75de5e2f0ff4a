//! When to stop calling a policy that keeps failing, and when to try it again.
//!
//! Three faults in ten seconds open the breaker: the policy is not called. After a backoff it is
//! half open: the policy may be called again, the first success closes the breaker, the first fault
//! opens it for twice as long. A policy whose breaker opened five times in ten minutes should be
//! rolled back.
//!
//! The breaker has no clock: every method takes the time.

use std::collections::VecDeque;

/// When the breaker opens, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerLimits {
    /// Faults that open it. Default 3.
    pub faults_max: usize,
    /// Time within which they must happen. Default 10 s.
    pub faults_window_ms: u64,
    /// The first backoff; doubles each time. Default 1 s.
    pub backoff_ms: u64,
    /// The longest backoff. Default 60 s.
    pub backoff_ms_max: u64,
    /// Openings after which to roll back. Default 5.
    pub opens_max: usize,
    /// Time within which they must happen. Default 10 minutes.
    pub opens_window_ms: u64,
}

impl Default for BreakerLimits {
    fn default() -> Self {
        Self {
            faults_max: 3,
            faults_window_ms: 10_000,
            backoff_ms: 1_000,
            backoff_ms_max: 60_000,
            opens_max: 5,
            opens_window_ms: 600_000,
        }
    }
}

/// Whether to call the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// Call it.
    Closed,
    /// Do not call it before this time.
    Open {
        /// When it becomes half open.
        until_ms: u64,
    },
    /// Call it once and record the outcome.
    HalfOpen,
}

/// The breaker of one binding of one policy.
#[derive(Debug, Clone, Default)]
pub struct Breaker {
    limits: BreakerLimits,
    faults_ms: VecDeque<u64>,
    opens_ms: VecDeque<u64>,
    open_until_ms: Option<u64>,
    /// The backoff of the last opening; 0 once a success has closed the breaker.
    last_backoff_ms: u64,
}

impl Breaker {
    /// A closed breaker.
    pub fn new(limits: BreakerLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Whether to call the policy at this time.
    pub fn state(&self, now_ms: u64) -> BreakerState {
        match self.open_until_ms {
            None => BreakerState::Closed,
            Some(until_ms) if now_ms < until_ms => BreakerState::Open { until_ms },
            Some(_) => BreakerState::HalfOpen,
        }
    }

    /// Records a fault.
    pub fn record_fault(&mut self, now_ms: u64) {
        match self.state(now_ms) {
            // The call was under way when the breaker opened.
            BreakerState::Open { .. } => {}
            BreakerState::HalfOpen => self.open(now_ms),
            BreakerState::Closed => {
                let BreakerLimits {
                    faults_max,
                    faults_window_ms,
                    ..
                } = self.limits;
                push_recent(&mut self.faults_ms, now_ms, faults_window_ms, faults_max);
                if self.faults_ms.len() >= faults_max {
                    self.open(now_ms);
                }
            }
        }
    }

    /// Records a success. While the breaker is open this changes nothing: the call was under way
    /// when it opened.
    pub fn record_success(&mut self, now_ms: u64) {
        if self.state(now_ms) == BreakerState::HalfOpen {
            self.open_until_ms = None;
            self.last_backoff_ms = 0;
        }
    }

    /// Whether the policy has failed so often that an earlier version should replace it.
    pub fn should_roll_back(&self, now_ms: u64) -> bool {
        let recent = self
            .opens_ms
            .iter()
            .filter(|&&open_ms| is_recent(open_ms, now_ms, self.limits.opens_window_ms));
        recent.count() >= self.limits.opens_max
    }

    fn open(&mut self, now_ms: u64) {
        let limits = &self.limits;
        self.last_backoff_ms = match self.last_backoff_ms {
            0 => limits.backoff_ms,
            last => last.saturating_mul(2),
        }
        .min(limits.backoff_ms_max);
        self.open_until_ms = Some(now_ms.saturating_add(self.last_backoff_ms));
        self.faults_ms.clear();
        push_recent(
            &mut self.opens_ms,
            now_ms,
            limits.opens_window_ms,
            limits.opens_max,
        );
    }
}

fn is_recent(then_ms: u64, now_ms: u64, window_ms: u64) -> bool {
    now_ms.saturating_sub(then_ms) <= window_ms
}

/// Keeps at most `count_max` times, none older than the window.
fn push_recent(times_ms: &mut VecDeque<u64>, now_ms: u64, window_ms: u64, count_max: usize) {
    times_ms.push_back(now_ms);
    while times_ms.len() > count_max
        || times_ms
            .front()
            .is_some_and(|&then_ms| !is_recent(then_ms, now_ms, window_ms))
    {
        times_ms.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(now_ms: u64) -> Breaker {
        let mut breaker = Breaker::default();
        for _ in 0..3 {
            breaker.record_fault(now_ms);
        }
        breaker
    }

    #[test]
    fn three_faults_in_the_window_open_it() {
        let mut breaker = Breaker::default();
        for now_ms in [0, 5_000, 10_001] {
            breaker.record_fault(now_ms);
        }
        assert_eq!(breaker.state(10_001), BreakerState::Closed);
        breaker.record_success(10_500);
        breaker.record_fault(11_000);
        assert_eq!(
            breaker.state(11_000),
            BreakerState::Open { until_ms: 12_000 }
        );
    }

    #[test]
    fn what_was_under_way_when_it_opened_changes_nothing() {
        let mut breaker = opened(0);
        breaker.record_success(500);
        breaker.record_fault(600);
        assert_eq!(breaker.state(999), BreakerState::Open { until_ms: 1_000 });
        assert_eq!(breaker.state(1_000), BreakerState::HalfOpen);
    }

    #[test]
    fn a_success_when_half_open_closes_it_and_resets_the_backoff() {
        let mut breaker = opened(0);
        breaker.record_fault(1_000);
        assert_eq!(breaker.state(1_000), BreakerState::Open { until_ms: 3_000 });
        breaker.record_success(3_000);
        assert_eq!(breaker.state(3_000), BreakerState::Closed);
        breaker.record_fault(4_000);
        breaker.record_fault(4_000);
        assert_eq!(breaker.state(4_000), BreakerState::Closed);
        breaker.record_fault(4_000);
        assert_eq!(breaker.state(4_000), BreakerState::Open { until_ms: 5_000 });
    }

    #[test]
    fn the_backoff_doubles_to_its_limit_and_the_fifth_opening_rolls_back() {
        let mut breaker = opened(0);
        let (mut now_ms, mut backoffs_ms) = (0, Vec::new());
        for opens in 1..=8 {
            assert_eq!(breaker.should_roll_back(now_ms), opens >= 5);
            let BreakerState::Open { until_ms } = breaker.state(now_ms) else {
                panic!("not open at {now_ms}");
            };
            backoffs_ms.push(until_ms - now_ms);
            now_ms = until_ms;
            breaker.record_fault(now_ms);
        }
        assert_eq!(
            backoffs_ms,
            [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]
        );
    }

    #[test]
    fn openings_long_ago_do_not_roll_back() {
        let mut breaker = Breaker::default();
        for opening in 0..10 {
            let now_ms = opening * 150_001;
            for _ in 0..3 {
                breaker.record_fault(now_ms);
            }
            assert!(!breaker.should_roll_back(now_ms), "opening {opening}");
            breaker.record_success(now_ms + 60_000);
        }
    }
}
