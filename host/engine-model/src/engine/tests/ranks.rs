//! Ranks that step together.

use super::super::*;

const US_PER_SEQUENCE: u64 = 1_000;

/// An iteration takes 10 ms, and one more for each sequence that decodes.
fn profile() -> EngineProfile {
    EngineProfile {
        decode_base_us: 10_000,
        decode_per_sequence_us: US_PER_SEQUENCE,
        ..EngineProfile::instant()
    }
}

fn spec(id: RequestId, output_tokens: u32) -> RequestSpec {
    RequestSpec {
        id,
        prompt_tokens: 64,
        output_tokens,
        blocks: (0..4).map(|block| 100 + block).collect(),
        priority: 0,
    }
}

fn run(ranks: &mut Ranks) -> Vec<Finished> {
    let mut outputs = Vec::new();
    while let Some(at_us) = ranks.next_event_at() {
        ranks.advance(at_us, &mut outputs);
    }
    let ended = outputs.into_iter().filter_map(|output| match output {
        Output::Finished(ended) => Some(ended),
        _ => None,
    });
    ended.collect()
}

/// When request 0, the only one of its rank, ends beside this many at another rank.
fn end_beside(others: u64) -> u64 {
    let mut ranks = Ranks::new(&profile(), 2);
    ranks.submit(0, Some(0), spec(0, 11)).unwrap();
    for id in 1..=others {
        ranks.submit(0, Some(1), spec(id, 11)).unwrap();
    }
    let ended = run(&mut ranks);
    assert_eq!(ended.len() as u64, 1 + others);
    ended.iter().find(|end| end.id == 0).unwrap().at_us
}

#[test]
fn a_busy_rank_slows_the_others() {
    // The first iteration computes prompts; ten decode.
    let slowed_us = end_beside(5) - end_beside(0);
    assert_eq!(slowed_us, 10 * 4 * US_PER_SEQUENCE);
    // An engine of its own would not be slowed.
    let mut own = Engine::new(profile());
    own.submit(0, spec(0, 11)).unwrap();
    let mut outputs = Vec::new();
    while let Some(at_us) = own.next_event_at() {
        own.advance(at_us, &mut outputs);
    }
    let Some(Output::Finished(ended)) = outputs.last() else {
        panic!("{outputs:?}");
    };
    assert_eq!(ended.at_us, end_beside(0));
}

#[test]
fn all_ranks_wait_for_a_prompt_whose_experts_are_everywhere() {
    let profile = EngineProfile {
        prefill_tokens_per_s: 1_000,
        ..profile()
    };
    let end_with = |prompts: u32| {
        let mut ranks = Ranks::new(&profile, 4);
        for rank in 0..prompts {
            ranks
                .submit(0, Some(rank), spec(u64::from(rank), 1))
                .unwrap();
        }
        run(&mut ranks).last().unwrap().at_us
    };
    // 64 tokens at 1,000 a second; of one prompt, four tenths and a quarter of the rest.
    assert_eq!((end_with(4), end_with(1)), (64_000, 36_000));
}

#[test]
fn a_request_joins_with_the_next_iteration_of_all() {
    let mut ranks = Ranks::new(&profile(), 2);
    ranks.submit(0, Some(0), spec(0, 3)).unwrap();
    let mut outputs = Vec::new();
    ranks.advance(4_000, &mut outputs);
    // The second rank is idle, but its next iteration is that of the first.
    ranks.submit(4_000, Some(1), spec(1, 1)).unwrap();
    ranks.advance(20_000, &mut outputs);
    let ended: Vec<_> = outputs
        .iter()
        .filter(|o| matches!(o, Output::Finished(_)))
        .collect();
    assert!(ended.is_empty(), "{ended:?}");
    let ended = run(&mut ranks);
    assert_eq!((ended[0].id, ended[0].at_us), (1, 21_000));
    assert_eq!(ranks.next_event_at(), None);
}

#[test]
fn each_rank_has_a_cache_of_its_own() {
    let mut ranks = Ranks::new(&profile(), 2);
    for (id, rank) in [(0, 0), (1, 0), (2, 1)] {
        ranks.submit(0, Some(rank), spec(id, 1)).unwrap();
        let ended = run(&mut ranks);
        let cached = ended[0].cached_tokens;
        assert_eq!(cached, if id == 1 { 48 } else { 0 }, "request {id}");
    }
    let states = ranks.snapshots();
    assert_eq!(states[0].counters.finished_requests, 2);
    assert_eq!(states[1].counters.finished_requests, 1);
    assert_eq!(states[0].plus(states[1]).counters.finished_requests, 3);
    assert_eq!(
        ranks.rank(1).cached_prefix_tokens(&[100, 101, 102, 103]),
        64
    );
    ranks.reset_prefix_cache();
    assert_eq!(ranks.rank(1).cached_prefix_tokens(&[100]), 0);
    assert_eq!(ranks.import(0, 1, &[100]), 1);
    assert_eq!(ranks.rank(0).cached_prefix_tokens(&[100]), 0);
}

#[test]
fn without_a_rank_the_one_with_fewest_requests_gets_it() {
    let mut ranks = Ranks::new(&profile(), 3);
    ranks.submit(0, Some(1), spec(0, 100)).unwrap();
    for id in 1..=5 {
        ranks.submit(0, None, spec(id, 100)).unwrap();
    }
    let waiting: Vec<u32> = ranks
        .snapshots()
        .iter()
        .map(|state| state.waiting)
        .collect();
    assert_eq!(waiting, [2, 2, 2]);
    let error = ranks.submit(0, Some(3), spec(9, 1)).unwrap_err();
    assert_eq!(error, SubmitError::NoRank { rank: 3, ranks: 3 });
    for id in 0..=5 {
        assert!(ranks.abort(0, id).is_some(), "{id}");
    }
    assert_eq!((ranks.abort(0, 0), ranks.next_event_at()), (None, None));
}

#[test]
fn one_rank_is_an_engine() {
    let profile = EngineProfile::qwen3_8b_h100().with_kv_tokens(4_096);
    let mut engine = Engine::new(profile.clone());
    let mut ranks = Ranks::new(&profile, 1);
    for id in 0..40 {
        let spec = RequestSpec {
            blocks: (0..20).map(|block| id * 100 + block).collect(),
            ..spec(id, 20 + 7 * (id as u32 % 9))
        };
        ranks.submit(id * 1_000, None, spec.clone()).unwrap();
        engine.submit(id * 1_000, spec).unwrap();
    }
    let (mut left, mut right) = (Vec::new(), Vec::new());
    while let Some(at_us) = engine.next_event_at() {
        assert_eq!(ranks.next_event_at(), Some(at_us));
        engine.advance(at_us, &mut left);
        ranks.advance(at_us, &mut right);
    }
    assert_eq!((left, ranks.snapshots()), (right, vec![engine.snapshot()]));
}
