//! What becomes of caches, and what eviction policies are told of the future.

use super::*;
use treadle_core::{Fate, Prospects};

/// A policy of the larger world: it offloads every second cache.
fn retaining(name: &str, extra: Vec<usize>) -> BoundPolicy {
    let module = wat::parse_str(include_str!("retention.wat")).expect("the text is valid");
    let upload = treadle_policy_runtime::embed_contract(&module, "eviction-retention");
    BoundPolicy {
        extra,
        ..loaded(name, &upload.expect("the contract embeds"))
    }
}

fn retain(core: &Core) -> Question {
    let purpose = Purpose::Retain {
        worker: WorkerId(0),
        capacity_tokens: 10_000,
        free_tokens: -500,
        wanted_tokens: 90,
    };
    let question = asked(core, purpose);
    let rows = question.programs.len();
    let prospects = Prospects {
        idle: (0..rows as u64).map(Span::from_millis).collect(),
        soonest: vec![Span(0); rows],
        price: vec![Span(0); rows],
        back: vec![Span(1_000); rows],
        moved: vec![treadle_core::NEVER; rows],
        prefill: vec![Span(9_000); rows],
        remaining_tokens: vec![-1; rows],
    };
    let programs = ProgramColumns {
        prospects: Box::new(prospects),
        ..question.programs
    };
    Question { purpose, programs }
}

fn fates(answer: &Answer) -> &[(ProgramId, Fate)] {
    let Verdict::Fates { fates } = &answer.verdict else {
        panic!("{:?}", answer.verdict)
    };
    fates
}

#[test]
fn caches_of_each_job_are_judged_by_its_policy_and_those_that_stay_are_not_named() {
    let (core, (mut desk, _notices)) = (core(), desk());
    // Of the smaller world: it is not asked about caches.
    let (all, of_even) = (bound("all"), retaining("even", Vec::new()));
    change(&mut desk, &Scope::Everyone, Change::Activate(Some(all)));
    let even = Scope::of("even");
    change(&mut desk, &even, Change::Activate(Some(of_even)));

    let answer = desk.answer(&core, &retain(&core), 5);
    let fates = fates(&answer);
    assert_eq!(fates.len() as u64, PROGRAMS / 4, "half of those of one job");
    for (program, fate) in fates {
        assert_eq!(&*core.state().programs[program].job, "even");
        assert_eq!(*fate, Fate::Offload);
    }
    let names: Vec<&str> = std::iter::once(&answer.policy)
        .chain(&answer.voices.judges)
        .map(|policy| policy.0.as_ref())
        .collect();
    assert_eq!(answer.voices.judged_by.len(), fates.len());
    let by_even = |judge: &u8| names[usize::from(*judge)] == "even";
    assert!(answer.voices.judged_by.iter().all(by_even), "{names:?}");

    assert!(desk.versions().all(|version| &*version.policy.0 == "even"));
    let statistics = desk.statistics();
    assert_eq!((statistics.answered, statistics.fallbacks), (1, 0));
}

#[test]
fn without_a_policy_all_caches_stay() {
    let (core, (mut desk, _notices)) = (core(), desk());
    let answer = desk.answer(&core, &retain(&core), 5);
    assert!(fates(&answer).is_empty() && answer.voices.is_empty());
    assert_eq!(answer.policy, native_policy(World::Eviction));
    assert_eq!(
        desk.statistics(),
        &PolicyStatistics {
            asked_us: desk.statistics().asked_us,
            slowest_us: desk.statistics().slowest_us,
            ..PolicyStatistics::default()
        }
    );
}

#[test]
fn an_eviction_policy_is_given_the_columns_that_it_names() {
    let (core, (mut desk, _notices)) = (core(), desk());
    let idle = OUTLOOK_COLUMNS.iter().position(|name| *name == "idle-ms");
    let policy = retaining("by-idleness", idle.into_iter().collect());
    change(&mut desk, &Scope::Everyone, Change::Activate(Some(policy)));
    let worker = WorkerId(0);
    let pause = Purpose::Pause {
        worker,
        excess_tokens: 1,
    };
    let question = Question {
        purpose: pause,
        ..retain(&core)
    };
    let answer = desk.answer(&core, &question, 5);
    let Verdict::Order {
        programs, scores, ..
    } = &answer.verdict
    else {
        panic!("{:?}", answer.verdict)
    };
    let expected: Vec<f64> = (0..PROGRAMS).rev().map(|ms| ms as f64).collect();
    assert_eq!(scores, &expected);
    assert!(programs.is_sorted_by(|a, b| a > b));
    assert_eq!(desk.statistics().fallbacks, 0);
}
