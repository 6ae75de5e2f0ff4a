//! Answers to the core's questions: from a natively linked policy, or from the daemon's evaluator.

use treadle_core::Core;
use treadle_core::programs::{Attribution, PolicyAnswer, Question};
use treadle_model::PolicyRef;
use treadle_policy::evaluator::PolicyEvaluator;
use treadle_policy::native::NativeEviction;

/// An answer to a question of the core.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    /// The policy that answered.
    pub policy: PolicyRef,
    /// The answer.
    pub answer: PolicyAnswer,
    /// Other policies that contributed.
    pub attribution: Attribution,
}

/// A source of answers to the core's questions. Runs are repeatable only if the same questions in
/// the same order get the same answers.
pub trait Answers {
    /// Answers a question at `now_ms` of virtual time.
    fn answer(&mut self, core: &Core, question: &Question, now_ms: u64) -> Answered;
}

impl Answers for NativeEviction {
    fn answer(&mut self, _: &Core, question: &Question, _: u64) -> Answered {
        Answered {
            policy: PolicyRef("native".into()),
            answer: NativeEviction::answer(self, question),
            attribution: Attribution::default(),
        }
    }
}

impl Answers for PolicyEvaluator {
    fn answer(&mut self, core: &Core, question: &Question, now_ms: u64) -> Answered {
        let answer = PolicyEvaluator::answer(self, core, question, now_ms);
        Answered {
            policy: answer.policy,
            answer: answer.answer,
            attribution: answer.attribution,
        }
    }
}
