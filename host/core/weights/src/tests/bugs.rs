//! Bugs on purpose: the scenarios find each of them.

use super::*;
use std::panic::catch_unwind;

/// What is wrong between the machine and its engines.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Bug {
    /// A load whose answer was lost counts as done.
    BelieveLostLoads,
    /// Every engine seems to report what was wanted, with the checksum of the others.
    BelieveAll,
    /// Checksums are not looked at.
    SkipChecksums,
    /// Caches are not cleared.
    KeepCaches,
    /// Fences do not reach the scheduler.
    LoseFences,
    /// Answers that name another version are not noticed.
    IgnoreNames,
    /// Engines that are lost or answer again are not noticed.
    IgnoreLosses,
}

impl Bug {
    /// Whether a notice never arrives.
    pub(super) fn misses(self, notice: &Notice) -> bool {
        match self {
            Self::IgnoreNames => matches!(notice, Notice::WeightsNamed { .. }),
            Self::IgnoreLosses => matches!(notice, Notice::WorkersChanged),
            _ => false,
        }
    }

    /// Makes another answer of it.
    pub(super) fn tamper(self, call: Call, weights: &Weights, answer: &mut Answer) {
        let is_lost = matches!(answer, Answer::Failed { .. });
        match (self, call) {
            (Self::BelieveLostLoads, Call::Apply) if is_lost => *answer = Answer::Done,
            (Self::BelieveAll, Call::Verify) => {
                *answer = Answer::Reports {
                    name: Some(weights.name.clone()),
                    checksum: Some(Checksum {
                        layout: "tp1".into(),
                        value: format!("sum of {}", weights.name).into(),
                    }),
                    whole: false,
                };
            }
            (Self::SkipChecksums, Call::Verify) => {
                if let Answer::Reports {
                    checksum, whole, ..
                } = answer
                {
                    (*checksum, *whole) = (None, true);
                }
            }
            _ => {}
        }
    }
}

#[test]
fn each_bug_is_found() {
    let bugs = [
        Bug::BelieveLostLoads,
        Bug::BelieveAll,
        Bug::SkipChecksums,
        Bug::KeepCaches,
        Bug::LoseFences,
        Bug::IgnoreNames,
        Bug::IgnoreLosses,
    ];
    std::panic::set_hook(Box::new(|_| {}));
    let missed: Vec<Bug> = bugs
        .into_iter()
        .filter(|bug| (0..300).all(|seed| catch_unwind(|| survive_with(seed, Some(*bug))).is_ok()))
        .collect();
    drop(std::panic::take_hook());
    assert_eq!(missed, [], "found within 300 scenarios");
}
