//! Search agents: requests to rate-limited external services (`ARL-Tangram` §5.1, §6.1).

use super::work::{Draws, Speedup, Trajectory, Turn, Work, micros};
use crate::workload::LognormalParameter;
use crate::workload::rollout::draw::Draw;

const STREAM: u64 = 0xac04;

/// A rate-limited external service.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Api {
    /// Its name.
    pub name: &'static str,
    /// Limit on concurrent requests.
    pub concurrent_max: Option<u64>,
    /// Limit on requests in a period.
    pub requests_max: Option<u64>,
    /// The period, in microseconds.
    pub period_us: u64,
}

/// The services of search agents: one limits requests per second, the other concurrent requests.
pub const APIS: [Api; 2] = [
    Api {
        name: "search",
        concurrent_max: None,
        requests_max: Some(100),
        period_us: 1_000_000,
    },
    Api {
        name: "fetch",
        concurrent_max: Some(200),
        requests_max: None,
        period_us: 0,
    },
];

/// Parameters of a batch of search agents.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// Number of trajectories.
    pub batch: u32,
    /// Number of requests of a trajectory.
    pub requests: LognormalParameter,
    /// Maximum number of requests.
    pub requests_max: f64,
    /// Generation before a request, in seconds.
    pub generation_s: LognormalParameter,
    /// Share of requests that are searches; the others are fetches.
    pub searching: f64,
    /// Time of a search and of a fetch, in seconds.
    pub request_s: [LognormalParameter; 2],
    /// Maximum time of a request, in seconds.
    pub request_max_s: f64,
    /// Seed of all random streams.
    pub seed: u64,
}

impl Default for Search {
    fn default() -> Self {
        Self {
            batch: 2_048,
            requests: LognormalParameter {
                median: 15.0,
                sigma: 0.5,
            },
            requests_max: 60.0,
            generation_s: LognormalParameter {
                median: 8.0,
                sigma: 0.6,
            },
            searching: 0.6,
            request_s: [
                LognormalParameter {
                    median: 0.8,
                    sigma: 0.6,
                },
                LognormalParameter {
                    median: 2.0,
                    sigma: 0.8,
                },
            ],
            request_max_s: 60.0,
            seed: 1,
        }
    }
}

impl Search {
    /// The trajectories; a larger batch starts with a smaller one.
    pub fn generate(&self) -> Vec<Trajectory> {
        let one = |index| self.trajectory(&mut Draw::new(&[self.seed, STREAM, u64::from(index)]));
        (0..self.batch).map(one).collect()
    }

    fn trajectory(&self, draw: &mut Draw) -> Trajectory {
        let requests = draw.lognormal(self.requests, 0.0).round();
        let requests = requests.clamp(1.0, self.requests_max) as usize;
        let turn = |_| {
            let generation_us = micros(draw.lognormal(self.generation_s, 0.0));
            let api = usize::from(!draw.with_probability(self.searching));
            let single_s = draw.lognormal(self.request_s[api], 0.0);
            Turn {
                generation_us,
                work: Work {
                    kind: APIS[api].name,
                    draws: Draws::Quota { api: api as u32 },
                    options: &[1],
                    single_s: single_s.min(self.request_max_s),
                    speedup: Speedup::None,
                    profile: None,
                },
            }
        };
        Trajectory {
            turns: (0..requests).map(turn).collect(),
        }
    }
}
