//! The evaluator with real instances: which policy evaluates, and which is rolled back.

mod arrange;
mod retention;
mod shape;

use super::*;
use treadle_core::memory::Capacity;
use treadle_core::programs::{ProgramColumns, ProgramEvent, StepArrival};
use treadle_core::{CoreConfig, Event};
use treadle_model::{EngineKind, Span, StepId, Timestamp, WorkerId};
use treadle_policy_runtime::{InstanceOptions, Limits, PolicyEngine};

const PROGRAMS: u64 = 200;
/// `thunderagent-eviction`, built by `make guests`.
const EVICTION: &[u8] = include_bytes!("../../../../target/guests/thunderagent_eviction.wasm");

/// A core with one program per step.
fn core() -> Core {
    core_of(["odd", "even"])
}

/// A core with two programs of these jobs.
fn core_of(jobs: [&str; 2]) -> Core {
    let mut core = Core::new(CoreConfig::default());
    let capacity = Capacity {
        tokens: Some(1_000_000),
        ..Capacity::default()
    };
    let worker = WorkerId(0);
    let url = "http://w".into();
    let engine = EngineKind::Vllm;
    core.handle(
        Timestamp(0),
        &Event::Program(ProgramEvent::WorkerAdded {
            worker,
            url,
            engine,
            capacity,
            role: None,
        }),
    );
    for step in 1..=PROGRAMS {
        let arrival = StepArrival {
            step: StepId(step),
            program: format!("p{step}").into(),
            job: jobs[usize::from(step % 2 == 0)].into(),
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
        };
        core.handle(
            Timestamp(step),
            &Event::Program(ProgramEvent::StepArrived(arrival)),
        );
    }
    while core.poll_command().is_some() {}
    core
}

fn bound(name: &str) -> BoundPolicy {
    loaded(name, EVICTION)
}

fn loaded(name: &str, upload: &[u8]) -> BoundPolicy {
    configured(name, upload, "{}")
}

fn configured(name: &str, upload: &[u8], config_json: &str) -> BoundPolicy {
    // A loaded machine must not make a policy fail here.
    let limits = Limits {
        hot_deadline_ms: 1_000,
        ..Limits::default()
    };
    let engine = PolicyEngine::new(limits).expect("an engine");
    let candidate = engine.examine(upload).expect("a policy");
    let options = InstanceOptions {
        config_json: config_json.into(),
        ..InstanceOptions::default()
    };
    let instance = engine.load(&candidate.component, &options);
    BoundPolicy {
        id: 0,
        policy: PolicyRef(name.into()),
        instance: instance.expect("an instance"),
    }
}

fn question(core: &Core) -> Question {
    let program: Vec<ProgramId> = core.programs().live.keys().copied().collect();
    let rows = program.len();
    Question {
        purpose: Purpose::Restore,
        programs: ProgramColumns {
            tokens: (0..rows as u64).collect(),
            acting: vec![0; rows],
            phase: vec![Span(0); rows],
            waited: (0..rows as u64).map(|row| Span(row * 1_000)).collect(),
            steps: vec![1; rows],
            program,
            ..ProgramColumns::default()
        },
    }
}

/// An evaluator that calls all policies of a question, however slow the machine is.
fn unhurried() -> PolicyEvaluator {
    PolicyEvaluator::new(EvaluatorLimits {
        is_repeatable: true,
        ..EvaluatorLimits::default()
    })
}

fn change(evaluator: &mut PolicyEvaluator, scope: &Scope, change: Change) -> Changed {
    evaluator
        .change(World::Eviction, scope, change, 0)
        .expect("it can be changed")
}

