//! The work of trajectories: generations, and between them actions that use cores, devices or
//! quotas.

/// The resource that an action uses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Draws {
    /// Cores of its trajectory's node.
    Cores,
    /// Devices with a service.
    Devices {
        /// Index of the service.
        service: u32,
    },
    /// Requests to an external service.
    Quota {
        /// Index of the service.
        api: u32,
    },
}

/// The speedup of an action with units, `1 / E(m)` in terms of `ARL-Tangram` §4.1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speedup {
    /// None.
    None,
    /// Amdahl's law, with this parallel share.
    Amdahl(f64),
    /// A model split over devices: each doubling adds communication.
    Tensor,
}

/// Efficiency of a model on 1, 2, 4 and 8 devices.
pub const TENSOR_EFFICIENCY: [f64; 4] = [1.0, 0.95, 0.9, 0.8];

impl Speedup {
    /// Speedup relative to one unit; with a fraction of one unit, that fraction.
    pub fn with(self, units: f64) -> f64 {
        if units <= 1.0 {
            return units;
        }
        match self {
            Self::None => 1.0,
            Self::Amdahl(share) => 1.0 / (1.0 - share + share / units),
            Self::Tensor => {
                let doublings = (units as u32).ilog2().min(3);
                units * TENSOR_EFFICIENCY[doublings as usize]
            }
        }
    }
}

/// One action.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// Name of the tool or reward.
    pub kind: &'static str,
    /// The resource.
    pub draws: Draws,
    /// The amounts that it can run with, ascending.
    pub options: &'static [u64],
    /// Time with one unit, in seconds.
    pub single_s: f64,
    /// The speedup with more units.
    pub speedup: Speedup,
    /// Profiled time divided by the true time, if it was profiled.
    pub profile: Option<f64>,
}

impl Work {
    /// Time with this many units.
    pub fn time_us(&self, units: f64) -> u64 {
        micros(self.single_s / self.speedup.with(units)).max(1)
    }

    /// The expected time for each option, as reported to the scheduler; empty if it was not
    /// profiled.
    pub fn expected_us(&self) -> Vec<u64> {
        let Some(factor) = self.profile else {
            return Vec::new();
        };
        let expected = |units: &u64| (self.time_us(*units as f64) as f64 * factor) as u64;
        self.options.iter().map(expected).collect()
    }

    /// Whether more units make it faster.
    pub fn is_elastic(&self) -> bool {
        self.options.len() > 1
    }
}

/// A generation, and the action after it.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// Time of the generation, in microseconds.
    pub generation_us: u64,
    /// The action.
    pub work: Work,
}

/// The sequential work of one trajectory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trajectory {
    /// Its turns, in order.
    pub turns: Vec<Turn>,
}

impl Trajectory {
    /// Total time of generations, in microseconds.
    pub fn generation_us(&self) -> u64 {
        self.turns.iter().map(|turn| turn.generation_us).sum()
    }

    /// Lower bound of the actions' total time: each runs at once with the most units that it can
    /// use.
    pub fn bound_us(&self) -> u64 {
        let fastest = |turn: &Turn| {
            let most = turn.work.options.last().copied().unwrap_or(1);
            turn.work.time_us(most as f64)
        };
        self.turns.iter().map(fastest).sum()
    }
}

/// Converts seconds to microseconds.
pub(super) fn micros(seconds: f64) -> u64 {
    (seconds * 1e6).round().max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speedups_are_sublinear_and_grow() {
        for speedup in [Speedup::Amdahl(0.9), Speedup::Tensor] {
            for units in [2.0, 4.0, 8.0] {
                assert!(speedup.with(units) < units);
                assert!(speedup.with(units) > speedup.with(units / 2.0));
            }
        }
        assert!((Speedup::None.with(8.0) - 1.0).abs() < 1e-12);
        assert!((Speedup::Amdahl(0.5).with(0.25) - 0.25).abs() < 1e-12);
    }

    #[test]
    fn only_what_was_profiled_is_told() {
        let mut work = Work {
            kind: "tests",
            draws: Draws::Cores,
            options: &[1, 2],
            single_s: 2.0,
            speedup: Speedup::Amdahl(1.0),
            profile: Some(1.5),
        };
        assert_eq!(work.expected_us(), [3_000_000, 1_500_000]);
        work.profile = None;
        assert!(work.expected_us().is_empty());
    }
}
