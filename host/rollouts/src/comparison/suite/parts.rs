//! What is compared with what.

use super::SuiteOptions;
use crate::comparison::{
    AdmissionKind, AllocationKind, BASELINES, FULL, PlacementKind, PredictionKind, PriorityKind,
    SLIME, System, VERL, VERL_HYBRID,
};
use serde::Serialize;
use treadle_simulator::workload::AgentModel;

/// A question that the comparison suite answers.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The full set against whole systems (§7.1).
    Systems,
    /// The same against the best that each of them does with any degree of parallelism and any
    /// admission, those of the full set included.
    Tuned,
    /// Only the order at engines (§7.2).
    Scheduling,
    /// Only placement (§7.3).
    Placement,
    /// Only placement, and all workers are alike.
    PlacementAlike,
    /// Only degrees of parallelism (§7.4).
    Allocation,
    /// The full set with one world taken away.
    Ablation,
    /// The full set with the truth for predictions.
    Oracle,
}

/// One system that another is compared with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BaselineSystem {
    /// Its name in figures.
    pub name: &'static str,
    /// It.
    pub system: System,
    /// The system that is compared with it.
    pub champion: System,
}

/// The full set on workers that are all alike.
const ALIKE: System = System {
    name: "treadle, one degree",
    allocation: AllocationKind::Baseline,
    ..FULL
};

/// A baseline at one degree, with each admission; the gate goes by predictions.
macro_rules! admitted {
    ($base:ident, $name:literal, $allocation:ident, $degree:literal) => {
        [
            System {
                name: concat!($name, ", degree ", $degree, ", capped"),
                allocation: AllocationKind::$allocation,
                ..$base
            },
            System {
                name: concat!($name, ", degree ", $degree, ", memory"),
                allocation: AllocationKind::$allocation,
                admission: AdmissionKind::Memory,
                ..$base
            },
            System {
                name: concat!($name, ", degree ", $degree, ", gate"),
                allocation: AllocationKind::$allocation,
                admission: AdmissionKind::Gate,
                prediction: PredictionKind::Heddle,
                ..$base
            },
        ]
    };
}

/// A baseline at every degree.
macro_rules! tuned {
    ($base:ident, $name:literal) => {
        (
            $name,
            [
                admitted!($base, $name, Fix1, "1"),
                admitted!($base, $name, Fix2, "2"),
                admitted!($base, $name, Fix4, "4"),
                admitted!($base, $name, Fix8, "8"),
            ],
        )
    };
}

/// The baselines with all that the full set has beside its policies.
const TUNED: [(&str, [[System; 3]; 4]); 3] = [
    tuned!(VERL, "verl"),
    tuned!(VERL_HYBRID, "verl_hybrid"),
    tuned!(SLIME, "slime"),
];

impl Part {
    /// All.
    pub const ALL: [Self; 8] = [
        Self::Systems,
        Self::Tuned,
        Self::Scheduling,
        Self::Placement,
        Self::PlacementAlike,
        Self::Allocation,
        Self::Ablation,
        Self::Oracle,
    ];

