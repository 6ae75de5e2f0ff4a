//! What actions and caches gain from each other: agents under memory pressure whose tools compete
//! for cores, with each direction of the joint decision switched off.

use super::SeedFigures;
use crate::pressure::{FORESIGHT, LIVE, NO_TIER, Scenario, System};
use treadle_simulator::cluster::{Environment, NoObserver, Report, simulate_within};
use treadle_simulator::workload::{AgentRun, LognormalAgents};

/// KV memory, as a share of the peak demand.
const KV_SHARE: f64 = 1.0 / 3.0;
/// Cores, as multiples of those that tools keep busy where there are as many as they like.
const CORES: [(&str, f64); 3] = [("ample", 1.2), ("even", 1.0), ("scarce", 0.85)];
/// What is switched on: the order of actions, the retention of caches.
const DIRECTIONS: [(&str, bool, bool); 4] = [
    ("neither", false, false),
    ("order", true, false),
    ("retention", false, true),
    ("both", true, true),
];
const SYSTEMS: [(&str, System); 2] = [("no_tier", NO_TIER), ("tier", FORESIGHT)];

pub(super) fn run(seed: u64, small: bool, found: &mut SeedFigures) {
    let scene = scene(seed, small);
    for (tier, system) in SYSTEMS {
        let free = measure(&scene, &system, Environment::default(), true, true);
        let busy = free.steps_per_min / 60.0 * mean_tool_s(&scene.runs);
        for (label, of_busy) in CORES {
            let cores = ((busy * of_busy).round() as u64).max(1);
            let around = Environment {
                tool_cores: Some(cores),
                ..Environment::default()
            };
            let of = |order, retention| measure(&scene, &system, around, order, retention);
            let mut without = None;
            for (name, order, retention) in DIRECTIONS {
                let report = of(order, retention);
                let base = without.get_or_insert_with(|| report.clone());
                let mut put = |what: &str, value| {
                    found.put(format!("joint.{what}.{name}.{tier}.{label}"), value);
                };
                put("count.steps_per_min", report.steps_per_min);
                put("s.step_p99", report.step_p99_s);
                put("share.hit_rate", report.hit_rate);
                put("ratio.steps", report.steps_per_min / base.steps_per_min);
            }
        }
    }
}

fn measure(
    scene: &Scenario,
    system: &System,
    around: Environment<'_>,
    joint_order: bool,
    joint_retention: bool,
) -> Report {
    let mut options = scene.options(system, scene.kv_tokens(KV_SHARE));
    options.core.actions.joint_order = joint_order;
    options.core.actions.joint_retention = joint_retention;
    let mut answers = system.answers();
    simulate_within(
        &scene.runs,
        &options,
        &mut *answers,
        around,
        &mut NoObserver,
    )
}

fn scene(seed: u64, small: bool) -> Scenario {
    let agents = LognormalAgents {
        programs: 1_500,
        seed,
        ..LognormalAgents::default()
    };
    let runs = agents.generate().unwrap_or_default();
    let mut scene = Scenario::on_two_engines("joint", runs, seed);
    if small {
        (scene.live, scene.minutes) = (LIVE / 8, 2);
    }
    scene
}

fn mean_tool_s(runs: &[AgentRun]) -> f64 {
    let steps = || runs.iter().flat_map(|run| &run.steps);
    let tools_us: u64 = steps().map(|step| step.tool_us).sum();
    tools_us as f64 / 1e6 / steps().count().max(1) as f64
}
