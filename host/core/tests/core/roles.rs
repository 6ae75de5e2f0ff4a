//! Roles of workers: programs are placed on decode workers, and long prompts are computed by prefill
//! workers first, where that costs less time.

use crate::scenario::Scenario;
use treadle_core::memory::Capacity;
use treadle_core::programs::{ProgramCommand, ProgramEvent, StepTokens};
use treadle_core::programs::{WorkerRole, WorkerState};
use treadle_core::{Command, Event};
use treadle_model::{EngineKind, FinishReason, StepId, WorkerId};

const PREFILL: u32 = 0;
const DECODE: u32 = 1;

impl Scenario {
    fn joins(&mut self, worker: u32, engine: EngineKind, tokens: u64, role: Option<WorkerRole>) {
        self.handle(Event::Program(ProgramEvent::WorkerAdded {
            worker: WorkerId(worker),
            url: format!("http://engine-{worker}").into(),
            engine,
            capacity: Capacity {
                tokens: Some(tokens),
                ..Capacity::default()
            },
            role,
        }));
    }

    fn takes_role(&mut self, worker: u32, role: WorkerRole) -> &mut Self {
        self.handle(Event::Program(ProgramEvent::WorkerRoleSet {
            worker: WorkerId(worker),
            role,
            bootstrap_port: None,
        }))
    }

    /// It computes 10,000 tokens a second, and generates one in 20 ms.
    fn has_speed(&mut self, worker: u32) -> &mut Self {
        self.handle(Event::Program(ProgramEvent::WorkerSpeedRead {
            worker: WorkerId(worker),
            prefill_tokens_per_s: 10_000,
            token_us: 20_000,
            step_us: 0,
            declared: true,
        }))
    }

    fn prefilled(&mut self, step: u64, prompt_tokens: u64, cached: Option<u64>) -> &mut Self {
        self.handle(Event::Program(ProgramEvent::StepPrefilled {
            step: StepId(step),
            prompt_tokens,
            cached_tokens: cached,
        }))
    }

    fn prefill_fails(&mut self, step: u64) -> &mut Self {
        self.handle(Event::Program(ProgramEvent::StepPrefillFailed {
            step: StepId(step),
            cause: "503".into(),
        }))
    }

    fn first_token(&mut self, step: u64) -> &mut Self {
        self.handle(Event::Program(ProgramEvent::StepFirstToken {
            step: StepId(step),
        }))
    }

    /// It ends at its own worker, to which this many tokens of its prompt were cached.
    fn ends(&mut self, step: u64, prompt: u64, cached: u64) -> &mut Self {
        self.handle(Event::Program(ProgramEvent::StepFinished {
            step: StepId(step),
            tokens: StepTokens {
                prompt,
                output: 10,
                cached: Some(cached),
            },
            finish: FinishReason::Stop,
            weights: None,
        }))
    }

    fn is_aborted(&self, step: u64) -> bool {
        let is_it = |c: &Command| match c {
            Command::Program(ProgramCommand::AbortStep { step: cut, .. }) => *cut == StepId(step),
            _ => false,
        };
        self.log.iter().any(is_it)
    }

    /// The workers of the last dispatch: the one that computes the prompt first, and its own.
    fn last_sent(&self) -> (Option<u32>, u32) {
        let sent = |c: &Command| match c {
            Command::Program(ProgramCommand::DispatchStep {
                worker, prefill, ..
            }) => Some((prefill.map(|prefill| prefill.worker.0), worker.0)),
            _ => None,
        };
        let last = self.log.iter().rev().find_map(sent);
        last.expect("a step was sent")
    }

    fn waiting_tokens(&self, worker: u32) -> u64 {
        let w = &self.core.programs().workers[&WorkerId(worker)];
        w.ledger.engine().prompt_tokens()
    }

    fn prefills(&self, worker: u32) -> u32 {
        self.core.programs().workers[&WorkerId(worker)].prefills
    }
}

