//! Programs that prefer a class of hardware, in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use treadle_core::programs::{Decision, DecisionKind};
use treadle_core::training::Affinity;
use treadle_core::{CoreConfig, Mode};
use treadle_engine_model::engine::EngineProfile;
use treadle_model::WorkerId;
use treadle_policy::native::NativeEviction;
use treadle_simulator::cluster::{
    ClusterOptions, Environment, MemberOf, Preferences, TransferOptions, Watch, simulate_within,
};
use treadle_simulator::workload::LognormalAgents;

/// Where programs were placed, first and again.
#[derive(Default)]
struct Placed(Vec<WorkerId>);

impl Watch for Placed {
    fn decided(&mut self, decision: &Decision) {
        if matches!(decision.kind, DecisionKind::Place | DecisionKind::Restore) {
            self.0.push(decision.worker);
        }
    }
}

/// Where 64 agents are placed on two engines with this memory. The second has the class that all of
/// them prefer, if they prefer any.
fn placed(kv_tokens: u64, preferring: bool) -> Vec<WorkerId> {
    let agents = LognormalAgents {
        programs: 64,
        ..LognormalAgents::default()
    };
    let runs = agents.generate().unwrap();
    let options = ClusterOptions {
        core: CoreConfig {
            mode: Mode::ProgramAware,
            explain: true,
            ..CoreConfig::default()
        },
        policy: NativeEviction::default(),
        engines: 2,
        profile: EngineProfile::glm46_8xh100().with_kv_tokens(kv_tokens),
        transfers: TransferOptions::default(),
        reports_prefixes: true,
        concurrency: 64,
        stop_at_us: None,
        count_from_us: 0,
        seed: 1,
        audit: true,
    };
    let affinity = Affinity::Classes(BTreeMap::from([("default".into(), "fast".into())]));
    let member = MemberOf {
        job: "job".into(),
        domain: None,
    };
    let preferences = Preferences {
        jobs: BTreeMap::from([("job".into(), affinity)]),
        members: vec![Some(member); 64],
    };
    let classes: [Option<Box<str>>; 2] = [None, Some("fast".into())];
    let around = Environment {
        classes: &classes,
        preferences: preferring.then_some(&preferences),
        ..Environment::default()
    };
    let mut placed = Placed::default();
    let mut policy = options.policy.clone();
    let report = simulate_within(&runs, &options, &mut policy, around, &mut placed);
    let steps: usize = runs.iter().map(|run| run.steps.len()).sum();
    assert_eq!((report.steps, report.refused), (steps as u64, 0));
    placed.0
}

#[test]
fn a_class_is_filled_before_programs_fall_back_to_another() {
    let [other, preferred] = [WorkerId(0), WorkerId(1)];
    let both = BTreeSet::from([other, preferred]);
    let all = |placed: Vec<WorkerId>| placed.into_iter().collect::<BTreeSet<_>>();
    let ample = 4_000_000;
    assert_eq!(all(placed(ample, false)), both);
    assert_eq!(all(placed(ample, true)), BTreeSet::from([preferred]));
    let scarce = placed(100_000, true);
    let filled = scarce.iter().take_while(|w| **w == preferred).count();
    assert!(filled >= 16, "it is filled first: {scarce:?}");
    assert_eq!(all(scarce), both);
}
