//! Simulated engines: what they really have, whatever they say. Calls to one engine are carried out
//! one after the other, also those whose caller is gone.

use super::model::{Model, Version};
use super::{Due, Simulation};
use crate::plan::SECOND_US;
use std::collections::VecDeque;
use treadle_core::weights::{Answer, Call, Checksum, Phase, TrainerCall, Weights, WeightsEvent};
use treadle_dst_outcome::Checked;
use treadle_model::WorkerId;

/// How long the answer to a call of treadle's own is waited for, and to one that loads.
const CALL_US_MAX: u64 = 120 * SECOND_US;
const LOAD_US_MAX: u64 = 1_800 * SECOND_US;

/// What an engine really has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Content {
    Whole(Version),
    /// A mixture, which is like no other.
    Torn(u64),
    /// A mixture: an update in parts has begun and not ended.
    Open(u64),
}

/// What treadle can know of an engine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Seen {
    Known,
    /// It is another process since its last answer.
    Unnoticed,
    /// It lied when there was no other engine to compare it with.
    Believed,
}

/// What an engine is told to do.
#[derive(Clone, Debug)]
pub(super) enum Work {
    Own(Call, Weights),
    Trainer(TrainerCall, Version),
    /// treadle ends an update that a trainer left open; nobody needs the answer.
    Abandon,
}

/// A call that has not ended.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// Number of the call: the core's for its own, a chain's for a trainer's.
    pub(super) number: u64,
    pub(super) work: Work,
    /// The daemon that made it.
    pub(super) daemon: u64,
    /// Nobody waits for its answer any more.
    pub(super) is_late: bool,
}

/// An engine, as it is behind its answers.
#[derive(Clone, Debug)]
pub(super) struct Engine {
    pub(super) content: Content,
    /// The version that it names.
    pub(super) name: Box<str>,
    /// With what its caches were computed.
    pub(super) caches: Content,
    pub(super) paused: bool,
    pub(super) up: bool,
    /// The core was told that it is lost, or will be.
    pub(super) lost: bool,
    /// Changes when it is another process.
    pub(super) process: u64,
    pub(super) seen: Seen,
    /// What it proved, as long as nothing happened to it since.
    pub(super) proven: Option<Version>,
    pub(super) fenced_us: u64,
    pub(super) busy: Option<Job>,
    pub(super) queue: VecDeque<Job>,
}

impl Engine {
    pub(super) fn new() -> Self {
        let base = Content::Whole(Version::default());
        Self {
            content: base,
            name: "base".into(),
            caches: base,
            paused: false,
            up: true,
            lost: false,
            process: 0,
            seen: Seen::Known,
            proven: None,
            fenced_us: 0,
            busy: None,
            queue: VecDeque::new(),
        }
    }

    fn checksum(&self) -> Checksum {
        let value = match self.content {
            Content::Whole(version) => format!("sum of {version}"),
            Content::Torn(nonce) | Content::Open(nonce) => format!("torn {nonce}"),
        };
        Checksum {
            layout: "tp1".into(),
            value: value.into(),
        }
    }

    fn change(&mut self, content: Content) {
        (self.content, self.proven) = (content, None);
        if matches!(content, Content::Whole(_)) || self.seen == Seen::Believed {
            self.seen = Seen::Known;
        }
    }
}

fn refused() -> Answer {
    let cause = "400, as planned".into();
    Answer::Refused { cause }
}

fn failed(cause: &str) -> Answer {
    let cause = cause.into();
    Answer::Failed { cause }
}

/// How a call goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    Well,
    Refused,
    Failed,
    /// It is carried out, and the answer says that it failed.
    Lost,
    /// Only some of the weights are replaced.
    Torn,
    /// The engine says that it has loaded them.
    Lied,
}

impl Simulation {
    pub(super) fn engine(&mut self, worker: WorkerId) -> &mut Engine {
        self.engines.entry(worker).or_insert_with(Engine::new)
    }

    /// A call of the core.
    pub(super) fn own_call(&mut self, worker: WorkerId, number: u64, call: Call, weights: Weights) {
        let timeout_us = if call == Call::Apply {
            LOAD_US_MAX
        } else {
            CALL_US_MAX
        };
        self.awaited.insert(number);
        self.after(timeout_us, Due::Timeout { worker, number });
        self.submit(worker, number, Work::Own(call, weights));
    }

    pub(super) fn submit(&mut self, worker: WorkerId, number: u64, work: Work) {
        let job = Job {
            number,
            work,
            daemon: self.daemons,
            is_late: false,
        };
        self.engine(worker).queue.push_back(job);
        self.begin_next(worker);
    }