/// A prefill worker, and a decode worker that generates an answer.
fn fleet() -> Scenario {
    let mut s = Scenario::with_workers(&[100_000, 1_000_000]);
    s.takes_role(PREFILL, WorkerRole::Prefill);
    s.takes_role(DECODE, WorkerRole::Decode);
    s.has_speed(PREFILL).has_speed(DECODE);
    s.arrive("busy", 1, 1_000).first_token(1);
    s
}

#[test]
fn a_long_prompt_is_computed_elsewhere_and_a_short_one_is_not() {
    let mut s = fleet();
    // Nothing ran: its own worker is as quick, without a transfer.
    assert_eq!(s.last_sent(), (None, DECODE));
    s.arrive("a", 2, 20_000);
    assert_eq!(s.last_sent(), (Some(PREFILL), DECODE));
    assert_eq!(
        (s.prefills(PREFILL), s.waiting_tokens(PREFILL)),
        (1, 20_000)
    );
    s.prefilled(2, 20_000, Some(0));
    assert_eq!((s.prefills(PREFILL), s.waiting_tokens(PREFILL)), (0, 0));
    s.first_token(2).finish(2, 20_000, 100);
    // 100 tokens more take 10 ms, which fits into one pass beside the other answer.
    s.arrive("a", 3, 20_200);
    assert_eq!(s.last_sent(), (None, DECODE));
    s.first_token(3).finish(3, 20_200, 100);
    // The result of a tool is long; the prefill worker has the first prompt in its cache.
    s.arrive("a", 4, 50_000);
    assert_eq!(s.last_sent(), (Some(PREFILL), DECODE));
    assert_eq!(s.waiting_tokens(PREFILL), 30_000);
    let counters = &s.core.programs().counters;
    assert_eq!((counters.prefills, counters.prefills_failed), (2, 0));
}

#[test]
fn a_prefill_worker_forgets_prompts_once_it_has_computed_as_much_as_it_holds() {
    let mut s = fleet();
    s.arrive("a", 2, 20_000).prefilled(2, 20_000, Some(0));
    s.first_token(2).finish(2, 20_000, 100);
    s.arrive("b", 3, 90_000).prefilled(3, 90_000, Some(0));
    s.arrive("a", 4, 50_000);
    assert_eq!(s.last_sent(), (Some(PREFILL), DECODE));
    assert_eq!(s.waiting_tokens(PREFILL), 50_000);
}

#[test]
fn a_prompt_stays_if_the_prefill_worker_has_too_much_to_do() {
    let mut s = fleet();
    s.arrive("large", 2, 95_000);
    assert_eq!(s.last_sent(), (Some(PREFILL), DECODE));
    // 10.5 s there; 1 s here, and a second for each of two other steps.
    s.arrive("a", 3, 10_000);
    assert_eq!(s.last_sent(), (None, DECODE));
    s.prefilled(2, 95_000, Some(0));
    s.arrive("b", 4, 10_000);
    assert_eq!(s.last_sent(), (Some(PREFILL), DECODE));
}

#[test]
fn without_roles_nothing_is_different() {
    let mut s = Scenario::with_workers(&[1_000_000, 1_000_000]);
    s.has_speed(0).has_speed(1);
    s.arrive("busy", 1, 1_000).first_token(1);
    s.arrive("a", 2, 20_000).arrive("b", 3, 20_000);
    assert_eq!(s.last_sent().0, None);
    // Nor is the state of those that have none.
    let text = serde_json::to_string(&s.core.state()).expect("a snapshot");
    for name in [
        "role",
        "prefills",
        "prefilled",
        "handovers",
        "bootstrap_port",
    ] {
        assert!(!text.contains(&format!("\"{name}\":")), "{name}: {text}");
    }
}

