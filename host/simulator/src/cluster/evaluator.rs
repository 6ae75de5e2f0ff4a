//! The daemon's policy evaluator answers in virtual time, too.

use super::{Answered, Answers};
use treadle_core::{Core, Question};
use treadle_policy::evaluator::PolicyEvaluator;

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