/// Weights of programs that have acted for ten seconds, with a policy of the second job's tenant
/// that halves them each second.
fn weights_of(jobs: [&str; 2]) -> (Core, Vec<(ProgramId, u32)>) {
    let (core, mut evaluator) = (core_of(jobs), unhurried());
    let forgetful = configured("forgetful", EVICTION, r#"{"profile": "paper"}"#);
    let scope = Scope::of(jobs[1]);
    change(&mut evaluator, &scope, Change::Activate(Some(forgetful)));
    let mut question = question(&core);
    question.purpose = Purpose::Weigh {
        worker: WorkerId(0),
    };
    question.programs.phase.fill(Span::from_secs(10));
    let PolicyAnswer::Weights { weights } = evaluator.answer(&core, &question, 5).answer else {
        panic!("not weights");
    };
    (core, weights)
}

#[test]
fn a_tenants_policy_does_not_hide_its_memory_from_other_tenants() {
    let (core, weights) = weights_of(["odd", "even"]);
    for (program, ppm) in &weights {
        let own = &*core.programs().live[program].job == "even";
        assert_eq!(own, *ppm < 1_000, "the team's own matter: {program} {ppm}");
    }
    let (_, weights) = weights_of(["odd", "\u{1f}acme\u{1f}even"]);
    assert_eq!(weights.len() as u64, PROGRAMS);
    assert!(
        weights.iter().all(|(_, ppm)| *ppm == 1_000_000),
        "{weights:?}"
    );
}

/// A policy that takes some 20 ms for an order.
fn slow(name: &str) -> BoundPolicy {
    let order = "(param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)\n";
    let count = "(local $left i32)
        (local.set $left (i32.const 50000000))
        (loop $again
          (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))";
    let text = include_str!("tests/retention.wat")
        .replace("(;COLUMNS;)", "0")
        .replace(order, &format!("{order}{count}\n"));
    let module = wat::parse_str(text).expect("the text is valid");
    let upload = treadle_policy_runtime::embed_contract(&module, "eviction");
    loaded(name, &upload.expect("the contract embeds"))
}

#[test]
fn a_tenants_slow_policies_are_left_out_of_a_question_once_its_time_is_over() {
    let jobs = ["\u{1f}acme\u{1f}odd", "\u{1f}acme\u{1f}even"];
    let (core, mut evaluator) = (core_of(jobs), PolicyEvaluator::default());
    for job in jobs {
        let scope = Scope::of(job);
        change(&mut evaluator, &scope, Change::Activate(Some(slow("slow"))));
    }
    let answer = evaluator.answer(&core, &question(&core), 5);
    let PolicyAnswer::Order { programs, .. } = &answer.answer else {
        panic!("{:?}", answer.answer)
    };
    assert_eq!(programs.len() as u64, PROGRAMS);
    let statistics = evaluator.statistics();
    assert_eq!((statistics.faults, statistics.fallbacks), (0, 1));
}

#[test]
fn each_program_is_evaluated_by_one_version_which_the_answer_names() {
    let (core, mut evaluator) = (core(), unhurried());
    change(
        &mut evaluator,
        &Scope::Everyone,
        Change::Activate(Some(bound("all"))),
    );
    change(
        &mut evaluator,
        &Scope::of("even"),
        Change::Activate(Some(bound("even"))),
    );
    change(
        &mut evaluator,
        &Scope::of("even"),
        Change::StartCanary(bound("canary"), 400_000),
    );
    let answer = evaluator.answer(&core, &question(&core), 5);
    let PolicyAnswer::Order {
        programs, scores, ..
    } = &answer.answer
    else {
        panic!("{:?}", answer.answer)
    };
    assert_eq!(programs.len() as u64, PROGRAMS);
    // Each policy has its own scale; the order within each policy is kept.
    let answered_by = &answer.attribution.answered_by;
    for version in 0..3 {
        let rows = answered_by.iter().zip(scores);
        let of_version = rows.filter(|(by, _)| **by == version);
        assert!(
            of_version
                .map(|(_, score)| score)
                .is_sorted_by(|a, b| a >= b)
        );
    }
    let names: Vec<&str> = std::iter::once(&answer.policy)
        .chain(&answer.attribution.policies)
        .map(|policy| policy.0.as_ref())
        .collect();
    assert_eq!(names.len(), 3, "{names:?}");
    let mut of_canary = 0;
    for (program, by) in programs.iter().zip(&answer.attribution.answered_by) {
        let name = names[usize::from(*by)];
        let job = &*core.programs().live[program].job;
        assert_eq!(
            name == "all",
            job == "odd",
            "{name} evaluated a program of {job}"
        );
        of_canary += u32::from(name == "canary");
    }
    assert!((20..60).contains(&of_canary), "{of_canary} of 100");
    let again = evaluator.answer(&core, &question(&core), 6);
    assert_eq!(
        again.attribution, answer.attribution,
        "a program stays with its version"
    );
}

#[test]
fn a_canary_whose_programs_fare_worse_is_ended() {
    let (core, mut evaluator) = (core(), unhurried());
    change(
        &mut evaluator,
        &Scope::Everyone,
        Change::Activate(Some(bound("good"))),
    );
    change(
        &mut evaluator,
        &Scope::Everyone,
        Change::StartCanary(bound("slow"), 500_000),
    );
    let judged = evaluator.answer(&core, &question(&core), 5);
    let PolicyAnswer::Order { programs, .. } = &judged.answer else {
        panic!("{:?}", judged.answer)
    };
    let names = [&judged.policy, &judged.attribution.policies[0]];
    for _ in 0..4 {
        for (program, by) in programs.iter().zip(&judged.attribution.answered_by) {
            let is_slow = &*names[usize::from(*by)].0 == "slow";
            evaluator.observe_step(&core, *program, if is_slow { 900.0 } else { 500.0 });
        }
    }
    let notice = evaluator.poll_notice().expect("the canary was ended");
    assert_eq!(notice.kind, NoticeKind::CanaryEnded);
    assert_eq!((&*notice.policy.0, &*notice.after.0), ("slow", "good"));
    assert!(notice.reason.contains("900 ms"), "{}", notice.reason);
    let view = &evaluator.views(World::Eviction)[0];
    assert_eq!(view.canary, None);
    assert_eq!(&*view.policy.0, "good");
    assert_eq!(evaluator.statistics().rollbacks, 1);
}

#[test]
fn a_change_that_makes_no_sense_changes_nothing() {
    let mut evaluator = PolicyEvaluator::default();
    let scope = Scope::Everyone;
    let refused = evaluator.change(World::Reward, &scope, Change::RollBack, 0);
    assert_eq!(refused, Err(ChangeError::NoPrevious));
    let refused = evaluator.change(World::Reward, &scope, Change::Withdraw(Role::Shadow), 0);
    assert_eq!(refused, Err(ChangeError::Vacant(Role::Shadow)));
    assert_eq!(
        evaluator.active(World::Reward, &scope),
        native_policy(World::Reward)
    );
    assert_eq!(evaluator.statistics(), &PolicyStatistics::default());
}

#[test]
fn rolling_back_brings_the_one_before_back() {
    let mut evaluator = PolicyEvaluator::default();
    let scope = Scope::of("run");
    change(&mut evaluator, &scope, Change::Activate(Some(bound("a"))));
    let changed = change(&mut evaluator, &scope, Change::Activate(Some(bound("b"))));
    assert_eq!((&*changed.before.0, &*changed.after.0), ("a", "b"));
    let changed = change(&mut evaluator, &scope, Change::RollBack);
    assert_eq!((&*changed.before.0, &*changed.after.0), ("b", "a"));
    let other = evaluator.active(World::Eviction, &Scope::Everyone);
    assert_eq!(other, native_policy(World::Eviction));
}

fn asked(core: &Core, purpose: Purpose) -> Question {
    Question {
        purpose,
        ..question(core)
    }
}

#[test]
fn without_policies_no_worker_is_chosen() {
    let (core, mut evaluator) = (core(), PolicyEvaluator::default());
    let purpose = Purpose::Route { step: StepId(1) };
    let answer = evaluator.answer(&core, &asked(&core, purpose), 5);
    let PolicyAnswer::Order {
        programs,
        scores,
        workers,
        remaining_tokens,
    } = answer.answer
    else {
        panic!("an order was asked for")
    };
    assert!(programs.is_sorted() && programs.len() as u64 == PROGRAMS);
    assert!(scores.iter().all(|score| *score == 0.0));
    assert!(workers.is_empty() && remaining_tokens.is_empty());
    assert!(
        answer.policy.0.starts_with("equal-priority@"),
        "{}",
        answer.policy
    );
    let worker = WorkerId(0);
    for purpose in [Purpose::Migrate, Purpose::Preempt { worker }] {
        let answer = evaluator.answer(&core, &asked(&core, purpose), 5);
        let nobody = PolicyAnswer::Order {
            programs: Vec::new(),
            scores: Vec::new(),
            workers: Vec::new(),
            remaining_tokens: Vec::new(),
        };
        assert_eq!(answer.answer, nobody);
    }
    assert_eq!(evaluator.statistics().fallbacks, 0, "no policy failed");
}
