//! How long policies take for their answers, by the questions that the core
//! really asks.

use crate::bench::BenchError;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use treadle_core::programs::{Purpose, Question};
use treadle_core::{Core, CoreConfig};
use treadle_model::{PolicyRef, World};
use treadle_policy::evaluator::{BoundPolicy, Change, EvaluatorLimits, PolicyEvaluator, Scope};
use treadle_policy_runtime::{BreakerLimits, InstanceOptions, Limits, PolicyEngine};
use treadle_registry::default_eviction_module;
use treadle_report::latencies::Latencies;

/// Questions of one purpose that are kept.
const KEPT_MAX: usize = 500;
/// Of the questions of a purpose one in this number is kept, so that they come from
/// all over the run.
const KEPT_ONE_IN: u64 = 20;
/// Answers that are timed at most.
const ANSWERS_MAX: usize = 200_000;

/// Questions that the core asked.
#[derive(Default)]
pub(super) struct Questions {
    by_purpose: BTreeMap<&'static str, (u64, Vec<Question>)>,
}

impl Questions {
    /// Keeps some of the questions that it is shown.
    pub(super) fn show(&mut self, question: &Question) {
        let name = match question.purpose {
            Purpose::Weigh { .. } => "weigh",
            Purpose::Pause { .. } => "pause",
            Purpose::Restore => "restore",
            Purpose::Retain { .. } => "retain",
            Purpose::Route { .. } => "route",
            Purpose::Migrate => "migrate",
            Purpose::Preempt { .. } => "preempt",
        };
        let (seen, kept) = self.by_purpose.entry(name).or_default();
        if seen.is_multiple_of(KEPT_ONE_IN) && kept.len() < KEPT_MAX {
            kept.push(question.clone());
        }
        *seen += 1;
    }

    /// Questions asked of each purpose, and the mean and the largest number of
    /// programs in those that were kept.
    pub(super) fn sizes(&self) -> BTreeMap<&'static str, BTreeMap<&'static str, u64>> {
        let sizes = |(seen, kept): &(u64, Vec<Question>)| {
            let rows = kept.iter().map(|question| question.programs.len() as u64);
            let mean = rows.clone().sum::<u64>() / (kept.len() as u64).max(1);
            let most = rows.max().unwrap_or(0);
            BTreeMap::from([("asked", *seen), ("rows_mean", mean), ("rows_max", most)])
        };
        let purposes = self.by_purpose.iter();
        purposes.map(|(name, of)| (*name, sizes(of))).collect()
    }

    fn all(&self) -> impl Iterator<Item = &Question> {
        self.by_purpose.values().flat_map(|(_, kept)| kept)
    }
}

/// An evaluator with the named policy bound: `native`, or the embedded plugin.
pub(super) fn evaluator(kind: &str) -> Result<PolicyEvaluator, BenchError> {
    // Faults are counted, but none makes the evaluator fall back: this policy is the one that is
    // measured.
    let mut evaluator = PolicyEvaluator::new(EvaluatorLimits {
        breaker: BreakerLimits {
            faults_max: usize::MAX,
            ..BreakerLimits::default()
        },
        ..EvaluatorLimits::default()
    });
    if kind == "wasm" {
        let engine = PolicyEngine::new(Limits::default());
        let engine = engine.map_err(|error| BenchError::Policy(error.to_string()))?;
        let inspected = engine.inspect(default_eviction_module());
        let inspected = inspected.map_err(|refusal| BenchError::Policy(refusal.to_string()))?;
        let instance = engine.load(&inspected.component, &InstanceOptions::default());
        let bound = BoundPolicy {
            id: 0,
            policy: PolicyRef("embedded".into()),
            instance: instance.map_err(|error| BenchError::Policy(error.to_string()))?,
        };
        let change = Change::Activate(Some(bound));
        evaluator
            .change(World::Eviction, &Scope::Everyone, change, 0)
            .map_err(|error| BenchError::Policy(error.to_string()))?;
    }
    Ok(evaluator)
}

/// Times of answers, the questions taken one after another, for about `time`.
pub(super) fn measure(
    evaluator: &mut PolicyEvaluator,
    questions: &Questions,
    time: Duration,
) -> Latencies {
    let mut times = Latencies::default();
    let began = Instant::now();
    let mut rows = 0;
    // One policy for everyone: the core is not looked into.
    let core = Core::new(CoreConfig::default());
    while began.elapsed() < time && times.count() < ANSWERS_MAX {
        let before = times.count();
        for question in questions.all() {
            let asked = Instant::now();
            let now_ms = began.elapsed().as_millis() as u64;
            let answer = evaluator.answer(&core, question, now_ms);
            times.push(asked.elapsed());
            rows += rows_of(&answer.answer);
        }
        if times.count() == before {
            break;
        }
    }
    // An answer that is not used need not be computed.
    std::hint::black_box(rows);
    times
}

fn rows_of(answer: &treadle_core::programs::PolicyAnswer) -> usize {
    match answer {
        treadle_core::programs::PolicyAnswer::Order { programs, .. } => programs.len(),
        treadle_core::programs::PolicyAnswer::Weights { weights } => weights.len(),
        treadle_core::programs::PolicyAnswer::CacheActions { actions } => actions.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use treadle_core::programs::ProgramColumns;
    use treadle_model::{ProgramId, Span};

    fn question(rows: u64) -> Question {
        let column = |value: u64| vec![value; rows as usize];
        let programs = ProgramColumns {
            program: (0..rows).map(ProgramId).collect(),
            tokens: (0..rows).collect(),
            acting: vec![0; rows as usize],
            phase: column(7).into_iter().map(Span::from_millis).collect(),
            waited: column(9).into_iter().map(Span::from_millis).collect(),
            steps: vec![3; rows as usize],
            ..ProgramColumns::default()
        };
        let purpose = Purpose::Restore;
        Question { purpose, programs }
    }

    #[test]
    fn questions_are_kept_from_all_over_the_run() {
        let mut questions = Questions::default();
        for rows in 0..200 {
            questions.show(&question(rows));
        }
        let sizes = &questions.sizes()["restore"];
        assert_eq!((sizes["asked"], sizes["rows_max"]), (200, 180));
        assert_eq!(questions.all().count(), 10);
    }

    #[test]
    fn the_embedded_plugin_answers_as_the_native_default_does() {
        let (mut native, mut wasm) = (evaluator("native").unwrap(), evaluator("wasm").unwrap());
        let question = question(64);
        let core = Core::new(CoreConfig::default());
        let expected = native.answer(&core, &question, 1);
        let answer = wasm.answer(&core, &question, 1);
        // A machine under load may miss the deadline, and then the default answers.
        if wasm.statistics().faults == 0 {
            assert_eq!(answer.policy.to_string(), "embedded");
        }
        assert_eq!(answer.answer, expected.answer);
    }
}
