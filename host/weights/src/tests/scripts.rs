//! Each fault at each request of an update, and 10,000 scripts by chance.

use super::engine::{Broken, Settings};
use super::*;
use std::panic::catch_unwind;

const KINDS: [EngineKind; 2] = [EngineKind::Vllm, EngineKind::Sglang];

/// A fleet in which all engines serve version 1.
fn updated(kind: EngineKind, settings: Settings) -> Fleet {
    let mut fleet = Fleet::new(kind, 3, 1);
    for engine in fleet.engines.values() {
        engine.lock().settings = settings;
    }
    assert!(fleet.publish(1));
    fleet.run_until(|fleet| fleet.serves_everywhere(1));
    fleet
}

/// What the first engine is asked by an update to version 2.
fn asked(kind: EngineKind, settings: Settings) -> Vec<String> {
    let mut fleet = updated(kind, settings);
    fleet.engine(WorkerId(0)).asked = Some(Vec::new());
    assert!(fleet.publish(2));
    fleet.run_until(|fleet| fleet.serves_everywhere(2));
    let asked = fleet.engine(WorkerId(0)).asked.take();
    asked.expect("it was kept")
}

#[test]
fn engines_are_asked_exactly_this() {
    let asked_of = |kind| asked(kind, Settings::default());
    let reload = r#"{"kwargs":{"weights_path":"/weights/2"},"method":"reload_weights"}"#;
    assert_eq!(
        asked_of(EngineKind::Vllm),
        [
            "GET /weight_info",
            "POST /pause?mode=keep&clear_cache=true {}",
            r#"POST /update_weight_version {"new_version":"treadle-loading"}"#,
            &format!("POST /collective_rpc {reload}"),
            r#"POST /update_weight_version {"new_version":"0.2"}"#,
            "GET /weight_info",
            r#"POST /weight_checker {"action":"checksum"}"#,
            "POST /reset_prefix_cache?reset_running_requests=true&reset_external=true {}",
            "POST /resume {}",
        ]
    );
    let load = r#"{"abort_all_requests":false,"flush_cache":false,"keep_pause":true,"model_path":"/weights/2","weight_version":"0.2"}"#;
    assert_eq!(
        asked_of(EngineKind::Sglang),
        [
            "GET /model_info",
            r#"POST /pause_generation {"mode":"retract"}"#,
            &format!("POST /update_weights_from_disk {load}"),
            "GET /model_info",
            r#"POST /weights_checker {"action":"checksum"}"#,
            "POST /flush_cache?timeout=30 {}",
            "GET /server_info",
            "POST /continue_generation {}",
        ]
    );
}

/// Whether an engine that answers so, and does not do it, could be told from one that does.
fn can_be_told(fault: Fault, request: &str) -> bool {
    let paths = [
        "/pause",
        "/reset_prefix_cache",
        "/flush_cache",
        "/hicache/storage-backend/clear",
        "/server_info",
        "/resume",
        "/continue_generation",
    ];
    let is_unproven = paths.iter().any(|path| request.contains(path));
    fault != Fault::Lie || !is_unproven
}

#[test]
fn the_storage_behind_hierarchical_caches_is_cleared() {
    let settings = Settings {
        stores: true,
        ..Settings::default()
    };
    let asked = asked(EngineKind::Sglang, settings);
    let last: Vec<&str> = asked.iter().rev().take(3).map(String::as_str).collect();
    assert_eq!(
        last,
        [
            "POST /continue_generation {}",
            "POST /hicache/storage-backend/clear {}",
            "GET /server_info",
        ]
    );
}

fn comes_back(kind: EngineKind, settings: Settings, at: usize, fault: Fault) {
    let mut fleet = updated(kind, settings);
    let mut script = vec![None; at];
    script.insert(0, Some(fault));
    fleet.engine(WorkerId(0)).script = script;
    assert!(fleet.publish(2));
    fleet.run_until(|fleet| fleet.engine(WorkerId(0)).script.is_empty());
    fleet.run_until(|fleet| fleet.serves_everywhere(2));
}

#[test]
fn an_engine_that_fails_at_any_request_in_any_way_comes_back() {
    let normal = Settings::default();
    let hides_checksums = Settings {
        hides_checksums: true,
        ..normal
    };
    let stores = Settings {
        stores: true,
        ..normal
    };
    for (kind, settings) in KINDS.into_iter().flat_map(|kind| {
        let all = [normal, hides_checksums, stores];
        all.map(|settings| (kind, settings))
    }) {
        for (at, request) in asked(kind, settings).iter().enumerate() {
            for fault in FAULTS.into_iter().filter(|f| can_be_told(*f, request)) {
                if fault != Fault::Lie || !settings.hides_checksums {
                    comes_back(kind, settings, at, fault);
                }
            }
        }
    }
}

/// A scenario with faults at first and without in the end.
fn survive(seed: u64, broken: Broken) -> u64 {
    let kind = KINDS[(seed % 2) as usize];
    let mut fleet = Fleet::new(kind, 2 + (seed % 3) as u32, seed);
    let is_liar = seed % 5 == 4 && fleet.engines.len() > 2;
    fleet.faults = if is_liar { Faults::Liar } else { Faults::Any };
    for engine in fleet.engines.values() {
        let mut engine = engine.lock();
        engine.broken = broken;
        engine.settings = Settings {
            hides_checksums: seed % 7 == 6 && !is_liar,
            stores: seed.is_multiple_of(3),
            old: kind == EngineKind::Sglang && seed % 3 == 1,
        };
    }
    let mut next = 1;
    for _ in 0..60 {
        if fleet.below(8) == 0 && fleet.publish(next) {
            next += 1;
        }
        if fleet.below(10) == 0 && !is_liar {
            fleet.disturb();
        }
        fleet.go_on();
    }
    fleet.faults = Faults::None;
    for engine in fleet.engines.values() {
        engine.lock().script.clear();
    }
    // An update may still find engines that restarted, and that too few are left for it.
    for number in next..next + 4 {
        fleet.run_until(|fleet| fleet.is_idle() && fleet.answers.is_empty());
        for worker in fleet.engines.keys().copied().collect::<Vec<_>>() {
            fleet.supervise(worker);
            fleet.probe(worker);
        }
        if fleet.publish(number) {
            fleet.run_until(Fleet::is_idle);
        }
        if fleet.served == number {
            fleet.run_until(|fleet| fleet.serves_everywhere(number));
            return fleet.captured;
        }
    }
    panic!("no update succeeds: {:?}", fleet.machine.state());
}

#[test]
fn no_span_is_captured_under_a_wrong_version_whatever_fails() {
    let captured: u64 = (0..10_000).map(|seed| survive(seed, Broken::No)).sum();
    assert!(captured > 10_000, "steps run meanwhile: {captured}");
}

/// These can't be told from sound ones, so only the scripts themselves can find them.
#[test]
fn engines_that_can_not_be_told_from_sound_ones_are_found_by_the_scripts() {
    std::panic::set_hook(Box::new(|_| {}));
    let missed: Vec<Broken> = [Broken::KeepsCaches, Broken::NeverPauses, Broken::Forges]
        .into_iter()
        .filter(|broken| (0..100).all(|seed| catch_unwind(|| survive(seed, *broken)).is_ok()))
        .collect();
    drop(std::panic::take_hook());
    assert_eq!(missed, [], "found within 100 scripts");
}
