//! Jobs whose weights are released in the middle of something.

use super::edges::{answer, updated};
use super::trainer::{Form, PART, PAUSE, end, failed};
use super::*;

fn release(fleet: &mut Fleet) {
    let released = WeightsEvent::WeightsReleased { job: "job".into() };
    if fleet.machine.check(&released, &fleet.engines).is_ok() {
        fleet.event(&released);
    }
}

fn load(name: &str) -> TrainerCall {
    TrainerCall::Load {
        name: Some(name.into()),
    }
}

fn why(fleet: &Fleet, worker: u32) -> String {
    let why = fleet.machine.state().why_fenced(WorkerId(worker));
    why.unwrap_or_default().into()
}

/// Nothing is left of the job, and all engines serve.
fn all_serve(fleet: &Fleet) -> bool {
    let state = fleet.machine.state();
    let is_over = state.holdings.is_empty() && state.fenced.is_empty();
    is_over && fleet.engines.values().all(|engine| !engine.paused)
}

/// An engine that was not ready in time for the second version, and is to load it now.
fn left_behind() -> Fleet {
    let mut fleet = updated(3, 1);
    fleet.publish(2, UpdatePlan::default()).expect("is new");
    let late = fleet.pending.pop_front().expect("all prepare");
    answer(&mut fleet, Call::Prepare, &Answer::Done);
    fleet.now = fleet.job().update.as_ref().expect("runs").ready_by();
    fleet.daemon(&DaemonEvent::TimerFired);
    fleet.run_until(|fleet| fleet.job().update.is_none());
    assert!(fleet.holding(0).serves(Some(&version(1))));
    fleet.pending.push_back(late);
    fleet
}

#[test]
fn an_engine_that_treadle_paused_generates_again() {
    let mut phases = BTreeSet::new();
    for calls in 0..8 {
        let mut fleet = left_behind();
        (0..calls).for_each(|_| fleet.go_on());
        let holding = fleet.holding(0);
        let pending = holding.call.map(|pending| pending.call);
        phases.insert((holding.state_name(), pending));
        release(&mut fleet);
        fleet.run_until(all_serve);
        let had = fleet.engines[&WorkerId(0)].content.clone();
        assert!(
            [1, 2]
                .map(|n| Content::Whole(format!("v{n}").into()))
                .contains(&had),
            "{had:?}"
        );
    }
    for call in [
        Call::Pause,
        Call::Apply,
        Call::Verify,
        Call::Clear,
        Call::Resume,
    ] {
        let is_seen = phases.iter().any(|(_, pending)| *pending == Some(call));
        assert!(is_seen, "{call:?} was under way once: {phases:?}");
    }
}

/// Its load failed in the middle, and it was paused to be loaded again.
#[test]
fn an_engine_that_may_have_a_mixture_stays_paused() {
    let mut fleet = left_behind();
    for call in [Call::Prepare, Call::Pause] {
        answer(&mut fleet, call, &Answer::Done);
    }
    let engine = fleet.engines.get_mut(&WorkerId(0)).expect("is there");
    (engine.content, engine.paused) = (Content::Torn(7), true);
    let cause = "it ran out of memory".into();
    release(&mut fleet);
    answer(&mut fleet, Call::Apply, &Answer::Failed { cause });
    (0..40).for_each(|_| fleet.go_on());
    assert_eq!(fleet.holding(0).phase, Phase::Torn);
    assert!(fleet.is_fenced(0) && !fleet.is_fenced(1));
    assert!(why(&fleet, 0).contains("ran out of memory"));
    assert!(fleet.engines[&WorkerId(0)].paused);
    // Until another version is loaded, also of the same job.
    fleet.publish(3, UpdatePlan::default()).expect("is new");
    fleet.run_until(|fleet| fleet.serves_everywhere(3));
}

