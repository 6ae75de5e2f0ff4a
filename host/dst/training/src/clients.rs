//! Clients: each begins a member, samples it and reports its end, one after the other.

use super::plan::{SECOND_US, lognormal};
use super::{Due, Simulation};
use treadle_core::training::{Begun, End, MemberRef, Report, Reward, TrainingEvent};
use treadle_dst_outcome::Checked;
use treadle_model::StepId;

/// What a client does.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Doing {
    #[default]
    Nothing,
    /// Its member may not begin yet.
    Waits,
    /// The daemon that it waited at is gone.
    WaitsAgain,
    /// It samples by itself.
    Samples,
    /// A step of its program runs.
    Step,
    /// Its program is between steps.
    Acts,
}

/// A client.
#[derive(Clone, Debug, Default)]
pub(super) struct Client {
    pub(super) job: usize,
    /// Changes with what it does, so that what was scheduled before is void.
    pub(super) epoch: u64,
    pub(super) doing: Doing,
    pub(super) at: Option<MemberRef>,
    pub(super) direct: bool,
    pub(super) step: Option<StepId>,
    pub(super) steps_left: u64,
    /// The last step was answered.
    pub(super) answered: bool,
    /// The version that it began with.
    pub(super) version: u64,
}

impl Client {
    pub(super) fn of(job: usize) -> Self {
        Self {
            job,
            ..Self::default()
        }
    }
}

impl Simulation {
    /// What a client does next, after a delay.
    pub(super) fn turn(&mut self, client: usize, doing: Doing, delay_us: u64) {
        let entry = &mut self.clients[client];
        entry.doing = doing;
        entry.epoch += 1;
        let epoch = entry.epoch;
        self.after(delay_us, Due::Client { client, epoch });
    }

    fn rest(&mut self, client: usize) {
        let pause_us = self.draws.between(100_000, 2 * SECOND_US);
        self.turn(client, Doing::Nothing, pause_us);
    }

    pub(super) fn client_acts(&mut self, client: usize, epoch: u64) -> Checked {
        if self.clients[client].epoch != epoch {
            return Ok(());
        }
        match self.clients[client].doing {
            Doing::Nothing => self.begin(client),
            Doing::Waits => self.leave(client),
            Doing::WaitsAgain if self.draws.percent(70) => self.arrive(client),
            Doing::WaitsAgain => {
                self.rest(client);
                Ok(())
            }
            Doing::Samples => self.report(client),
            Doing::Acts => self.program_acts(client),
            Doing::Step => Ok(()),
        }
    }

    /// Begins the next member that its job needs, or now and then one of a group that need not be
    /// known.
    fn begin(&mut self, client: usize) -> Checked {
        let plan = &self.plan.jobs[self.clients[client].job];
        let (job, programs) = (plan.name.clone(), plan.programs_percent);
        self.names += 1;
        let program: Box<str> = format!("p{}", self.names).into();
        let mut group = self.daemon.place(&job, &program);
        if self.goes_wrong(8) {
            group = Some(format!("g{}", self.draws.below(40)).into());
        }
        let Some(group) = group else {
            self.rest(client);
            return Ok(());
        };
        let direct = !self.draws.percent(programs);
        let steps = self.draws.between(1, 3);
        let entry = &mut self.clients[client];
        entry.at = Some(MemberRef {
            job,
            group,
            program,
        });
        entry.direct = direct;
        entry.steps_left = steps;
        entry.answered = false;
        self.arrive(client)
    }

    /// Asks whether its member may begin; it may have begun already.
    pub(super) fn arrive(&mut self, client: usize) -> Checked {
        let entry = &self.clients[client];
        let Some(member) = entry.at.clone() else {
            return Ok(());
        };
        let direct = entry.direct;
        if let Some(begun) = self.daemon.jobs().begun(&member) {
            self.may_begin(client, begun);
            return Ok(());
        }
        let event = TrainingEvent::MemberArrived { member, direct };
        let patience_us = self.draws.between(5, 60) * SECOND_US;
        self.turn(client, Doing::Waits, patience_us);
        if !self.call(event)? {
            self.rest(client);
        }
        Ok(())
    }

    /// It waited for long enough.
    fn leave(&mut self, client: usize) -> Checked {
        let member = self.clients[client].at.take();
        self.rest(client);
        let Some(member) = member else { return Ok(()) };
        self.call(TrainingEvent::MemberLeft { member }).map(drop)
    }

    fn client_of(&self, program: &str) -> Option<usize> {
        let is_its = |client: &super::Client| {
            let at = client.at.as_ref();
            at.is_some_and(|at| *at.program == *program)
        };
        self.clients.iter().position(is_its)
    }

    pub(super) fn admitted(&mut self, program: &str, surplus: bool) {
        let waiting = self.client_of(program);
        let waiting = waiting.filter(|client| self.clients[*client].doing == Doing::Waits);
        if let Some(client) = waiting {
            let begun = if surplus {
                Begun::Surplus
            } else {
                Begun::Member
            };
            self.may_begin(client, begun);
        }
    }

    fn may_begin(&mut self, client: usize, begun: Begun) {
        let Some(at) = self.clients[client].at.clone() else {
            return;
        };
        if begun == Begun::Surplus {
            return self.rest(client);
        }
        let jobs = &self.daemon.jobs().jobs;
        let version = jobs.get(&at.job).and_then(|job| job.version);
        self.clients[client].version = version.unwrap_or_default();
        if self.clients[client].direct {
            let takes_us = self.duration(&at);
            self.turn(client, Doing::Samples, takes_us);
        } else {
            let delay_us = self.draws.between_low(1_000, SECOND_US);
            self.turn(client, Doing::Acts, delay_us);
        }
    }

