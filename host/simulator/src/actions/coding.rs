//! Coding agents: shell commands on one core between generations, and at the end tests that run on
//! 1 to 32 cores (`ARL-Tangram` §2.1, §6.4).

use super::work::{Draws, Speedup, Trajectory, Turn, Work, micros};
use crate::workload::LognormalParameter;
use crate::workload::rollout::draw::Draw;

/// Core counts that tests can use: 1 to 32 (§6.4).
pub const TEST_CORES: [u64; 32] = {
    let mut cores = [0; 32];
    let mut index = 0;
    while index < 32 {
        cores[index] = index as u64 + 1;
        index += 1;
    }
    cores
};

/// Purpose of the random streams.
const STREAM: u64 = 0xac01;

/// Parameters of a batch of coding agents.
#[derive(Clone, Debug, PartialEq)]
pub struct Coding {
    /// Number of trajectories.
    pub batch: u32,
    /// Number of commands of a trajectory, before its tests.
    pub commands: LognormalParameter,
    /// Maximum number of commands.
    pub commands_max: f64,
    /// Generation before an action, in seconds.
    pub generation_s: LognormalParameter,
    /// Time of a command on one core, in seconds.
    pub command_s: LognormalParameter,
    /// Minimum and maximum time of a command, in seconds.
    pub command_range_s: (f64, f64),
    /// Time of the tests on one core, in seconds.
    pub tests_s: LognormalParameter,
    /// Maximum time of the tests on one core, in seconds.
    pub tests_max_s: f64,
    /// Parallel share of tests: minimum and maximum of a uniform distribution.
    pub parallel: (f64, f64),
    /// Standard deviation of profiled times around true ones, in logarithms.
    pub profile_sigma: f64,
    /// Core counts that tests may use.
    pub test_cores: &'static [u64],
    /// Seed of all random streams.
    pub seed: u64,
}

impl Default for Coding {
    fn default() -> Self {
        Self {
            batch: 1_280,
            commands: LognormalParameter {
                median: 40.0,
                sigma: 0.45,
            },
            commands_max: 150.0,
            generation_s: LognormalParameter {
                median: 4.0,
                sigma: 0.65,
            },
            command_s: LognormalParameter {
                median: 0.1,
                sigma: 1.35,
            },
            command_range_s: (0.001, 60.0),
            tests_s: LognormalParameter {
                median: 110.0,
                sigma: 1.0,
            },
            tests_max_s: 3_600.0,
            parallel: (0.8, 0.99),
            profile_sigma: 0.3,
            test_cores: &TEST_CORES,
            seed: 1,
        }
    }
}

impl Coding {
    /// The trajectories, the same for the same parameters; a larger batch starts with a smaller
    /// one.
    pub fn generate(&self) -> Vec<Trajectory> {
        let one = |index| self.trajectory(&mut Draw::new(&[self.seed, STREAM, u64::from(index)]));
        (0..self.batch).map(one).collect()
    }

    fn trajectory(&self, draw: &mut Draw) -> Trajectory {
        let commands = draw.lognormal(self.commands, 0.0).round();
        let commands = commands.clamp(1.0, self.commands_max) as usize;
        let mut turns = Vec::with_capacity(commands + 1);
        for _ in 0..commands {
            let (least, most) = self.command_range_s;
            turns.push(self.turn(draw, |draw| Work {
                kind: "command",
                draws: Draws::Cores,
                options: &[1],
                single_s: draw.lognormal(self.command_s, 0.0).clamp(least, most),
                speedup: Speedup::None,
                profile: None,
            }));
        }
        turns.push(self.turn(draw, |draw| self.tests(draw)));
        Trajectory { turns }
    }

    fn turn(&self, draw: &mut Draw, work: impl FnOnce(&mut Draw) -> Work) -> Turn {
        Turn {
            generation_us: micros(draw.lognormal(self.generation_s, 0.0)),
            work: work(draw),
        }
    }

    fn tests(&self, draw: &mut Draw) -> Work {
        let (least, most) = self.parallel;
        let spread = LognormalParameter {
            median: 1.0,
            sigma: self.profile_sigma,
        };
        Work {
            kind: "tests",
            draws: Draws::Cores,
            options: self.test_cores,
            single_s: draw.lognormal(self.tests_s, 0.0).min(self.tests_max_s),
            speedup: Speedup::Amdahl(least + (most - least) * draw.part()),
            profile: Some(draw.lognormal(spread, 0.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_batches_begin_with_smaller_ones_and_seeds_differ() {
        let of = |batch, seed| {
            let workload = Coding {
                batch,
                seed,
                ..Coding::default()
            };
            workload.generate()
        };
        assert_eq!(of(3, 1)[..], of(9, 1)[..3]);
        assert_ne!(of(3, 1), of(3, 2));
    }

    #[test]
    fn tests_come_last_and_use_up_to_32_cores() {
        for trajectory in (Coding::default()).generate() {
            let last = trajectory.turns.last().unwrap();
            assert_eq!((last.work.kind, last.work.options.len()), ("tests", 32));
            let before = &trajectory.turns[..trajectory.turns.len() - 1];
            assert!(before.iter().all(|turn| turn.work.options == [1]));
        }
    }
}
