//! External services, and agents that call them without a scheduler: the baseline of DeepSearch in
//! `ARL-Tangram` §6.1.

use super::clock::Clock;
use super::outcome::{Outcome, Times};
use super::pods::RETRIES_MAX;
use super::search::Api;
use super::work::{Draws, Trajectory, micros};
use std::collections::VecDeque;

/// The rate limiter of a service's owner.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    api: Api,
    running: u64,
    /// Times of the requests in the last period.
    recent: VecDeque<u64>,
}

impl Gate {
    pub(super) fn new(api: Api) -> Self {
        Self {
            api,
            running: 0,
            recent: VecDeque::new(),
        }
    }

    /// Accepts or refuses a request. A refused request does not count towards the limits.
    pub(super) fn begin(&mut self, now_us: u64) -> bool {
        let period_us = self.api.period_us;
        while self
            .recent
            .front()
            .is_some_and(|at| at + period_us <= now_us)
        {
            self.recent.pop_front();
        }
        let is_full = |count: u64, most: Option<u64>| most.is_some_and(|most| count >= most);
        if is_full(self.running, self.api.concurrent_max)
            || is_full(self.recent.len() as u64, self.api.requests_max)
        {
            return false;
        }
        self.running += 1;
        if self.api.requests_max.is_some() {
            self.recent.push_back(now_us);
        }
        true
    }

    pub(super) fn end(&mut self) {
        self.running = self.running.saturating_sub(1);
    }
}

/// Agents that call services on their own, and retry after a refusal.
#[derive(Clone, Debug, PartialEq)]
pub struct OnTheirOwn {
    /// The services.
    pub apis: Vec<Api>,
    /// Wait after the first refusal, in seconds; it doubles with each further one.
    pub wait_s: f64,
}

enum Due {
    Call(u32, u32),
    End(u32, usize),
}

impl OnTheirOwn {
    /// Runs a batch. An agent whose last retry is refused ends.
    pub fn run(&self, trajectories: &[Trajectory]) -> Outcome {
        let mut gates: Vec<Gate> = self.apis.iter().map(|api| Gate::new(*api)).collect();
        let mut turns = vec![0_usize; trajectories.len()];
        let mut submitted_us = vec![0_u64; trajectories.len()];
        let mut clock = Clock::new();
        let mut outcome = Outcome {
            trajectories: trajectories.len() as u32,
            ..Outcome::default()
        };
        for (index, trajectory) in trajectories.iter().enumerate() {
            if let Some(turn) = trajectory.turns.first() {
                submitted_us[index] = turn.generation_us;
                clock.at(turn.generation_us, Due::Call(index as u32, 0));
            }
        }
        while let Some((now_us, due)) = clock.next() {
            outcome.end_us = now_us;
            match due {
                Due::Call(index, refusals) => {
                    let place = index as usize;
                    let all = &trajectories[place].turns;
                    let work = &all[turns[place]].work;
                    let Draws::Quota { api } = work.draws else {
                        continue;
                    };
                    let mut times = Times {
                        trajectory: index,
                        last: turns[place] + 1 == all.len(),
                        queue_us: now_us - submitted_us[place],
                        units: 1,
                        ..Times::default()
                    };
                    if gates[api as usize].begin(now_us) {
                        times.run_us = work.time_us(1.0);
                        outcome.actions.push(times);
                        clock.at(now_us + times.run_us, Due::End(index, api as usize));
                    } else if refusals < RETRIES_MAX {
                        let wait_s = self.wait_s * f64::from(1_u32 << refusals);
                        clock.at(now_us + micros(wait_s), Due::Call(index, refusals + 1));
                    } else {
                        outcome.actions.push(Times {
                            failed: true,
                            ..times
                        });
                    }
                }
                Due::End(index, api) => {
                    gates[api].end();
                    let place = index as usize;
                    turns[place] += 1;
                    if let Some(turn) = trajectories[place].turns.get(turns[place]) {
                        submitted_us[place] = now_us + turn.generation_us;
                        clock.at(submitted_us[place], Due::Call(index, 0));
                    }
                }
            }
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actions::{APIS, Search};

    #[test]
    fn a_gate_counts_requests_of_the_last_period() {
        let mut gate = Gate::new(Api {
            requests_max: Some(2),
            period_us: 10,
            ..APIS[0]
        });
        assert!(gate.begin(0) && gate.begin(5) && !gate.begin(9) && gate.begin(10));
    }

    #[test]
    fn a_few_agents_are_not_refused_and_many_are() {
        let of = |batch| {
            let search = Search {
                batch,
                ..Search::default()
            };
            let alone = OnTheirOwn {
                apis: APIS.to_vec(),
                wait_s: 1.0,
            };
            alone.run(&search.generate()).failed()
        };
        assert!(of(64) < 1e-9);
        assert!(of(2_048) > 0.01);
    }
}
