//! A node whose pods share its cores by max-min fairness: each has at most its limit, and if they
//! want more than there is, all above a common level get that level.
//!
//! All pods have the same request, so the same weight. Actual use is counted: cores that a parallel
//! action leaves idle in its sequential parts serve other pods, and switching costs nothing. Both
//! favour sharing.

use crate::actions::work::Speedup;

/// Iterations of the bisection for the level.
const HALVINGS: u32 = 24;

/// An action running in a pod.
#[derive(Clone, Debug)]
pub(super) struct Running {
    /// Its trajectory.
    pub(super) trajectory: u32,
    /// Remaining time with one core, in microseconds.
    left_us: f64,
    /// Maximum number of cores that it can use.
    cores_max: f64,
    speedup: Speedup,
    /// Progress per microsecond.
    rate: f64,
}

/// A node.
#[derive(Clone, Debug)]
pub(super) struct Node {
    cores: f64,
    now_us: u64,
    running: Vec<Running>,
    next_us: Option<u64>,
}

impl Node {
    pub(super) fn new(cores: f64) -> Self {
        Self {
            cores,
            now_us: 0,
            running: Vec::new(),
            next_us: None,
        }
    }

    /// Time at which the next action ends, unless one begins before.
    pub(super) fn next_us(&self) -> Option<u64> {
        self.next_us
    }

    /// Starts an action.
    pub(super) fn begin(
        &mut self,
        now_us: u64,
        trajectory: u32,
        single_us: f64,
        cores_max: f64,
        speedup: Speedup,
    ) {
        self.advance(now_us);
        self.running.push(Running {
            trajectory,
            left_us: single_us,
            cores_max,
            speedup,
            rate: 0.0,
        });
        self.share();
    }

    /// Removes the actions that have ended, and returns their trajectories.
    pub(super) fn ended(&mut self, now_us: u64) -> Vec<u32> {
        self.advance(now_us);
        let ended = self.running.iter().filter(|running| running.left_us < 1.0);
        let ended: Vec<u32> = ended.map(|running| running.trajectory).collect();
        self.running.retain(|running| running.left_us >= 1.0);
        self.share();
        ended
    }

    fn advance(&mut self, now_us: u64) {
        let passed = now_us.saturating_sub(self.now_us) as f64;
        for running in &mut self.running {
            running.left_us -= running.rate * passed;
        }
        self.now_us = self.now_us.max(now_us);
    }

    fn wanted(&self, level: f64) -> f64 {
        let wanted = |running: &Running| running.speedup.with(running.cores_max.min(level));
        self.running.iter().map(wanted).sum()
    }

    fn share(&mut self) {
        let most = self.running.iter().map(|r| r.cores_max).fold(0.0, f64::max);
        let mut level = most;
        if self.wanted(most) > self.cores {
            let (mut low, mut high) = (0.0, most);
            for _ in 0..HALVINGS {
                let middle = f64::midpoint(low, high);
                if self.wanted(middle) > self.cores {
                    high = middle;
                } else {
                    low = middle;
                }
            }
            level = low;
        }
        let mut soonest = f64::INFINITY;
        for running in &mut self.running {
            running.rate = running.speedup.with(running.cores_max.min(level));
            soonest = soonest.min(running.left_us.max(0.0) / running.rate.max(1e-9));
        }
        let is_idle = self.running.is_empty();
        self.next_us = (!is_idle).then(|| self.now_us + soonest.ceil() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_shared_up_to_the_limit() {
        for (cores, takes_us) in [(2.0, 500_000), (4.0, 250_000), (8.0, 250_000)] {
            let mut node = Node::new(cores);
            node.begin(0, 0, 1e6, 4.0, Speedup::Amdahl(1.0));
            assert_eq!(node.next_us(), Some(takes_us), "{cores} cores");
        }
    }

    #[test]
    fn what_ends_leaves_its_cores_to_others() {
        let mut node = Node::new(1.0);
        node.begin(0, 0, 1e6, 1.0, Speedup::None);
        node.begin(0, 1, 2e6, 1.0, Speedup::None);
        let first = node.next_us().unwrap();
        assert!((2_000_000..2_000_010).contains(&first), "{first}");
        assert_eq!(node.ended(first), [0]);
        let second = node.next_us().unwrap();
        assert!((2_999_990..3_000_010).contains(&second), "{second}");
    }
}
