//! Members prefer the class of hardware that their job declares for their domain: they go there while
//! it has room, fall back rather than wait, return when that pays, and do not go back and forth.

use crate::scenario::Scenario;
use treadle_core::Event;
use treadle_core::programs::ProgramEvent;
use treadle_core::training::{Affinity, JobSettings, MemberRef, TrainingEvent};
use treadle_model::WorkerId;

/// Engines with this much memory, of these classes and with these microseconds per token.
fn engines(engines: &[(u64, &str, u64)]) -> Scenario {
    let memory: Vec<u64> = engines.iter().map(|(memory, ..)| *memory).collect();
    let mut s = Scenario::with_workers(&memory);
    for (worker, (_, class, token_us)) in (0..).zip(engines) {
        s.classify(worker, Some(class));
        s.handle(Event::Program(ProgramEvent::WorkerSpeedRead {
            worker: WorkerId(worker),
            prefill_tokens_per_s: 10_000,
            token_us: *token_us,
            step_us: 0,
            declared: true,
        }));
    }
    s
}

impl Scenario {
    fn classify(&mut self, worker: u32, class: Option<&str>) -> &mut Self {
        self.handle(Event::Program(ProgramEvent::WorkerClassSet {
            worker: WorkerId(worker),
            class: class.map(Box::from),
        }))
    }

    /// Declares a run with this affinity.
    fn declare(&mut self, affinity: &str) -> &mut Self {
        let affinity: Affinity = serde_json::from_str(affinity).expect("it is valid");
        self.handle(Event::Training(TrainingEvent::JobDeclared {
            job: "story".into(),
            settings: Box::new(JobSettings {
                affinity: Some(affinity),
                rewarded: false,
                batch_groups: 1_000,
                ..JobSettings::default()
            }),
        }))
    }

    /// A program becomes a member of a group of its own of this domain.
    fn begin(&mut self, program: &str, domain: &str) -> &mut Self {
        let (job, group): (Box<str>, Box<str>) = ("story".into(), program.into());
        self.handle(Event::Training(TrainingEvent::GroupSubmitted {
            job: job.clone(),
            group: group.clone(),
            size: Some(1),
            content: None,
            domain: Some(domain.into()),
        }));
        let program = program.into();
        self.handle(Event::Training(TrainingEvent::MemberArrived {
            member: MemberRef {
                job,
                group,
                program,
            },
            direct: false,
        }))
    }

    fn class_of(&self, program: &str) -> Option<&str> {
        let programs = self.core.programs();
        programs.program(program).and_then(|p| p.class.as_deref())
    }

    fn last_worker(&self) -> u32 {
        self.dispatched().last().expect("a step was sent").1
    }
}

