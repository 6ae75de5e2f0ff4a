//! Clients whose programs treadle forwards, their steps at simulated engines, and the capture of
//! what these sampled.

use super::engines::{Content, Seen};
use super::model::{Model, Sampled};
use super::{Due, JOB, Simulation};
use crate::plan::SECOND_US;
use crate::programs::arrival;
use treadle_core::programs::Worker;
use treadle_core::programs::{ProgramCommand, ProgramEvent, StepFailure, StepTokens};
use treadle_core::training::{Begun, MemberRef, Report, TrainingEvent};
use treadle_core::weights::Phase;
use treadle_core::{CapturedVersion, ServedVersions};
use treadle_dst_outcome::{Checked, broken};
use treadle_model::{FinishReason, StepId, Timestamp, WorkerId};

/// A client.
#[derive(Clone, Debug, Default)]
pub(super) struct Client {
    /// Changes with what it does, so that what was scheduled before is void.
    epoch: u64,
    at: Option<MemberRef>,
    has_begun: bool,
    step: Option<StepId>,
    steps_left: u64,
    /// The last step was answered.
    answered: bool,
}

/// Where a step was sent.
#[derive(Clone, Debug)]
struct Sent {
    worker: WorkerId,
    /// The process that it was sent to.
    process: u64,
    at_us: u64,
    /// It was sent after the engine had restarted, unnoticed.
    unnoticed: bool,
    begun: CapturedVersion,
    tokens: Vec<Sampled>,
}

/// A step that has not ended.
#[derive(Clone, Debug)]
pub(super) struct Step {
    client: usize,
    at: MemberRef,
    sent: Option<Sent>,
    tokens_left: u64,
    /// Its engine is to end it.
    is_aborted: bool,
    /// Its program was ended, and its engine answers: a pause waits for it.
    is_cut: bool,
}

impl Step {
    pub(super) fn is_cut_at(&self, worker: WorkerId) -> bool {
        self.is_cut && self.sent.as_ref().is_some_and(|sent| sent.worker == worker)
    }
}

impl Simulation {
    fn turn(&mut self, client: usize, delay_us: u64) {
        self.clients[client].epoch += 1;
        let epoch = self.clients[client].epoch;
        self.after(delay_us, Due::Client { client, epoch });
    }

    fn rest(&mut self, client: usize) {
        let epoch = self.clients[client].epoch;
        self.clients[client] = Client {
            epoch,
            ..Client::default()
        };
        let pause_us = self.draws.between(100_000, 2 * SECOND_US);
        self.turn(client, pause_us);
    }

    pub(super) fn client_acts(&mut self, client: usize, epoch: u64) -> Checked {
        let entry = &self.clients[client];
        if entry.epoch != epoch || entry.step.is_some() {
            return Ok(());
        }
        let (steps_left, has_begun) = (entry.steps_left, entry.has_begun);
        match entry.at.clone() {
            None => self.begin(client),
            // It waited for long enough, or its daemon is gone.
            Some(member) if !has_begun => {
                self.rest(client);
                self.call(TrainingEvent::MemberLeft { member }).map(drop)
            }
            Some(at) if steps_left == 0 => self.release(client, at),
            Some(at) => self.send(client, at),
        }
    }

    fn begin(&mut self, client: usize) -> Checked {
        self.numbers += 1;
        let program: Box<str> = format!("p{}", self.numbers).into();
        let found = self.daemon.jobs().place(JOB, &program).ok().flatten();
        let Some(group) = found else {
            self.rest(client);
            return Ok(());
        };
        let member = MemberRef {
            job: JOB.into(),
            group,
            program,
        };
        self.clients[client].at = Some(member.clone());
        self.clients[client].steps_left = self.draws.between(1, 3);
        let patience_us = self.draws.between(30, 300) * SECOND_US;
        self.turn(client, patience_us);
        let arrived = TrainingEvent::MemberArrived {
            member,
            direct: false,
        };
        if !self.call(arrived)? {
            self.rest(client);
        }
        Ok(())
    }

    /// A program that waited may begin.
    pub(super) fn admitted(&mut self, program: &str, surplus: bool) {
        let is_its = |at: &MemberRef| *at.program == *program;
        let mut clients = self.clients.iter();
        let Some(client) = clients.position(|c| c.at.as_ref().is_some_and(is_its)) else {
            return;
        };
        if surplus {
            return self.rest(client);
        }
        self.clients[client].has_begun = true;
        self.turn(client, 1_000);
    }

    fn send(&mut self, client: usize, at: MemberRef) -> Checked {
        if self.daemon.jobs().begun(&at) != Some(Begun::Member) {
            self.rest(client);
            return Ok(());
        }
        self.numbers += 1;
        let step = StepId(self.numbers);
        self.clients[client].step = Some(step);
        let entry = Step {
            client,
            at: at.clone(),
            sent: None,
            tokens_left: 0,
            is_aborted: false,
            is_cut: false,
        };
        self.steps.insert(step, entry);
        self.handle(arrival(step, at).into())
    }

