//! The core's own machine of training runs, in virtual time: it decides which groups may begin,
//! which are too old, and what a batch consists of.

use super::shaper::Shaper;
use std::collections::{BTreeMap, VecDeque};
use treadle_core::training::{
    Job, JobSettings, LivePrograms, MemberRef, Training, TrainingCommand, TrainingEvent, Wait,
};
use treadle_machine::{BoundJobs, EVERYONE, Machine, Notice, Notified};
use treadle_model::{PolicyRef, Timestamp};

/// The only job of a run.
pub(super) const JOB: &str = "run";

/// Tokens and steps of programs that run.
#[derive(Clone, Debug, Default)]
pub(super) struct Live {
    programs: BTreeMap<Box<str>, Sampled>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sampled {
    tokens: u64,
    turns: u32,
}

impl LivePrograms for Live {
    fn is_live(&self, program: &str) -> bool {
        self.programs.contains_key(program)
    }

    fn sampled(&self, program: &str) -> Option<(u64, u32)> {
        let sampled = self.programs.get(program)?;
        Some((sampled.tokens, sampled.turns))
    }
}

impl Live {
    /// A program runs, with this many tokens and finished steps.
    pub(super) fn is_at(&mut self, program: &str, tokens: u64, turns: u32) {
        self.programs
            .insert(program.into(), Sampled { tokens, turns });
    }

    pub(super) fn ends(&mut self, program: &str) {
        self.programs.remove(program);
    }
}

/// The machine, with the policy that answers it.
pub(super) struct Control {
    machine: Training,
    shaper: Option<Shaper>,
    pub(super) live: Live,
    pub(super) commands: VecDeque<TrainingCommand>,
    /// Whether invariants are checked after each event.
    audited: bool,
}

impl Control {
    pub(super) fn new(settings: JobSettings, shaper: Option<Shaper>, audited: bool) -> Self {
        let mut control = Self {
            machine: Training::default(),
            shaper,
            live: Live::default(),
            commands: VecDeque::new(),
            audited,
        };
        control.event(
            0,
            &TrainingEvent::JobDeclared {
                job: JOB.into(),
                settings: Box::new(settings),
            },
        );
        if control.shaper.is_some() {
            let mut everyone = BoundJobs::default();
            everyone.scopes.insert(EVERYONE.into(), true);
            let bound = Notice::PoliciesBound {
                ranked: BoundJobs::default(),
                placed: BoundJobs::default(),
                shaped: everyone,
            };
            control.notice(0, &bound);
        }
        control
    }

    /// The job's state.
    pub(super) fn job(&self) -> Option<&Job> {
        self.machine.state().jobs.get(JOB)
    }

    /// Whether a program is a member of a group that is in no batch.
    pub(super) fn is_member(&self, at: &MemberRef) -> bool {
        self.machine.state().member(at).is_some()
    }

    /// The group that a new program would belong to, if one may begin now.
    pub(super) fn next_group(&self, program: &str) -> Option<Box<str>> {
        let group = self.machine.state().place(JOB, program).ok().flatten()?;
        match self.job()?.wait(&group) {
            None | Some(Wait::Policy) => Some(group),
            Some(_) => None,
        }
    }

    /// When it wants to be woken.
    pub(super) fn wakes_at(&self) -> Option<u64> {
        self.machine.next_deadline().map(|at| at.0)
    }

    /// Handles an event that the machine accepts; false if it does not.
    pub(super) fn event(&mut self, now_us: u64, event: &TrainingEvent) -> bool {
        if self.machine.check(event).is_err() {
            return false;
        }
        self.machine.advance(Timestamp(now_us));
        self.machine.apply(event, &self.live);
        self.settle(now_us);
        true
    }

    pub(super) fn first_token(&mut self, now_us: u64, program: &str) {
        let program = program.into();
        self.notice(now_us, &Notice::FirstToken { program });
    }

    pub(super) fn timer(&mut self, now_us: u64) {
        self.machine.advance(Timestamp(now_us));
        self.settle(now_us);
    }

    fn notice(&mut self, now_us: u64, notice: &Notice) {
        self.machine.advance(Timestamp(now_us));
        self.machine.notice(notice);
        self.settle(now_us);
    }

    /// Lets the machine act, and its policy answer, until nothing more follows.
    fn settle(&mut self, now_us: u64) {
        loop {
            self.machine.settle(&self.live);
            if self.audited {
                self.machine.assert_invariants();
            }
            while self.machine.poll_notice().is_some() {}
            let mut asked = None;
            while let Some(command) = self.machine.poll_command() {
                match command {
                    TrainingCommand::AskShaping { ask, question, .. } => {
                        asked = Some((ask, question));
                    }
                    other => self.commands.push_back(other),
                }
            }
            let Some((ask, question)) = asked else { return };
            let answer = match &mut self.shaper {
                Some(shaper) => shaper.answer(&question),
                None => question.by_default(),
            };
            self.machine.advance(Timestamp(now_us));
            let answered = TrainingEvent::ShapingAnswered {
                job: JOB.into(),
                ask,
                policy: PolicyRef("native".into()),
                answer,
            };
            self.machine.apply(&answered, &self.live);
        }
    }
}