#[test]
fn a_failed_prefill_is_made_up_for_and_not_tried_again() {
    let mut s = fleet();
    s.arrive("a", 2, 20_000).prefill_fails(2);
    assert_eq!((s.prefills(PREFILL), s.waiting_tokens(PREFILL)), (0, 0));
    assert_eq!(s.core.programs().counters.prefills_failed, 1);
    // A report that comes late changes nothing.
    s.prefilled(2, 20_000, Some(0)).prefill_fails(2);
    assert_eq!(s.core.programs().counters.prefills_failed, 1);
    s.fail(2, true);
    assert_eq!(s.last_sent(), (None, DECODE));
    s.first_token(2).finish(2, 20_000, 100);
    s.arrive("a", 3, 50_000);
    assert_eq!(s.last_sent(), (Some(PREFILL), DECODE), "another step is");
}

#[test]
fn a_cancelled_step_leaves_both_workers() {
    let mut s = fleet();
    s.arrive("a", 2, 20_000);
    s.handle(Event::Program(ProgramEvent::StepCancelled {
        step: StepId(2),
    }));
    assert_eq!((s.prefills(PREFILL), s.waiting_tokens(PREFILL)), (0, 0));
    let w = &s.core.programs().workers[&WorkerId(DECODE)];
    assert_eq!(w.running_steps, 1);
}

#[test]
fn tokens_count_once_wherever_they_are_computed() {
    let mut s = fleet();
    s.arrive("a", 2, 20_000).prefilled(2, 20_000, Some(4_000));
    s.first_token(2);
    // To its own worker all that it fetched was in a cache.
    s.ends(2, 20_000, 19_999);
    let counters = &s.core.programs().counters;
    assert_eq!(counters.prompt_tokens, 20_000);
    assert_eq!(counters.cached_tokens, 4_000);
}

#[test]
fn slow_transfers_are_learnt() {
    let mut s = fleet();
    for step in 2..6 {
        s.arrive(&format!("p{step}"), step, 20_000);
        assert_eq!(s.last_sent(), (Some(PREFILL), DECODE));
        s.prefilled(step, 20_000, None).wait_s(100);
        s.first_token(step);
    }
    s.arrive("a", 6, 20_000);
    assert_eq!(s.last_sent(), (None, DECODE), "it would take 100 s");
}

#[test]
fn a_prefill_worker_out_of_service_gets_no_prompts() {
    let mut s = fleet();
    s.set_state(PREFILL, WorkerState::Cordoned);
    s.arrive("a", 2, 20_000);
    assert_eq!(s.last_sent(), (None, DECODE));
    s.set_state(PREFILL, WorkerState::Active).lose(PREFILL);
    s.arrive("b", 3, 20_000);
    assert_eq!(s.last_sent(), (None, DECODE));
    s.recover(PREFILL).arrive("c", 4, 20_000);
    assert_eq!(s.last_sent(), (Some(PREFILL), DECODE));
}

#[test]
fn programs_leave_a_worker_that_only_computes_prompts_from_now_on() {
    let mut s = Scenario::with_workers(&[200_000, 100_000]);
    s.arrive("a", 1, 1_000);
    assert_eq!(s.last_sent(), (None, 0));
    s.takes_role(0, WorkerRole::Prefill);
    s.finish(1, 1_000, 10).arrive("a", 2, 1_100);
    assert_eq!(s.last_sent(), (None, 1));
    s.arrive("b", 3, 1_000);
    assert_eq!(s.last_sent(), (None, 1));
    s.takes_role(0, WorkerRole::Both).arrive("c", 4, 1_000);
    assert_eq!(s.last_sent(), (None, 0));
}

#[test]
fn a_wait_for_a_failing_prefill_worker_is_not_the_speed_of_the_other_one() {
    let mut s = fleet();
    s.arrive("a", 2, 20_000).wait_s(100).prefill_fails(2);
    s.first_token(2).ends(2, 20_000, 0);
    let w = &s.core.programs().workers[&WorkerId(DECODE)];
    assert_eq!(w.speeds.prefill_tokens_per_s(), Some(10_000));
}

