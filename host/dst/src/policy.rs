//! Policies: they answer correctly, late, wrongly, twice or never.

use super::Simulation;
use super::schedule::FaultKind;
use std::collections::VecDeque;
use treadle_core::bindings::BindingEvent;
use treadle_core::programs::{
    Attribution, CacheAction, PolicyAnswer, ProgramEvent, Purpose, Question,
};
use treadle_core::{Core, Event};
use treadle_dst_outcome::Stream;
use treadle_model::{AskId, PolicyRef, ProgramId, WorkerId};
use treadle_policy::evaluator::Changed;
use treadle_scheduler::scheduler::Policies;

/// Holds questions for the simulation, which answers them.
#[derive(Default)]
pub(crate) struct Asked(pub(crate) VecDeque<(AskId, Question)>);

impl Policies for Asked {
    type Loaded = ();

    fn follow(&mut self, _: &BindingEvent, _: Option<(u64, ())>, _: u64) -> Option<Changed> {
        None
    }

    fn answer(&mut self, _: &Core, ask: AskId, question: &Question, _: u64) -> Option<Event> {
        self.0.push_back((ask, question.clone()));
        None
    }
}

/// An answer, and its delay; `None` for an immediate one.
pub(crate) type Answered = (Event, Option<u64>);

impl Simulation {
    /// The answers to a question: none, one, or several.
    pub(crate) fn ask(&mut self, ask: AskId, question: &Question) -> Vec<Answered> {
        if self
            .active_faults
            .strength(FaultKind::PolicyMute)
            .is_some_and(|s| self.streams.policies.percent(s))
        {
            self.counts.count(FaultKind::PolicyMute.name());
            return Vec::new();
        }
        let mut answer = match question.purpose {
            Purpose::Retain { .. } => actions(question, &mut self.streams.policies),
            Purpose::Restore if self.plan.ranked.is_some() => {
                opinion(question, self.engines.len(), &mut self.streams.policies)
            }
            Purpose::Route { .. } | Purpose::Migrate | Purpose::Preempt { .. } => {
                opinion(question, self.engines.len(), &mut self.streams.policies)
            }
            Purpose::Weigh { .. } | Purpose::Pause { .. } | Purpose::Restore => {
                let mut answer = self.native.answer(question);
                self.wish(&mut answer);
                answer
            }
        };
        self.mislead(&mut answer);
        let answered = Event::Program(ProgramEvent::PolicyAnswered {
            ask,
            policy: PolicyRef("story".into()),
            answer,
            attribution: Attribution::default(),
        });
        let stream = &mut self.streams.policies;
        let habit = self.plan.behaviour.policy_us_max;
        let mut delay = habit.map(|most| stream.below(most));
        if self
            .active_faults
            .strength(FaultKind::PolicySlow)
            .is_some_and(|s| stream.percent(s))
        {
            self.counts.count(FaultKind::PolicySlow.name());
            delay = Some(stream.below(2 * self.plan.config.ask_deadline.0));
        }
        let mut answers = vec![(answered.clone(), delay)];
        if self
            .active_faults
            .strength(FaultKind::PolicyRepeats)
            .is_some_and(|s| stream.percent(s))
        {
            self.counts.count(FaultKind::PolicyRepeats.name());
            answers.push((answered, Some(stream.below(3_000_000))));
        }
        answers
    }

    /// Occasionally chooses workers, as a placement policy does.
    fn wish(&mut self, answer: &mut PolicyAnswer) {
        let stream = &mut self.streams.policies;
        if let PolicyAnswer::Order {
            programs, workers, ..
        } = answer
            && stream.percent(20)
        {
            let of = self.engines.len() as u64;
            *workers = programs
                .iter()
                .map(|_| {
                    stream
                        .percent(50)
                        .then(|| WorkerId(stream.below(of) as u32))
                })
                .collect();
        }
    }

    fn mislead(&mut self, answer: &mut PolicyAnswer) {
        let stream = &mut self.streams.policies;
        if self
            .active_faults
            .strength(FaultKind::PolicyWrong)
            .is_some_and(|s| stream.percent(s))
        {
            self.counts.count(FaultKind::PolicyWrong.name());
            err(answer, stream);
        }
        if self
            .active_faults
            .strength(FaultKind::PolicyNonsense)
            .is_some_and(|s| stream.percent(s))
        {
            self.counts.count(FaultKind::PolicyNonsense.name());
            *answer = nonsense(answer, stream);
        }
    }
}

