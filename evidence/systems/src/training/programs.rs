//! Programs: each has an environment, samples turns, and gets a reward.

use super::control::JOB;
use super::judges::Pool;
use super::simulation::{Due, Simulation, group_key, number_of};
use super::system::{Interaction, Rewarding};
use super::workload::{Scoring, Trajectory};
use treadle_core::training::{End, MemberRef, Report, Reward, TrainingEvent};

/// What a program does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Doing {
    /// It may not begin yet.
    Waits,
    /// Its environment comes up, or answers.
    Acts,
    /// An engine has its request.
    Samples,
    /// Its environment has answered, and others have not.
    AtBarrier,
    /// It has ended well.
    Ended,
    /// It is not trained.
    Lost,
}

/// A program.
#[derive(Clone, Debug)]
pub(super) struct Program {
    /// Number of its group.
    pub(super) group: u64,
    doing: Doing,
    trajectory: Option<Trajectory>,
    turn: usize,
    context: u32,
    tokens: u64,
}

impl Program {
    pub(super) fn waiting(group: u64) -> Self {
        Self {
            group,
            doing: Doing::Waits,
            trajectory: None,
            turn: 0,
            context: 0,
            tokens: 0,
        }
    }

    /// Tokens that it would sample if nobody ended it, if it has begun and its environment comes up.
    pub(super) fn length(&self) -> Option<u64> {
        let trajectory = self.trajectory.as_ref()?;
        (!trajectory.fails).then(|| trajectory.tokens())
    }

    /// Its context at present.
    pub(super) fn context(&self) -> u32 {
        self.context
    }

    fn is_over(&self) -> bool {
        matches!(self.doing, Doing::Ended | Doing::Lost)
    }
}

fn key_of(program: usize) -> Box<str> {
    format!("p{program}").into()
}

