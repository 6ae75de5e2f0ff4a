//! Training runs as their trainers and programs see them.

mod account;
mod affinity;
mod deadlines;
mod edges;
mod elsewhere;
mod pace;
mod shaping;

use super::*;
use treadle_machine::{Machine, Notified, Preference};
use treadle_model::AskId;

/// None is live after a restart.
struct NoPrograms;

impl LivePrograms for NoPrograms {
    fn is_live(&self, _: &str) -> bool {
        false
    }

    fn sampled(&self, _: &str) -> Option<(u64, u32)> {
        None
    }
}

/// A run with its machine.
struct Run {
    machine: Training,
    next: u32,
    /// Programs that may begin, and those that were cut.
    admitted: Vec<Box<str>>,
    cut: Vec<Box<str>>,
    served: Vec<(u64, Vec<Box<str>>)>,
    /// Programs whose rewards are to be computed.
    scored: Vec<Box<str>>,
    /// Programs whose samples are to be assembled.
    assembled: Vec<Box<str>>,
    /// Questions to the shaping policy.
    asked: Vec<(AskId, ShapingQuestion)>,
    /// Programs and the hardware that they prefer.
    preferences: Vec<(Box<str>, Preference)>,
    /// What follows in the journal.
    recorded: Vec<TrainingEvent>,
}

impl Run {
    fn new(settings: JobSettings) -> Self {
        let mut run = Self {
            machine: Training::default(),
            next: 0,
            admitted: Vec::new(),
            cut: Vec::new(),
            served: Vec::new(),
            scored: Vec::new(),
            assembled: Vec::new(),
            asked: Vec::new(),
            preferences: Vec::new(),
            recorded: Vec::new(),
        };
        run.event(&TrainingEvent::JobDeclared {
            job: "job".into(),
            settings: Box::new(settings),
        });
        run
    }

    fn settings(lag_max: u64) -> JobSettings {
        JobSettings {
            group_size: 2,
            batch_groups: 2,
            lag_max,
            pipeline: lag_max.min(1),
            rewarded: false,
            ..JobSettings::default()
        }
    }

    fn job(&self) -> &Job {
        &self.machine.state().jobs["job"]
    }

    fn event(&mut self, event: &TrainingEvent) {
        self.machine.apply(event, &NoPrograms);
        self.settle();
    }

    fn try_event(&mut self, event: &TrainingEvent) -> Result<(), TrainingError> {
        self.machine.check(event)?;
        self.event(event);
        Ok(())
    }

    fn notice(&mut self, notice: &Notice) {
        self.machine.notice(notice);
        self.settle();
    }

    fn settle(&mut self) {
        self.machine.settle(&NoPrograms);
        self.machine.assert_invariants();
        while let Some(notice) = self.machine.poll_notice() {
            match notice {
                Notice::ProgramCut { program } => self.cut.push(program),
                Notice::RunWentBack { .. } | Notice::JobRemoved { .. } => {}
                Notice::MemberOpened {
                    program, prefers, ..
                } => self.preferences.push((program, prefers)),
                other => panic!("{other:?}"),
            }
        }
        while let Some(command) = self.machine.poll_command() {
            match command {
                TrainingCommand::ServeBatch { batch, groups, .. } => {
                    let groups = groups.into_iter().map(|g| g.group);
                    self.served.push((batch, groups.collect()));
                }
                TrainingCommand::AdmitMember { program, .. } => self.admitted.push(program),
                TrainingCommand::ScoreMember { member } => self.scored.push(member.program),
                TrainingCommand::AssembleMember { member } => self.assembled.push(member.program),
                TrainingCommand::DropMember { .. } => {}
                TrainingCommand::Record { outcome } => self.recorded.push(*outcome),
                TrainingCommand::AskShaping { ask, question, .. } => {
                    self.asked.push((ask, *question));
                }
            }
        }
    }

    /// A program of a group arrives.
    fn open(&mut self, group: &str) -> Box<str> {
        self.next += 1;
        let program: Box<str> = format!("p{}", self.next).into();
        let member = Self::member(group, &program);
        self.event(&TrainingEvent::MemberArrived {
            member,
            direct: false,
        });
        program
    }

    fn member(group: &str, program: &str) -> MemberRef {
        MemberRef {
            job: "job".into(),
            group: group.into(),
            program: program.into(),
        }
    }

    fn ended(group: &str, program: &str, end: End) -> TrainingEvent {
        TrainingEvent::MemberEnded {
            member: Self::member(group, program),
            report: Report::of(end, 10, 1),
        }
    }

    /// Both members of a group arrive and complete.
    fn complete(&mut self, group: &str) {
        for _ in 0..2 {
            let program = self.open(group);
            self.event(&Self::ended(group, &program, End::Completed));
        }
    }

    fn request(&mut self, batch: u64) {
        let job = "job".into();
        self.event(&TrainingEvent::BatchRequested { job, batch });
    }

    fn told(&mut self, version: u64) {
        let told = self.version_told(version);
        self.event(&told);
    }

    fn version_told(&self, version: u64) -> TrainingEvent {
        TrainingEvent::VersionTold {
            job: "job".into(),
            lineage: self.job().lineage,
            version,
            digest: None,
        }
    }

