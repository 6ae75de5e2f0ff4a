//! Random training runs, checked by what comes out of them: batches are numbered, whole, never
//! change and are never too old, and a run whose programs end goes on.

use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use treadle_core::training::{
    Batch, End, Job, JobSettings, MemberRef, Report, Reward, Stale, TrainingCommand, TrainingEvent,
};
use treadle_core::{Command, Core, CoreConfig, DaemonEvent, Event};
use treadle_model::Timestamp;

const JOB: &str = "job";

#[derive(Clone, Debug)]
enum Op {
    Arrive(u8),
    End(u8, End),
    Reward(u8),
    RewardFails(u8),
    Request,
    Trained,
    Told,
    Checkpoint,
    RollBack,
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    let which = any::<u8>;
    prop_oneof![
        12 => which().prop_map(Op::Arrive),
        10 => (which(), prop_oneof![
            8 => Just(End::Completed),
            1 => Just(End::Truncated),
            1 => Just(End::EnvironmentFailed),
            1 => Just(End::Aborted),
        ]).prop_map(|(which, end)| Op::End(which, end)),
        10 => which().prop_map(Op::Reward),
        1 => which().prop_map(Op::RewardFails),
        5 => Just(Op::Request),
        4 => Just(Op::Trained),
        4 => Just(Op::Told),
        1 => Just(Op::Checkpoint),
        1 => Just(Op::RollBack),
        1 => Just(Op::Restart),
    ]
}

fn settings() -> impl Strategy<Value = JobSettings> {
    let stale = prop_oneof![Just(Stale::Cut), Just(Stale::Finish), Just(Stale::Wait)];
    (1..4_u16, 1..4_u32, 0..4_u64, stale, 0..3_u32, any::<bool>()).prop_map(
        |(group_size, batch_groups, lag_max, stale, failures_max, rewarded)| JobSettings {
            group_size,
            batch_groups,
            lag_max,
            pipeline: lag_max,
            stale,
            failures_max,
            starved_after: 2,
            rewarded,
            ..JobSettings::default()
        },
    )
}

/// A run, and what a bystander knows of it.
struct Bystander {
    core: Core,
    settings: JobSettings,
    arrived: u64,
    /// Group of each program that arrived.
    groups: BTreeMap<Box<str>, Box<str>>,
    /// Version when each program began.
    begun: BTreeMap<Box<str>, u64>,
    ended: BTreeSet<Box<str>>,
    rewarded: BTreeSet<Box<str>>,
    served: BTreeMap<u64, BTreeMap<Box<str>, Vec<Box<str>>>>,
    kept: BTreeMap<u64, Batch>,
}

impl Bystander {
    fn new(settings: &JobSettings) -> Self {
        let mut bystander = Self {
            core: Core::new(CoreConfig::default()),
            settings: settings.clone(),
            arrived: 0,
            groups: BTreeMap::new(),
            begun: BTreeMap::new(),
            ended: BTreeSet::new(),
            rewarded: BTreeSet::new(),
            served: BTreeMap::new(),
            kept: BTreeMap::new(),
        };
        bystander.handle(TrainingEvent::JobDeclared {
            job: JOB.into(),
            settings: Box::new(settings.clone()),
        });
        bystander
    }

    fn job(&self) -> &Job {
        &self.core.training().jobs[JOB]
    }

    /// Handles an event unless it is refused.
    fn handle(&mut self, event: TrainingEvent) {
        if self.core.check_training(&event).is_ok() {
            self.pass(&event.into());
        }
    }

    fn pass(&mut self, event: &Event) {
        self.core.handle(Timestamp(0), event);
        self.core.assert_invariants();
        while let Some(command) = self.core.poll_command() {
            if let Command::Training(command) = command {
                self.commanded(command);
            }
        }
        self.check_batches();
    }

    fn commanded(&mut self, command: TrainingCommand) {
        match command {
            TrainingCommand::AdmitMember { program, surplus } => {
                if !surplus {
                    let version = self.job().version.expect("engines have weights");
                    let before = self.begun.insert(program, version);
                    assert_eq!(before, None, "a program begins once");
                }
            }
            TrainingCommand::DropMember { program, .. } => {
                self.begun.remove(&program).expect("it began");
                self.ended.remove(&program);
            }
            TrainingCommand::Record { outcome } => assert!(outcome.is_outcome()),
            TrainingCommand::ScoreMember { .. }
            | TrainingCommand::AssembleMember { .. }
            | TrainingCommand::AskShaping { .. } => {
                panic!("nothing is computed or asked")
            }
            TrainingCommand::ServeBatch { batch, groups, .. } => {
                let last = self.served.keys().max().copied().unwrap_or(0);
                assert_eq!(batch, last + 1, "batches have no gaps");
                assert_eq!(groups.len(), self.settings.batch_groups as usize);
                let mut served = BTreeMap::new();
                for group in groups {
                    self.check_served(batch, &group.group, &group.programs);
                    served.insert(group.group, group.programs);
                }
                self.served.insert(batch, served);
            }
        }
    }

