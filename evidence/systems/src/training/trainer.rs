//! The trainer, and the way of weights from it to the engines.

use super::control::JOB;
use super::hardware::{STREAMED_SHARE, Sharing, TURN_S};
use super::outcome::BatchSeen;
use super::simulation::{Due, Simulation, number_of};
use super::system::{Streaming, Transfer, Update};
use treadle_core::training::TrainingEvent;

/// The trainer, and which weights are where.
#[derive(Clone, Debug, Default)]
pub(super) struct Trainer {
    /// Since when it waits for a batch.
    waits_since: u64,
    /// The batch that it trains on, with what was seen of it.
    batch: Option<BatchSeen>,
    /// The newest version.
    newest: u64,
    /// A version travels.
    travelling: bool,
    /// The newest version in the memory of the engines' hosts.
    arrived: u64,
    /// Engines load a version.
    loading: bool,
    /// The version that engines have.
    served: u64,
    /// What is added to the logarithm of lengths that are sampled under the newest version.
    pub(super) shift: f64,
    /// The same for the version that engines have.
    pub(super) served_shift: f64,
    /// The same for all versions.
    shifts: Vec<f64>,
    pub(super) groups_cut: u64,
    /// Lengths of members that were trained.
    pub(super) lengths: Vec<u64>,
    pub(super) paused_us: u64,
    pub(super) transfer_us: u64,
}

fn log(tokens: u64) -> f64 {
    (tokens.max(1) as f64).ln()
}

