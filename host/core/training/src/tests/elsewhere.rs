//! Runs that other systems get wrong.

use super::*;

/// With a bound of 1 in `AReaL` the sum over all rollouts is bounded, and one that began at version
/// 0 is accepted at version 5.
#[test]
fn a_straggler_is_never_served_beyond_the_bound() {
    for stale in [Stale::Cut, Stale::Finish, Stale::Wait] {
        let mut run = Run::new(JobSettings {
            batch_groups: 8,
            group_size: 1,
            stale,
            starved_after: u32::MAX,
            ..Run::settings(1)
        });
        let straggler = run.open("straggler");
        for batch in 1..=5_u64 {
            for group in 0..8 {
                let group = format!("{batch}-{group}");
                let program = run.open(&group);
                run.event(&Run::ended(&group, &program, End::Completed));
            }
            run.request(batch);
            if run.job().next_batch == batch {
                // The batch waits for it, and for nothing else.
                assert_eq!((batch, stale), (2, Stale::Wait));
                run.event(&Run::ended("straggler", &straggler, End::Completed));
            }
            assert_eq!(run.job().next_batch, batch + 1, "{stale:?}");
            run.told(batch);
        }
        let late = Run::ended("straggler", &straggler, End::Completed);
        let _ = run.try_event(&late);
        run.request(6);
        let served = run.served.iter();
        let with_it = served.filter(|(_, groups)| groups.iter().any(|g| &**g == "straggler"));
        let with_it: Vec<u64> = with_it.map(|(batch, _)| *batch).collect();
        let expected = if stale == Stale::Wait { &[2][..] } else { &[] };
        assert_eq!(with_it, expected, "{stale:?}");
        assert!(run.job().account.lag <= 1);
    }
}

/// With age 0 `torchforge` waits for ever once its trainer is ahead of its engines: what is left in
/// the buffer is too old, and nothing newer is sampled.
#[test]
fn a_trainer_that_is_ahead_of_engines_without_lag_gets_its_batches() {
    let mut run = Run::new(Run::settings(0));
    for batch in 1..=4_u64 {
        for group in ["a", "b"] {
            run.complete(&format!("{group}{batch}"));
        }
        run.request(batch);
        assert_eq!(run.job().next_batch, batch + 1);
        // It asks for the next batch before engines have the weights for that.
        run.request(batch + 1);
        let held = run.open(&format!("next{batch}"));
        assert!(!run.admitted.contains(&held));
        let weights = Wait::Weights { version: batch };
        assert_eq!(run.job().waits_for_weights(), Some(weights));
        run.told(batch);
        assert!(run.admitted.contains(&held));
        let group = format!("next{batch}");
        run.event(&Run::ended(&group, &held, End::EngineFailed));
    }
}
