//! Coding agents on cores: Figures 8(a) and 9 and Table 1.

use super::SeedFigures;
use super::setup::{CONTAINER_S, EXEC_S, NODE_CORES, PAPER_POD, pods, ready};
use super::tested::Tested;
use treadle_simulator::actions::{Coding, Outcome, Pods, Pools, Trajectory, bound_s};

/// Batches on five nodes (Figure 8(a) left).
const BATCHES: [u32; 7] = [128, 256, 512, 768, 1_024, 1_280, 1_536];
/// Nodes for a batch of 1,280 (right).
const NODES: [u32; 5] = [3, 4, 5, 6, 7];
/// Limits of pods that are tried besides the paper's.
const LIMITS: [u32; 5] = [1, 2, 8, 16, 32];
/// Whole cores that are reserved for a trajectory.
const RESERVED: [u32; 4] = [1, 2, 4, 8];
/// Cores that tests always have; the best of all is reported besides the paper's two.
const FIXED: [(&str, &[u64]); 6] = [
    ("fixed1", &[1]),
    ("fixed2", &[2]),
    ("fixed4", &[4]),
    ("fixed8", &[8]),
    ("fixed16", &[16]),
    ("fixed32", &[32]),
];

/// A cell of a grid.
struct Cell {
    label: String,
    batch: u32,
    nodes: u32,
    node_cores: u32,
}

pub(super) fn run(seed: u64, small: bool, tested: &mut Tested, found: &mut SeedFigures) {
    let size = if small { 16 } else { 1 };
    let cell = |label: String, batch: u32, nodes: u32| Cell {
        label,
        batch: batch / size,
        nodes,
        node_cores: NODE_CORES / size,
    };
    let mut acts = Vec::new();
    for batch in BATCHES {
        let cell = cell(format!("batch{batch:04}"), batch, 5);
        acts.push(measure(seed, &cell, tested, found));
    }
    if let (Some(first), Some(last)) = (acts.first(), acts.last()) {
        found.put("coding.ratio.batch1536_to_0128", last / first);
    }
    for nodes in NODES {
        let cell = cell(format!("cores{:04}", nodes * NODE_CORES), 1_280, nodes);
        measure(seed, &cell, tested, found);
    }
}

/// All systems on one cell; treadle's time per trajectory.
fn measure(seed: u64, cell: &Cell, tested: &mut Tested, found: &mut SeedFigures) -> f64 {
    let label = &cell.label;
    let workload = Coding {
        batch: cell.batch,
        seed,
        ..Coding::default()
    };
    let trajectories = workload.generate();
    let pools = Pools::cores(cell.nodes, u64::from(cell.node_cores), EXEC_S, CONTAINER_S);
    let ours = tested.run(&pools, &trajectories);
    let act_s = ours.act_s();
    found.put(format!("coding.s.treadle.{label}"), act_s);
    found.put(
        format!("coding.ratio.to_bound.{label}"),
        act_s / bound_s(&trajectories),
    );
    let means = ours.means();
    found.put(format!("coding.s.queue.{label}"), means.queue_s);
    found.put(format!("coding.s.overhead.{label}"), means.overhead_s);
    found.put(format!("coding.s.run.{label}"), means.run_s);
    found.put(
        format!("coding.count.cores_of_tests.{label}"),
        ours.last_units(),
    );
    tested.others(&pools, &trajectories, act_s, |name, value| {
        found.put(format!("coding.ratio.{name}.{label}"), value);
    });
    let mut best_s = f64::INFINITY;
    for (name, test_cores) in FIXED {
        let fixed = Coding {
            test_cores,
            ..workload.clone()
        };
        let theirs_s = tested.run(&pools, &fixed.generate()).act_s();
        best_s = best_s.min(theirs_s);
        found.put(format!("coding.ratio.{name}.{label}"), theirs_s / act_s);
    }
    found.put(format!("coding.ratio.fixed_best.{label}"), best_s / act_s);
    against_pods(cell, &trajectories, &ours, found);
    act_s
}

fn against_pods(cell: &Cell, trajectories: &[Trajectory], ours: &Outcome, found: &mut SeedFigures) {
    let label = &cell.label;
    let ours_s = ours.act_s();
    let of = |(request_milli, limit)| pods(cell.nodes, cell.node_cores, request_milli, limit);
    let paper = of(PAPER_POD).run(trajectories);
    let mut ratio = |name: &str, value: f64| {
        found.put(format!("coding.ratio.{name}.{label}"), value);
    };
    ratio("pods", paper.act_s() / ours_s);
    let commands_s = |outcome: &Outcome| outcome.act_s() - outcome.last_act_s();
    ratio("pods_commands", commands_s(&paper) / commands_s(ours));
    ratio("pods_tests", paper.last_act_s() / ours.last_act_s());
    let started = ready(&of(PAPER_POD)).run(trajectories);
    ratio("pods_started", started.act_s() / ours_s);
    let least = |all: &mut dyn Iterator<Item = Pods>| {
        let acts = all.map(|pods| pods.run(trajectories).act_s());
        acts.fold(f64::INFINITY, f64::min)
    };
    let (request_milli, _) = PAPER_POD;
    let tuned = least(&mut LIMITS.iter().map(|limit| of((request_milli, *limit))));
    ratio("pods_best", tuned.min(paper.act_s()) / ours_s);
    let reserved = least(&mut RESERVED.iter().map(|k| of((u64::from(*k) * 1_000, *k))));
    ratio("reserved_best", reserved / ours_s);
    found.put(
        format!("coding.active.pods.{label}"),
        paper.active(trajectories),
    );
    found.put(
        format!("coding.active.treadle.{label}"),
        ours.active(trajectories),
    );
    found.put(
        format!("coding.count.timeouts.{label}"),
        paper.timeouts as f64,
    );
}