impl Simulation<'_> {
    fn member(&self, program: usize) -> MemberRef {
        MemberRef {
            job: JOB.into(),
            group: group_key(self.programs[program].group),
            program: key_of(program),
        }
    }

    /// A program may begin: its environment comes up.
    pub(super) fn admitted(&mut self, key: &str, surplus: bool) {
        let program = number_of(key) as usize;
        if surplus {
            self.programs[program].doing = Doing::Lost;
            return;
        }
        let group = self.programs[program].group;
        let of_group = self.groups.entry(group).or_default();
        let number = of_group.len() as u64;
        of_group.push(program);
        let (setup, shift) = (self.setup, self.trainer.served_shift);
        let trajectory = setup.workload.draw(setup.seed, group, number, shift);
        let domain = setup.workload.domain(group % setup.workload.prompts.max(1));
        let affinity = setup.system.affinity.iter();
        let mut bound = affinity.filter(|bound| bound.domain == domain.name);
        self.fleet
            .admit(program, bound.next().map(|bound| bound.gpu));
        self.control.live.is_at(key, 0, 0);
        self.running += 1;
        let reset_us = trajectory.reset_us;
        let entry = &mut self.programs[program];
        entry.context = trajectory.prompt;
        entry.trajectory = Some(trajectory);
        entry.doing = Doing::Acts;
        self.after(reset_us, Due::Environment(program));
    }

    /// Its environment is there, or has answered; or it never comes up.
    pub(super) fn environment_answered(&mut self, program: usize) {
        let entry = &mut self.programs[program];
        if entry.doing != Doing::Acts {
            return;
        }
        if entry.trajectory.as_ref().is_some_and(|of| of.fails) {
            return self.fails(program);
        }
        if self.setup.system.interaction == Interaction::Batched {
            entry.doing = Doing::AtBarrier;
            self.at_barrier.push(program);
        } else {
            self.samples(program);
        }
    }

    fn fails(&mut self, program: usize) {
        self.leaves(program, Doing::Lost);
        let member = self.member(program);
        let report = Report::of(End::EnvironmentFailed, 0, 0);
        let event = TrainingEvent::MemberEnded { member, report };
        self.control.event(self.now, &event);
    }

    /// All that run have reached the barrier: they go on together.
    pub(super) fn release_barrier(&mut self) {
        if self.at_barrier.len() < self.running {
            return;
        }
        for program in std::mem::take(&mut self.at_barrier) {
            self.samples(program);
        }
    }

    fn samples(&mut self, program: usize) {
        let entry = &mut self.programs[program];
        let turns = entry.trajectory.as_ref().map(|of| &of.turns);
        let Some(turn) = turns.and_then(|turns| turns.get(entry.turn)).copied() else {
            return;
        };
        entry.doing = Doing::Samples;
        let context = entry.context;
        self.fleet.submit(program, context, turn.output, self.now);
    }

    pub(super) fn first_token(&mut self, program: usize) {
        if self.programs[program].turn == 0 && !self.programs[program].is_over() {
            self.control.first_token(self.now, &key_of(program));
        }
    }

    pub(super) fn progressed(&mut self, program: usize, tokens: u64) {
        let entry = &self.programs[program];
        let turns = entry.turn as u32;
        let live = &mut self.control.live;
        live.is_at(&key_of(program), entry.tokens + tokens, turns);
    }

    /// An engine has sampled a turn: the environment's turn, unless that was the last one.
    pub(super) fn turn_done(&mut self, program: usize) {
        let entry = &mut self.programs[program];
        let Some(trajectory) = entry.trajectory.as_ref() else {
            return;
        };
        if entry.doing != Doing::Samples {
            return;
        }
        let turn = trajectory.turns[entry.turn];
        entry.turn += 1;
        entry.tokens += u64::from(turn.output);
        entry.context += turn.output;
        let (tokens, turns) = (entry.tokens, entry.turn as u32);
        if entry.turn < trajectory.turns.len() {
            entry.context += turn.observation;
            entry.doing = Doing::Acts;
            self.control.live.is_at(&key_of(program), tokens, turns);
            return self.after(turn.step_us, Due::Environment(program));
        }
        let end = if trajectory.truncated {
            End::Truncated
        } else {
            End::Completed
        };
        self.leaves(program, Doing::Ended);
        let member = self.member(program);
        let report = Report::of(end, tokens, turns);
        let event = TrainingEvent::MemberEnded { member, report };
        self.control.event(self.now, &event);
        match self.setup.system.rewarding {
            Rewarding::AtOnce => self.score(program),
            Rewarding::Together => self.unrewarded.push(program),
        }
        self.score_together();
    }

    /// It does not run any more.
    fn leaves(&mut self, program: usize, doing: Doing) {
        self.programs[program].doing = doing;
        self.at_barrier.retain(|of| *of != program);
        self.fleet.release(program, self.now);
        self.control.live.ends(&key_of(program));
        self.running -= 1;
        if doing == Doing::Lost {
            self.score_together();
        }
    }

    /// The core ended it: it is too old, or others of its group are trained.
    pub(super) fn ended_by_core(&mut self, key: &str) {
        let program = number_of(key) as usize;
        let entry = &self.programs[program];
        if !entry.is_over() && entry.doing != Doing::Waits {
            self.leaves(program, Doing::Lost);
        }
    }

    fn score_together(&mut self) {
        if self.running == 0 {
            for program in std::mem::take(&mut self.unrewarded) {
                self.score(program);
            }
        }
    }

    fn score(&mut self, program: usize) {
        let group = self.programs[program].group;
        let prompt = group % self.setup.workload.prompts.max(1);
        let at_us = match self.setup.workload.domain(prompt).scoring {
            Scoring::Rule => Pool::by_rule(self.now, &mut self.rewards),
            Scoring::Judge => self.judges.by_judge(self.now, &mut self.rewards),
        };
        self.at(at_us, Due::Reward(program));
    }

    pub(super) fn rewarded(&mut self, program: usize) {
        let member = self.member(program);
        let trajectory = self.programs[program].trajectory.as_ref();
        let reward = trajectory.and_then(|of| Reward::new(of.reward));
        // It may have been cut or left out since.
        if let Some(reward) = reward.filter(|_| self.control.is_member(&member)) {
            let event = TrainingEvent::RewardGiven { member, reward };
            self.control.event(self.now, &event);
        }
    }
}