    fn rolled_back(batch: u64, lineage: u32) -> TrainingEvent {
        TrainingEvent::RolledBack {
            job: "job".into(),
            lineage,
            batch,
        }
    }

    fn arrived(&self, group: &str, program: &str) -> Result<(), TrainingError> {
        let member = Self::member(group, program);
        self.machine.check(&TrainingEvent::MemberArrived {
            member,
            direct: false,
        })
    }

    fn groups_of(&self, batch: u64) -> Vec<&str> {
        let found = self.served.iter().find(|(number, _)| *number == batch);
        found.map_or(Vec::new(), |(_, groups)| {
            groups.iter().map(|g| &**g).collect()
        })
    }
}

#[test]
fn a_batch_is_cut_once_when_it_is_asked_for_and_has_enough_groups() {
    let mut run = Run::new(Run::settings(1));
    run.complete("a");
    run.request(1);
    assert_eq!(run.served, []);
    run.complete("b");
    assert_eq!(run.groups_of(1), ["a", "b"]);
    run.request(1);
    assert_eq!(run.served.len(), 1, "it is answered from what is on record");
    assert_eq!(run.job().next_batch, 2);
}

#[test]
fn a_group_that_is_submitted_twice_exists_once() {
    let mut run = Run::new(Run::settings(1));
    let submit = |group: &str| TrainingEvent::GroupSubmitted {
        job: "job".into(),
        group: group.into(),
        size: None,
        content: None,
        domain: None,
    };
    run.event(&submit("a"));
    run.complete("a");
    run.complete("b");
    run.request(1);
    run.event(&submit("a"));
    assert!(run.job().groups.is_empty(), "it is in a batch");
}

/// torchforge #557: with no lag allowed, the trainer threw away all that engines made before they
/// had its weights, for ever.
#[test]
fn without_lag_programs_wait_for_weights_and_the_run_goes_on() {
    let mut run = Run::new(Run::settings(0));
    for batch in 1..=5_u64 {
        run.complete(&format!("a{batch}"));
        run.complete(&format!("b{batch}"));
        run.request(batch);
        assert_eq!(run.groups_of(batch).len(), 2, "batch {batch}");
        let early = run.open(&format!("c{batch}"));
        assert!(!run.admitted.contains(&early));
        assert_eq!(
            run.job().waits_for_weights(),
            Some(Wait::Weights { version: batch })
        );
        let member = Run::member(&format!("c{batch}"), &early);
        run.event(&TrainingEvent::MemberLeft { member });
        run.told(batch);
        assert_eq!(run.job().waits_for_weights(), None);
    }
    assert_eq!(run.job().account.lag, 0);
}

/// AReaL's bound is on the sum: a straggler of version 0 was accepted five versions later under a
/// bound of one.
#[test]
fn a_straggler_is_cut_and_its_prompt_goes_first() {
    let mut run = Run::new(Run::settings(1));
    let straggler = run.open("slow");
    for batch in 1..=5_u64 {
        run.complete(&format!("a{batch}"));
        run.complete(&format!("b{batch}"));
        run.request(batch);
        run.told(batch);
    }
    assert_eq!(run.served.len(), 5);
    assert_eq!(run.cut, std::slice::from_ref(&straggler));
    assert!(run.job().account.lag <= 1);
    let late = Run::ended("slow", &straggler, End::Completed);
    assert!(matches!(
        run.try_event(&late),
        Err(TrainingError::UnknownMember { .. })
    ));
    let first = run.job().wanted().next();
    assert_eq!(
        first,
        Some(("slow", 2)),
        "its prompt is at the head of the queue"
    );
}

#[test]
fn a_prompt_that_returned_too_often_is_waited_for() {
    let mut run = Run::new(JobSettings {
        starved_after: 0,
        ..Run::settings(1)
    });
    let slow = [run.open("slow"), run.open("slow")];
    for batch in 1..=2_u64 {
        run.complete(&format!("a{batch}"));
        run.complete(&format!("b{batch}"));
        run.request(batch);
        run.told(batch.min(run.job().next_batch - 1));
    }
    assert_eq!(
        run.served.len(),
        1,
        "batch 2 would leave the slow group behind"
    );
    for program in slow {
        assert_eq!(run.groups_of(2), [""; 0]);
        run.event(&Run::ended("slow", &program, End::Completed));
    }
    assert_eq!(run.groups_of(2), ["a2", "slow"], "the oldest go first");
}

#[test]
fn a_failure_is_no_reward_of_zero() {
    let mut run = Run::new(JobSettings {
        rewarded: true,
        ..Run::settings(1)
    });
    run.request(1);
    for group in ["a", "b"] {
        for _ in 0..2 {
            let program = run.open(group);
            run.event(&Run::ended(group, &program, End::Completed));
            if &*program == "p4" {
                let (member, cause) = (Run::member(group, &program), "timeout".into());
                run.event(&TrainingEvent::RewardFailed { member, cause });
            } else {
                let (member, reward) = (Run::member(group, &program), Reward::new(0.5));
                let reward = reward.expect("it is finite");
                run.event(&TrainingEvent::RewardGiven { member, reward });
            }
        }
    }
    assert_eq!(run.served, [], "one member has no reward");
    assert_eq!(
        run.job().wanted().collect::<Vec<_>>(),
        [("b", 1)],
        "it is replaced"
    );
    assert_eq!(run.job().account.all.lost[&End::RewardFailed].rewarded, 0);
}

