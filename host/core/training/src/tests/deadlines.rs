//! Members that nothing more is heard of are lost in time.

use super::*;

fn settings() -> JobSettings {
    JobSettings {
        member_timeout_s: 10,
        rewarded: true,
        ..Run::settings(1)
    }
}

fn arrived(program: &str, direct: bool) -> TrainingEvent {
    TrainingEvent::MemberArrived {
        member: Run::member("a", program),
        direct,
    }
}

fn lost(job: &Job, end: End) -> u64 {
    job.account
        .all
        .lost
        .get(&end)
        .map_or(0, |tally| tally.members)
}

#[test]
fn a_report_that_comes_again_puts_no_deadline_off() {
    let mut run = Run::new(settings());
    run.event(&arrived("p", true));
    let ended = Run::ended("a", "p", End::Completed);
    run.event(&ended);
    let deadline = run.machine.next_deadline();
    run.machine.advance(Timestamp(5_000_000));
    run.event(&ended);
    assert_eq!(run.machine.next_deadline(), deadline);
    run.machine.advance(Timestamp(10_000_000));
    run.settle();
    assert_eq!(lost(run.job(), End::RewardFailed), 1);
}

#[test]
fn what_new_settings_ask_of_a_member_that_ended_is_due_too() {
    let mut run = Run::new(JobSettings {
        rewarded: false,
        ..settings()
    });
    run.event(&arrived("p", true));
    run.event(&Run::ended("a", "p", End::Completed));
    run.machine.advance(Timestamp(20_000_000));
    run.event(&TrainingEvent::JobDeclared {
        job: "job".into(),
        settings: Box::new(settings()),
    });
    assert_eq!(run.machine.next_deadline(), Some(Timestamp(30_000_000)));
    run.machine.advance(Timestamp(30_000_000));
    run.settle();
    assert_eq!(lost(run.job(), End::RewardFailed), 1);
}

/// It began before the daemon restarted, and again afterwards.
#[test]
fn a_program_that_begins_again_has_all_its_time() {
    let mut run = Run::new(settings());
    run.event(&arrived("p", false));
    run.machine.advance(Timestamp(4_000_000));
    run.machine.daemon(&DaemonEvent::DaemonRestarted);
    run.settle();
    run.event(&arrived("p", false));
    run.machine.advance(Timestamp(10_000_000));
    run.settle();
    assert_eq!(lost(run.job(), End::Aborted), 0);
    run.machine.advance(Timestamp(14_000_000));
    run.settle();
    assert_eq!(lost(run.job(), End::Aborted), 1);
}

#[test]
fn a_program_that_never_comes_to_a_step_is_replaced() {
    let mut run = Run::new(settings());
    run.event(&arrived("p", false));
    run.machine.advance(Timestamp(10_000_000));
    run.settle();
    assert_eq!(lost(run.job(), End::Aborted), 1);
    assert_eq!(run.job().wanted().next(), Some(("a", 2)));
}
