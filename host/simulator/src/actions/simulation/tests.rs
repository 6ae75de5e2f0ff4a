//! Small batches under the core: grants are within the resources, and nothing stays waiting.

use super::*;
use crate::actions::{APIS, Coding, Search, Services, Treadle, bound_s};
use treadle_core::actions::{ElasticAnswer, ElasticQuestion};

/// Gives each candidate, in order, the most that leaves one unit for all after it.
struct Most;

impl Allocator for Most {
    fn allocate(&mut self, question: &ElasticQuestion) -> ElasticAnswer {
        let candidates = question.candidate.iter().filter(|row| **row != 0).count() as u32;
        let mut left = question.free_units[0];
        let mut start = Vec::new();
        for (row, behind) in (0..candidates).rev().enumerate() {
            let options =
                question.option_start[row] as usize..question.option_start[row + 1] as usize;
            let options = question.option_units[options].iter();
            let fits = |units: &&u32| **units + behind <= left;
            let units = options
                .copied()
                .rev()
                .find(|units| fits(&units))
                .unwrap_or(1);
            left -= units;
            start.push((question.action[row], units));
        }
        ElasticAnswer { start }
    }
}

fn run(pools: &Pools, trajectories: &[Trajectory]) -> (Outcome, Treadle) {
    let mut treadle = Treadle::default();
    let outcome = pools.run(trajectories, &mut treadle, &mut Most);
    treadle.core().assert_invariants();
    let actions: usize = trajectories.iter().map(|t| t.turns.len()).sum();
    assert_eq!(outcome.actions.len(), actions);
    assert!(treadle.core().actions().live.is_empty());
    (outcome, treadle)
}

#[test]
fn coding_agents_end_and_no_faster_than_they_can() {
    let batch = Coding {
        batch: 64,
        ..Coding::default()
    };
    let trajectories = batch.generate();
    let (outcome, treadle) = run(&Pools::cores(1, 64, 0.0, 0.0), &trajectories);
    assert!(outcome.act_s() >= bound_s(&trajectories));
    assert!(outcome.last_units() > 2.0);
    let counters = treadle.core().actions().counters;
    assert!(
        counters.asked > 0 && counters.corrected == 0,
        "{counters:?}"
    );
}

#[test]
fn models_share_devices() {
    let batch = Services {
        batch: 128,
        ..Services::default()
    };
    let trajectories = batch.generate();
    let pools = Pools {
        node_devices: vec![8, 4],
        services: Some(batch),
        ..Pools::cores(0, 0, 0.0, 0.0)
    };
    let (outcome, treadle) = run(&pools, &trajectories);
    let means = outcome.means();
    assert!(means.overhead_s > 0.0 && means.overhead_s < means.run_s);
    let loads = treadle.core().actions().counters.loads;
    assert!((10..128).contains(&loads), "{loads}");
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
    let (outcome, _) = run(&pools, &batch.generate());
    assert!(outcome.failed() < 1e-9 && outcome.means().queue_s > 0.0);
}
