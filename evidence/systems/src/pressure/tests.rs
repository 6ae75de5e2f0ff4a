//! The comparison under memory pressure: it repeats, and its figures mean what they say.

use super::systems::{FORESIGHT, LIMITS, NO_TIER, STICKY, TTLS};
use super::*;
use treadle_simulator::workload::LognormalAgents;

fn scene() -> Scenario {
    let agents = LognormalAgents {
        programs: 150,
        ..LognormalAgents::default()
    };
    Scenario {
        name: "agents",
        runs: agents.generate().unwrap(),
        host_share: 0.0,
        live: 32,
        engines: 2,
        profile: EngineProfile::glm46_8xh100(),
        transfers: TransferOptions::default(),
        minutes: 4,
        seed: 1,
    }
}

#[test]
fn every_system_has_a_policy_and_the_same_run_gives_the_same_report() {
    let scene = scene();
    let kv_tokens = scene.kv_tokens(1.0 / 3.0);
    let systems = BASELINES.iter().chain(&ABLATIONS).chain(&LIMITS);
    for system in systems.chain([&FORESIGHT]) {
        let report = scene.run(system, kv_tokens);
        assert!(report.steps > 0, "{}: {report:?}", system.name);
        assert_eq!(report.refused, 0, "{}", system.name);
    }
    assert_eq!(
        scene.run(&FORESIGHT, kv_tokens),
        scene.run(&FORESIGHT, kv_tokens)
    );
}

#[test]
fn to_know_the_future_and_to_wait_for_longer_both_change_what_is_done() {
    let scene = scene();
    let kv_tokens = scene.kv_tokens(1.0 / 3.0);
    let ours = scene.run(&NO_TIER, kv_tokens);
    let [truth, patience, both] = LIMITS.map(|system| scene.run(&system, kv_tokens));
    assert!(truth != ours && patience != ours && both != patience);
}

#[test]
fn offloading_frees_memory_and_computes_less_again() {
    let scene = scene();
    let kv_tokens = scene.kv_tokens(1.0 / 3.0);
    let (ours, sticky) = (
        scene.run(&FORESIGHT, kv_tokens),
        scene.run(&STICKY, kv_tokens),
    );
    assert!(ours.offloads > 100 && ours.loads > 100, "{ours:?}");
    assert!(
        ours.steps_per_min > 1.2 * sticky.steps_per_min,
        "{ours:?} {sticky:?}"
    );
    assert!(ours.hit_rate > sticky.hit_rate && ours.step_p99_s < sticky.step_p99_s);
}

#[test]
fn the_bound_grows_with_memory_up_to_what_the_agents_can_use() {
    let scene = scene();
    let bounds = [0.1, 0.25, 0.5, 4.0, 8.0].map(|share| scene.bound(scene.kv_tokens(share)));
    assert!(bounds.is_sorted(), "{bounds:?}");
    assert!(bounds[0] < 0.7 * bounds[3], "{bounds:?}");
    assert!((bounds[3] - bounds[4]).abs() < 1e-9, "{bounds:?}");
}

#[test]
fn figures_of_a_scenario_have_its_name_and_the_best_time_to_live_counts() {
    let scene = scene();
    let report = scene.run(&STICKY, scene.kv_tokens(0.5));
    let of = |system: &'static str, steps_per_min: f64| Outcome {
        scene: "agents",
        share: "kv_third",
        system,
        report: Report {
            steps_per_min,
            ..report.clone()
        },
    };
    let outcomes = [
        of("foresight", 90.0),
        of(TTLS[0].name, 30.0),
        of(TTLS[1].name, 45.0),
    ];
    let free = Report {
        steps_per_min: 100.0,
        ..report.clone()
    };
    let figures = figures("agents", &outcomes, &[free], &[100.0; 3]);
    let value = |name: &str| figures.iter().find(|f| f.name == name).map(|f| f.value);
    assert_eq!(value("vs_ttl_pin.kv_third.agents"), Some(2.0));
    assert_eq!(value("share_of_no_pressure.kv_third.agents"), Some(0.9));
    assert_eq!(value("vs_sticky.kv_third.agents"), None);
}
