//! What other machines tell of members, and what this one tells.

use crate::affinity::{Affinity, DEFAULT_DOMAIN};
use crate::group::{End, Report, Reward};
use crate::{LivePrograms, Training, TrainingCommand, TrainingEvent};
use treadle_machine::{Notice, Notified, Preference};

impl Training {
    /// Its end was not reported before: it came to its own if its last step was answered.
    fn over(&mut self, program: &str, whole: bool, tokens: u64, turns: u32) {
        let Some(member) = self.running(program) else {
            return;
        };
        let known = self.state.member(&member);
        let job = self.state.jobs.get(&member.job);
        let captured = job.is_some_and(|job| job.settings.captured());
        let is_incomplete = known.is_some_and(|m| {
            let lacks = m.incomplete.is_some() || (!m.is_direct() && m.captured.is_empty());
            captured && lacks && m.sample.is_none()
        });
        let end = match whole {
            true if is_incomplete => End::CaptureFailed,
            true => End::Completed,
            false => End::Aborted,
        };
        self.end(&member, &Report::of(end, tokens, turns));
    }

    /// The reward of a program is that of the member that it is.
    fn rewarded(&mut self, program: &str, millionths: i64) {
        let Some((name, group)) = self.state.members.get(program).cloned() else {
            return;
        };
        let Some(job) = self.state.jobs.get_mut(&name) else {
            return;
        };
        let reward = Reward::new(millionths as f64 / 1e6);
        let commands = job.change(&group, program, |member| member.reward = reward);
        self.carry(commands);
        self.touched.insert(name);
    }

    fn first_token(&mut self, program: &str) {
        let Some(at) = self.running(program) else {
            return;
        };
        let Some(job) = self.state.jobs.get_mut(&at.job) else {
            return;
        };
        let version = job.version;
        let commands = job.change(&at.group, program, |member| {
            if !member.sampled {
                member.sampled = true;
                member.version = version.unwrap_or(member.version);
            }
        });
        self.carry(commands);
        self.touched.insert(at.job);
    }

    /// Tells of a program which domain it is of, and which hardware it prefers, if it is a member.
    fn opened(&mut self, program: &str) {
        let Some(at) = self.running(program) else {
            return;
        };
        let Some(job) = self.state.jobs.get(&at.job) else {
            return;
        };
        let domain = job.groups.get(&at.group).and_then(|g| g.domain.as_deref());
        let domain = domain.unwrap_or(DEFAULT_DOMAIN);
        let affinity = job.settings.affinity.as_ref();
        self.notices.push_back(Notice::MemberOpened {
            program: program.into(),
            domain: domain.into(),
            prefers: affinity.map_or(Preference::Any, |affinity| affinity.preference(domain)),
        });
    }

    pub(crate) fn affinity(&self, job: &str) -> Option<Affinity> {
        self.state.jobs.get(job)?.settings.affinity.clone()
    }

    /// Its members may prefer other hardware now.
    pub(crate) fn tell_members(&mut self, job: &str) {
        let members = self.state.members.iter();
        let own = members.filter(|(_, (of, _))| **of == *job);
        let own: Vec<Box<str>> = own.map(|(program, _)| program.clone()).collect();
        for program in own {
            self.opened(&program);
        }
    }

    /// A program that becomes a member is usually not live yet.
    pub(crate) fn tell_admitted(
        &mut self,
        admitted: &[TrainingCommand],
        programs: &dyn LivePrograms,
    ) {
        for command in admitted {
            if let TrainingCommand::AdmitMember { program, .. } = command
                && programs.is_live(program)
            {
                self.opened(program);
            }
        }
    }

    /// Engines have a version of a job's weights.
    fn served(&mut self, name: &str, lineage: u32, version: u64) {
        let job = self.state.jobs.get_mut(name);
        if let Some(job) = job.filter(|job| job.lineage == lineage) {
            job.weights_changed(version);
            job.digest = None;
            self.touched.insert(name.into());
            let outcome = TrainingEvent::VersionServed {
                job: name.into(),
                lineage,
                version,
            };
            self.commands.push_back(outcome.into());
        }
    }
}

impl Notified for Training {
    fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    fn notice(&mut self, notice: &Notice) {
        match notice {
            Notice::ProgramOpened { program } => self.opened(program),
            Notice::FirstToken { program } => self.first_token(program),
            Notice::ProgramRewarded {
                program,
                millionths,
            } => self.rewarded(program, *millionths),
            Notice::ProgramOver {
                program,
                whole,
                tokens,
                steps,
            } => self.over(program, *whole, *tokens, *steps),
            Notice::VersionServed {
                job,
                lineage,
                version,
            } => self.served(job, *lineage, *version),
            Notice::PoliciesBound { shaped, .. } => self.policies_bound(shaped),
            _ => {}
        }
    }
}
