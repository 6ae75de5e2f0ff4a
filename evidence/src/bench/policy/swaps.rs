//! How long it takes until a new version decides, while decisions go on.
//!
//! One thread owns an evaluator and answers without a pause, as the driver does; it takes changes
//! between two decisions. Another starts instances and hands them over.

use super::comparison::load;
use super::guests::GuestFolder;
use crate::bench::BenchError;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;
use treadle_core::programs::{ProgramColumns, Purpose, Question};
use treadle_core::{Core, CoreConfig};
use treadle_model::{PolicyRef, ProgramId, Span, World};
use treadle_policy::evaluator::{BoundPolicy, Change, EvaluatorLimits, PolicyEvaluator, Scope};
use treadle_policy_runtime::{InstanceOptions, Limits, PolicyEngine, PolicyModule};
use treadle_report::latencies::Latencies;

/// Versions that take turns.
const POLICIES: [&str; 2] = ["thunderagent-eviction", "lru-eviction"];
/// Programs in a question.
const ROWS: u64 = 64;
/// For a decision. Swapping is measured, not whether another process delays the deciding thread.
const DEADLINE_MS: u64 = 1_000;

/// The result of the swaps.
pub(super) struct Swaps {
    /// From publishing a version to the end of its first decision.
    pub(super) times: Latencies,
    /// Decisions meanwhile.
    pub(super) decisions: u64,
    /// Decisions that the bound policy did not make, and swaps that did not
    /// happen.
    pub(super) failed: u64,
}

/// A version that is handed over.
struct Published {
    bound: BoundPolicy,
    decided: Sender<bool>,
}

/// Swaps `count` times.
pub(super) fn swaps(guests: &GuestFolder, count: usize) -> Result<Swaps, BenchError> {
    let engine = PolicyEngine::new(Limits {
        hot_deadline_ms: DEADLINE_MS,
        ..Limits::default()
    });
    let engine = engine.map_err(|error| failed(&error))?;
    let modules = [
        load(&engine, guests, POLICIES[0])?,
        load(&engine, guests, POLICIES[1])?,
    ];
    let (publish, published) = channel();
    let deciding = std::thread::Builder::new()
        .name("bench-decides".to_owned())
        .spawn(move || decide(&published))?;
    let mut times = Latencies::default();
    let mut lost = 0;
    for version in 0..count {
        let module = &modules[version % modules.len()];
        let started = Instant::now();
        if swap(module, version, &publish)? {
            times.push(started.elapsed());
        } else {
            lost += 1;
        }
    }
    drop(publish);
    let (decisions, by_others) = deciding
        .join()
        .map_err(|_| BenchError::Ended("the deciding thread".to_owned()))?;
    Ok(Swaps {
        times,
        decisions,
        failed: lost + by_others,
    })
}

/// Starts an instance, hands it over, and waits until it has decided. False if
/// another decided in its stead.
fn swap(
    module: &PolicyModule,
    version: usize,
    publish: &Sender<Published>,
) -> Result<bool, BenchError> {
    let instance = module.instance(&InstanceOptions::default());
    let bound = BoundPolicy {
        id: 0,
        policy: PolicyRef(format!("bench@{version}")),
        instance: instance.map_err(|error| failed(&error))?,
    };
    let (decided, first) = channel();
    let ended = |()| BenchError::Ended("the deciding thread".to_owned());
    let sent = publish.send(Published { bound, decided });
    sent.map_err(|_| ended(()))?;
    first.recv().map_err(|_| ended(()))
}

/// Answers until nothing is published any more. Gives the number of decisions, and how many of them
/// the policy that was bound did not make.
fn decide(published: &Receiver<Published>) -> (u64, u64) {
    use std::sync::mpsc::TryRecvError;
    let core = Core::new(CoreConfig::default());
    let question = question();
    let mut evaluator = PolicyEvaluator::new(EvaluatorLimits::default());
    let (mut decisions, mut by_others) = (0, 0);
    let mut bound: Option<PolicyRef> = None;
    loop {
        let mut waiting = None;
        match published.try_recv() {
            Ok(new) => {
                bound = Some(new.bound.policy.clone());
                let change = Change::Activate(Some(new.bound));
                if evaluator
                    .change(World::Eviction, &Scope::Everyone, change, 0)
                    .is_err()
                {
                    by_others += 1;
                }
                waiting = Some(new.decided);
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return (decisions, by_others),
        }
        let answer = evaluator.answer(&core, &question, 0);
        decisions += 1;
        let own = bound.as_ref().is_none_or(|bound| answer.policy == *bound);
        if let Some(waiting) = waiting {
            // A receiver that no longer waits for it has given up.
            let _ = waiting.send(own);
        } else if !own {
            by_others += 1;
        }
    }
}

fn question() -> Question {
    let column = |scale: u64| (0..ROWS).map(move |row| row * scale % 100_000);
    Question {
        purpose: Purpose::Restore,
        programs: ProgramColumns {
            program: (0..ROWS).map(ProgramId).collect(),
            tokens: column(7_919).collect(),
            acting: vec![0; ROWS as usize],
            phase: column(31).map(Span::from_millis).collect(),
            waited: column(1_237).map(Span::from_millis).collect(),
            steps: column(3).map(|steps| steps as u32).collect(),
            ..ProgramColumns::default()
        },
    }
}

fn failed(cause: &dyn std::fmt::Display) -> BenchError {
    BenchError::Comparison {
        policy: POLICIES.join(", "),
        cause: cause.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_decides_and_none_is_passed_over() {
        let swaps = swaps(&GuestFolder::of_checkout(), 20).unwrap();
        assert_eq!((swaps.times.count(), swaps.failed), (20, 0));
        assert!(swaps.decisions >= 20);
    }
}
