//! A trainer that drives updates by the engines' own protocols, as a stand-in.

use super::*;

/// How a trainer updates engines.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    /// In parts between calls that begin and end it.
    Begun,
    /// In one call.
    Whole,
    /// In two parts that no call begins or ends; the second one names the version.
    Buckets,
    /// Not at all: it only pauses and resumes.
    Nothing,
}

pub(super) fn end(name: &str) -> TrainerCall {
    TrainerCall::End {
        name: Some(name.into()),
    }
}

pub(super) const PAUSE: TrainerCall = TrainerCall::Pause { own: false };
pub(super) const PART: TrainerCall = TrainerCall::Part { name: None };

impl Fleet {
    pub(super) fn driven(engines: u32) -> Self {
        Self::new(engines, Faults::None, 7)
    }

    /// Passes a trainer's call on, as the relay does.
    pub(super) fn trainer(
        &mut self,
        worker: u32,
        call: &TrainerCall,
    ) -> Result<Answer, WeightsError> {
        let worker = WorkerId(worker);
        self.call(worker, call)?;
        if *call == TrainerCall::Resume {
            return Ok(Answer::Done);
        }
        let answer = self.obey(worker, call);
        if self.faults == Faults::Any && self.below(20) == 0 {
            self.pending.clear();
            self.daemon(&DaemonEvent::DaemonRestarted);
        }
        self.answer(worker, &answer);
        Ok(answer)
    }

    /// Passes on a call of a trainer that never pauses: treadle does.
    pub(super) fn unpaused(
        &mut self,
        worker: u32,
        call: &TrainerCall,
    ) -> Result<Answer, WeightsError> {
        match self.trainer(worker, call) {
            Err(WeightsError::NotPaused(_)) => {}
            done => return done,
        }
        let paused = self.trainer(worker, &TrainerCall::Pause { own: true })?;
        match paused {
            Answer::Done => self.trainer(worker, call),
            failed => Ok(failed),
        }
    }

    /// A call is about to be passed on.
    pub(super) fn call(
        &mut self,
        worker: WorkerId,
        call: &TrainerCall,
    ) -> Result<(), WeightsError> {
        let called = WeightsEvent::WeightsRelayed {
            job: "job".into(),
            worker,
            lineage: 0,
            all: true,
            call: call.clone(),
        };
        self.machine.check(&called, &self.engines)?;
        self.event(&called);
        Ok(())
    }

    pub(super) fn answer(&mut self, worker: WorkerId, answer: &Answer) {
        self.event(&WeightsEvent::WeightsRelayEnded {
            job: "job".into(),
            worker,
            answer: answer.clone(),
        });
    }

    /// What an engine does with a trainer's call: parts make a mixture until their end.
    fn obey(&mut self, worker: WorkerId, call: &TrainerCall) -> Answer {
        let cause = || Box::from("as scripted");
        let (dice, nonce) = (self.below(100), self.below(u64::MAX));
        let dice = if self.faults == Faults::Any { dice } else { 99 };
        let (rounds, in_buckets) = (self.rounds, self.in_buckets);
        let engine = self.engines.get_mut(&worker).expect("is there");
        if !engine.up || dice < 4 {
            return Answer::Refused { cause: cause() };
        }
        let is_open = matches!(engine.content, Content::Torn(_));
        match call {
            TrainerCall::Pause { .. } => engine.paused = true,
            TrainerCall::Join if dice < 8 => return Answer::Failed { cause: cause() },
            TrainerCall::Join => return Answer::Done,
            _ if dice < 8 => return Answer::Failed { cause: cause() },
            TrainerCall::Begin | TrainerCall::BeginOwn => {
                engine.content = Content::Torn(nonce);
            }
            // The same half at each engine, so that their checksums agree.
            TrainerCall::Part { name: None } if in_buckets => {
                engine.content = Content::Torn(rounds);
            }
            TrainerCall::Part { name: Some(name) } if in_buckets => {
                if engine.content == Content::Torn(rounds) {
                    engine.content = Content::Whole(name.clone());
                }
                engine.name = name.clone();
            }
            TrainerCall::Part { .. } | TrainerCall::End { .. } if !is_open => {
                return Answer::Failed { cause: cause() };
            }
            TrainerCall::Part { .. } | TrainerCall::Resume => {}
            TrainerCall::Load { .. } if dice < 12 => {
                engine.content = Content::Torn(nonce);
                engine.name = call.name().unwrap_or_default().into();
                return Answer::Failed { cause: cause() };
            }
            TrainerCall::End { name } | TrainerCall::Load { name } => {
                let name = name.clone().unwrap_or_else(|| engine.name.clone());
                engine.content = Content::Whole(name.clone());
                engine.name = name;
            }
        }
        if dice < 16 {
            return Answer::Failed { cause: cause() };
        }
        Answer::Done
    }

    /// Any form that its trainer has.
    pub(super) fn form(&mut self) -> Form {
        let forms = if self.never_pauses { 2 } else { 4 };
        match self.below(forms) {
            0 => Form::Begun,
            1 => Form::Whole,
            2 => Form::Buckets,
            _ => Form::Nothing,
        }
    }

    /// A whole update, at the engines that stand it. Whoever drives it may stop in the middle.
    pub(super) fn round(&mut self, name: &str, form: Form) {
        let named = || Some(name.into());
        let mut steps = match form {
            Form::Begun => vec![PAUSE, TrainerCall::Begin, PART, PART, end(name)],
            Form::Whole => vec![PAUSE, TrainerCall::Load { name: named() }],
            Form::Buckets => vec![PAUSE, PART, TrainerCall::Part { name: named() }],
            Form::Nothing => vec![PAUSE],
        };
        if self.below(4) == 0 {
            for worker in self.engines.keys().copied().collect::<Vec<_>>() {
                let _ = self.trainer(worker.0, &TrainerCall::Join);
            }
        }
        self.rounds += 1;
        self.in_buckets = form == Form::Buckets;
        if self.never_pauses {
            steps.remove(0);
        }
        let gives_up = self.faults == Faults::Any && self.below(4) == 0;
        let stops_at = if gives_up {
            self.below(steps.len() as u64 + 1) as usize
        } else {
            usize::MAX
        };
        let mut able: BTreeSet<u32> = self.engines.keys().map(|worker| worker.0).collect();
        for (at, step) in steps.iter().enumerate() {
            if at == stops_at {
                return;
            }
            for worker in able.clone() {
                let done = match step {
                    TrainerCall::Begin | TrainerCall::Load { .. } if self.never_pauses => {
                        self.unpaused(worker, step)
                    }
                    _ => self.trainer(worker, step),
                };
                let is_done = matches!(done, Ok(Answer::Done));
                // A pause may be repeated.
                if !is_done && *step != PAUSE {
                    able.remove(&worker);
                }
            }
            self.go_on();
        }
        // Trainers resume all, also what failed.
        for worker in self.engines.keys().copied().collect::<Vec<_>>() {
            let _ = self.trainer(worker.0, &TrainerCall::Resume);
        }
    }

    pub(super) fn has(&self, worker: u32, name: &str) -> bool {
        let holding = self.holding(worker);
        let held = holding.held.as_ref();
        let holds = holding.phase == Phase::Held && held.is_some_and(|held| *held.name == *name);
        holds && !self.is_fenced(worker)
    }
}

pub(super) fn failed() -> Answer {
    let cause = "no answer within 600 s".into();
    Answer::Failed { cause }
}
