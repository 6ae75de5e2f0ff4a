//! How many groups begin ahead of the trainer.

use super::*;
use std::collections::BTreeMap;

/// A run whose members take turns to end at random, and a trainer that takes its time. It asks for
/// the next batch before engines have the weights that the last one made, or after.
struct Loop {
    run: Run,
    groups: BTreeMap<Box<str>, Box<str>>,
    submitted: u32,
    ended: usize,
    /// The trainer's batch, and turns until it has trained on that.
    batch: u64,
    trains: u64,
    random: u64,
}

impl Loop {
    fn new(settings: JobSettings) -> Self {
        Self {
            run: Run::new(settings),
            groups: BTreeMap::new(),
            submitted: 0,
            ended: 0,
            batch: 0,
            trains: 0,
            random: 1,
        }
    }

    fn below(&mut self, most: u64) -> u64 {
        let random = self.random.wrapping_mul(6_364_136_223_846_793_005);
        self.random = random.wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % most
    }

    fn turn(&mut self, asks_early: bool) {
        while self.run.job().held.is_empty() {
            self.submitted += 1;
            let group = format!("g{}", self.submitted);
            for _ in 0..2 {
                let program = self.run.open(&group);
                self.groups.insert(program, group.as_str().into());
            }
        }
        let open = (self.run.admitted.len() - self.ended) as u64;
        if open > 0 {
            let drawn = self.ended + self.below(open) as usize;
            self.run.admitted.swap(self.ended, drawn);
            let program = self.run.admitted[self.ended].clone();
            self.ended += 1;
            let group = self.groups[&program].clone();
            let ended = Run::ended(&group, &program, End::Completed);
            // It may have been cut.
            let _ = self.run.try_event(&ended);
        }
        self.trainer_turns(asks_early);
    }

    fn trainer_turns(&mut self, asks_early: bool) {
        if self.trains > 0 {
            self.trains -= 1;
            return;
        }
        let (trained, next) = (self.batch, self.batch + 1);
        let publish = |run: &mut Run| {
            if run.job().version < Some(trained) {
                run.told(trained);
            }
        };
        if !asks_early {
            publish(&mut self.run);
        }
        self.run.request(next);
        if self.run.job().next_batch > next {
            publish(&mut self.run);
            (self.batch, self.trains) = (next, self.below(12));
        }
    }
}

/// With the lag of one, a group that begins while the trainer trains has to be in the next batch.
/// Twice as many began, and half of them were cut.
#[test]
fn what_begins_has_a_place_in_a_batch() {
    for (pipeline, asks_early) in [(0, false), (1, false), (1, true)] {
        let mut turns = Loop::new(JobSettings {
            batch_groups: 4,
            pipeline,
            stale: Stale::Wait,
            ..Run::settings(1)
        });
        for _ in 0..2_000 {
            turns.turn(asks_early);
        }
        let job = turns.run.job();
        assert!(turns.run.cut.is_empty(), "pipeline {pipeline}");
        assert_eq!(job.account.returned, 0, "pipeline {pipeline}");
        assert!(
            job.next_batch > 100,
            "pipeline {pipeline}: {}",
            job.next_batch
        );
        assert!(job.account.lag <= 1);
    }
}
