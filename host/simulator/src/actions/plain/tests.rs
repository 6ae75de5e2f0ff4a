//! The plain machine on small batches: what it gives is there, and nothing is left waiting.

use super::*;
use crate::actions::{APIS, Coding, Pools, Search, Services, bound_s};

#[test]
fn coding_agents_end_and_no_faster_than_they_can() {
    let batch = Coding {
        batch: 64,
        ..Coding::default()
    };
    let trajectories = batch.generate();
    let pools = Pools::cores(1, 64, 0.0, 0.0);
    let outcome = pools.run(&trajectories, &mut Plain::default(), &mut Greedy);
    let actions: usize = trajectories.iter().map(|t| t.turns.len()).sum();
    assert_eq!(outcome.actions.len(), actions);
    assert!(outcome.act_s() >= bound_s(&trajectories));
    assert!(outcome.last_units() > 2.0);
}

#[test]
fn models_share_devices() {
    let batch = Services {
        batch: 128,
        ..Services::default()
    };
    let trajectories = batch.generate();
    let pools = Pools {
        node_cores: Vec::new(),
        node_devices: vec![8, 4],
        services: Some(batch),
        apis: Vec::new(),
        exec_s: 0.0,
        container_s: 0.0,
    };
    let outcome = pools.run(&trajectories, &mut Plain::default(), &mut Greedy);
    assert_eq!(outcome.actions.len(), 128);
    let means = outcome.means();
    assert!(means.overhead_s > 0.0 && means.overhead_s < means.run_s);
}

#[test]
fn quotas_are_not_passed() {
    let batch = Search {
        batch: 1_500,
        ..Search::default()
    };
    let pools = Pools {
        apis: APIS.to_vec(),
        ..Pools::cores(0, 0, 0.0, 0.0)
    };
    let trajectories = batch.generate();
    let outcome = pools.run(&trajectories, &mut Plain::default(), &mut Greedy);
    assert!(outcome.failed() < 1e-9 && outcome.means().queue_s > 0.0);
    let actions: usize = trajectories.iter().map(|t| t.turns.len()).sum();
    assert_eq!(outcome.actions.len(), actions);
}