    /// How long a member takes, or one of its steps.
    pub(super) fn duration(&mut self, at: &MemberRef) -> u64 {
        let found = self.plan.jobs.iter().find(|plan| plan.name == at.job);
        let Some(plan) = found.cloned() else {
            return SECOND_US;
        };
        let number: u64 = at.group[1..].parse().unwrap_or(0);
        let is_slow = number * 37 % 100 < plan.slow_percent;
        let median_us = if is_slow {
            10 * plan.median_us
        } else {
            plan.median_us
        };
        let takes_us = lognormal(&mut self.draws, median_us, plan.spread);
        // A member that takes longer than the job allows is lost, each time again.
        takes_us.min(plan.settings.member_timeout_s * SECOND_US / 2)
    }

    /// A member was dropped. Not each client notices at once.
    pub(super) fn dropped(&mut self, program: &str, running: bool) {
        self.counts.count("dropped");
        if running
            && let Some(client) = self.client_of(program)
            && self.draws.percent(70)
        {
            self.rest(client);
        }
    }

    fn an_end(&mut self) -> End {
        let fails = self.draws.percent(if self.is_calm() {
            3
        } else {
            self.plan.failures_percent
        });
        if !fails {
            return self
                .draws
                .pick(&[End::Completed, End::Completed, End::Truncated]);
        }
        self.draws.pick(&[
            End::Aborted,
            End::EnvironmentFailed,
            End::EngineFailed,
            End::RewardFailed,
            End::ClientFailed,
        ])
    }

    /// Reports how a member ended, unless its client is lost.
    fn report(&mut self, client: usize) -> Checked {
        let at = self.clients[client].at.clone();
        let version = self.clients[client].version;
        self.rest(client);
        let Some(member) = at.filter(|_| !self.goes_wrong(4)) else {
            return Ok(());
        };
        let mut report = Report::of(self.an_end(), self.draws.between(1, 900), 1);
        if !report.end.is_trained() {
            return self
                .call(TrainingEvent::MemberEnded { member, report })
                .map(drop);
        }
        if self.draws.percent(40) {
            report.reward = self.a_reward();
        }
        let mut whole = report.clone();
        if self.draws.percent(60) || self.captures(&member) {
            whole.sample = Some(format!("sample of {}", member.program).into());
            // Engines may have had an older version for some tokens.
            let older = self.draws.percent(5);
            whole.version = Some(version.saturating_sub(u64::from(older)));
        }
        if self.draws.percent(20) {
            // What the first report does not have comes later.
            let later = TrainingEvent::MemberEnded {
                member: member.clone(),
                report: whole,
            };
            let delay_us = self.draws.between_low(1_000, 10 * SECOND_US);
            self.after(delay_us, Due::Call(Box::new(later)));
        } else {
            report = whole;
        }
        let has_reward = report.reward.is_some();
        let event = TrainingEvent::MemberEnded {
            member: member.clone(),
            report,
        };
        if self.call(event)? && !has_reward {
            self.promise_reward(member);
        }
        Ok(())
    }

    pub(super) fn captures(&self, at: &MemberRef) -> bool {
        let job = self.daemon.jobs().jobs.get(&at.job);
        job.is_some_and(|job| job.settings.captured())
    }

    pub(super) fn a_reward(&mut self) -> Option<Reward> {
        Reward::new(self.draws.below(2_000) as f64 / 1e3 - 0.5)
    }

    /// The client gives a reward later, unless treadle computes it: or the other way round.
    pub(super) fn promise_reward(&mut self, member: MemberRef) {
        let job = self.daemon.jobs().jobs.get(&member.job);
        let is_computed = job.is_some_and(|job| job.settings.reward.is_some());
        if is_computed && self.draws.percent(80) || self.goes_wrong(5) {
            return;
        }
        let event = match self.a_reward() {
            Some(reward) if !self.draws.percent(4) => TrainingEvent::RewardGiven { member, reward },
            _ => TrainingEvent::RewardFailed {
                member,
                cause: "the judge timed out".into(),
            },
        };
        let delay_us = self.draws.between_low(1_000, 30 * SECOND_US);
        self.after(delay_us, Due::Call(Box::new(event)));
    }

    /// Rewards are computed of one member, or of all of its group.
    pub(super) fn score(&mut self, at: &MemberRef) -> Checked {
        let state = self.daemon.jobs();
        let Some(job) = state.jobs.get(&at.job) else {
            return Ok(());
        };
        let Some(group) = job.groups.get(&at.group) else {
            return Ok(());
        };
        let together = job.settings.judged_together;
        let open = group
            .members
            .iter()
            .filter(|(program, member)| {
                let is_meant = together || **program == at.program;
                is_meant && member.has_ended_well() && member.reward.is_none()
            })
            .map(|(program, _)| program.clone());
        let open: Vec<Box<str>> = open.collect();
        for program in open {
            let member = MemberRef {
                program,
                ..at.clone()
            };
            let event = match self.a_reward() {
                Some(reward) if !self.goes_wrong(5) => {
                    TrainingEvent::RewardGiven { member, reward }
                }
                _ => TrainingEvent::RewardFailed {
                    member,
                    cause: "the judge is broken".into(),
                },
            };
            self.call(event)?;
        }
        Ok(())
    }
}