    fn check_served(&self, batch: u64, group: &str, programs: &[Box<str>]) {
        assert_eq!(programs.len(), usize::from(self.settings.group_size));
        let earlier = self
            .served
            .values()
            .find(|served| served.contains_key(group));
        assert_eq!(earlier, None, "{group}: served once");
        for program in programs {
            assert_eq!(&*self.groups[program], group, "{program}: of this group");
            let version = self.begun[program];
            let lag = (batch - 1).saturating_sub(version);
            assert!(lag <= self.settings.lag_max, "{program}: a lag of {lag}");
            assert!(self.ended.contains(program), "{program}: has ended");
            let has_reward = self.rewarded.contains(program) || !self.settings.rewarded;
            assert!(has_reward, "{program}: has a reward");
        }
    }

    /// A batch never changes, but for whether it was trained.
    fn check_batches(&mut self) {
        for (number, batch) in &self.core.training().jobs[JOB].batches {
            let kept = self.kept.entry(*number).or_insert_with(|| batch.clone());
            assert_eq!(kept.groups, batch.groups, "batch {number}");
        }
    }

    /// A member of a group in no batch, if there is one.
    fn member(&self, which: u8) -> Option<MemberRef> {
        let members = &self.core.training().members;
        let at = usize::from(which) % members.len().max(1);
        let (program, (job, group)) = members.iter().nth(at)?;
        Some(MemberRef {
            job: job.clone(),
            group: group.clone(),
            program: program.clone(),
        })
    }

    fn arrive(&mut self, group: &str) {
        self.arrived += 1;
        let program: Box<str> = format!("p{}", self.arrived).into();
        self.groups.insert(program.clone(), group.into());
        let member = MemberRef {
            job: JOB.into(),
            group: group.into(),
            program,
        };
        let direct = self.arrived.is_multiple_of(3);
        self.handle(TrainingEvent::MemberArrived { member, direct });
    }

    fn end(&mut self, member: MemberRef, end: End) {
        if end.is_trained() {
            // It may be served with this event.
            self.ended.insert(member.program.clone());
        }
        self.handle(TrainingEvent::MemberEnded {
            member,
            report: Report::of(end, 5, 1),
        });
    }

    fn reward(&mut self, member: MemberRef) {
        let program = member.program.clone();
        // It may be served with this event.
        self.rewarded.insert(program);
        let reward = Reward::new(0.5).expect("it is finite");
        self.handle(TrainingEvent::RewardGiven { member, reward });
    }

    fn request(&mut self) {
        let batch = self.job().next_batch;
        let job = JOB.into();
        self.handle(TrainingEvent::BatchRequested { job, batch });
    }

    fn told(&mut self) {
        let event = TrainingEvent::VersionTold {
            job: JOB.into(),
            lineage: self.job().lineage,
            version: self.job().next_batch - 1,
            digest: None,
        };
        self.handle(event);
    }

    fn act(&mut self, op: &Op) {
        let job: Box<str> = JOB.into();
        let last = self.job().next_batch - 1;
        match op {
            // Keys of groups that were served are used again, which must change nothing.
            Op::Arrive(group) => {
                let group = format!("g{}", u64::from(*group) % 6 + last * 2);
                let is_served = self.served.values().any(|s| s.contains_key(&*group));
                if !is_served {
                    self.arrive(&group);
                }
            }
            Op::End(which, end) => {
                if let Some(member) = self.member(*which) {
                    self.end(member, *end);
                }
            }
            Op::Reward(which) => {
                if let Some(member) = self.member(*which) {
                    self.reward(member);
                }
            }
            Op::RewardFails(which) => {
                if let Some(member) = self.member(*which) {
                    let cause = "timeout".into();
                    self.handle(TrainingEvent::RewardFailed { member, cause });
                }
            }
            Op::Request => self.request(),
            Op::Trained => {
                self.handle(TrainingEvent::BatchTrained {
                    job,
                    lineage: self.job().lineage,
                    batch: last,
                });
            }
            Op::Told => self.told(),
            Op::Checkpoint => {
                self.handle(TrainingEvent::Checkpointed {
                    job,
                    lineage: self.job().lineage,
                    batch: last,
                });
            }
            Op::RollBack => {
                let (batch, lineage) = (self.job().checkpoint, self.job().lineage);
                self.handle(TrainingEvent::RolledBack {
                    job,
                    lineage,
                    batch,
                });
            }
            Op::Restart => {
                self.pass(&DaemonEvent::DaemonRestarted.into());
                // No program ever had a step: all that had not ended are none.
                let members = &self.core.training().members;
                self.begun.retain(|program, _| {
                    members.contains_key(program) || self.ended.contains(program)
                });
            }
        }
    }

    /// Ends everything well until one more batch was cut.
    fn go_on(&mut self) {
        let before = self.job().next_batch;
        for round in 0..200 {
            self.told();
            self.request();
            if self.job().next_batch > before {
                return;
            }
            let members: Vec<MemberRef> = (0..=u8::MAX).filter_map(|i| self.member(i)).collect();
            for member in members {
                self.end(member.clone(), End::Completed);
                self.reward(member);
            }
            let wanted: Vec<String> = self.job().wanted().map(|(key, _)| key.to_owned()).collect();
            for group in wanted {
                self.arrive(&group);
            }
            self.arrive(&format!("new{round}-{before}"));
        }
        panic!("the run stands still: {:?}", self.job());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn batches_are_whole_and_young_and_the_run_goes_on(
        settings in settings(),
        ops in vec(op(), 0..120),
    ) {
        let mut bystander = Bystander::new(&settings);
        for op in &ops {
            bystander.act(op);
        }
        bystander.go_on();
        bystander.go_on();
    }
}
