//! What goes wrong at the edges: clients that leave, programs that come back, trainers that retry.

use super::*;
use std::collections::BTreeMap;
use treadle_model::StepId;

/// One sample of each prompt first: none of the groups would ever be complete if members, not
/// groups, were counted.
#[test]
fn a_group_that_has_begun_gets_all_its_members() {
    let mut run = Run::new(Run::settings(1));
    let groups = ["a", "b", "c", "d", "e", "f"];
    for group in groups.into_iter().chain(groups) {
        run.open(group);
    }
    assert_eq!(run.admitted.len(), 8, "two of each of the first four");
    assert_eq!(run.job().wait("a"), None);
    assert_eq!(run.job().wait("e"), Some(Wait::Trainer { groups: 4 }));
}

#[test]
fn a_program_that_was_dropped_does_not_become_a_member_again() {
    let mut run = Run::new(Run::settings(1));
    let (lost, surplus) = (run.open("a"), run.open("a"));
    let third = run.open("a");
    run.event(&Run::ended("a", &lost, End::EnvironmentFailed));
    let refused = run.arrived("a", &lost);
    assert_eq!(refused, Err(TrainingError::Dropped(lost)));
    let member = Run::member("a", &third);
    run.event(&TrainingEvent::MemberArrived {
        member,
        direct: false,
    });
    let members = &run.job().groups["a"].members;
    assert!(members.contains_key(&surplus) && !members.contains_key(&third));
    let other = run.arrived("b", &surplus);
    assert!(matches!(other, Err(TrainingError::OtherGroup { .. })));
}

#[test]
fn a_member_whose_data_is_deleted_is_replaced_or_has_no_sample_in_its_batch() {
    let mut run = Run::new(Run::settings(1));
    let deleted = |group: &str, program: &str| TrainingEvent::MemberDeleted {
        member: Run::member(group, program),
    };
    let gone = run.open("a");
    run.event(&Run::ended("a", &gone, End::Completed));
    run.event(&deleted("a", &gone));
    assert!(!run.job().groups["a"].members.contains_key(&gone));
    run.complete("a");
    run.complete("b");
    run.request(1);
    let served = run.job().batches[&1].groups["a"].members.keys();
    let served: Vec<Box<str>> = served.cloned().collect();
    run.event(&deleted("a", &served[0]));
    run.event(&deleted("a", "nobody"));
    let members = &run.job().batches[&1].groups["a"].members;
    let marked = members.iter().filter(|(_, member)| member.deleted);
    let marked: Vec<&Box<str>> = marked.map(|(program, _)| program).collect();
    assert_eq!(marked, [&served[0]]);
    assert_eq!(members.len(), 2, "its place stays");
}

#[test]
fn a_client_that_leaves_as_its_program_may_begin_leaves_no_member() {
    let mut run = Run::new(Run::settings(1));
    let program = run.open("a");
    let member = Run::member("a", &program);
    run.event(&TrainingEvent::MemberLeft { member });
    assert!(run.machine.state().members.is_empty());
    assert_eq!(run.job().groups["a"].failures, 0);
    run.open("a");
    run.machine.daemon(&DaemonEvent::DaemonRestarted);
    run.settle();
    assert!(
        run.machine.state().members.is_empty(),
        "its request was lost"
    );
}

#[test]
fn a_group_that_runs_on_is_dropped_with_its_members() {
    let mut run = Run::new(JobSettings {
        stale: Stale::Finish,
        ..Run::settings(1)
    });
    let old = run.open("old");
    for batch in 1..=2_u64 {
        run.complete(&format!("a{batch}"));
        run.complete(&format!("b{batch}"));
        run.request(batch);
        run.told(batch);
    }
    assert!(run.job().groups["old"].stale && run.cut.is_empty());
    run.event(&Run::ended("old", &old, End::Completed));
    assert!(run.machine.state().members.is_empty());
    assert_eq!(run.job().account.never_served, 1);
}

#[test]
fn a_lower_bound_on_the_lag_holds_at_once() {
    let mut run = Run::new(Run::settings(3));
    run.complete("old");
    for batch in 1..=3_u64 {
        run.complete(&format!("a{batch}"));
        run.complete(&format!("b{batch}"));
        run.request(batch);
        run.told(batch);
    }
    run.open("older");
    run.event(&TrainingEvent::JobDeclared {
        job: "job".into(),
        settings: Box::new(Run::settings(0)),
    });
    let young = |group: &Group| group.version().is_none_or(|version| version >= 3);
    assert!(run.job().groups.values().all(young));
}

#[test]
fn the_oldest_first_token_counts() {
    let mut run = Run::new(Run::settings(3));
    let program = run.open("a");
    let token = Notice::FirstToken {
        program: program.clone(),
    };
    run.notice(&token);
    run.complete("b");
    run.complete("c");
    run.request(1);
    run.told(1);
    run.notice(&token);
    assert_eq!(run.job().groups["a"].version(), Some(0));
}