/// What becomes of an engine after each call of an update by its trainer.
#[test]
fn an_update_by_a_trainer_is_finished_or_given_up() {
    let steps = [
        PAUSE,
        TrainerCall::Begin,
        PART,
        end("1"),
        TrainerCall::Resume,
    ];
    for made in 0..=steps.len() {
        let mut fleet = Fleet::driven(2);
        for step in &steps[..made] {
            fleet.trainer(0, step).expect("goes on");
        }
        release(&mut fleet);
        (0..10).for_each(|_| fleet.go_on());
        match made {
            0 | 5 => {}
            // Its trainer may have taken its memory away, and resumes it by itself.
            1 | 4 => {
                assert!(fleet.is_fenced(0) && fleet.engines[&WorkerId(0)].paused);
                assert!(why(&fleet, 0).contains("its trainer paused it"));
                fleet.trainer(0, &TrainerCall::Resume).expect("is whole");
                assert!(fleet.machine.state().jobs.is_empty(), "it begins no update");
            }
            _ => {
                assert_eq!(fleet.holding(0).phase, Phase::Torn);
                assert!(why(&fleet, 0).contains("released before it proved"));
                let refused = fleet.trainer(0, &TrainerCall::Resume);
                assert!(
                    matches!(refused, Err(WeightsError::Torn { .. })),
                    "{refused:?}"
                );
                let refused = fleet.trainer(0, &PART);
                assert_eq!(refused, Err(WeightsError::NotPaused(WorkerId(0))));
                fleet.round("2", Form::Whole);
                fleet.run_until(|fleet| fleet.has(0, "2") && fleet.has(1, "2"));
                continue;
            }
        }
        fleet.run_until(all_serve);
        let name = if made < 4 { "base" } else { "1" };
        let engine = &fleet.engines[&WorkerId(0)];
        assert_eq!(engine.content, Content::Whole(name.into()), "{made} calls");
        let is_given_up = fleet.machine.state().given_up(WorkerId(0)) > 0;
        assert_eq!(is_given_up, made >= 4, "{made} calls");
    }
}

#[test]
fn an_engine_that_treadle_paused_for_its_trainer_needs_none_to_resume() {
    let mut fleet = Fleet::driven(1);
    let worker = WorkerId(0);
    fleet.unpaused(0, &load("1")).expect("is there");
    release(&mut fleet);
    fleet.run_until(all_serve);
    assert_eq!(fleet.engines[&worker].content, Content::Whole("1".into()));
    // Also if the release comes before the answer to the pause.
    let own = TrainerCall::Pause { own: true };
    for answer in [Answer::Done, failed()] {
        fleet.call(worker, &own).expect("may pause");
        release(&mut fleet);
        assert!(fleet.is_fenced(0), "{}", why(&fleet, 0));
        fleet.answer(worker, &answer);
        fleet.run_until(all_serve);
    }
}

#[test]
fn an_engine_that_joins_a_group_gets_no_steps_before_it_has() {
    for answer in [Answer::Done, failed()] {
        let mut fleet = Fleet::driven(1);
        let worker = WorkerId(0);
        fleet.call(worker, &TrainerCall::Join).expect("is there");
        release(&mut fleet);
        assert!(fleet.is_fenced(0), "it waits for the others");
        fleet.answer(worker, &answer);
        assert_eq!(fleet.is_fenced(0), answer != Answer::Done);
        let hangs = why(&fleet, 0).contains("for ever");
        assert_eq!(hangs, answer != Answer::Done);
    }
}

/// Engines of one update are compared before the first of them generates.
#[test]
fn engines_whose_checksums_differ_are_not_resumed() {
    let mut fleet = Fleet::driven(3);
    for step in [PAUSE, TrainerCall::Begin, PART, end("1")] {
        for worker in 0..3 {
            fleet.trainer(worker, &step).expect("goes on");
        }
    }
    let liar = fleet.engines.get_mut(&WorkerId(0)).expect("is there");
    liar.content = Content::Torn(7);
    for worker in 0..3 {
        fleet
            .call(WorkerId(worker), &TrainerCall::Resume)
            .expect("is whole");
    }
    release(&mut fleet);
    fleet.run_until(|fleet| !fleet.is_fenced(1) && !fleet.is_fenced(2));
    assert_eq!(fleet.holding(0).phase, Phase::Torn);
    assert!(why(&fleet, 0).contains("its checksum differs"));
}

