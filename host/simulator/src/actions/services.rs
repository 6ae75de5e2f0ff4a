//! Rewards by models: each trajectory ends with one request to the model of its domain, which runs
//! on 1, 2, 4 or 8 devices (`ARL-Tangram` §2.1, §5.3, §6.1).

use super::work::{Draws, Speedup, Trajectory, Turn, Work, micros};
use crate::workload::LognormalParameter;
use crate::workload::rollout::draw::Draw;
use treadle_plugin::exact::{exp, ln};

/// Devices that a model can run on (§4.1).
pub const MODEL_DEVICES: [u64; 4] = [1, 2, 4, 8];

const STREAM: u64 = 0xac02;
const WINDOWS: u64 = 0xac03;

/// A batch of trajectories over several domains.
#[derive(Clone, Debug, PartialEq)]
pub struct Services {
    /// Trajectories.
    pub batch: u32,
    /// Models, one for each domain.
    pub services: u32,
    /// The domain of rank r has a share of trajectories in proportion to r to the power of minus
    /// this.
    pub skew: f64,
    /// Range of the domains' median rollout times, evenly spread, in seconds.
    pub rollout_s: (f64, f64),
    /// Standard deviation of rollout times in a domain, in logarithms.
    pub rollout_sigma: f64,
    /// Length of a trajectory, in tokens.
    pub tokens: LognormalParameter,
    /// Minimum and maximum length of a trajectory, in tokens.
    pub tokens_range: (f64, f64),
    /// Tokens per second that one device processes.
    pub tokens_per_s: f64,
    /// Standard deviation of profiled times around true ones, in logarithms.
    pub profile_sigma: f64,
    /// Size of a model's weights, in bytes.
    pub weights_bytes: f64,
    /// Bandwidth from host memory to one device, in bytes per second.
    pub link_bytes_per_s: f64,
    /// Additional time to load a model onto devices, in seconds.
    pub restore_s: f64,
    /// Seed of all random streams.
    pub seed: u64,
}

impl Default for Services {
    fn default() -> Self {
        Self {
            batch: 1_024,
            services: 10,
            skew: 0.8,
            rollout_s: (60.0, 240.0),
            rollout_sigma: 0.5,
            tokens: LognormalParameter {
                median: 12_000.0,
                sigma: 0.7,
            },
            tokens_range: (500.0, 64_000.0),
            tokens_per_s: 7_725.0,
            profile_sigma: 0.1,
            weights_bytes: 65.6e9,
            link_bytes_per_s: 51.2e9,
            restore_s: 0.1,
            seed: 1,
        }
    }
}

impl Services {
    /// The trajectories; a larger batch starts with a smaller one.
    pub fn generate(&self) -> Vec<Trajectory> {
        let mut windows = Draw::new(&[self.seed, WINDOWS]);
        let (least, most) = self.rollout_s;
        let windows: Vec<f64> = (0..self.services)
            .map(|_| least + (most - least) * windows.part())
            .collect();
        let shares = self.shares();
        let one = |index| self.trajectory(index, &shares, &windows);
        (0..self.batch).map(one).collect()
    }

    /// Share of trajectories of each domain.
    pub fn shares(&self) -> Vec<f64> {
        let weight = |rank: u32| exp(-self.skew * ln(f64::from(rank)));
        let weights: Vec<f64> = (1..=self.services).map(weight).collect();
        let total: f64 = weights.iter().sum();
        weights.into_iter().map(|weight| weight / total).collect()
    }

    /// Time to load a model onto this many devices from host memory.
    pub fn load_us(&self, devices: u64) -> u64 {
        let rate = self.link_bytes_per_s * devices as f64;
        micros(self.restore_s + self.weights_bytes / rate)
    }

    fn trajectory(&self, index: u32, shares: &[f64], windows: &[f64]) -> Trajectory {
        let mut draw = Draw::new(&[self.seed, STREAM, u64::from(index)]);
        let part = draw.part();
        let mut below = 0.0;
        let service = shares.iter().position(|share| {
            below += share;
            part < below
        });
        let service = service.unwrap_or(shares.len() - 1);
        let rollout = LognormalParameter {
            median: windows[service],
            sigma: self.rollout_sigma,
        };
        let spread = LognormalParameter {
            median: 1.0,
            sigma: self.profile_sigma,
        };
        let (least, most) = self.tokens_range;
        let generation_us = micros(draw.lognormal(rollout, 0.0));
        let tokens = draw.lognormal(self.tokens, 0.0).clamp(least, most);
        let work = Work {
            kind: "reward",
            draws: Draws::Devices {
                service: service as u32,
            },
            options: &MODEL_DEVICES,
            single_s: tokens / self.tokens_per_s,
            speedup: Speedup::Tensor,
            profile: Some(draw.lognormal(spread, 0.0)),
        };
        Trajectory {
            turns: vec![Turn {
                generation_us,
                work,
            }],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_all_services_are_asked() {
        let workload = Services::default();
        assert!((workload.shares().iter().sum::<f64>() - 1.0).abs() < 1e-9);
        for service in 0..workload.services {
            let draws = Draws::Devices { service };
            let trajectories = workload.generate();
            let asked = trajectories
                .iter()
                .filter(|t| t.turns[0].work.draws == draws);
            assert!(asked.count() > 20);
        }
    }

    #[test]
    fn more_devices_load_faster() {
        let workload = Services::default();
        assert!(workload.load_us(8) < workload.load_us(1) / 4);
    }
}