#[test]
fn an_earlier_request_does_not_take_a_later_one_back() {
    let mut run = Run::new(Run::settings(1));
    run.complete("a");
    run.complete("b");
    run.request(1);
    run.request(2);
    run.request(1);
    run.complete("c");
    run.complete("d");
    assert_eq!(run.groups_of(2), ["c", "d"]);
}

#[test]
fn versions_of_an_abandoned_lineage_are_refused() {
    let mut run = Run::new(Run::settings(1));
    for batch in 1..=2_u64 {
        run.complete(&format!("a{batch}"));
        run.complete(&format!("b{batch}"));
        run.request(batch);
        run.told(batch);
    }
    let late = run.version_told(2);
    run.event(&Run::rolled_back(1, 0));
    let over = Err(TrainingError::Lineage {
        named: 0,
        current: 1,
    });
    assert_eq!(run.try_event(&late), over);
    assert_eq!(
        run.try_event(&Run::rolled_back(1, 0)),
        over,
        "it came again"
    );
    run.told(1);
    assert_eq!(run.job().version, Some(1));
}

#[test]
fn a_group_that_was_served_is_not_sampled_again_after_a_checkpoint() {
    let mut run = Run::new(Run::settings(1));
    run.complete("a");
    run.complete("b");
    run.request(1);
    let (job, batch) = ("job".into(), 1);
    run.event(&TrainingEvent::Checkpointed {
        job,
        lineage: 0,
        batch,
    });
    assert!(run.job().batches.is_empty() && run.job().has_group("a"));
    run.open("a");
    assert!(run.job().groups.is_empty());
    assert_eq!(run.machine.state().members.len(), 0);
}

#[test]
fn a_group_that_runs_on_is_dropped_when_its_last_client_leaves() {
    let mut run = Run::new(JobSettings {
        stale: Stale::Finish,
        ..Run::settings(1)
    });
    let old = run.open("old");
    for batch in 1..=2_u64 {
        run.complete(&format!("a{batch}"));
        run.complete(&format!("b{batch}"));
        run.request(batch);
        run.told(batch);
    }
    let member = Run::member("old", &old);
    run.event(&TrainingEvent::MemberLeft { member });
    assert!(run.job().groups.is_empty());
}

#[test]
fn a_member_that_its_client_samples_outlives_a_restart_and_has_a_deadline() {
    let mut run = Run::new(JobSettings {
        member_timeout_s: 10,
        ..Run::settings(1)
    });
    let member = Run::member("a", "p");
    run.event(&TrainingEvent::MemberArrived {
        member: member.clone(),
        direct: true,
    });
    run.event(&TrainingEvent::MemberLeft { member });
    run.machine.daemon(&DaemonEvent::DaemonRestarted);
    run.settle();
    assert!(run.machine.state().members.contains_key("p"));
    let deadline = Timestamp(10_000_000);
    assert_eq!(run.machine.next_deadline(), Some(deadline));
    run.machine.advance(deadline);
    run.settle();
    assert!(run.machine.state().members.is_empty());
    assert_eq!(run.job().account.all.lost[&End::Aborted].members, 1);
    assert_eq!(run.job().wanted().next(), Some(("a", 2)), "it is replaced");
    assert_eq!(run.machine.next_deadline(), None);
}

#[test]
fn rewards_are_computed_for_members_that_ended_well_without_one() {
    let mut run = Run::new(JobSettings {
        reward: Some("{}".into()),
        rewarded: true,
        ..Run::settings(1)
    });
    let (first, second) = (run.open("a"), run.open("a"));
    let reward = Reward::new(1.0).expect("it is finite");
    let member = Run::member("a", &first);
    run.event(&TrainingEvent::RewardGiven { member, reward });
    for program in [&first, &second] {
        run.event(&Run::ended("a", program, End::Completed));
    }
    assert_eq!(run.scored, std::slice::from_ref(&second));
    run.machine.daemon(&DaemonEvent::DaemonRestarted);
    run.settle();
    assert_eq!(run.scored, [second.clone(), second], "it was under way");
}

#[test]
fn samples_are_assembled_from_captured_steps_before_rewards_are_computed() {
    let mut run = Run::new(JobSettings {
        reward: Some("{}".into()),
        rewarded: true,
        capture: Capture::Tokens,
        ..Run::settings(1)
    });
    let program = run.open("a");
    let member = Run::member("a", &program);
    assert!(run.machine.state().captures(&member));
    run.notice(&Notice::FirstToken {
        program: program.clone(),
    });
    run.event(&TrainingEvent::StepCaptured {
        member: member.clone(),
        step: StepId(1),
        digest: "d".into(),
        tokens: 3,
    });
    run.notice(&over(&program));
    assert!(!run.machine.state().captures(&member), "it is over");
    assert_eq!(run.assembled, std::slice::from_ref(&program));
    run.machine.daemon(&DaemonEvent::DaemonRestarted);
    run.settle();
    assert_eq!(run.assembled.len(), 2, "it was under way");
    assert!(run.scored.is_empty(), "there is no sample yet");
    let report = Report {
        sample: Some("s".into()),
        breaks: BTreeMap::from([("edited".into(), 2)]),
        ..Report::of(End::Completed, 3, 1)
    };
    let ended = TrainingEvent::MemberEnded { member, report };
    run.event(&ended);
    assert_eq!(run.scored, [program]);
    run.event(&ended);
    assert_eq!(run.job().account.breaks["edited"], 2, "counted once");
}