    fn begin_next(&mut self, worker: WorkerId) {
        let engine = self.engine(worker);
        if engine.busy.is_some() {
            return;
        }
        engine.busy = engine.queue.pop_front();
        let (up, process) = (engine.up, engine.process);
        let Some(job) = engine.busy.clone() else {
            return;
        };
        let loads = match &job.work {
            Work::Own(call, _) => *call == Call::Apply,
            Work::Trainer(call, _) => !matches!(call, TrainerCall::Pause { .. }),
            Work::Abandon => false,
        };
        let longest_us = if loads { self.plan.load_us } else { SECOND_US };
        let mut takes_us = self.draws.between_low(5_000, longest_us.max(5_000));
        if up && self.goes_wrong(self.plan.faults_percent / 5) {
            self.counts.count("hung");
            takes_us += self.draws.between_low(10, 2_400) * SECOND_US;
            if self.draws.percent(50) {
                self.lose(worker, 30 * SECOND_US);
            }
        }
        if !up {
            takes_us = 5_000;
        }
        self.after(takes_us, Due::Called { worker, process });
    }

    /// The call that an engine carries out ends.
    pub(super) fn call_ends(&mut self, worker: WorkerId, process: u64) -> Checked {
        let engine = self.engine(worker);
        let Some(job) = engine.busy.take_if(|_| engine.process == process) else {
            return Ok(());
        };
        let answer = self.carry_out(worker, &job.work)?;
        self.answer(worker, &job, answer)?;
        self.begin_next(worker);
        Ok(())
    }

    /// An answer reaches whoever waits for it.
    fn answer(&mut self, worker: WorkerId, job: &Job, mut answer: Answer) -> Checked {
        let number = job.number;
        if job.is_late || job.daemon != self.daemons {
            return Ok(());
        }
        if let Some(bug) = self.bug {
            bug.answer(&job.work, &mut answer);
        }
        match &job.work {
            Work::Own(call, weights) => {
                let names = matches!(answer, Answer::Reports { .. });
                self.call_ended(worker, number, answer)?;
                let is_proven = self.holding(worker).is_some_and(|holding| {
                    let loading = holding.loading.as_ref();
                    holding.phase == Phase::Clearing && loading == Some(weights)
                });
                if *call == Call::Verify && names && is_proven {
                    self.engine(worker).proven = Some(Version::of(weights));
                }
                Ok(())
            }
            Work::Trainer(..) => self.relay_answered(number, &answer),
            Work::Abandon => Ok(()),
        }
    }

    fn call_ended(&mut self, worker: WorkerId, number: u64, answer: Answer) -> Checked {
        self.awaited.remove(&number);
        let ended = WeightsEvent::WeightsCallEnded {
            job: super::JOB.into(),
            worker,
            number,
            answer,
        };
        self.handle(ended.into())
    }

    /// Nobody waits for the answer to a call of the core any longer.
    pub(super) fn times_out(&mut self, worker: WorkerId, number: u64) -> Checked {
        if !self.awaited.contains(&number) {
            return Ok(());
        }
        self.give_up(worker, number);
        self.call_ended(worker, number, failed("no answer in time"))
    }

    /// The answer to a call is not waited for, and the engine goes on with it.
    pub(super) fn give_up(&mut self, worker: WorkerId, number: u64) {
        let engine = self.engine(worker);
        for job in engine.busy.iter_mut().chain(&mut engine.queue) {
            job.is_late |= job.number == number;
        }
    }

    fn fate(&mut self, worker: WorkerId, loads: bool) -> Fate {
        let lies = self.plan.liar == Some(worker) && !self.is_calm();
        if loads && lies && self.draws.percent(60) {
            return Fate::Lied;
        }
        if !self.goes_wrong(self.plan.faults_percent) {
            return Fate::Well;
        }
        let fates = [Fate::Refused, Fate::Failed, Fate::Lost, Fate::Torn];
        let fate = self.draws.pick(&fates);
        if fate == Fate::Torn && !loads {
            return Fate::Lost;
        }
        fate
    }

    fn carry_out(&mut self, worker: WorkerId, work: &Work) -> Checked<Answer> {
        if !self.engine(worker).up {
            return Ok(refused());
        }
        if self.goes_wrong(self.plan.faults_percent / 5) {
            self.crash(worker);
            return Ok(failed("the connection broke"));
        }
        match work {
            Work::Own(call, weights) => self.obey(worker, *call, weights),
            Work::Trainer(call, version) => self.obey_trainer(worker, call, *version),
            Work::Abandon => {
                let engine = self.engine(worker);
                if let Content::Open(nonce) = engine.content {
                    engine.content = Content::Torn(nonce);
                }
                Ok(Answer::Done)
            }
        }
    }

    fn obey(&mut self, worker: WorkerId, call: Call, weights: &Weights) -> Checked<Answer> {
        let fate = self.fate(worker, call == Call::Apply);
        match fate {
            Fate::Refused => return Ok(refused()),
            Fate::Failed => return Ok(failed("500, as planned")),
            _ => {}
        }
        let software = self.plan.software;
        let keeps_caches = self.bug.is_some_and(super::WeightsBug::keeps_caches);
        let engine = self.engine(worker);
        match call {
            Call::Prepare => {}
            Call::Pause => engine.paused = true,
            Call::Apply => {
                self.load(worker, Version::of(weights), &weights.name, fate)?;
            }
            Call::Verify => {
                let checksum = software.checksums.then(|| engine.checksum());
                let is_named = !software.whole_names || &*engine.name != "loading";
                return Ok(Answer::Reports {
                    name: Some(engine.name.clone()),
                    checksum,
                    whole: software.whole_names && is_named,
                });
            }
            Call::Clear if keeps_caches => {}
            Call::Clear => engine.caches = engine.content,
            Call::Resume => engine.paused = false,
        }
        Ok(match fate {
            Fate::Lost | Fate::Torn => failed("500, and it was done"),
            _ => Answer::Done,
        })
    }

