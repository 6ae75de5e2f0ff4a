//! Members whose requests treadle forwards, as the machine of programs tells of them.

use treadle_core::training::{End, JobSettings, MemberRef, TrainingCommand, TrainingEvent};
use treadle_core::{
    Capacity, Command, Core, CoreConfig, DaemonEvent, Event, Mode, ProgramEvent, StepArrival,
    StepFailure,
};
use treadle_model::{EngineKind, StepId, Timestamp, WorkerId};

fn arrived(program: &str, direct: bool) -> Event {
    let member = MemberRef {
        job: "job".into(),
        group: "a".into(),
        program: program.into(),
    };
    TrainingEvent::MemberArrived { member, direct }.into()
}

fn aborted(core: &Core) -> u64 {
    let lost = &core.training().jobs["job"].account.all.lost;
    lost.get(&End::Aborted).map_or(0, |tally| tally.members)
}

/// A run with one engine, to which steps go at once.
fn with_engine() -> Core {
    let mut core = Core::new(CoreConfig {
        mode: Mode::LeastLoad,
        ..CoreConfig::default()
    });
    let declared = TrainingEvent::JobDeclared {
        job: "job".into(),
        settings: Box::new(JobSettings {
            rewarded: false,
            ..JobSettings::default()
        }),
    };
    let added = ProgramEvent::WorkerAdded {
        worker: WorkerId(0),
        url: "http://engine".into(),
        engine: EngineKind::Vllm,
        capacity: Capacity::default(),
    };
    for event in [Event::from(declared), added.into()] {
        core.handle(Timestamp(0), &event);
    }
    core
}

fn step_of(program: &str) -> Event {
    ProgramEvent::StepArrived(StepArrival {
        step: StepId(1),
        program: program.into(),
        job: "job".into(),
        prompt_tokens: 10,
        exact: true,
        prompt_bytes: 40,
        text: None,
        output_tokens_max: None,
        prefix: Vec::new(),
        one_shot: false,
        inferred: false,
        parent: None,
        group: None,
        model: None,
    })
    .into()
}

#[test]
fn a_program_whose_last_step_failed_is_not_trained_when_it_is_released() {
    let mut core = with_engine();
    let failed = ProgramEvent::StepFailed {
        step: StepId(1),
        failure: StepFailure {
            cause: "out of memory".into(),
            retryable: false,
            rejected: false,
            busy: None,
        },
    };
    let released = ProgramEvent::ProgramReleased {
        program: "p".into(),
        aborted: false,
    };
    let events = [
        arrived("p", false),
        step_of("p"),
        failed.into(),
        released.into(),
    ];
    for event in events {
        core.handle(Timestamp(1), &event);
    }
    assert_eq!(aborted(&core), 1);
    let job = &core.training().jobs["job"];
    assert!(job.groups["a"].members.is_empty());
    let mut commands = std::iter::from_fn(|| core.poll_command());
    let is_dropped = |command: Command| {
        matches!(command, Command::Training(TrainingCommand::DropMember { program, running: false, .. })
            if &*program == "p")
    };
    assert!(commands.any(is_dropped));
}

#[test]
fn a_program_that_is_live_has_no_deadline_of_its_own() {
    let mut core = with_engine();
    for event in [arrived("p", false), step_of("p")] {
        core.handle(Timestamp(1), &event);
    }
    core.handle(Timestamp(7_200_000_000), &DaemonEvent::TimerFired.into());
    assert_eq!(aborted(&core), 0);
    let job = &core.training().jobs["job"];
    assert!(job.groups["a"].members.contains_key("p"));
}

#[test]
fn the_core_wakes_for_members_when_nothing_else_happens() {
    let mut core = Core::new(CoreConfig::default());
    let declared = TrainingEvent::JobDeclared {
        job: "job".into(),
        settings: Box::new(JobSettings {
            member_timeout_s: 10,
            ..JobSettings::default()
        }),
    };
    core.handle(Timestamp(0), &declared.into());
    core.handle(Timestamp(0), &arrived("p", true));
    let at = core.next_deadline().expect("a member is open");
    assert_eq!(at, Timestamp(10_000_000));
    core.handle(at, &DaemonEvent::TimerFired.into());
    assert_eq!(aborted(&core), 1);
    assert_eq!(core.next_deadline(), None);
}
