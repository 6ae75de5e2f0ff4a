//! Units of actions, shared out by bound policies.

use super::*;
use treadle_core::actions::ElasticQuestion;
use treadle_model::ActionId;

/// `tangram-allocation`, built by `make guests`.
const TANGRAM: &[u8] = include_bytes!("../../../../../target/guests/tangram_allocation.wasm");

fn bind(evaluator: &mut PolicyEvaluator, scope: &Scope, policy: BoundPolicy) {
    evaluator
        .change(World::Allocation, scope, Change::Activate(Some(policy)), 0)
        .expect("it can be changed");
}

fn trapping(name: &str) -> BoundPolicy {
    let module = wat::parse_str(include_str!("trapping.wat")).expect("the text is valid");
    let upload = treadle_policy_runtime::embed_contract(&module, "allocation");
    loaded(name, &upload.expect("the contract embeds"))
}

/// Two candidates and one waiting action, for six units: two for each.
fn question() -> ElasticQuestion {
    ElasticQuestion {
        action: [7, 8, 9].map(ActionId).into(),
        pool: vec![0; 3],
        candidate: vec![1, 1, 0],
        waited_us: vec![3, 2, 1],
        option_start: vec![0, 2, 3, 4],
        option_units: vec![1, 4, 2, 6],
        option_us: vec![900, 300, 100, -1],
        option_load_us: vec![0; 4],
        free_units: vec![6],
        chunked: vec![0],
        free_chunks: vec![0; 4],
        ..ElasticQuestion::default()
    }
}

#[test]
fn the_policy_of_everyone_shares_out_units() {
    let mut evaluator = unhurried();
    assert_eq!(evaluator.arrange(&question(), 5), None);
    let job = Scope::of("run");
    bind(&mut evaluator, &job, loaded("of a job", TANGRAM));
    assert_eq!(
        evaluator.arrange(&question(), 5),
        None,
        "pools are of all jobs"
    );
    bind(&mut evaluator, &Scope::Everyone, loaded("tangram", TANGRAM));
    let (policy, answer) = evaluator.arrange(&question(), 5).expect("an answer");
    assert_eq!(&*policy.0, "tangram");
    assert_eq!(answer.start, [(ActionId(7), 1), (ActionId(8), 2)]);
    let rows = evaluator.version_rows();
    let [version] = rows.as_slice() else {
        panic!("{rows:?}")
    };
    let statistics = &version.statistics;
    assert_eq!((statistics.calls, statistics.rows), (1, 3));
    assert_eq!(evaluator.statistics().answered, 1);
    assert!(evaluator.statistics().asked_us > 0);
}

#[test]
fn a_policy_that_fails_to_share_out_is_counted_and_goes() {
    let mut evaluator = unhurried();
    bind(&mut evaluator, &Scope::Everyone, trapping("trapping"));
    assert_eq!(evaluator.arrange(&question(), 5), None);
    let statistics = evaluator.statistics();
    assert_eq!((statistics.faults, statistics.fallbacks), (1, 1));
    let again = (1..100).map(|minute| minute * 10_000);
    let notice = again.into_iter().find_map(|now_ms| {
        for call in 0..10 {
            assert_eq!(evaluator.arrange(&question(), now_ms + call), None);
        }
        evaluator.poll_notice()
    });
    let notice = notice.expect("it was rolled back");
    assert_eq!(notice.world, World::Allocation);
    assert_eq!(notice.kind, NoticeKind::RolledBack);
    assert_eq!(notice.after, native_policy(World::Allocation));
}

#[test]
fn a_canary_of_allocation_is_not_judged_by_steps() {
    let (core, mut evaluator) = (core(), unhurried());
    bind(&mut evaluator, &Scope::Everyone, loaded("tangram", TANGRAM));
    let canary = Change::StartCanary(loaded("canary", TANGRAM), 500_000);
    evaluator
        .change(World::Allocation, &Scope::Everyone, canary, 0)
        .expect("it can be changed");
    for program in core.programs().live.keys() {
        evaluator.observe_step(&core, *program, 500.0);
    }
    let (policy, _) = evaluator.arrange(&question(), 5).expect("an answer");
    assert_eq!(&*policy.0, "tangram");
    let view = &evaluator.views(World::Allocation)[0];
    let canary = view.canary.as_ref().expect("it stays");
    assert_eq!(canary.trial, Trial::default());
}