/// Random actions for caches.
fn actions(question: &Question, stream: &mut Stream) -> PolicyAnswer {
    let all = [
        CacheAction::Keep,
        CacheAction::Keep,
        CacheAction::Offload,
        CacheAction::Offload,
        CacheAction::Offload,
        CacheAction::Migrate,
        CacheAction::Migrate,
        CacheAction::Drop,
    ];
    let programs = question.programs.program.iter();
    PolicyAnswer::CacheActions {
        actions: programs.map(|p| (*p, stream.pick(&all))).collect(),
    }
}

/// The answers of a rollout's policies: priorities, workers, some programs to move and some steps
/// to preempt. The most urgent come first.
fn opinion(question: &Question, engines: usize, stream: &mut Stream) -> PolicyAnswer {
    let named = match question.purpose {
        Purpose::Migrate | Purpose::Preempt { .. } => 50,
        _ => 100,
    };
    let mut rows: Vec<(ProgramId, f64, Option<WorkerId>, i64)> = Vec::new();
    for program in &question.programs.program {
        if stream.percent(named) {
            let score = stream.pick(&[0.0, 1.0, 2.0, 10.0, 500.0]);
            let worker = WorkerId(stream.below(engines as u64) as u32);
            let worker = stream.percent(70).then_some(worker);
            let remaining = stream.between_low(0, 3_000).cast_signed();
            let remaining = if stream.percent(70) { remaining } else { -1 };
            rows.push((*program, score, worker, remaining));
        }
    }
    rows.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    PolicyAnswer::Order {
        programs: rows.iter().map(|row| row.0).collect(),
        scores: rows.iter().map(|row| row.1).collect(),
        workers: rows.iter().map(|row| row.2).collect(),
        remaining_tokens: rows.iter().map(|row| row.3).collect(),
    }
}

/// Omits rows, duplicates some and changes the order.
fn err(answer: &mut PolicyAnswer, stream: &mut Stream) {
    match answer {
        PolicyAnswer::Order {
            programs, scores, ..
        } => {
            stream.shuffle(programs);
            let kept = stream.below(programs.len() as u64 + 1) as usize;
            programs.truncate(kept);
            programs.extend_from_within(..kept.min(2));
            scores.truncate(stream.below(3) as usize);
        }
        PolicyAnswer::Weights { weights } => {
            for (_, ppm) in weights.iter_mut() {
                *ppm = stream.pick(&[0, 1, 500_000, 1_000_000, u32::MAX]);
            }
            weights.extend_from_within(..);
        }
        PolicyAnswer::CacheActions { actions } => {
            actions.extend_from_within(..);
        }
    }
}

/// An answer of another kind, or about unknown programs.
fn nonsense(answer: &PolicyAnswer, stream: &mut Stream) -> PolicyAnswer {
    let nobody = |stream: &mut Stream| ProgramId(stream.pick(&[0, 1, 5, u64::MAX]));
    match answer {
        PolicyAnswer::Order { programs, .. } if stream.percent(50) => PolicyAnswer::Order {
            programs: programs.iter().map(|_| nobody(stream)).collect(),
            scores: Vec::new(),
            workers: vec![Some(WorkerId(9_999)); programs.len()],
            remaining_tokens: vec![i64::MIN; programs.len()],
        },
        PolicyAnswer::Weights { .. } if stream.percent(50) => PolicyAnswer::Weights {
            weights: (0..4).map(|_| (nobody(stream), 0)).collect(),
        },
        PolicyAnswer::CacheActions { .. } if stream.percent(50) => {
            let actions = [
                CacheAction::Offload,
                CacheAction::Migrate,
                CacheAction::Drop,
            ];
            let action = |_| (nobody(stream), stream.pick(&actions));
            PolicyAnswer::CacheActions {
                actions: (0..4).map(action).collect(),
            }
        }
        PolicyAnswer::Order { .. } => PolicyAnswer::Weights {
            weights: vec![(nobody(stream), 1)],
        },
        PolicyAnswer::Weights { .. } | PolicyAnswer::CacheActions { .. } => PolicyAnswer::Order {
            programs: vec![nobody(stream)],
            scores: vec![1.0],
            workers: Vec::new(),
            remaining_tokens: Vec::new(),
        },
    }
}