#[test]
fn a_worker_has_its_role_from_the_moment_it_joins() {
    let mut s = Scenario::with_workers(&[]);
    s.joins(0, EngineKind::Vllm, 200_000, Some(WorkerRole::Prefill));
    s.joins(1, EngineKind::Vllm, 100_000, None);
    s.arrive("a", 1, 1_000);
    assert_eq!(s.last_sent(), (None, 1));
    let role = |s: &Scenario| s.core.programs().workers[&WorkerId(1)].role;
    // It is registered again while its last step runs.
    s.handle(Event::Program(ProgramEvent::WorkerRemoved {
        worker: WorkerId(1),
    }));
    s.joins(1, EngineKind::Vllm, 100_000, Some(WorkerRole::Decode));
    assert_eq!(role(&s), WorkerRole::Decode);
    s.joins(1, EngineKind::Vllm, 100_000, None);
    assert_eq!(role(&s), WorkerRole::Decode, "it was here");
}

#[test]
fn a_role_that_is_set_again_keeps_the_port() {
    let mut s = Scenario::with_workers(&[]);
    s.joins(0, EngineKind::Sglang, 100_000, None);
    s.handle(Event::Program(ProgramEvent::WorkerRoleSet {
        worker: WorkerId(0),
        role: WorkerRole::Prefill,
        bootstrap_port: Some(9_001),
    }));
    let port = |s: &Scenario| s.core.programs().workers[&WorkerId(0)].bootstrap_port;
    s.takes_role(0, WorkerRole::Prefill);
    assert_eq!(port(&s), Some(9_001));
    s.takes_role(0, WorkerRole::Decode);
    assert_eq!(port(&s), None);
}

/// Two prefill workers, and decode workers that can do nothing without those.
fn sglang_fleet(decode_workers: u32) -> Scenario {
    let mut s = Scenario::with_workers(&[]);
    for worker in 0..2 {
        s.joins(worker, EngineKind::Sglang, 100_000, None);
        s.takes_role(worker, WorkerRole::Prefill);
    }
    for worker in 2..2 + decode_workers {
        s.joins(worker, EngineKind::Sglang, 100_000, None);
        s.takes_role(worker, WorkerRole::Decode);
    }
    s
}

/// `SGLang`'s engines in the decode mode compute no prompts.
#[test]
fn a_decode_worker_that_can_not_compute_prompts_has_each_computed() {
    let mut s = sglang_fleet(1);
    s.arrive("a", 1, 10);
    assert_eq!(s.last_sent(), (Some(0), 2));
    s.prefill_fails(1).fail(1, true);
    assert_eq!(s.last_sent(), (Some(1), 2), "by the other one");
}

#[test]
fn a_step_does_not_leave_a_decode_worker_whose_prefill_worker_failed() {
    let mut s = sglang_fleet(2);
    s.arrive("a", 1, 10);
    let own = s.last_sent().1;
    s.prefill_fails(1).fail(1, true);
    assert_eq!(s.last_sent(), (Some(1), own));
    // This time it is the decode worker.
    s.fail(1, true);
    assert_ne!(s.last_sent().1, own);
}

#[test]
fn a_step_that_waits_for_the_prompt_of_a_lost_worker_is_sent_again() {
    let mut s = sglang_fleet(2);
    s.arrive("a", 1, 10);
    let own = s.last_sent().1;
    assert_eq!(s.last_sent().0, Some(0));
    s.lose(0);
    assert!(s.is_aborted(1));
    s.fail(1, true);
    assert_eq!(s.last_sent(), (Some(1), own));
    // What has a token has its prompt, and another engine's steps compute their own.
    s.first_token(1).lose(1);
    let aborted = |c: &&Command| matches!(c, Command::Program(ProgramCommand::AbortStep { .. }));
    assert_eq!(s.log.iter().filter(aborted).count(), 1);
    let mut s = fleet();
    s.arrive("a", 2, 20_000).lose(PREFILL);
    assert!(!s.is_aborted(2));
}
