//! The systems that are compared: which policy each has in which world.

use serde::Serialize;

/// What predicts.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PredictionKind {
    /// None.
    None,
    /// `heddle-prediction`.
    Heddle,
    /// `history-prediction`.
    History,
    /// `prompt-only-prediction`.
    PromptOnly,
    /// The truth.
    Oracle,
}

/// What orders steps at an engine.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PriorityKind {
    /// `fcfs-priority`: programs in the order in which they came.
    Fcfs,
    /// `round-robin-priority`: steps in the order in which they came.
    RoundRobin,
    /// `shortest-first-priority`, Autellix' program-level attained service.
    ShortestFirst,
    /// `heddle-priority`, with preemption.
    Heddle,
}

/// The placement.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlacementKind {
    /// `cache-aware-placement` without regard to prompts: a new program goes where
    /// most memory is free, and stays there.
    Sticky,
    /// `hybrid-placement`.
    Hybrid,
    /// `least-load-placement`.
    LeastLoad,
    /// `cache-aware-placement`.
    CacheAware,
    /// `heddle-placement`, moving caches.
    Heddle,
    /// `heddle-placement` without moves.
    HeddleStill,
}

/// What chooses degrees of tensor parallelism.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AllocationKind {
    /// All workers of the degree that the paper gives its baselines (§7.1).
    Baseline,
    /// All workers of one GPU (§7.4), or of the fewest that hold the model.
    Fix1,
    /// All workers of two.
    Fix2,
    /// All workers of four.
    Fix4,
    /// All workers of eight GPUs (§7.4).
    Fix8,
    /// `heddle-allocation`.
    Heddle,
}

/// What bounds how many programs a worker has at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdmissionKind {
    /// 100 programs, as the paper gives its baselines (§7.1).
    Capped,
    /// What is in its memory.
    Memory,
    /// The core's gate: what they are predicted to need comes to 95% of its memory at most.
    Gate,
}

/// A system.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct System {
    /// Its name in reports.
    pub name: &'static str,
    /// What predicts.
    pub prediction: PredictionKind,
    /// What orders steps.
    pub priority: PriorityKind,
    /// The placement.
    pub placement: PlacementKind,
    /// What chooses degrees.
    pub allocation: AllocationKind,
    /// What bounds the programs of a worker.
    pub admission: AdmissionKind,
}

/// `Verl` (§7): each program is pinned to a worker, steps are served as they come.
pub const VERL: System = System {
    name: "verl",
    prediction: PredictionKind::None,
    priority: PriorityKind::RoundRobin,
    placement: PlacementKind::Sticky,
    allocation: AllocationKind::Baseline,
    admission: AdmissionKind::Capped,
};

/// `Verl*` (§7): with the hybrid router.
pub const VERL_HYBRID: System = System {
    name: "verl_hybrid",
    placement: PlacementKind::Hybrid,
    ..VERL
};

/// `Slime` (§7): each step goes to the least loaded worker.
pub const SLIME: System = System {
    name: "slime",
    placement: PlacementKind::LeastLoad,
    ..VERL
};

/// All of `Heddle`'s policies.
pub const FULL: System = System {
    name: "treadle",
    prediction: PredictionKind::Heddle,
    priority: PriorityKind::Heddle,
    placement: PlacementKind::Heddle,
    allocation: AllocationKind::Heddle,
    admission: AdmissionKind::Gate,
};

/// Those that the full set is compared with.
pub const BASELINES: [System; 3] = [VERL, VERL_HYBRID, SLIME];