/// The larger engine is no reason for math to leave its class.
fn two_classes() -> Scenario {
    let mut s = engines(&[(100_000, "h20", 20_000), (200_000, "h800", 30_000)]);
    s.declare(r#"{"math": "h20", "default": "h800"}"#);
    s
}

#[test]
fn members_go_to_the_class_of_their_domain() {
    let mut s = two_classes();
    s.begin("m", "math").arrive("m", 1, 20_000);
    s.begin("c", "code").arrive("c", 2, 20_000);
    s.begin("n", "math").arrive("n", 3, 20_000);
    assert_eq!(s.dispatched(), [(1, 0), (2, 1), (3, 0)]);
    assert_eq!(
        (s.class_of("m"), s.class_of("c")),
        (Some("h20"), Some("h800"))
    );
    // No member, and so no preference: to the one with more memory.
    s.arrive("stranger", 4, 1_000);
    assert_eq!((s.class_of("stranger"), s.last_worker()), (None, 1));
}

#[test]
fn a_program_that_a_member_starts_prefers_its_class() {
    let mut s = two_classes();
    s.begin("m", "math").arrive("m", 1, 20_000);
    s.finish(1, 20_000, 10);
    s.arrive_from(("m", true), "helper", 2, 1_000, vec![]);
    assert_eq!((s.class_of("helper"), s.last_worker()), (Some("h20"), 0));
}

#[test]
fn a_class_without_workers_is_no_preference() {
    let mut s = engines(&[(100_000, "h20", 20_000), (200_000, "h800", 30_000)]);
    s.declare(r#"{"math": "h200"}"#);
    s.begin("m", "math").arrive("m", 1, 20_000);
    assert_eq!((s.class_of("m"), s.last_worker()), (Some("h200"), 1));
    // Once there is one, and it has room, waiting programs go there.
    s.classify(0, Some("h200"));
    s.begin("n", "math").arrive("n", 2, 20_000);
    assert_eq!(s.last_worker(), 0);
}

#[test]
fn a_member_falls_back_rather_than_waits_and_returns_once() {
    let mut s = two_classes();
    s.begin("big", "math").arrive("big", 3, 95_000);
    assert_eq!(s.last_worker(), 0);
    s.begin("m", "math").arrive("m", 4, 20_000);
    assert_eq!(s.last_worker(), 1, "it does not wait");
    s.wait_s(10).finish(4, 20_000, 1_000);
    s.arrive("m", 5, 21_000);
    assert_eq!(s.last_worker(), 1, "its class is full");
    s.wait_s(10).finish(5, 21_000, 1_000);
    s.finish(3, 95_000, 10).release("big");
    // 2,000 tokens more take 20 s less, and its context takes 2.3 s: the engine need not be twice as
    // fast.
    s.arrive("m", 6, 22_000);
    assert_eq!(s.last_worker(), 0, "it returns");
    let moves = s.core.programs().counters.moves;
    for step in 7..12 {
        s.wait_s(10).finish(step - 1, 22_000, 1_000);
        s.arrive("m", step, 22_000);
        assert_eq!(s.last_worker(), 0, "and stays");
    }
    assert_eq!(s.core.programs().counters.moves, moves);
}

#[test]
fn a_member_that_would_gain_too_little_stays_where_its_cache_is() {
    let mut s = two_classes();
    s.begin("big", "math").arrive("big", 1, 95_000);
    s.begin("m", "math").arrive("m", 2, 20_000);
    assert_eq!(s.dispatched(), [(1, 0), (2, 1)]);
    s.finish(1, 95_000, 10).release("big");
    // 100 tokens: 1 s less, for 2 s.
    s.wait_s(10).finish(2, 20_000, 100);
    s.arrive("m", 3, 20_100);
    assert_eq!(s.last_worker(), 1);
}

#[test]
fn what_is_not_cached_returns_in_any_case() {
    let mut s = two_classes();
    s.begin("big", "math").arrive("big", 1, 95_000);
    s.begin("m", "math").arrive("m", 2, 20_000);
    s.wait_s(10).finish(2, 20_000, 100);
    s.finish(1, 95_000, 10).release("big");
    // Its worker was lost, and with it the cache.
    s.lose(1).recover(1);
    s.arrive("m", 3, 20_100);
    assert_eq!(s.last_worker(), 0);
}

#[test]
fn a_member_does_not_leave_its_class_for_a_faster_engine() {
    let second = |affinity: &str| {
        let mut s = engines(&[(200_000, "h20", 30_000), (100_000, "h800", 10_000)]);
        s.declare(affinity);
        s.begin("m", "math").arrive("m", 1, 20_000);
        s.wait_s(10).finish(1, 20_000, 1_000);
        s.arrive("m", 2, 21_000);
        s.dispatched()
    };
    assert_eq!(second("{}"), [(1, 0), (2, 1)]);
    assert_eq!(second(r#"{"math": "h20"}"#), [(1, 0), (2, 0)]);
}

#[test]
fn ended_members_make_the_profile_of_their_domain() {
    let mut s = two_classes();
    s.begin("m", "math").arrive("m", 1, 20_000);
    s.wait_s(10).finish(1, 20_000, 1_000);
    s.arrive("m", 2, 21_500);
    s.wait_s(10).finish(2, 21_500, 500).release("m");
    // One that is released in the middle of a step tells nothing of a whole member.
    s.begin("cut", "math")
        .arrive("cut", 3, 20_000)
        .release("cut");
    s.arrive("stranger", 4, 1_000).finish(4, 1_000, 10);
    s.release("stranger");
    let programs = s.core.programs();
    let profile = programs
        .estimates
        .profiles()
        .get("story")
        .expect("it has one");
    assert_eq!(profile.domains.len(), 1);
    let math = profile.domains["math"];
    assert_eq!(
        (math.members, math.turns, math.output_tokens),
        (1, 2, 1_500)
    );
    assert_eq!(math.prefill_tokens, 20_500, "each token counts once");
    let times: Vec<(String, u64)> = programs
        .class_speeds()
        .iter()
        .map(|speed| (speed.class.to_string(), math.member_ms(speed)))
        .collect();
    // 2.05 s for prompts, and 20 or 30 ms per token.
    assert_eq!(times, [("h20".into(), 32_050), ("h800".into(), 47_050)]);
    let removed = TrainingEvent::JobRemoved {
        job: "story".into(),
    };
    s.handle(Event::Training(removed));
    assert!(s.core.programs().estimates.profiles().is_empty());
}

#[test]
fn automatic_affinity_chooses_by_the_profile_and_says_so_before_it_acts() {
    let mut s = Scenario::with_workers(&[1_000_000, 1_000_000]);
    for (worker, class, prefill) in [(0, "h20", 2_500), (1, "h800", 16_000)] {
        s.classify(worker, Some(class));
        s.handle(Event::Program(ProgramEvent::WorkerSpeedRead {
            worker: WorkerId(worker),
            prefill_tokens_per_s: prefill,
            token_us: 12_000,
            step_us: 0,
            declared: true,
        }));
    }
    s.declare(r#""auto""#);
    let mut step = 0;
    let mut run = |s: &mut Scenario, domain: &str, prompt: u64, output: u64| {
        step += 1;
        let program = format!("p{step}");
        s.begin(&program, domain).arrive(&program, step, prompt);
        let class = s.class_of(&program).map(str::to_owned);
        s.wait_s(1).finish(step, prompt, output).release(&program);
        class
    };
    let mut proposed_at = None;
    let mut acts_at = None;
    for round in 0..40 {
        let math = run(&mut s, "math", 200, 4_000);
        let game = run(&mut s, "game", 40_000, 500);
        let profile = s.core.programs().estimates.profiles();
        let is_proposed = !profile.get("story").expect("known").proposed.is_empty();
        proposed_at = proposed_at.or(is_proposed.then_some(round));
        if math.is_some() && game.is_some() {
            assert_eq!(
                (math.as_deref(), game.as_deref()),
                (Some("h20"), Some("h800"))
            );
            acts_at = acts_at.or(Some(round));
        }
    }
    let (proposed, acts) = (proposed_at.expect("proposed"), acts_at.expect("it acts"));
    assert!(proposed + 8 <= acts, "{proposed} {acts}");
}

#[test]
fn speeds_of_one_class_do_not_stand_for_another() {
    let mut s = Scenario::with_workers(&[100_000; 3]);
    for (worker, class) in [(0, Some("h20")), (1, Some("h20")), (2, Some("h800"))] {
        s.classify(worker, class).serves(worker, &["m"]);
    }
    s.handle(Event::Program(ProgramEvent::WorkerSpeedRead {
        worker: WorkerId(0),
        prefill_tokens_per_s: 10_000,
        token_us: 20_000,
        step_us: 0,
        declared: false,
    }));
    let programs = s.core.programs();
    let known = |worker| {
        let worker = &programs.workers[&WorkerId(worker)];
        let time = programs
            .decode_time_of(worker)
            .map(|time| time.alone.micros());
        (time, programs.prefill_speed_of(worker))
    };
    assert_eq!(known(1), (Some(20_000), Some(10_000)));
    assert_eq!(known(2), (None, None));
    // Another class: what was learnt is not true of it.
    s.classify(0, Some("h800"));
    let worker = &s.core.programs().workers[&WorkerId(0)];
    assert_eq!(worker.speeds.decode_time(), None);
}

#[test]
fn a_class_is_on_record_until_the_worker_is_removed() {
    let mut s = two_classes();
    let class = |s: &Scenario| {
        let worker = s.core.programs().workers.get(&WorkerId(0));
        worker.and_then(|w| w.class.as_deref().map(str::to_owned))
    };
    let text = serde_json::to_string(&s.core.state()).expect("a snapshot");
    assert!(text.contains(r#""class":"h20""#), "{text}");
    s.lose(0).recover(0);
    assert_eq!(class(&s).as_deref(), Some("h20"));
    s.classify(0, None);
    assert_eq!(class(&s), None);
}
