//! Cache actions, and the cost estimates that eviction policies get.

use super::*;
use treadle_core::programs::{CacheAction, CostEstimates};

/// A policy that offloads every second cache and asks for `columns` extra columns.
fn retaining(name: &str, columns: usize) -> BoundPolicy {
    let text = include_str!("retention.wat").replace("(;COLUMNS;)", &columns.to_string());
    let module = wat::parse_str(text).expect("the text is valid");
    let upload = treadle_policy_runtime::embed_contract(&module, "eviction");
    loaded(name, &upload.expect("the contract embeds"))
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
    let costs = CostEstimates {
        idle: (0..rows as u64).map(Span::from_millis).collect(),
        soonest: vec![Span(0); rows],
        price: vec![Span(0); rows],
        back: vec![Span(1_000); rows],
        moved: vec![treadle_core::estimates::NEVER; rows],
        prefill: vec![Span(9_000); rows],
        remaining_tokens: vec![-1; rows],
    };
    let programs = ProgramColumns {
        costs: Box::new(costs),
        ..question.programs
    };
    Question { purpose, programs }
}

fn actions(answer: &Answer) -> &[(ProgramId, CacheAction)] {
    let PolicyAnswer::CacheActions { actions } = &answer.answer else {
        panic!("{:?}", answer.answer)
    };
    actions
}

#[test]
fn caches_of_each_job_follow_its_policy_and_kept_ones_are_not_listed() {
    let (core, mut evaluator) = (core(), PolicyEvaluator::default());
    // The first does not answer `retain`, so it gets no questions about caches.
    let (all, of_even) = (bound("all"), retaining("even", 0));
    change(
        &mut evaluator,
        &Scope::Everyone,
        Change::Activate(Some(all)),
    );
    let even = Scope::of("even");
    change(&mut evaluator, &even, Change::Activate(Some(of_even)));

    let answer = evaluator.answer(&core, &retain(&core), 5);
    let actions = actions(&answer);
    assert_eq!(
        actions.len() as u64,
        PROGRAMS / 4,
        "half of those of one job"
    );
    for (program, action) in actions {
        assert_eq!(&*core.programs().live[program].job, "even");
        assert_eq!(*action, CacheAction::Offload);
    }
    let names: Vec<&str> = std::iter::once(&answer.policy)
        .chain(&answer.attribution.policies)
        .map(|policy| policy.0.as_ref())
        .collect();
    assert_eq!(answer.attribution.answered_by.len(), actions.len());
    let by_even = |by: &u8| names[usize::from(*by)] == "even";
    assert!(
        answer.attribution.answered_by.iter().all(by_even),
        "{names:?}"
    );

    assert!(
        evaluator
            .version_rows()
            .iter()
            .all(|version| &*version.policy.0 == "even")
    );
    let statistics = evaluator.statistics();
    assert_eq!((statistics.answered, statistics.fallbacks), (1, 0));
}

#[test]
fn without_a_policy_all_caches_stay() {
    let (core, mut evaluator) = (core(), PolicyEvaluator::default());
    let answer = evaluator.answer(&core, &retain(&core), 5);
    assert!(actions(&answer).is_empty() && answer.attribution.is_empty());
    assert_eq!(answer.policy, native_policy(World::Eviction));
    assert_eq!(
        evaluator.statistics(),
        &PolicyStatistics {
            asked_us: evaluator.statistics().asked_us,
            slowest_us: evaluator.statistics().slowest_us,
            ..PolicyStatistics::default()
        }
    );
}

#[test]
fn an_eviction_policy_is_given_the_columns_that_it_asks_for() {
    let (core, mut evaluator) = (core(), PolicyEvaluator::default());
    let policy = retaining("by-idleness", 1);
    change(
        &mut evaluator,
        &Scope::Everyone,
        Change::Activate(Some(policy)),
    );
    let worker = WorkerId(0);
    let pause = Purpose::Pause {
        worker,
        excess_tokens: 1,
    };
    let question = Question {
        purpose: pause,
        ..retain(&core)
    };
    let answer = evaluator.answer(&core, &question, 5);
    let PolicyAnswer::Order {
        programs, scores, ..
    } = &answer.answer
    else {
        panic!("{:?}", answer.answer)
    };
    let expected: Vec<f64> = (0..PROGRAMS).rev().map(|ms| ms as f64).collect();
    assert_eq!(scores, &expected);
    assert!(programs.is_sorted_by(|a, b| a > b));
    assert_eq!(evaluator.statistics().fallbacks, 0);
}
