//! Reward models that stay on devices, or are loaded one at a time from a disk: the baselines of
//! `ARL-Tangram` §6.3.
//!
//! Requests are served first come, first served. Their times are known, so a request knows its turn
//! in advance; one that would wait longer than the timeout gives up after it and tries again.

use super::clock::Clock;
use super::outcome::{Outcome, Times};
use super::pods::{RETRIES_MAX, TIMEOUT_US};
use super::work::{Draws, Trajectory, micros};

/// Devices that serve one model at a time.
#[derive(Clone, Debug)]
struct Slot {
    devices: u64,
    model: Option<u32>,
    free_us: u64,
}

/// How models are deployed.
#[derive(Clone, Debug, PartialEq)]
pub enum Deployed {
    /// Each model permanently on its own devices.
    Always {
        /// Replicas of each model.
        replicas: Vec<u32>,
        /// Devices of each replica.
        devices: u64,
    },
    /// Models are loaded on demand onto the slot that can serve the request first
    /// (`ServerlessLLM`).
    OnDemand {
        /// Number of slots.
        slots: u32,
        /// Devices of each slot.
        devices: u64,
        /// Time to load a model, in seconds.
        load_s: f64,
    },
}

impl Deployed {
    /// An equal number of replicas for each model, each on `devices` of all.
    pub fn even(models: u32, all: u64, devices: u64) -> Self {
        let each = all / u64::from(models.max(1)) / devices;
        Self::Always {
            replicas: vec![each as u32; models as usize],
            devices,
        }
    }

    /// Replicas in proportion to the models' shares of requests, at least one each, as an operator
    /// would choose who knew the shares.
    pub fn proportional(shares: &[f64], all: u64, devices: u64) -> Self {
        let total = (all / devices) as usize;
        let mut replicas = vec![1_u32; shares.len()];
        for _ in shares.len()..total {
            let need = |model: &usize| shares[*model] / f64::from(replicas[*model]);
            let neediest = (0..shares.len()).max_by(|a, b| need(a).total_cmp(&need(b)));
            if let Some(model) = neediest {
                replicas[model] += 1;
            }
        }
        Self::Always { replicas, devices }
    }

    fn slots(&self) -> Vec<Slot> {
        let slot = |model, devices| Slot {
            devices,
            model,
            free_us: 0,
        };
        match self {
            Self::Always { replicas, devices } => {
                let each = replicas.iter().enumerate();
                each.flat_map(|(model, count)| {
                    (0..*count).map(move |_| slot(Some(model as u32), *devices))
                })
                .collect()
            }
            Self::OnDemand { slots, devices, .. } => {
                (0..*slots).map(|_| slot(None, *devices)).collect()
            }
        }
    }

    /// Time to load a model onto a slot; `None` if the slot never serves it.
    fn load_us(&self, slot: &Slot, model: u32) -> Option<u64> {
        if slot.model == Some(model) {
            return Some(0);
        }
        match self {
            Self::Always { .. } => None,
            Self::OnDemand { load_s, .. } => Some(micros(*load_s)),
        }
    }

    /// Runs a batch whose trajectories end with one request each.
    pub fn run(&self, trajectories: &[Trajectory]) -> Outcome {
        let mut slots = self.slots();
        let mut clock = Clock::new();
        for (index, trajectory) in trajectories.iter().enumerate() {
            clock.at(trajectory.generation_us(), (index as u32, 0));
        }
        let mut outcome = Outcome {
            trajectories: trajectories.len() as u32,
            ..Outcome::default()
        };
        while let Some((now_us, (index, attempt))) = clock.next() {
            let trajectory = &trajectories[index as usize];
            let Some(turn) = trajectory.turns.last() else {
                continue;
            };
            let Draws::Devices { service } = turn.work.draws else {
                continue;
            };
            let begins = |slot: &Slot| {
                let load_us = self.load_us(slot, service)?;
                Some((slot.free_us.max(now_us) + load_us, load_us))
            };
            let best = (0..slots.len())
                .filter_map(|slot| {
                    begins(&slots[slot]).map(|(at_us, load_us)| (at_us, load_us, slot))
                })
                .min();
            let mut times = Times {
                trajectory: index,
                last: true,
                queue_us: now_us - trajectory.generation_us(),
                ..Times::default()
            };
            match best {
                Some((begins_us, load_us, slot)) if begins_us - load_us - now_us <= TIMEOUT_US => {
                    let slot = &mut slots[slot];
                    times.queue_us += begins_us - load_us - now_us;
                    times.overhead_us = load_us;
                    times.units = slot.devices;
                    times.run_us = turn.work.time_us(slot.devices as f64);
                    slot.free_us = begins_us + times.run_us;
                    slot.model = Some(service);
                    outcome.end_us = outcome.end_us.max(slot.free_us);
                }
                _ if attempt < RETRIES_MAX => {
                    outcome.timeouts += 1;
                    clock.at(now_us + TIMEOUT_US, (index, attempt + 1));
                    continue;
                }
                _ => {
                    outcome.timeouts += 1;
                    times.queue_us += TIMEOUT_US;
                    times.failed = true;
                }
            }
            outcome.actions.push(times);
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actions::Services;

    #[test]
    fn models_that_stay_have_no_load_and_others_do() {
        let batch = Services {
            batch: 64,
            ..Services::default()
        };
        let trajectories = batch.generate();
        let always = Deployed::even(10, 40, 4).run(&trajectories);
        assert!(always.means().overhead_s < 1e-9);
        let on_demand = Deployed::OnDemand {
            slots: 10,
            devices: 4,
            load_s: 10.0,
        };
        let on_demand = on_demand.run(&trajectories);
        assert!(on_demand.means().overhead_s > 0.1);
        assert!(on_demand.act_s() > always.act_s());
    }

    #[test]
    fn replicas_in_proportion_use_all_devices() {
        let shares = Services::default().shares();
        let Deployed::Always { replicas, .. } = Deployed::proportional(&shares, 40, 1) else {
            panic!("it stays");
        };
        assert_eq!(replicas.iter().sum::<u32>(), 40);
        assert!(replicas[0] > replicas[9] && replicas[9] >= 1);
    }
}