#[test]
fn a_member_with_a_step_that_was_not_captured_is_replaced_at_its_end() {
    let settings = || JobSettings {
        capture: Capture::Tokens,
        ..Run::settings(1)
    };
    let failed = |member: &MemberRef| TrainingEvent::CaptureFailed {
        member: member.clone(),
        cause: "no ids".into(),
    };
    let lost = |run: &Run| {
        let lost = run.job().lost.iter();
        let failed = lost.filter(|lost| lost.cause.as_deref() == Some("no ids"));
        let on_account = run.job().account.all.lost[&End::CaptureFailed].members;
        assert_eq!(failed.count() as u64, on_account);
        on_account
    };
    let mut run = Run::new(settings());
    let program = run.open("a");
    let member = Run::member("a", &program);
    run.notice(&Notice::FirstToken {
        program: program.clone(),
    });
    run.event(&failed(&member));
    assert!(
        run.machine.state().members.contains_key(&program),
        "it runs on"
    );
    run.notice(&over(&program));
    assert_eq!(lost(&run), 1);
    assert_eq!(run.job().wanted().next(), Some(("a", 2)));

    // What was captured can't be assembled after all.
    let program = run.open("a");
    let member = Run::member("a", &program);
    run.event(&Run::ended("a", &program, End::Completed));
    run.event(&failed(&member));
    assert_eq!(lost(&run), 2);

    // Its client has its own sample.
    let program = run.open("a");
    let member = Run::member("a", &program);
    run.event(&failed(&member));
    let report = Report {
        sample: Some("s".into()),
        ..Report::of(End::Completed, 3, 1)
    };
    run.event(&TrainingEvent::MemberEnded { member, report });
    assert_eq!(lost(&run), 2);
    assert!(run.machine.state().members.contains_key(&program));
}

#[test]
fn a_member_with_too_many_captured_steps_is_incomplete() {
    let mut member = Member::begun(0, Timestamp::default(), Timestamp::default(), false);
    for step in 0..=CAPTURED_MAX as u64 {
        assert_eq!(member.incomplete, None);
        member.captured(StepId(step));
    }
    let cause = member.incomplete.as_deref().unwrap_or_default();
    assert!(cause.contains("10000"), "{cause}");
    assert_eq!(member.captured.len(), CAPTURED_MAX);
}

fn over(program: &str) -> Notice {
    Notice::ProgramOver {
        program: program.into(),
        whole: true,
        tokens: 3,
        steps: 1,
    }
}

/// Its members had ended, and lacked only rewards that the job no longer wants.
#[test]
fn a_group_that_is_too_old_is_forgotten_when_new_settings_expect_nothing_of_it() {
    let settings = |rewarded| JobSettings {
        group_size: 1,
        batch_groups: 1,
        stale: Stale::Finish,
        rewarded,
        ..Run::settings(1)
    };
    let mut run = Run::new(settings(true));
    let old = run.open("old");
    for (batch, group) in [(1, "a"), (2, "b")] {
        let program = run.open(group);
        let member = Run::member(group, &program);
        run.event(&Run::ended(group, &program, End::Completed));
        let reward = Reward::new(1.0).expect("it is finite");
        run.event(&TrainingEvent::RewardGiven { member, reward });
        run.request(batch);
        run.told(batch);
    }
    run.event(&Run::ended("old", &old, End::Completed));
    assert!(run.job().groups["old"].stale);
    run.event(&TrainingEvent::JobDeclared {
        job: "job".into(),
        settings: Box::new(settings(false)),
    });
    assert!(!run.job().groups.contains_key("old"));
    assert!(run.job().has_group("old"));
}

#[test]
fn versions_that_engines_serve_are_on_record() {
    let mut run = Run::new(Run::settings(1));
    for lineage in [1, 0] {
        run.notice(&Notice::VersionServed {
            job: "job".into(),
            lineage,
            version: 1,
        });
    }
    assert_eq!(run.job().version, Some(1));
    let [TrainingEvent::VersionServed { lineage: 0, .. }] = run.recorded[..] else {
        panic!("{:?}", run.recorded);
    };
    // What is on record changes nothing when it is replayed.
    let before = run.machine.state().clone();
    let recorded = run.recorded.remove(0);
    run.event(&recorded);
    assert_eq!(*run.machine.state(), before);
}
