//! Rewards by ten models on devices: Figure 8(b) and Table 1.

use super::SeedFigures;
use super::tested::Tested;
use treadle_simulator::actions::{Deployed, Outcome, Pools, Services, Trajectory};

const BATCHES: [u32; 7] = [128, 256, 512, 1_024, 1_536, 2_048, 3_072];
/// Devices, eight to a node (§6.1).
const DEVICES: u32 = 40;
/// The batch for which devices are counted.
const COUNTED: u32 = 1_024;
/// Time until a model serves that comes from a disk, in seconds: chosen; 65.6 GB at 12 GB/s, and
/// as much again for the process around it.
const DISK_LOADS_S: [f64; 2] = [10.0, 5.5];

pub(super) fn run(seed: u64, small: bool, tested: &mut Tested, found: &mut SeedFigures) {
    // Few requests are few requests: a small run leaves out the large batches instead.
    let most = if small { 256 } else { u32::MAX };
    for batch in BATCHES.into_iter().filter(|batch| *batch <= most) {
        let workload = Services {
            batch,
            seed,
            ..Services::default()
        };
        let trajectories = workload.generate();
        let label = format!("batch{batch:04}");
        let ours = tested.run(&pools(&workload, DEVICES), &trajectories);
        let always_s = against(&workload, &trajectories, &ours, &label, found);
        tested.others(
            &pools(&workload, DEVICES),
            &trajectories,
            ours.act_s(),
            |name, value| {
                found.put(format!("services.ratio.{name}.{label}"), value);
            },
        );
        if batch == COUNTED {
            count(&workload, &trajectories, always_s, tested, found);
        }
    }
}

fn pools(workload: &Services, devices: u32) -> Pools {
    let nodes = (0..devices.div_ceil(8)).map(|node| (devices - node * 8).min(8));
    Pools {
        node_cores: Vec::new(),
        node_devices: nodes.collect(),
        services: Some(workload.clone()),
        apis: Vec::new(),
        exec_s: 0.0,
        container_s: 0.0,
    }
}

/// Compares; the time of models that stay, as the paper deploys them.
fn against(
    workload: &Services,
    trajectories: &[Trajectory],
    ours: &Outcome,
    label: &str,
    found: &mut SeedFigures,
) -> f64 {
    let act_s = ours.act_s();
    let means = ours.means();
    found.put(format!("services.s.treadle.{label}"), act_s);
    found.put(format!("services.s.queue.{label}"), means.queue_s);
    found.put(format!("services.s.overhead.{label}"), means.overhead_s);
    found.put(format!("services.s.run.{label}"), means.run_s);
    let share = means.overhead_s / (means.overhead_s + means.run_s);
    found.put(format!("services.share.overhead.{label}"), share);
    let mut ratio = |name: &str, value: f64| {
        found.put(format!("services.ratio.{name}.{label}"), value / act_s);
    };
    let all = u64::from(DEVICES);
    let always_s = Deployed::even(workload.services, all, 4)
        .run(trajectories)
        .act_s();
    ratio("always", always_s);
    let best = [1, 2, 4].map(|devices| {
        Deployed::even(workload.services, all, devices)
            .run(trajectories)
            .act_s()
    });
    ratio(
        "always_best",
        best.into_iter().fold(f64::INFINITY, f64::min),
    );
    let shares = workload.shares();
    let known = [1, 2, 4].map(|devices| {
        Deployed::proportional(&shares, all, devices)
            .run(trajectories)
            .act_s()
    });
    ratio(
        "always_known",
        known.into_iter().fold(f64::INFINITY, f64::min),
    );
    against_on_demand(workload, trajectories, act_s, label, found);
    always_s
}

/// Compares with models that come when they are asked for.
fn against_on_demand(
    workload: &Services,
    trajectories: &[Trajectory],
    act_s: f64,
    label: &str,
    found: &mut SeedFigures,
) {
    let mut ratio = |name: &str, value: f64| {
        found.put(format!("services.ratio.{name}.{label}"), value / act_s);
    };
    let on_demand = |devices: u64, load_s: f64| {
        let slots = (u64::from(DEVICES) / devices) as u32;
        Deployed::OnDemand {
            slots,
            devices,
            load_s,
        }
        .run(trajectories)
    };
    let paper = on_demand(8, DISK_LOADS_S[0]);
    ratio("on_demand", paper.act_s());
    let least = |load_s: &dyn Fn(u64) -> f64| {
        let times = [1, 2, 4, 8].map(|devices| on_demand(devices, load_s(devices)).act_s());
        times.into_iter().fold(f64::INFINITY, f64::min)
    };
    let from_disk = DISK_LOADS_S.map(|load_s| least(&|_| load_s));
    ratio(
        "on_demand_best",
        from_disk.into_iter().fold(f64::INFINITY, f64::min),
    );
    ratio(
        "on_demand_host",
        least(&|devices| workload.load_us(devices) as f64 / 1e6),
    );
    found.put(
        format!("services.share.on_demand_failed.{label}"),
        paper.failed(),
    );
}

/// The fewest devices with which treadle is as fast as models that stay on all.
fn count(
    workload: &Services,
    trajectories: &[Trajectory],
    always_s: f64,
    tested: &mut Tested,
    found: &mut SeedFigures,
) {
    let enough = (1..=DEVICES).find(|devices| {
        let ours = tested.run(&pools(workload, *devices), trajectories);
        ours.act_s() <= always_s
    });
    let enough = f64::from(enough.unwrap_or(DEVICES));
    found.put("services.count.devices.batch1024", enough);
    found.put(
        "services.share.saved.batch1024",
        1.0 - enough / f64::from(DEVICES),
    );
}
