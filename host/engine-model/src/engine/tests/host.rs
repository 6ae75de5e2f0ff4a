//! Host memory that the engine offloads to by itself.

use super::*;

fn request(id: RequestId, blocks: &Arc<[u64]>) -> RequestSpec {
    RequestSpec {
        id,
        prompt_tokens: 41,
        output_tokens: 1,
        blocks: Arc::clone(blocks),
        priority: 0,
    }
}

/// Memory for one context of ten blocks and a bit, and host memory for `host_blocks`.
fn engine(host_blocks: u32) -> Engine {
    Engine::new(EngineProfile {
        host_blocks,
        host_tokens_per_s: 1_000,
        ..small_profile(14, 64, 4)
    })
}

/// Tokens found by the first of two contexts when it comes back, and how long it took.
fn come_back(host_blocks: u32) -> (u32, u64) {
    let (first, other) = (chain(1, 1, 0, 44), chain(2, 2, 0, 44));
    let mut engine = engine(host_blocks);
    finish(&mut engine, request(1, &first));
    finish(&mut engine, request(2, &other));
    let finished = finish(&mut engine, request(3, &first));
    engine.audit().expect("invariants hold");
    (
        finished.cached_tokens,
        finished.at_us - finished.submitted_at_us,
    )
}

#[test]
fn an_evicted_context_comes_back_from_host_memory() {
    assert_eq!(come_back(0).0, 12, "three blocks were not needed yet");
    let (cached, took_us) = come_back(20);
    assert_eq!(cached, 40);
    // Seven blocks of four tokens at a thousand tokens a second, then one iteration.
    assert!((28_000..31_000).contains(&took_us), "{took_us}");
    assert!((13..40).contains(&come_back(3).0), "host memory for a few");
}

#[test]
fn others_are_computed_while_blocks_are_loaded() {
    let (first, other) = (chain(1, 1, 0, 44), chain(2, 2, 0, 44));
    let mut engine = engine(20);
    finish(&mut engine, request(1, &first));
    finish(&mut engine, request(2, &other));
    engine.submit(0, request(3, &first)).expect("fits");
    engine.advance(engine.now_us, &mut Vec::new());
    let short = RequestSpec {
        prompt_tokens: 3,
        ..request(4, &chain(4, 4, 0, 4))
    };
    engine.submit(0, short).expect("fits");
    let ended = drain(&mut engine)
        .into_iter()
        .filter_map(|output| match output {
            Output::Finished(finished) => Some(finished.id),
            _ => None,
        });
    assert_eq!(ended.collect::<Vec<_>>(), [4, 3]);
    assert!(engine.snapshot().counters.loaded_tokens > 0);
}