    /// Parts make a mixture until their end.
    fn obey_trainer(
        &mut self,
        worker: WorkerId,
        call: &TrainerCall,
        version: Version,
    ) -> Checked<Answer> {
        let last = matches!(call, TrainerCall::End { .. } | TrainerCall::Load { .. });
        let fate = self.fate(worker, last);
        match fate {
            Fate::Refused => return Ok(refused()),
            Fate::Failed => return Ok(failed("500, as planned")),
            _ => {}
        }
        let nonce = self.draws.bits();
        let engine = self.engine(worker);
        let is_open = matches!(engine.content, Content::Open(_));
        match call {
            TrainerCall::Pause { .. } => engine.paused = true,
            TrainerCall::Begin | TrainerCall::BeginOwn if is_open => {
                return Ok(failed("an update has begun already"));
            }
            TrainerCall::Begin | TrainerCall::BeginOwn => {
                engine.change(Content::Open(nonce));
                Model::loads(worker, &self.engines[&worker])?;
            }
            TrainerCall::Part { .. } | TrainerCall::End { .. } if !is_open => {
                return Ok(failed("no update has begun"));
            }
            TrainerCall::Join | TrainerCall::Part { .. } | TrainerCall::Resume => {}
            TrainerCall::End { .. } | TrainerCall::Load { .. } => {
                self.load(worker, version, &version.plain_name(), fate)?;
            }
        }
        Ok(match fate {
            Fate::Lost | Fate::Torn => failed("400, and it was done"),
            _ => Answer::Done,
        })
    }

    fn load(&mut self, worker: WorkerId, version: Version, name: &str, fate: Fate) -> Checked {
        self.counts.count("loaded");
        let whole_names = self.plan.software.whole_names;
        let keeps_content = self.draws.percent(40);
        let nonce = self.draws.bits();
        Model::loads(worker, &self.engines[&worker])?;
        let engine = self.engine(worker);
        let was_whole = matches!(engine.content, Content::Whole(_));
        engine.name = name.into();
        match fate {
            Fate::Torn => {
                engine.change(Content::Torn(nonce));
                if whole_names {
                    engine.name = "loading".into();
                }
                self.counts.count("torn");
            }
            // It has what it had, or a mixture.
            Fate::Lied => {
                let before = engine.content;
                let content = if keeps_content && was_whole {
                    before
                } else {
                    Content::Torn(nonce)
                };
                engine.change(content);
                self.counts.count("lied");
            }
            _ => engine.change(Content::Whole(version)),
        }
        Ok(())
    }

    /// An engine dies; what waits for its answers fails.
    pub(super) fn crash(&mut self, worker: WorkerId) {
        self.counts.count("crashed");
        let engine = self.engine(worker);
        engine.up = false;
        self.break_off(worker);
        let notices_us = self.draws.between_low(0, 8 * SECOND_US);
        let starts_us = notices_us + self.draws.between_low(1, 60) * SECOND_US;
        self.lose(worker, notices_us);
        self.after(starts_us, Due::Starts(worker));
    }

    /// An engine is another process, and nobody sees that before its next answer.
    pub(super) fn restart_unnoticed(&mut self, worker: WorkerId) {
        self.counts.count("restarted-unnoticed");
        self.break_off(worker);
        self.start(worker);
        self.engine(worker).seen = Seen::Unnoticed;
    }

    fn break_off(&mut self, worker: WorkerId) {
        let engine = self.engine(worker);
        engine.process += 1;
        let pending: Vec<Job> = engine
            .busy
            .take()
            .into_iter()
            .chain(engine.queue.drain(..))
            .collect();
        for job in pending.into_iter().filter(|job| !job.is_late) {
            self.after(1_000, Due::Broken(worker, Box::new(job)));
        }
    }

    /// The connection of a call broke with its engine.
    pub(super) fn call_breaks(&mut self, worker: WorkerId, job: &Job) -> Checked {
        self.answer(worker, job, failed("the connection broke"))
    }

    /// A process starts with what engines come with.
    pub(super) fn start(&mut self, worker: WorkerId) {
        let engine = self.engine(worker);
        *engine = Engine {
            process: engine.process,
            lost: engine.lost,
            fenced_us: engine.fenced_us,
            ..Engine::new()
        };
    }

    /// The daemon is dead: what was not begun is not carried out.
    pub(super) fn drop_calls(&mut self) {
        for engine in self.engines.values_mut() {
            engine.queue.clear();
        }
        self.awaited.clear();
    }
}