/// The first one has answered a trainer that never pauses, and the others are still loading.
#[test]
fn an_engine_is_not_resumed_before_the_others_can_be_compared() {
    let mut fleet = Fleet::driven(3);
    let workers = [0, 1, 2].map(WorkerId);
    for worker in workers {
        let pause = TrainerCall::Pause { own: true };
        fleet.trainer(worker.0, &pause).expect("may pause");
        fleet.call(worker, &load("1")).expect("is paused");
        let engine = fleet.engines.get_mut(&worker).expect("is there");
        (engine.content, engine.name) = (Content::Whole("1".into()), "1".into());
    }
    let liar = fleet.engines.get_mut(&workers[0]).expect("is there");
    liar.content = Content::Torn(7);
    fleet.answer(workers[0], &Answer::Done);
    release(&mut fleet);
    (0..10).for_each(|_| fleet.go_on());
    assert!(fleet.is_fenced(0), "nobody agrees with it");
    for worker in &workers[1..] {
        fleet.answer(*worker, &Answer::Done);
    }
    fleet.run_until(|fleet| !fleet.is_fenced(1) && !fleet.is_fenced(2));
    assert_eq!(fleet.holding(0).phase, Phase::Torn);
}

#[test]
fn an_engine_that_comes_is_not_fenced_for_one_that_went() {
    let mut fleet = Fleet::new(1, Faults::None, 1);
    fleet.event(&WeightsEvent::WeightsPublished {
        job: "job".into(),
        weights: version(1),
        workers: vec![WorkerId(0)],
        plan: UpdatePlan::default(),
    });
    answer(&mut fleet, Call::Prepare, &Answer::Done);
    assert!(fleet.is_fenced(0));
    // As a worker of the same address.
    fleet.fenced.insert(WorkerId(7), true);
    fleet.engines.insert(WorkerId(7), Engine::fresh());
    fleet.engines.remove(&WorkerId(0));
    fleet.notice(&Notice::WorkersChanged);
    assert_eq!(fleet.fenced.get(&WorkerId(7)), Some(&false));
}

/// An engine dies, with the calls that are under way there, or is started again.
fn disturb(fleet: &mut Fleet) {
    let workers = fleet.engines.len() as u64;
    let worker = WorkerId(u32::try_from(fleet.below(workers)).expect("few"));
    if fleet.below(3) == 0 {
        fleet.pending.clear();
        return fleet.daemon(&DaemonEvent::DaemonRestarted);
    }
    let of_other = |command: &WeightsCommand| {
        let WeightsCommand::Call { worker: of, .. } = command;
        *of != worker
    };
    fleet.pending.retain(of_other);
    let engine = fleet.engines.get_mut(&worker).expect("is there");
    if engine.up {
        engine.up = false;
    } else {
        *engine = Engine::fresh();
    }
    fleet.notice(&Notice::WorkersChanged);
}

/// Updates by treadle or by a trainer, and releases at any time.
fn survive(seed: u64) {
    let mut fleet = Fleet::new(2 + u32::try_from(seed % 3).expect("few"), Faults::Any, seed);
    let is_driven = seed % 2 == 1;
    fleet.never_pauses = seed % 4 == 3;
    let mut next = 1;
    let mut update = |fleet: &mut Fleet| {
        if is_driven {
            let form = fleet.form();
            fleet.round(&format!("v{next}"), form);
            next += 1;
        } else if fleet.publish(next, UpdatePlan::default()).is_ok() {
            next += 1;
        }
    };
    for _ in 0..120 {
        match fleet.below(12) {
            0 => update(&mut fleet),
            1 => release(&mut fleet),
            2 => disturb(&mut fleet),
            _ => {}
        }
        fleet.go_on();
    }
    fleet.faults = Faults::None;
    release(&mut fleet);
    (0..60).for_each(|_| fleet.go_on());
    for worker in fleet.machine.state().fenced.clone() {
        assert!(!why(&fleet, worker.0).is_empty(), "{worker} says why");
    }
    for engine in fleet.engines.values_mut().filter(|engine| !engine.up) {
        *engine = Engine::fresh();
    }
    fleet.notice(&Notice::WorkersChanged);
    let name = format!("v{}", next + 1);
    for number in [next, next + 1] {
        (0..40).for_each(|_| fleet.go_on());
        if is_driven {
            fleet.round(&format!("v{number}"), Form::Whole);
        } else {
            let is_idle = |fleet: &Fleet| {
                let job = fleet.machine.state().jobs.get("job");
                job.is_none_or(|job| job.update.is_none())
            };
            fleet.run_until(is_idle);
            let published = fleet.publish(number, UpdatePlan::default());
            published.expect("nothing is under way");
        }
    }
    fleet.run_until(|fleet| (0..fleet.engines.len()).all(|w| fleet.has(w as u32, &name)));
}

#[test]
fn no_engine_serves_what_its_job_left_unfinished() {
    (0..5_000).for_each(survive);
}