impl Simulation<'_> {
    /// The trainer asks for its next batch.
    pub(super) fn trainer_waits(&mut self) {
        self.trainer.waits_since = self.now;
        let event = TrainingEvent::BatchRequested {
            job: JOB.into(),
            batch: self.trainer.newest + 1,
        };
        self.control.event(self.now, &event);
    }

    /// A batch was cut: the trainer trains on it.
    pub(super) fn batch_cut(&mut self, number: u64) {
        let seen = self.see_batch(number);
        let learnt = self.learn(number);
        self.trainer.shift += self.setup.workload.lengths.growth + learnt;
        let hardware = &self.setup.hardware;
        let mut takes_us = hardware.train_us(seen.tokens);
        if self.setup.system.streaming == Streaming::Tokens {
            // What is computed early fits into the time of the rollout.
            let early_us = (takes_us as f64 * STREAMED_SHARE) as u64;
            takes_us -= early_us.min((seen.rollout_s * 1e6) as u64);
        }
        if hardware.sharing == Sharing::Turns {
            takes_us += (TURN_S * 1e6) as u64;
        }
        self.trainer.groups_cut += seen.groups;
        self.trainer.batch = Some(seen);
        self.after(takes_us, Due::Trained);
    }

    fn see_batch(&mut self, number: u64) -> BatchSeen {
        let mut seen = BatchSeen {
            cut_s: self.now as f64 / 1e6,
            waited_s: (self.now - self.trainer.waits_since) as f64 / 1e6,
            ..BatchSeen::default()
        };
        let Some(batch) = self.control.job().and_then(|job| job.batches.get(&number)) else {
            return seen;
        };
        let mut first_us = self.now;
        let mut lengths = Vec::new();
        for group in batch.groups.values() {
            let version = group.version().unwrap_or_default();
            let lag = (number - 1).saturating_sub(version);
            seen.groups += 1;
            seen.lag = seen.lag.max(lag);
            seen.lags += lag;
            seen.returned = seen.returned.max(group.returned);
            seen.saturated += u64::from(group.shape.sampled >= group.size.saturating_mul(2));
            for (program, member) in &group.members {
                let program = number_of(program) as usize;
                first_us = first_us.min(member.begun.0);
                seen.sampled_tokens += member.tokens;
                seen.tokens += u64::from(self.programs[program].context());
                lengths.push(member.tokens);
            }
        }
        seen.rollout_s = (self.now - first_us) as f64 / 1e6;
        self.trainer.lengths.extend(lengths);
        seen
    }

    /// By how much training on a batch moves the logarithm of lengths: a share of what its members
    /// differ from all that were sampled of the same prompts. A stated model, and no result.
    fn learn(&self, number: u64) -> f64 {
        let batch = self.control.job().and_then(|job| job.batches.get(&number));
        let groups = batch.map(|batch| batch.groups.iter());
        let (mut difference, mut count) = (0.0, 0.0);
        for (key, group) in groups.into_iter().flatten() {
            let sampled = self.groups.get(&number_of(key));
            let sampled = sampled.into_iter().flatten();
            let sampled: Vec<f64> = sampled
                .filter_map(|program| self.programs[*program].length())
                .map(log)
                .collect();
            let trained: Vec<f64> = group.members.values().map(|of| log(of.tokens)).collect();
            if sampled.is_empty() || trained.is_empty() {
                continue;
            }
            let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
            difference += mean(&trained) - mean(&sampled);
            count += 1.0;
        }
        self.setup.workload.lengths.brevity * difference / f64::max(count, 1.0)
    }

    /// The trainer has trained on its batch: its weights travel, and it asks for the next one.
    pub(super) fn trained(&mut self) {
        let Some(mut seen) = self.trainer.batch.take() else {
            return;
        };
        seen.trained_s = self.now as f64 / 1e6;
        self.outcome.batches.push(seen);
        let (job, lineage) = (JOB, 0);
        self.trainer.newest += 1;
        let (batch, shift) = (self.trainer.newest, self.trainer.shift);
        self.trainer.shifts.push(shift);
        let trained = TrainingEvent::BatchTrained {
            job: job.into(),
            lineage,
            batch,
        };
        self.control.event(self.now, &trained);
        let saved = TrainingEvent::Checkpointed {
            job: job.into(),
            lineage,
            batch,
        };
        self.control.event(self.now, &saved);
        self.send_weights();
        self.trainer_waits();
    }

    /// The newest version begins its way, if no other is on its way.
    fn send_weights(&mut self) {
        let trainer = &mut self.trainer;
        if trainer.travelling || trainer.arrived == trainer.newest {
            return;
        }
        trainer.travelling = true;
        let hardware = &self.setup.hardware;
        let mut takes_us = match hardware.sharing {
            Sharing::Apart => hardware.transfer_us(),
            // They are there already, in another layout.
            Sharing::Turns => (TURN_S * 1e6) as u64,
        };
        if hardware.sharing == Sharing::Apart {
            trainer.transfer_us += takes_us;
        }
        if self.setup.system.transfer == Transfer::Exposed && !trainer.loading {
            trainer.loading = true;
            trainer.paused_us += takes_us;
            self.fleet.pause(self.now);
            takes_us += hardware.load_us();
            trainer.paused_us += hardware.load_us();
            let version = trainer.newest;
            return self.after(takes_us, Due::Loaded(version));
        }
        let version = trainer.newest;
        self.after(takes_us, Due::Arrived(version));
    }

    pub(super) fn weights_arrived(&mut self, version: u64) {
        self.trainer.arrived = version;
        self.trainer.travelling = false;
        self.send_weights();
    }

    /// Engines load the newest version that is there, if they may.
    pub(super) fn load_if_possible(&mut self) {
        let is_new = self.trainer.arrived > self.trainer.served && !self.trainer.loading;
        let may_load = self.setup.system.update == Update::InFlight || self.running == 0;
        if !is_new || !may_load {
            return;
        }
        self.trainer.loading = true;
        self.fleet.pause(self.now);
        let load_us = self.setup.hardware.load_us();
        self.trainer.paused_us += load_us;
        self.after(load_us, Due::Loaded(self.trainer.arrived));
    }

    pub(super) fn weights_loaded(&mut self, version: u64) {
        let trainer = &mut self.trainer;
        trainer.loading = false;
        if self.setup.system.transfer == Transfer::Exposed {
            trainer.travelling = false;
            trainer.arrived = version;
        }
        trainer.served = version;
        let index = (version as usize).wrapping_sub(1);
        trainer.served_shift = trainer.shifts.get(index).copied().unwrap_or_default();
        self.fleet.resume(version, self.now);
        let event = TrainingEvent::VersionTold {
            job: JOB.into(),
            lineage: 0,
            version,
            digest: None,
        };
        self.control.event(self.now, &event);
        self.send_weights();
    }
}
