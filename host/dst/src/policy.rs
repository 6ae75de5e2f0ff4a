//! Policies: they answer, late, wrongly, twice or never.

use super::Scene;
use super::schedule::FaultKind;
use super::stream::Stream;
use treadle_core::{Event, Fate, Purpose, Question, Verdict, Voices};
use treadle_model::{AskId, PolicyRef, ProgramId, WorkerId};

/// An answer, and how long it takes; none in place.
pub(crate) type Answered = (Event, Option<u64>);

impl Scene {
    /// What comes back for a question: nothing, an answer, or more of them.
    pub(crate) fn ask(&mut self, ask: AskId, question: &Question) -> Vec<Answered> {
        if self
            .weather
            .strength(FaultKind::PolicyMute)
            .is_some_and(|s| self.streams.policies.percent(s))
        {
            self.tally.count(FaultKind::PolicyMute.name());
            return Vec::new();
        }
        let mut verdict = match question.purpose {
            Purpose::Retain { .. } => fates(question, &mut self.streams.policies),
            Purpose::Assign
            | Purpose::Route { .. }
            | Purpose::Migrate
            | Purpose::Preempt { .. } => {
                opinion(question, self.engines.len(), &mut self.streams.policies)
            }
            Purpose::Weigh { .. } | Purpose::Pause { .. } | Purpose::Restore => {
                let mut verdict = self.native.answer(question);
                self.wish(&mut verdict);
                verdict
            }
        };
        self.mislead(&mut verdict);
        let answered = Event::PolicyAnswered {
            ask,
            policy: PolicyRef("story".into()),
            verdict,
            voices: Voices::default(),
        };
        let stream = &mut self.streams.policies;
        let habit = self.plan.habits.policy_us_max;
        let mut delay = habit.map(|most| stream.below(most));
        if self
            .weather
            .strength(FaultKind::PolicySlow)
            .is_some_and(|s| stream.percent(s))
        {
            self.tally.count(FaultKind::PolicySlow.name());
            delay = Some(stream.below(2 * self.plan.config.ask_deadline.0));
        }
        let mut answers = vec![(answered.clone(), delay)];
        if self
            .weather
            .strength(FaultKind::PolicyRepeats)
            .is_some_and(|s| stream.percent(s))
        {
            self.tally.count(FaultKind::PolicyRepeats.name());
            answers.push((answered, Some(stream.below(3_000_000))));
        }
        answers
    }

    /// A placement policy wishes for workers now and then.
    fn wish(&mut self, verdict: &mut Verdict) {
        let stream = &mut self.streams.policies;
        if let Verdict::Order {
            programs, workers, ..
        } = verdict
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

    fn mislead(&mut self, verdict: &mut Verdict) {
        let stream = &mut self.streams.policies;
        if self
            .weather
            .strength(FaultKind::PolicyWrong)
            .is_some_and(|s| stream.percent(s))
        {
            self.tally.count(FaultKind::PolicyWrong.name());
            err(verdict, stream);
        }
        if self
            .weather
            .strength(FaultKind::PolicyNonsense)
            .is_some_and(|s| stream.percent(s))
        {
            self.tally.count(FaultKind::PolicyNonsense.name());
            *verdict = nonsense(verdict, stream);
        }
    }
}

/// What becomes of caches, as it comes.
fn fates(question: &Question, stream: &mut Stream) -> Verdict {
    let all = [
        Fate::Keep,
        Fate::Keep,
        Fate::Offload,
        Fate::Offload,
        Fate::Offload,
        Fate::Migrate,
        Fate::Migrate,
        Fate::Drop,
    ];
    let programs = question.programs.program.iter();
    Verdict::Fates {
        fates: programs.map(|p| (*p, stream.pick(&all))).collect(),
    }
}

/// What a rollout's policies want: urgent and less urgent steps, workers here and
/// there, some who move and some who give way. The most urgent come first.
fn opinion(question: &Question, engines: usize, stream: &mut Stream) -> Verdict {
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
    Verdict::Order {
        programs: rows.iter().map(|row| row.0).collect(),
        scores: rows.iter().map(|row| row.1).collect(),
        workers: rows.iter().map(|row| row.2).collect(),
        remaining_tokens: rows.iter().map(|row| row.3).collect(),
    }
}

/// Leaves rows out, names some twice and forgets the order.
fn err(verdict: &mut Verdict, stream: &mut Stream) {
    match verdict {
        Verdict::Order {
            programs, scores, ..
        } => {
            stream.shuffle(programs);
            let kept = stream.below(programs.len() as u64 + 1) as usize;
            programs.truncate(kept);
            programs.extend_from_within(..kept.min(2));
            scores.truncate(stream.below(3) as usize);
        }
        Verdict::Weights { weights } => {
            for (_, ppm) in weights.iter_mut() {
                *ppm = stream.pick(&[0, 1, 500_000, 1_000_000, u32::MAX]);
            }
            weights.extend_from_within(..);
        }
        Verdict::Fates { fates } => {
            fates.extend_from_within(..);
        }
    }
}

/// Another kind of answer, or one about nobody.
fn nonsense(verdict: &Verdict, stream: &mut Stream) -> Verdict {
    let nobody = |stream: &mut Stream| ProgramId(stream.pick(&[0, 1, 5, u64::MAX]));
    match verdict {
        Verdict::Order { programs, .. } if stream.percent(50) => Verdict::Order {
            programs: programs.iter().map(|_| nobody(stream)).collect(),
            scores: Vec::new(),
            workers: vec![Some(WorkerId(9_999)); programs.len()],
            remaining_tokens: vec![i64::MIN; programs.len()],
        },
        Verdict::Weights { .. } if stream.percent(50) => Verdict::Weights {
            weights: (0..4).map(|_| (nobody(stream), 0)).collect(),
        },
        Verdict::Fates { .. } if stream.percent(50) => {
            let fates = [Fate::Offload, Fate::Migrate, Fate::Drop];
            let fate = |_| (nobody(stream), stream.pick(&fates));
            Verdict::Fates {
                fates: (0..4).map(fate).collect(),
            }
        }
        Verdict::Order { .. } => Verdict::Weights {
            weights: vec![(nobody(stream), 1)],
        },
        Verdict::Weights { .. } | Verdict::Fates { .. } => Verdict::Order {
            programs: vec![nobody(stream)],
            scores: vec![1.0],
            workers: Vec::new(),
            remaining_tokens: Vec::new(),
        },
    }
}
