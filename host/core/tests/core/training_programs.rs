//! Members whose requests treadle forwards, as the machine of programs tells of them.

use treadle_core::memory::Capacity;
use treadle_core::programs::{ProgramCommand, ProgramEvent, Refusal, StepArrival, StepFailure};
use treadle_core::training::{End, JobSettings, MemberRef, Report, TrainingCommand, TrainingEvent};
use treadle_core::{Command, Core, CoreConfig, DaemonEvent, Event, Mode};
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
    with_job(JobSettings {
        rewarded: false,
        ..JobSettings::default()
    })
}

fn with_job(settings: JobSettings) -> Core {
    let mut core = Core::new(CoreConfig {
        mode: Mode::LeastLoad,
        ..CoreConfig::default()
    });
    let declared = TrainingEvent::JobDeclared {
        job: "job".into(),
        settings: Box::new(settings),
    };
    let added = ProgramEvent::WorkerAdded {
        worker: WorkerId(0),
        url: "http://engine".into(),
        engine: EngineKind::Vllm,
        capacity: Capacity::default(),
        role: None,
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

fn failed(retryable: bool) -> ProgramEvent {
    ProgramEvent::StepFailed {
        step: StepId(1),
        failure: StepFailure {
            cause: "out of memory".into(),
            retryable,
            rejected: false,
            busy: None,
        },
    }
}

/// The commands about programs and steps since the last call.
fn commands(core: &mut Core) -> Vec<ProgramCommand> {
    let commands = std::iter::from_fn(|| core.poll_command());
    let commands = commands.filter_map(|command| match command {
        Command::Program(command) => Some(command),
        _ => None,
    });
    commands.collect()
}

fn is_abort(command: &ProgramCommand) -> bool {
    matches!(
        command,
        ProgramCommand::AbortStep {
            step: StepId(1),
            ..
        }
    )
}

fn is_refusal(command: &ProgramCommand) -> bool {
    matches!(
        command,
        ProgramCommand::RefuseStep {
            step: StepId(1),
            refusal: Refusal::ProgramReleased,
            ..
        }
    )
}

/// A running step of a member whose group becomes too old: batches are made of others.
fn with_cut_step() -> Core {
    let mut core = with_job(JobSettings {
        group_size: 1,
        batch_groups: 1,
        rewarded: false,
        ..JobSettings::default()
    });
    for event in [arrived("p", false), step_of("p")] {
        core.handle(Timestamp(1), &event);
    }
    assert!(!commands(&mut core).iter().any(is_abort));
    for batch in 1..=2 {
        let member = MemberRef {
            job: "job".into(),
            group: format!("b{batch}").into(),
            program: format!("q{batch}").into(),
        };
        let events = [
            TrainingEvent::MemberArrived {
                member: member.clone(),
                direct: true,
            },
            TrainingEvent::MemberEnded {
                member,
                report: Report::of(End::Completed, 10, 1),
            },
            TrainingEvent::BatchRequested {
                job: "job".into(),
                batch,
            },
            TrainingEvent::VersionTold {
                job: "job".into(),
                lineage: 0,
                version: batch,
                digest: None,
            },
        ];
        for event in events {
            core.handle(Timestamp(2), &event.into());
        }
    }
    core
}

#[test]
fn a_running_step_of_a_member_that_is_cut_ends_and_is_not_retried() {
    let interrupted = ProgramEvent::StepInterrupted { step: StepId(1) };
    // The client of an answer that has begun has the error from its gateway.
    let ends = [
        (failed(true), true),
        (interrupted, true),
        (failed(false), false),
    ];
    for (end, is_refused) in ends {
        let mut core = with_cut_step();
        let told = commands(&mut core);
        let aborts = told.iter().filter(|command| is_abort(command)).count();
        assert_eq!(aborts, 1, "{told:?}");
        assert!(core.programs().steps[&StepId(1)].is_cut, "until it ends");
        let end = Event::from(end);
        core.handle(Timestamp(3), &end);
        let told = commands(&mut core);
        assert_eq!(told.iter().any(is_refusal), is_refused, "{end:?}: {told:?}");
        let is_sent =
            |command: &ProgramCommand| matches!(command, ProgramCommand::DispatchStep { .. });
        assert!(!told.iter().any(is_sent), "{end:?}: {told:?}");
        let state = core.programs();
        assert!(state.steps.is_empty() && !state.keys.contains_key("p"));
        let worker = &state.workers[&WorkerId(0)];
        let left = (worker.running_steps, worker.ledger.used_tokens());
        assert_eq!(left, (0, 0), "{end:?}");
    }
}

#[test]
fn a_running_step_of_a_program_that_is_released_ends_by_itself() {
    let mut core = with_engine();
    let released = ProgramEvent::ProgramReleased {
        program: "p".into(),
        aborted: true,
    };
    for event in [arrived("p", false), step_of("p"), released.into()] {
        core.handle(Timestamp(1), &event);
    }
    core.handle(Timestamp(2), &failed(true).into());
    let told = commands(&mut core);
    let is_ended = |command: &ProgramCommand| is_abort(command) || is_refusal(command);
    assert!(!told.iter().any(is_ended), "{told:?}");
}

#[test]
fn a_program_whose_last_step_failed_is_not_trained_when_it_is_released() {
    let mut core = with_engine();
    let released = ProgramEvent::ProgramReleased {
        program: "p".into(),
        aborted: false,
    };
    let events = [
        arrived("p", false),
        step_of("p"),
        failed(false).into(),
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