    fn release(&mut self, client: usize, at: MemberRef) -> Checked {
        let aborted = !self.clients[client].answered;
        self.rest(client);
        let program = at.program;
        self.handle(ProgramEvent::ProgramReleased { program, aborted }.into())
    }

    pub(super) fn program_commanded(&mut self, command: &ProgramCommand) -> Checked {
        match *command {
            ProgramCommand::DispatchStep { step, worker, .. } => self.dispatched(step, worker),
            ProgramCommand::RefuseStep { step, .. } => {
                self.step_over(step, false);
                Ok(())
            }
            ProgramCommand::AbortStep { step, .. } => self.aborted(step),
            _ => Ok(()),
        }
    }

    fn reads(&self, worker: WorkerId) -> CapturedVersion {
        let read = self.daemon.core().captured_version(JOB, Some(worker));
        let read = read.unwrap_or_default();
        match self.bug {
            Some(bug) => bug.captured(read),
            None => read,
        }
    }

    fn dispatched(&mut self, step: StepId, worker: WorkerId) -> Checked {
        Model::starts(worker, &self.engines[&worker], self.daemon.core())?;
        self.counts.count("started");
        let begun = self.reads(worker);
        let tokens_left = self.draws.between(1, 5);
        let engine = self.engine(worker);
        let sent = Sent {
            worker,
            process: engine.process,
            at_us: 0,
            unnoticed: engine.seen == Seen::Unnoticed,
            begun,
            tokens: Vec::new(),
        };
        let sent = Sent {
            at_us: self.now_us,
            ..sent
        };
        if let Some(entry) = self.steps.get_mut(&step) {
            (entry.sent, entry.tokens_left) = (Some(sent), tokens_left);
            self.next_token(step);
        }
        Ok(())
    }

    fn next_token(&mut self, step: StepId) {
        let takes_us = self.draws.between_low(20_000, self.plan.answer_us / 2);
        self.after(takes_us, Due::Token(step));
    }

    /// An engine samples some tokens, unless it is paused or busy with a call that hangs.
    pub(super) fn token(&mut self, step: StepId) -> Checked {
        let Some(entry) = self.steps.get_mut(&step).filter(|entry| !entry.is_aborted) else {
            return Ok(());
        };
        let Some(sent) = &mut entry.sent else {
            return Ok(());
        };
        let engine = &self.engines[&sent.worker];
        if !engine.up || engine.process != sent.process {
            return self.fail_step(step, "the connection broke");
        }
        if engine.paused {
            self.after(SECOND_US, Due::Token(step));
            return Ok(());
        }
        let mixed = Content::Torn(0);
        let is_first = sent.tokens.is_empty();
        sent.tokens.push(Sampled {
            content: if engine.caches == engine.content {
                engine.content
            } else {
                mixed
            },
            name: engine.name.clone(),
            excused: engine.seen == Seen::Believed,
        });
        entry.tokens_left -= 1;
        let is_last = entry.tokens_left == 0;
        if is_first {
            self.handle(ProgramEvent::StepFirstToken { step }.into())?;
        }
        if is_last {
            return self.finish(step);
        }
        self.next_token(step);
        Ok(())
    }

    fn fail_step(&mut self, step: StepId, cause: &str) -> Checked {
        self.step_over(step, false);
        let failure = StepFailure {
            cause: cause.into(),
            retryable: false,
            rejected: false,
            busy: None,
        };
        self.handle(ProgramEvent::StepFailed { step, failure }.into())
    }

    /// The core withdraws a step. Engines take their time to end it.
    fn aborted(&mut self, step: StepId) -> Checked {
        self.counts.count("aborted");
        let ends_us = self.draws.between_low(5_000, 15 * SECOND_US);
        let workers = &self.daemon.core().programs().workers;
        let Some(entry) = self.steps.get_mut(&step) else {
            return Ok(());
        };
        let worker = entry
            .sent
            .as_ref()
            .and_then(|sent| workers.get(&sent.worker));
        entry.is_aborted = true;
        entry.is_cut = worker.is_some_and(Worker::is_healthy);
        self.after(ends_us, Due::Aborted(step));
        if self.bug == Some(super::WeightsBug::ForgetCut) {
            return self.tell_failed(step);
        }
        Ok(())
    }

    fn tell_failed(&mut self, step: StepId) -> Checked {
        let failure = StepFailure {
            cause: "it was withdrawn".into(),
            retryable: false,
            rejected: false,
            busy: None,
        };
        self.handle(ProgramEvent::StepFailed { step, failure }.into())
    }

    pub(super) fn abort_ends(&mut self, step: StepId) -> Checked {
        if !self.steps.contains_key(&step) {
            return Ok(());
        }
        self.step_over(step, false);
        if self.bug == Some(super::WeightsBug::ForgetCut) {
            return Ok(());
        }
        self.tell_failed(step)
    }

