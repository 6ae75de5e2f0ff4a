//! What a run is computed on: engines for rollouts, accelerators for training and rewards, links for
//! weights, and what each costs.

use serde::Serialize;
use treadle_engine_model::engine::EngineProfile;
use treadle_engine_model::hardware::{Assumptions, Gpu, H20, H800, HardwareError, LanguageModel};

/// Cost of an H800 for each H20 (`RollArt` Table 2).
const H800_COST: f64 = 2.85;

/// Engines of one class of accelerator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct EngineClass {
    /// The accelerator.
    pub(super) gpu: Gpu,
    /// Number of engines.
    pub(super) engines: u32,
    /// Accelerators of each.
    pub(super) degree: u32,
}

/// How weights come from the trainer to the engines. Rates are those that `RollArt` measured (Tables
/// 3 and 4): they are inputs here.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct WeightPath {
    /// Its name.
    pub(super) name: &'static str,
    /// From the trainer to the store, in bytes a second.
    pub(super) push_bytes_per_s: f64,
    /// From the store to the engines' hosts, in bytes a second.
    pub(super) pull_bytes_per_s: f64,
    /// From a host's memory to its accelerators, in bytes a second of one accelerator.
    pub(super) load_bytes_per_s: f64,
}

/// Within one cluster, over RDMA: 61 GB in 9.4 s, into the hosts' memory.
pub(super) const RDMA: WeightPath = WeightPath {
    name: "rdma",
    push_bytes_per_s: 6.46e9,
    pull_bytes_per_s: f64::INFINITY,
    load_bytes_per_s: 25e9,
};

/// Between clusters, through a store: 61 GB pushed in 127 s and pulled in 30 s.
pub(super) const ETHERNET: WeightPath = WeightPath {
    name: "ethernet",
    push_bytes_per_s: 0.48e9,
    pull_bytes_per_s: 2.05e9,
    load_bytes_per_s: 25e9,
};

/// Whether trainer and engines have accelerators of their own.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Sharing {
    /// They have.
    Apart,
    /// They take turns on the same ones.
    Turns,
}

/// The accelerators of a run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Hardware {
    /// The model that is trained.
    pub(super) model: LanguageModel,
    /// Engines.
    pub(super) classes: Vec<EngineClass>,
    /// H800 that train.
    pub(super) train_gpus: u32,
    /// Whether these also run the engines.
    pub(super) sharing: Sharing,
    /// H800 that hold a judge.
    pub(super) judge_gpus: u32,
    /// How weights travel.
    pub(super) path: WeightPath,
}

/// Share of the peak that training reaches.
pub(super) const TRAINING_EFFICIENCY: f64 = 0.4;
/// Time of a training step that does not depend on its batch, in seconds.
pub(super) const TRAINING_FIXED_S: f64 = 5.0;
/// Passes over a batch, in multiplications and additions for each parameter and token: log
/// probabilities (2), forward (2), backward (4).
pub(super) const TRAINING_PASSES: f64 = 8.0;
/// Share of these that needs no reward: the log probabilities, which streaming may begin early.
pub(super) const STREAMED_SHARE: f64 = 0.25;
/// Time for accelerators to turn from sampling to training or back, in seconds: offload one, load
/// the other.
pub(super) const TURN_S: f64 = 10.0;

fn cost_of(gpu: &Gpu) -> f64 {
    if gpu.name == H20.name { 1.0 } else { H800_COST }
}

impl Hardware {
    /// Cost of all accelerators, in H20.
    pub(super) fn cost(&self) -> f64 {
        let rollout: f64 = self.classes.iter().map(EngineClass::cost).sum();
        let others = match self.sharing {
            Sharing::Apart => self.train_gpus + self.judge_gpus,
            Sharing::Turns => self.judge_gpus,
        };
        rollout + f64::from(others) * H800_COST
    }

    /// Time to train on this many tokens, in microseconds.
    pub(super) fn train_us(&self, tokens: u64) -> u64 {
        let flops = TRAINING_PASSES * self.model.parameters as f64 * tokens as f64;
        let rate = H800.bf16_gflops as f64 * 1e9 * TRAINING_EFFICIENCY;
        let seconds = flops / (rate * f64::from(self.train_gpus.max(1)));
        ((seconds + TRAINING_FIXED_S) * 1e6) as u64
    }

    fn weight_bytes(&self) -> f64 {
        (self.model.parameters * self.model.weight_bytes) as f64
    }

    /// Time until new weights are in the memory of the engines' hosts, in microseconds.
    pub(super) fn transfer_us(&self) -> u64 {
        let bytes = self.weight_bytes();
        let path = &self.path;
        ((bytes / path.push_bytes_per_s + bytes / path.pull_bytes_per_s) * 1e6) as u64
    }

    /// Time that engines stand still to load weights from there, in microseconds.
    pub(super) fn load_us(&self) -> u64 {
        let degree = self.classes.iter().map(|of| of.degree).min().unwrap_or(1);
        let rate = self.path.load_bytes_per_s * f64::from(degree);
        (self.weight_bytes() / rate * 1e6) as u64
    }

    /// The profile of the engines of a class.
    ///
    /// # Errors
    /// The model does not fit, or the degree is not modelled.
    pub(super) fn profile(&self, class: &EngineClass) -> Result<EngineProfile, HardwareError> {
        let assumptions = Assumptions::default();
        EngineProfile::of(&class.gpu, &self.model, class.degree, &assumptions)
    }
}

impl EngineClass {
    fn cost(&self) -> f64 {
        f64::from(self.engines * self.degree) * cost_of(&self.gpu)
    }
}
