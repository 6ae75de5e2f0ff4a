//! Pods wait for room, for the control plane, and for their share of cores.

use super::*;
use crate::actions::work::{Draws, Speedup, Turn, Work};

fn one(generation_s: f64, single_s: f64) -> Trajectory {
    Trajectory {
        turns: vec![Turn {
            generation_us: micros(generation_s),
            work: Work {
                kind: "tests",
                draws: Draws::Cores,
                options: &[1, 2, 3, 4],
                single_s,
                speedup: Speedup::Amdahl(1.0),
                profile: None,
            },
        }],
    }
}

fn pods() -> Pods {
    Pods {
        nodes: 1,
        node_cores: 4,
        request_milli: 500,
        limit: 4,
        start_s: 0.0,
        starts_per_s: 1e6,
        exec_s: 0.0,
    }
}

#[test]
fn one_alone_has_its_limit() {
    let outcome = pods().run(&[one(1.0, 40.0)]);
    assert!((outcome.act_s() - 10.0).abs() < 0.01);
    let limit = Pods { limit: 2, ..pods() };
    assert!((limit.run(&[one(1.0, 40.0)]).act_s() - 20.0).abs() < 0.01);
}

#[test]
fn several_share() {
    let outcome = pods().run(&[one(1.0, 40.0), one(1.0, 40.0)]);
    assert!((outcome.act_s() - 20.0).abs() < 0.01);
}

#[test]
fn a_reservation_that_does_not_fit_waits() {
    let reserved = Pods {
        request_milli: 4_000,
        ..pods()
    };
    let outcome = reserved.run(&[one(1.0, 40.0), one(1.0, 40.0)]);
    // The second pod is ready after 11 s, for 10 s of work that was submitted after 1 s.
    assert!((outcome.act_s() - 15.0).abs() < 0.01, "{}", outcome.act_s());
    assert_eq!(outcome.timeouts, 0);
}

#[test]
fn who_waits_for_too_long_asks_again_and_gives_up_in_the_end() {
    let reserved = Pods {
        request_milli: 4_000,
        ..pods()
    };
    let outcome = reserved.run(&[one(1.0, 40_000.0), one(1.0, 40.0)]);
    assert_eq!(outcome.timeouts, 4);
    assert!((outcome.failed() - 0.5).abs() < 1e-9);
}
