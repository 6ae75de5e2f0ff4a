//! An eviction policy, linked natively, with the columns that the daemon gives it.

use treadle_core::Core;
use treadle_core::estimates::NEVER;
use treadle_core::programs::{
    Attribution, CacheAction, CostEstimates, PolicyAnswer, Purpose, Question,
};
use treadle_model::{PolicyRef, Span};
use treadle_plugin::{
    ActingColumns, ActiveColumns, EvictionPolicy, PolicyError, RetentionColumns, WaitingColumns,
};
use treadle_policy::native::{EvictionColumns, answer};
use treadle_simulator::cluster::{Answered, Answers};

/// A policy and the extra columns that it is given.
pub struct Native<P> {
    policy: P,
    extra: &'static [&'static str],
}

impl<P: EvictionPolicy> Native<P> {
    /// A policy that is given these columns in place of those that it asks for.
    pub fn new(policy: P, extra: &'static [&'static str]) -> Self {
        Self { policy, extra }
    }

    fn scores(&mut self, question: &Question) -> Result<Vec<f64>, PolicyError> {
        let c = EvictionColumns::of(&question.programs);
        let extra = extra_columns(&question.programs.costs, self.extra);
        match question.purpose {
            Purpose::Weigh { .. } => self.policy.weigh(&ActingColumns {
                tokens: &c.tokens,
                phase_ms: &c.phase_ms,
                extra: &extra,
            }),
            Purpose::Pause { .. } => self.policy.pause_order(&ActiveColumns {
                tokens: &c.tokens,
                phase: &c.phase,
                phase_ms: &c.phase_ms,
                steps: &c.steps,
                extra: &extra,
            }),
            _ => self.policy.restore_order(&WaitingColumns {
                tokens: &c.tokens,
                phase: &c.phase,
                waited_ms: &c.waited_ms,
                steps: &c.steps,
                extra: &extra,
            }),
        }
    }

    fn actions(&mut self, question: &Question) -> PolicyAnswer {
        let Purpose::Retain {
            capacity_tokens,
            free_tokens,
            wanted_tokens,
            ..
        } = question.purpose
        else {
            return PolicyAnswer::CacheActions {
                actions: Vec::new(),
            };
        };
        let c = EvictionColumns::of(&question.programs);
        let costs = &question.programs.costs;
        let columns = RetentionColumns {
            capacity_tokens,
            free_tokens,
            wanted_tokens,
            tokens: &c.tokens,
            phase_ms: &c.phase_ms,
            idle_ms: &millis(&costs.idle),
            soonest_ms: &millis(&costs.soonest),
            back_ms: &millis(&costs.back),
            moved_ms: &millis(&costs.moved),
            prefill_ms: &millis(&costs.prefill),
            steps: &c.steps,
            extra: &extra_columns(costs, self.extra),
        };
        // One that does not decide about caches leaves them where they are.
        let actions = self.policy.retain(&columns).unwrap_or_default();
        let actions = question.programs.program.iter().zip(actions);
        let actions = actions
            .filter_map(|(program, action)| Some((*program, CacheAction::of_code(action as u8)?)));
        PolicyAnswer::CacheActions {
            actions: actions
                .filter(|(_, action)| *action != CacheAction::Keep)
                .collect(),
        }
    }
}

impl<P: EvictionPolicy> Answers for Native<P> {
    fn answer(&mut self, _: &Core, question: &Question, _: u64) -> Answered {
        let answer = if matches!(question.purpose, Purpose::Retain { .. }) {
            self.actions(question)
        } else {
            // Nothing is refused but columns of unequal length, and these come from one
            // table.
            let scores = self.scores(question);
            let none = || vec![0.0; question.programs.len()];
            answer(question, &scores.unwrap_or_else(|_| none()))
        };
        Answered {
            policy: PolicyRef("native".into()),
            answer,
            attribution: Attribution::default(),
        }
    }
}

/// Named columns, one after the other; infinite where something cannot be done.
fn extra_columns(costs: &CostEstimates, names: &[&str]) -> Vec<f32> {
    let number = |span: &Span| {
        if *span == NEVER {
            f32::INFINITY
        } else {
            span.millis() as f32
        }
    };
    let mut extra = Vec::new();
    for name in names {
        match *name {
            "idle-ms" => extra.extend(costs.idle.iter().map(number)),
            "soonest-ms" => extra.extend(costs.soonest.iter().map(number)),
            "price-ms" => extra.extend(costs.price.iter().map(number)),
            "back-ms" => extra.extend(costs.back.iter().map(number)),
            "moved-ms" => extra.extend(costs.moved.iter().map(number)),
            "prefill-ms" => extra.extend(costs.prefill.iter().map(number)),
            _ => extra.extend(costs.remaining_tokens.iter().map(|tokens| *tokens as f32)),
        }
    }
    extra
}

fn millis(spans: &[Span]) -> Vec<u64> {
    let of = |span: &Span| {
        if *span == NEVER {
            u64::MAX
        } else {
            span.millis()
        }
    };
    spans.iter().map(of).collect()
}
