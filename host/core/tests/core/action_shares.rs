//! Groups of jobs that share resources: what one holds is limited while others exist, and they take
//! turns.

use crate::executor::{Answers, Executor, action, devices, quota, units};
use proptest::prelude::*;
use std::collections::BTreeMap;
use treadle_core::Core;
use treadle_core::actions::{ActionError, ActionEvent, ActionSpec, Admission, Resource, Shares};
use treadle_model::tenant::prefix_of;
use treadle_model::{ActionId, Span};

const HOUR: u64 = 3_600;

fn of(group: &str, demands: &[(&str, &[u64])]) -> ActionSpec {
    ActionSpec {
        job: format!("\u{1f}{group}\u{1f}job").into(),
        run_max: Span::from_secs(24 * HOUR),
        ..action(demands)
    }
}

fn shared(resources: &[Resource], parts: u64) -> Executor {
    let mut e = Executor::new(resources);
    e.in_order = false;
    share(&mut e, parts, &[]);
    e
}

fn share(e: &mut Executor, parts: u64, percent: &[(&str, u64)]) {
    let named = |(group, percent): &(&str, u64)| (format!("\u{1f}{group}\u{1f}").into(), *percent);
    let percent = percent.iter().map(named).collect();
    let shares = Some(Shares { parts, percent });
    e.handle(ActionEvent::SharesSet { shares });
}

/// Units of a resource that each group holds.
fn held(e: &Executor, resource: &str) -> BTreeMap<String, u64> {
    let mut held = BTreeMap::new();
    for (id, attempt) in &e.running {
        let job = &e.core.actions().live[id].spec.job;
        let group = prefix_of(job).trim_matches('\u{1f}').to_owned();
        let grants = attempt.grants.iter();
        let units = grants.filter(|grant| &*grant.resource == resource);
        *held.entry(group).or_default() += units.map(|grant| grant.units).sum::<u64>();
    }
    held
}

fn submit_many(e: &mut Executor, count: usize, spec: &ActionSpec) -> Vec<ActionId> {
    (0..count).map(|_| e.submit(spec.clone())).collect()
}

/// For any kind of resource: one group requests all of it many times, and another one that comes
/// later still gets its share at once.
#[test]
fn one_group_leaves_the_others_their_share_of_every_kind_of_resource() {
    let kinds = [
        units("cpu", 2),
        units("memory", 4_096),
        devices("gpu", &[8, 8]),
        quota("search", 4, 1_000, Span::from_secs(10)),
    ];
    for (resource, total) in kinds.iter().zip([2, 4_096, 16, 4]) {
        let name = &*resource.name;
        let mut e = shared(&kinds, 2);
        submit_many(
            &mut e,
            20,
            &of("red", &[(name, &[total / 4 + total % 4 / 2])]),
        );
        let blue = e.submit(of("blue", &[(name, &[total / 4 + total % 4 / 2])]));
        assert!(
            e.running.contains_key(&blue),
            "{name}: {:?}",
            held(&e, name)
        );
        assert_eq!(
            held(&e, name)["red"],
            total / 2,
            "{name}: no more, and all of it"
        );
    }
}

#[test]
fn what_is_beyond_the_share_is_refused_and_a_share_can_be_another_one() {
    let mut e = shared(&[units("cpu", 8)], 2);
    let five = of("red", &[("cpu", &[5])]);
    let Err(ActionError::BeyondShare { most, total, .. }) = e.check(&five) else {
        panic!("it is refused");
    };
    assert_eq!((most, total), (4, 8));
    share(&mut e, 2, &[("red", 100)]);
    let id = e.submit(five);
    assert!(e.running.contains_key(&id));
    e.handle(ActionEvent::SharesSet { shares: None });
    assert!(
        e.check(&of("blue", &[("cpu", &[8])])).is_ok(),
        "all may have all"
    );
}

#[test]
fn with_more_groups_than_units_they_take_turns() {
    let mut e = shared(&[units("cpu", 1)], 3);
    submit_many(&mut e, 30, &of("red", &[("cpu", &[1])]));
    let later = ["green", "blue"].map(|group| e.submit(of(group, &[("cpu", &[1])])));
    let mut order = Vec::new();
    for _ in 0..5 {
        let running: Vec<_> = e.running.keys().copied().collect();
        order.extend(held(&e, "cpu").into_keys());
        e.exit(running[0]);
    }
    assert_eq!(order, ["red", "green", "blue", "red", "red"], "{later:?}");
}

#[test]
fn a_group_that_waits_for_its_share_holds_up_nobody_else_and_is_not_overtaken_by_its_own() {
    let mut e = shared(&[units("cpu", 4), units("disk", 4)], 2);
    submit_many(&mut e, 2, &of("red", &[("cpu", &[1])]));
    let waits = e.submit(of("red", &[("cpu", &[2])]));
    let own = e.submit(of("red", &[("disk", &[1]), ("cpu", &[1])]));
    let others = submit_many(&mut e, 2, &of("blue", &[("cpu", &[1])]));
    assert!(others.iter().all(|id| e.running.contains_key(id)));
    assert!(!e.running.contains_key(&waits) && !e.running.contains_key(&own));
    e.run_out();
    assert_eq!(e.answered.len(), 6);
}

