//! Who answers the core's questions: a policy that is linked in, or the daemon's policy evaluator.

use treadle_core::{Attribution, Core, PolicyAnswer, Question};
use treadle_model::PolicyRef;
use treadle_policy::evaluator::PolicyEvaluator;
use treadle_policy::native::NativeEviction;

/// An answer to a question of the core.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    /// Who answered.
    pub policy: PolicyRef,
    /// What.
    pub answer: PolicyAnswer,
    /// Which other policies contributed.
    pub attribution: Attribution,
}

/// The source of answers to the core's questions. The same questions in the same order must get the
/// same answers, or the run cannot be repeated.
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
