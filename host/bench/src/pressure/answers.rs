//! An eviction policy, linked natively, with the columns that the daemon gives it.

use treadle_core::{
    Attribution, CacheAction, Core, CostEstimates, NEVER, PolicyAnswer, Purpose, Question,
};
use treadle_model::{PolicyRef, Span};
use treadle_plugin::{
    ActingColumns, ActiveColumns, EvictionPolicy, PolicyError, RetentionColumns, WaitingColumns,
};
use treadle_policy::native::{EvictionColumns, verdict};
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
        let extra = extra_columns(&question.programs.prospects, self.extra);
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

    fn fates(&mut self, question: &Question) -> PolicyAnswer {
        let Purpose::Retain {
            capacity_tokens,
            free_tokens,
            wanted_tokens,
            ..
        } = question.purpose
        else {
            return PolicyAnswer::Fates { fates: Vec::new() };
        };
        let c = EvictionColumns::of(&question.programs);
        let prospects = &question.programs.prospects;
        let columns = RetentionColumns {
            capacity_tokens,
            free_tokens,
            wanted_tokens,
            tokens: &c.tokens,
            phase_ms: &c.phase_ms,
            idle_ms: &millis(&prospects.idle),
            soonest_ms: &millis(&prospects.soonest),
            back_ms: &millis(&prospects.back),
            moved_ms: &millis(&prospects.moved),
            prefill_ms: &millis(&prospects.prefill),
            steps: &c.steps,
            extra: &extra_columns(prospects, self.extra),
        };
        // One that does not decide about caches leaves them where they are.
        let actions = self.policy.retain(&columns).unwrap_or_default();
        let fates = question.programs.program.iter().zip(actions);
        let fates = fates
            .filter_map(|(program, action)| Some((*program, CacheAction::of_code(action as u8)?)));
        PolicyAnswer::Fates {
            fates: fates
                .filter(|(_, fate)| *fate != CacheAction::Keep)
                .collect(),
        }
    }
}

impl<P: EvictionPolicy> Answers for Native<P> {
    fn answer(&mut self, _: &Core, question: &Question, _: u64) -> Answered {
        let verdict = if matches!(question.purpose, Purpose::Retain { .. }) {
            self.fates(question)
        } else {
            // Nothing is refused but columns of unequal length, and these come from one
            // table.
            let scores = self.scores(question);
            let none = || vec![0.0; question.programs.len()];
            verdict(question, &scores.unwrap_or_else(|_| none()))
        };
        Answered {
            policy: PolicyRef("native".into()),
            verdict,
            voices: Attribution::default(),
        }
    }
}

/// Named columns, one after the other; infinite where something cannot be done.
fn extra_columns(prospects: &CostEstimates, names: &[&str]) -> Vec<f32> {
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
            "idle-ms" => extra.extend(prospects.idle.iter().map(number)),
            "soonest-ms" => extra.extend(prospects.soonest.iter().map(number)),
            "price-ms" => extra.extend(prospects.price.iter().map(number)),
            "back-ms" => extra.extend(prospects.back.iter().map(number)),
            "moved-ms" => extra.extend(prospects.moved.iter().map(number)),
            "prefill-ms" => extra.extend(prospects.prefill.iter().map(number)),
            _ => extra.extend(
                prospects
                    .remaining_tokens
                    .iter()
                    .map(|tokens| *tokens as f32),
            ),
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