#[test]
fn a_lost_member_is_replaced_and_a_group_that_loses_too_many_returns() {
    let mut run = Run::new(JobSettings {
        failures_max: 1,
        ..Run::settings(1)
    });
    run.open("a");
    let lost = run.open("a");
    run.notice(&Notice::ProgramOver {
        program: lost,
        whole: false,
        tokens: 3,
        steps: 1,
    });
    assert_eq!(run.job().wanted().collect::<Vec<_>>(), [("a", 1)]);
    let failed = run.open("a");
    run.event(&Run::ended("a", &failed, End::EnvironmentFailed));
    assert_eq!(
        run.job().wanted().collect::<Vec<_>>(),
        [("a", 2)],
        "the whole group"
    );
    assert_eq!(
        run.cut,
        ["p1".into()],
        "its sibling has nothing to be compared with"
    );
    assert_eq!(run.job().account.returned, 1);
}

#[test]
fn no_more_programs_begin_than_the_next_batches_hold() {
    let mut run = Run::new(Run::settings(1));
    for group in ["a", "b", "c", "d", "e"] {
        run.open(group);
        run.open(group);
    }
    assert_eq!(run.admitted.len(), 8, "two batches of two groups of two");
    assert_eq!(run.job().wait("e"), Some(Wait::Trainer { groups: 4 }));
    for group in ["a", "b"] {
        let members: Vec<_> = run.job().groups[group].members.keys().cloned().collect();
        for program in members {
            run.event(&Run::ended(group, &program, End::Completed));
        }
    }
    run.request(1);
    assert_eq!(run.groups_of(1), ["a", "b"]);
    // What is sampled now would be in batch 3, and too old for it.
    assert_eq!(run.admitted.len(), 8, "c and d fill batch 2");
    assert_eq!(run.job().wait("e"), Some(Wait::Weights { version: 1 }));
    assert_eq!(run.job().wait("c"), None, "it has begun");
    run.told(1);
    assert_eq!(run.admitted.len(), 10);
}

#[test]
fn after_a_rollback_the_same_batches_come_and_newer_tokens_are_dropped() {
    let mut run = Run::new(Run::settings(1));
    for batch in 1..=3_u64 {
        run.complete(&format!("a{batch}"));
        run.complete(&format!("b{batch}"));
        run.request(batch);
        run.told(batch);
    }
    let checkpointed = TrainingEvent::Checkpointed {
        lineage: 0,
        job: "job".into(),
        batch: 1,
    };
    run.event(&checkpointed);
    let before = run.job().batches.clone();
    let newer = run.open("new");
    run.event(&Run::rolled_back(1, 0));
    assert_eq!(run.job().batches.keys().collect::<Vec<_>>(), [&2, &3]);
    assert_eq!(run.job().batches, before, "byte for byte");
    assert_eq!(run.cut, [newer], "version 3 was abandoned");
    assert_eq!((run.job().lineage, run.job().version), (1, None));
    assert!(run.job().waits_for_weights().is_some());
}

#[test]
fn what_is_wrong_changes_nothing_and_is_named() {
    let mut run = Run::new(Run::settings(1));
    let job: Box<str> = "job".into();
    let before = run.machine.state().clone();
    let request = |batch| TrainingEvent::BatchRequested {
        job: job.clone(),
        batch,
    };
    assert_eq!(
        run.try_event(&request(2)),
        Err(TrainingError::BatchAhead { batch: 2, next: 1 })
    );
    let ahead = run.version_told(1);
    assert_eq!(
        run.try_event(&ahead),
        Err(TrainingError::VersionAhead { told: 1, last: 0 })
    );
    let other = TrainingEvent::Checkpointed {
        lineage: 0,
        job: "other".into(),
        batch: 1,
    };
    assert_eq!(
        run.try_event(&other),
        Err(TrainingError::UnknownJob("other".into()))
    );
    assert_eq!(*run.machine.state(), before);
    run.complete("a");
    run.complete("b");
    run.request(1);
    run.told(1);
    let older = run.version_told(0);
    assert_eq!(
        run.try_event(&older),
        Err(TrainingError::VersionFalls {
            told: 0,
            current: 1
        })
    );
    assert_eq!(Reward::new(f64::NAN), None);
}

#[test]
fn a_reward_keeps_every_bit_in_the_journal() {
    for value in [0.1, -1e-300, 1.0 / 3.0, f64::MAX] {
        let reward = Reward::new(value).expect("it is finite");
        let text = serde_json::to_string(&reward).expect("it is text");
        assert_eq!(
            serde_json::from_str::<Reward>(&text).ok(),
            Some(reward),
            "{text}"
        );
    }
    assert!(serde_json::from_str::<Reward>("\"NaN\"").is_err());
}
