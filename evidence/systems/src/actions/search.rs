//! Search agents whose services refuse what goes beyond their quotas: the API part of Figures 6
//! and 7.

use super::SeedFigures;
use super::tested::Tested;
use treadle_simulator::actions::{APIS, OnTheirOwn, Outcome, Pools, Search};

const BATCHES: [u32; 3] = [512, 1_024, 2_048];
/// Waits after the first refusal that are tried, in seconds; the first is the one that is compared.
const WAITS_S: [f64; 4] = [1.0, 0.25, 4.0, 16.0];

pub(super) fn run(seed: u64, small: bool, tested: &mut Tested, found: &mut SeedFigures) {
    let size = if small { 16 } else { 1 };
    for batch in BATCHES {
        let workload = Search {
            batch: batch / size,
            seed,
            ..Search::default()
        };
        let trajectories = workload.generate();
        let pools = Pools {
            apis: APIS.to_vec(),
            ..Pools::cores(0, 0, 0.0, 0.0)
        };
        let ours = tested.run(&pools, &trajectories);
        let label = format!("batch{batch:04}");
        let requests = |means: treadle_simulator::actions::MeanTimes| {
            means.queue_s + means.overhead_s + means.run_s
        };
        found.put(format!("search.s.treadle.{label}"), requests(ours.means()));
        found.put(
            format!("search.share.failed_treadle.{label}"),
            ours.failed(),
        );
        let alone = WAITS_S.map(|wait_s| {
            let apis = APIS.to_vec();
            OnTheirOwn { apis, wait_s }.run(&trajectories)
        });
        found.put(
            format!("search.s.alone.{label}"),
            requests(alone[0].means()),
        );
        found.put(
            format!("search.share.failed_alone.{label}"),
            alone[0].failed(),
        );
        let fewest = alone.iter().map(Outcome::failed);
        found.put(
            format!("search.share.failed_alone_best.{label}"),
            fewest.fold(f64::INFINITY, f64::min),
        );
    }
}