    /// An answer is whole. Its sample is recorded before the client has the end of it.
    fn finish(&mut self, step: StepId) -> Checked {
        let Some((at, sent)) = self
            .steps
            .get(&step)
            .and_then(|e| Some((e.at.clone(), e.sent.clone()?)))
        else {
            return Ok(());
        };
        self.capture(step, at, &sent)?;
        let last = sent.tokens.last().map(|token| token.name.clone());
        let named = last.filter(|_| self.plan.software.names);
        if sent.unnoticed && self.contradicts(&sent, named.as_deref()) {
            self.engine(sent.worker).seen = Seen::Known;
        }
        self.step_over(step, true);
        let tokens = StepTokens {
            prompt: 100,
            output: sent.tokens.len() as u64,
            cached: None,
        };
        self.handle(
            ProgramEvent::StepFinished {
                step,
                tokens,
                finish: FinishReason::Stop,
                weights: named,
            }
            .into(),
        )
    }

    /// Whether an answer shows that its engine has other weights than those on record.
    fn contradicts(&self, sent: &Sent, named: Option<&str>) -> bool {
        let holding = self.holding(sent.worker);
        let holding =
            holding.filter(|h| h.phase == Phase::Held && Timestamp(sent.at_us) >= h.since);
        let held = holding.and_then(|holding| holding.held.as_ref());
        held.zip(named)
            .is_some_and(|(held, named)| *held.name != *named)
    }

    fn capture(&mut self, step: StepId, member: MemberRef, sent: &Sent) -> Checked {
        let ended = self.reads(sent.worker);
        let lineage = ended.lineage;
        let served = ServedVersions {
            begun: sent.begun.clone(),
            ended,
        };
        let software = self.plan.software;
        let mut spans = Vec::new();
        for token in &sent.tokens {
            let named = if software.names {
                served.named(&token.name)
            } else {
                Ok(None)
            };
            match named.and_then(|named| named.map_or_else(|| served.bounds(), Ok)) {
                Ok(bounds) => spans.push(bounds),
                Err(unknown) => {
                    self.counts.count("not-captured");
                    let cause = unknown.to_string().into();
                    let failed = TrainingEvent::CaptureFailed { member, cause };
                    return self.call(failed).map(drop);
                }
            }
        }
        let event = TrainingEvent::StepCaptured {
            member: member.clone(),
            step,
            digest: "digest".into(),
            tokens: sent.tokens.len() as u64,
        };
        if !self.call(event)? {
            return Ok(());
        }
        self.counts.count("captured");
        for (token, bounds) in sent.tokens.iter().zip(&spans) {
            self.counts
                .count(if token.excused { "excused" } else { "tokens" });
            self.model
                .captured(token, lineage, bounds.oldest, bounds.newest)?;
            let oldest = self
                .oldest
                .entry(member.program.clone())
                .or_insert(u64::MAX);
            *oldest = bounds.oldest.min(*oldest);
        }
        Ok(())
    }

    /// The sample of a member is made of its captured steps.
    pub(super) fn assemble(&mut self, at: &MemberRef) -> Checked {
        let found = self.daemon.jobs().member(at).cloned();
        let found = found.filter(|m| m.has_ended_well() && m.sample.is_none());
        let Some((found, end)) = found.and_then(|m| Some((m.clone(), m.end?))) else {
            return Ok(());
        };
        let report = Report {
            sample: Some(format!("steps of {}", at.program).into()),
            version: self.oldest.get(&at.program).copied(),
            ..Report::of(end, found.tokens, found.turns)
        };
        let member = at.clone();
        self.call(TrainingEvent::MemberEnded { member, report })
            .map(drop)
    }

    /// A client has the answer to a step, or knows that there will be none.
    fn step_over(&mut self, step: StepId, answered: bool) {
        let Some(entry) = self.steps.remove(&step) else {
            return;
        };
        let client = entry.client;
        if self.clients[client].step != Some(step) {
            return;
        }
        let at = &mut self.clients[client];
        (at.step, at.answered) = (None, answered);
        // One that failed is the last.
        at.steps_left = if answered { at.steps_left - 1 } else { 0 };
        let tool_us = self.draws.between_low(10_000, 4 * SECOND_US);
        self.turn(client, tool_us);
    }

    /// The daemon is dead: what it forwarded is lost, and clients that waited ask again.
    pub(super) fn clients_lose_daemon(&mut self) {
        let lost: Vec<StepId> = self.steps.keys().copied().collect();
        for step in lost {
            self.step_over(step, false);
        }
        for client in 0..self.clients.len() {
            if self.clients[client].at.is_some() && !self.clients[client].has_begun {
                self.turn(client, SECOND_US);
            }
        }
    }

    /// No step waits while an engine takes it, and no program without a reason.
    pub(super) fn check_waits(&self) -> Checked {
        let core = self.daemon.core();
        let waits = self.steps.iter().find(|(_, step)| step.sent.is_none());
        let mut workers = core.programs().workers.values();
        let free = workers.find(|worker| worker.takes_programs());
        if let Some((step, worker)) = waits.map(|(step, _)| step).zip(free) {
            return broken(
                "waits",
                format!("{step:?} waits, and {} takes it", worker.id),
            );
        }
        let Some(job) = self.job() else { return Ok(()) };
        match job.held.keys().find(|group| job.wait(group).is_none()) {
            Some(group) => broken("waits", format!("{group} waits for nothing")),
            None => Ok(()),
        }
    }
}