    /// What its figures begin with.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Systems => "vs",
            Self::Tuned => "tuned",
            Self::Scheduling => "scheduling",
            Self::Placement => "placement",
            Self::PlacementAlike => "placement_alike",
            Self::Allocation => "allocation",
            Self::Ablation => "without",
            Self::Oracle => "with",
        }
    }

    /// What the paper found: how many times the throughput.
    pub fn reference(self, baseline: &str) -> Option<&'static str> {
        Some(match (self, baseline) {
            (Self::Systems, "verl") => "Heddle 1.4 to 2.3 (§7.1)",
            (Self::Systems, "verl_hybrid") => "Heddle 1.1 to 2.4 (§7.1)",
            (Self::Systems, "slime") => "Heddle 1.2 to 2.5 (§7.1)",
            (Self::Scheduling, _) => "Heddle 1.1 to 1.26 (§7.2)",
            (Self::Placement | Self::PlacementAlike, _) => "Heddle 1.2 to 1.5 (§7.3)",
            (Self::Allocation, _) => "Heddle 1.1 to 1.3 (§7.4)",
            _ => return None,
        })
    }

    /// Whether the part is run with this model: the paper takes worlds apart with one.
    pub fn has(self, model: AgentModel) -> bool {
        let alone = matches!(
            self,
            Self::Scheduling | Self::Placement | Self::PlacementAlike | Self::Allocation
        );
        !alone || model == AgentModel::Qwen3Of14B
    }

    /// The baselines of the champion.
    pub fn baselines(self) -> Vec<BaselineSystem> {
        match self {
            Self::Systems => {
                let baselines = BASELINES.iter();
                baselines.map(|s| against(FULL, s.name, *s)).collect()
            }
            Self::Tuned => {
                let tuned = TUNED.iter();
                tuned
                    .flat_map(|(name, systems)| {
                        let systems = systems.iter().flatten();
                        systems.map(|system| against(FULL, name, *system))
                    })
                    .collect()
            }
            Self::Scheduling => vec![
                ordered("fcfs", "treadle, fcfs", PriorityKind::Fcfs),
                ordered(
                    "round_robin",
                    "treadle, round-robin",
                    PriorityKind::RoundRobin,
                ),
                ordered(
                    "autellix",
                    "treadle, shortest-first",
                    PriorityKind::ShortestFirst,
                ),
            ],
            // The paper's least-load keeps to caches while the load is even, as the hybrid
            // rule does.
            Self::Placement => vec![
                placed(
                    "least_load",
                    "treadle, least-load",
                    PlacementKind::LeastLoad,
                ),
                placed("hybrid", "treadle, hybrid", PlacementKind::Hybrid),
                placed(
                    "cache_aware",
                    "treadle, cache-aware",
                    PlacementKind::CacheAware,
                ),
            ],
            Self::PlacementAlike => vec![
                alike("least_load", "alike, least-load", PlacementKind::LeastLoad),
                alike("hybrid", "alike, hybrid", PlacementKind::Hybrid),
                alike(
                    "cache_aware",
                    "alike, cache-aware",
                    PlacementKind::CacheAware,
                ),
            ],
            Self::Allocation => vec![
                allocated("fix1", "treadle, fix1", AllocationKind::Fix1),
                allocated("fix8", "treadle, fix8", AllocationKind::Fix8),
            ],
            Self::Ablation => vec![
                predicted("prediction", "treadle, none", PredictionKind::None),
                predicted("progress", "treadle, history", PredictionKind::History),
                ordered("priority", "treadle, round-robin", PriorityKind::RoundRobin),
                placed("placement", "treadle, sticky", PlacementKind::Sticky),
                placed("migration", "treadle, no moves", PlacementKind::HeddleStill),
                against(FULL, "allocation", ALIKE),
            ],
            Self::Oracle => {
                vec![predicted(
                    "oracle",
                    "treadle, oracle",
                    PredictionKind::Oracle,
                )]
            }
        }
    }
}

/// Whether it is a baseline that only [`Part::Tuned`] has.
pub(super) fn is_tuned(system: &System) -> bool {
    let tuned = TUNED.iter();
    let mut tuned = tuned.flat_map(|(_, systems)| systems.iter().flatten());
    tuned.any(|each| each == system)
}

fn against(champion: System, name: &'static str, system: System) -> BaselineSystem {
    BaselineSystem {
        name,
        system,
        champion,
    }
}

fn predicted(
    name: &'static str,
    called: &'static str,
    prediction: PredictionKind,
) -> BaselineSystem {
    let system = System { prediction, ..FULL };
    against(FULL, name, system.called(called))
}

fn ordered(name: &'static str, called: &'static str, priority: PriorityKind) -> BaselineSystem {
    let system = System { priority, ..FULL };
    against(FULL, name, system.called(called))
}

fn placed(name: &'static str, called: &'static str, placement: PlacementKind) -> BaselineSystem {
    let system = System { placement, ..FULL };
    against(FULL, name, system.called(called))
}

fn alike(name: &'static str, called: &'static str, placement: PlacementKind) -> BaselineSystem {
    let system = System { placement, ..ALIKE };
    against(ALIKE, name, system.called(called))
}

fn allocated(
    name: &'static str,
    called: &'static str,
    allocation: AllocationKind,
) -> BaselineSystem {
    let system = System { allocation, ..FULL };
    against(FULL, name, system.called(called))
}

/// The systems of a cell, each once, under the name under which it comes first.
pub(super) fn systems(options: &SuiteOptions, model: AgentModel) -> Vec<System> {
    let mut systems: Vec<System> = Vec::new();
    let parts = options.parts.iter().filter(|part| part.has(model));
    for baseline in parts.flat_map(|part| part.baselines()) {
        for system in [baseline.champion, baseline.system] {
            if !systems.iter().any(|each| each.is_like(&system)) {
                systems.push(system);
            }
        }
    }
    systems
}