#[test]
fn a_policy_gives_no_group_more_than_its_share() {
    for answers in [
        Answers::Most,
        Answers::Seeded(7),
        Answers::LastOnly,
        Answers::Never,
    ] {
        let mut e = shared(&[units("cpu", 8)], 2);
        e.answers = answers;
        let elastic = of("red", &[("cpu", &[1, 2, 4, 8])]);
        submit_many(&mut e, 3, &elastic);
        e.wait_s(10);
        let asked = e.asked.iter().flat_map(|(_, asked)| &asked.option_units);
        assert!(asked.into_iter().all(|units| *units <= 4), "{answers:?}");
        assert!(held(&e, "cpu")["red"] <= 4, "{answers:?}");
        e.submit(of("blue", &[("cpu", &[4])]));
        e.wait_s(10);
        assert_eq!(held(&e, "cpu")["blue"], 4, "{answers:?}");
        e.run_out();
        assert_eq!(e.answered.len(), 4, "{answers:?}");
    }
}

#[test]
fn what_was_submitted_when_the_share_was_larger_still_runs() {
    let mut e = Executor::new(&[units("cpu", 4)]);
    e.in_order = false;
    let first = e.submit(of("red", &[("cpu", &[4])]));
    let large = e.submit(of("red", &[("cpu", &[3])]));
    share(&mut e, 2, &[]);
    assert!(e.running.contains_key(&first), "it keeps what it has");
    e.exit(first);
    assert!(e.running.contains_key(&large), "alone it has its least");
    let more = e.submit(of("red", &[("cpu", &[1])]));
    assert!(!e.running.contains_key(&more));
}

#[test]
fn a_group_takes_its_part_of_the_queue() {
    let mut e = Executor::with(&[units("cpu", 1)], |config| {
        config.actions.waiting_max = 12;
        config.actions.tenant_waiting_max = 9;
    });
    e.in_order = false;
    share(&mut e, 3, &[]);
    let red = of("red", &[("cpu", &[1])]);
    submit_many(&mut e, 5, &red);
    let refused = e.check(&red);
    assert!(
        matches!(refused, Err(ActionError::QueueFull { waiting: 4, .. })),
        "{refused:?}"
    );
    for group in ["green", "blue"] {
        submit_many(&mut e, 4, &of(group, &[("cpu", &[1])]));
    }
}

#[test]
fn the_ends_of_one_group_make_the_daemon_forget_none_of_another() {
    let mut e = Executor::with(&[units("cpu", 2)], |config| config.actions.ended_max = 10);
    e.in_order = false;
    share(&mut e, 2, &[]);
    let keyed = ActionSpec {
        idempotency_key: Some("once".into()),
        ..of("blue", &[("cpu", &[1])])
    };
    let blue = e.submit(keyed.clone());
    e.exit(blue);
    for _ in 0..20 {
        let red = e.submit(of("red", &[("cpu", &[1])]));
        e.exit(red);
    }
    assert_eq!(e.check(&keyed), Ok(Admission::Known(blue)));
    assert_eq!(e.core.actions().ended.len(), 10);
}

#[derive(Clone, Debug)]
enum Move {
    Submit { group: u8, what: u8, size: u8 },
    Exit { pick: u8 },
    Share { parts: u8 },
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        6 => (0..4_u8, 0..4_u8, any::<u8>())
            .prop_map(|(group, what, size)| Move::Submit { group, what, size }),
        5 => any::<u8>().prop_map(|pick| Move::Exit { pick }),
        1 => (1..6_u8).prop_map(|parts| Move::Share { parts }),
    ];
    proptest::collection::vec(one, 1..120)
}

fn play(e: &mut Executor, one: &Move) {
    match *one {
        Move::Submit { group, what, size } => {
            let size = u64::from(size);
            let spec = match what {
                0 => of(&format!("g{group}"), &[("cpu", &[1 + size % 3])]),
                1 => of(
                    &format!("g{group}"),
                    &[("cpu", &[1, 2, 4]), ("memory", &[1 + size % 9])],
                ),
                2 => of(
                    &format!("g{group}"),
                    &[("gpu", &[1 << (size % 3)]), ("cpu", &[1])],
                ),
                _ => of(&format!("g{group}"), &[("memory", &[1 + size % 20])]),
            };
            if e.check(&spec).is_ok() {
                e.submit(spec);
            }
        }
        Move::Exit { pick } => {
            let running: Vec<_> = e.running.keys().copied().collect();
            if let Some(id) = running.get(usize::from(pick) % running.len().max(1)) {
                e.exit(*id);
            }
        }
        Move::Share { parts } => share(e, u64::from(parts), &[]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Invariants are checked after each event.
    #[test]
    fn whatever_happens_all_get_their_turn_and_a_replay_is_the_same(
        seed in any::<u64>(), parts in 1..5_u8, script in moves()
    ) {
        let mut e = shared(&[units("cpu", 6), units("memory", 40), devices("gpu", &[8])], u64::from(parts));
        e.answers = Answers::Seeded(seed);
        let is_shared = !script.iter().any(|one| matches!(one, Move::Share { .. }));
        for one in &script {
            play(&mut e, one);
            for units in held(&e, "cpu").values().filter(|_| is_shared) {
                prop_assert!(*units <= (6 / u64::from(parts)).max(1));
            }
        }
        let mut replayed = Core::new(e.core.config().clone());
        for (at, event) in &e.journal {
            let event = treadle_core_json::write_event(event);
            replayed.handle(*at, &treadle_core_json::read_event(&event).unwrap());
        }
        let bytes = |core: &Core| treadle_core_json::write_state(&core.state()).unwrap();
        prop_assert_eq!(bytes(&replayed), bytes(&e.core));
        e.run_out();
        prop_assert_eq!(e.answered.len() as u64, e.core.actions().counters.submitted);
    }
}
