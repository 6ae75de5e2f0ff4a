//! The outcome of a batch: the times of each action, and aggregates.

use super::work::Trajectory;

/// The times of one action.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Times {
    /// Index of its trajectory.
    pub trajectory: u32,
    /// Whether it is the last action of its trajectory.
    pub last: bool,
    /// Time from submission until its resources were granted.
    pub queue_us: u64,
    /// Time from then until it ran: containers, models, starting it.
    pub overhead_us: u64,
    /// Time that it ran.
    pub run_us: u64,
    /// Number of units that it ran with.
    pub units: u64,
    /// Whether it failed.
    pub failed: bool,
}

impl Times {
    /// The action completion time, `ACT`.
    pub fn total_us(&self) -> u64 {
        self.queue_us + self.overhead_us + self.run_us
    }
}

/// The outcome of a batch.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// All actions, in the order of their ends.
    pub actions: Vec<Times>,
    /// Number of trajectories.
    pub trajectories: u32,
    /// Time at which the last trajectory ended.
    pub end_us: u64,
    /// Number of waits that timed out and were started again.
    pub timeouts: u64,
}

/// Means over the actions of an outcome, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeanTimes {
    /// Time in the queue.
    pub queue_s: f64,
    /// Overhead of starting.
    pub overhead_s: f64,
    /// Run time.
    pub run_s: f64,
}

impl Outcome {
    /// Mean over trajectories of the sum of their actions' completion times, in seconds.
    pub fn act_s(&self) -> f64 {
        self.sum_s(Times::total_us) / f64::from(self.trajectories.max(1))
    }

    /// Mean over trajectories of the completion time of their last action, in seconds.
    pub fn last_act_s(&self) -> f64 {
        let last = |times: &Times| if times.last { times.total_us() } else { 0 };
        self.sum_s(last) / f64::from(self.trajectories.max(1))
    }

    /// Means over actions.
    pub fn means(&self) -> MeanTimes {
        let count = self.actions.len().max(1) as f64;
        MeanTimes {
            queue_s: self.sum_s(|times| times.queue_us) / count,
            overhead_s: self.sum_s(|times| times.overhead_us) / count,
            run_s: self.sum_s(|times| times.run_us) / count,
        }
    }

    /// Share of trajectories with a failed action.
    pub fn failed(&self) -> f64 {
        let failed = self.actions.iter().filter(|times| times.failed);
        let mut failed: Vec<u32> = failed.map(|times| times.trajectory).collect();
        failed.sort_unstable();
        failed.dedup();
        failed.len() as f64 / f64::from(self.trajectories.max(1))
    }

    /// Mean over trajectories of the share of their time spent in actions.
    pub fn active(&self, trajectories: &[Trajectory]) -> f64 {
        let mut acts = vec![0; trajectories.len()];
        for times in &self.actions {
            acts[times.trajectory as usize] += times.total_us();
        }
        let share = |(trajectory, act): (&Trajectory, &u64)| {
            *act as f64 / (*act + trajectory.generation_us()).max(1) as f64
        };
        let shares: f64 = trajectories.iter().zip(&acts).map(share).sum();
        shares / trajectories.len().max(1) as f64
    }

    /// Mean units of last actions, weighted by time.
    pub fn last_units(&self) -> f64 {
        let last = || self.actions.iter().filter(|times| times.last);
        let unit_us: f64 = last().map(|t| t.units as f64 * t.run_us as f64).sum();
        let us: f64 = last().map(|times| times.run_us as f64).sum();
        unit_us / us.max(1.0)
    }

    fn sum_s(&self, part: impl Fn(&Times) -> u64) -> f64 {
        self.actions.iter().map(part).sum::<u64>() as f64 / 1e6
    }
}

/// Lower bound for every system: each action runs at once with the most units that it can use.
pub fn bound_s(trajectories: &[Trajectory]) -> f64 {
    let total: u64 = trajectories.iter().map(Trajectory::bound_us).sum();
    total as f64 / 1e6 / trajectories.len().max(1) as f64
}
