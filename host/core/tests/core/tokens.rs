//! Text prompts: their estimates before engines count them, and the ledger after that.

use crate::scenario::Scenario;
use proptest::prelude::*;
use treadle_core::Event;
use treadle_core::memory::PrefixSegment;
use treadle_core::programs::{ProgramEvent, PromptText, StepArrival};
use treadle_model::{StepId, WorkerId};

/// A model's tokenizer and chat template.
#[derive(Clone, Copy, Debug)]
struct Tokenizer {
    request: f64,
    message: f64,
    bytes_per_token: f64,
}

impl Tokenizer {
    const PLAIN: Self = Self {
        request: 0.0,
        message: 10.0,
        bytes_per_token: 4.0,
    };

    fn part(self, bytes: u64, messages: u32) -> f64 {
        f64::from(messages) * self.message + bytes as f64 / self.bytes_per_token
    }

    fn prompt(self, bytes: u64, messages: u32) -> u64 {
        (self.request + self.part(bytes, messages)).ceil() as u64
    }
}

fn send(scenario: &mut Scenario, program: &str, step: u64, sizes: &[(u64, u64)]) {
    let prefix = sizes.iter().take(4);
    let arrival = StepArrival {
        step: StepId(step),
        program: program.into(),
        job: "job".into(),
        prompt_tokens: 0,
        exact: false,
        prompt_bytes: sizes.iter().map(|(_, bytes)| bytes).sum(),
        text: Some(PromptText {
            model: "m".into(),
            messages: sizes.len() as u32,
            prefix_bytes: prefix.clone().map(|(_, bytes)| *bytes).collect(),
        }),
        output_tokens_max: None,
        prefix: prefix
            .map(|(hash, _)| PrefixSegment {
                hash: *hash,
                tokens: 0,
            })
            .collect(),
        one_shot: false,
        inferred: false,
        parent: None,
        group: None,
        model: None,
    };
    scenario.handle(Event::Program(ProgramEvent::StepArrived(arrival)));
}

/// One program: its messages, each with a name and a size.
struct Agent {
    name: String,
    messages: Vec<(u64, u64)>,
    context: u64,
}

/// Two programs of the same group begin with the same two messages.
fn agent(index: u64, group: u64, system: u64, task: u64) -> Agent {
    Agent {
        name: format!("agent-{index}"),
        messages: vec![(1, system), (10 + group, task)],
        context: 0,
    }
}

impl Agent {
    fn bytes(&self) -> u64 {
        self.messages.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Sends the history, and adds the answer and a tool's result to it.
    fn turn(&mut self, scenario: &mut Scenario, step: u64, tokenizer: Tokenizer, grows: u64) {
        send(scenario, &self.name, step, &self.messages);
        let prompt = tokenizer.prompt(self.bytes(), self.messages.len() as u32);
        scenario.finish(step, prompt, 50);
        self.context = prompt + 50;
        let own = 1_000 + step * 2;
        self.messages.extend([(own, 200), (own + 1, grows)]);
    }
}

/// Tokens that an engine holds for all of them, with shared ones counted once.
fn held(agents: &[Agent], tokenizer: Tokenizer) -> f64 {
    let mut shared = std::collections::BTreeMap::new();
    let mut private = 0.0;
    for agent in agents {
        let prefix = &agent.messages[..2];
        private += agent.context as f64;
        for (hash, bytes) in prefix {
            private -= tokenizer.part(*bytes, 1);
            shared.insert(*hash, tokenizer.part(*bytes, 1));
        }
    }
    private + shared.values().sum::<f64>()
}

fn charged(scenario: &Scenario) -> u64 {
    scenario.core.programs().workers[&WorkerId(0)].used_tokens()
}

/// No engine takes it, and each refuses at once: no room needs to be made.
#[test]
fn a_prompt_that_is_far_too_long_costs_others_nothing() {
    let mut scenario = Scenario::with_workers(&[1_000]);
    scenario.arrive("a", 1, 600).finish(1, 600, 10);
    send(&mut scenario, "long", 2, &[(1, 2_000), (2, 6_000)]);
    assert_eq!(scenario.dispatched().last(), Some(&(2, 0)));
    scenario.wait_s(60);
    assert_eq!(scenario.status("a"), "active");
    // One that may fit waits for room.
    send(&mut scenario, "other", 3, &[(1, 2_000), (2, 2_000)]);
    assert_eq!(scenario.dispatched().last(), Some(&(2, 0)));
}

#[test]
fn a_first_request_of_two_bytes_does_not_change_what_programs_are_charged() {
    let mut scenario = Scenario::with_workers(&[10_000_000]);
    let tokenizer = Tokenizer::PLAIN;
    let hi = Agent {
        name: "warm-up".into(),
        messages: vec![(5, 2)],
        context: 0,
    };
    let mut agents = vec![hi];
    agents[0].turn(&mut scenario, 1, tokenizer, 0);
    scenario.release("warm-up");
    agents.clear();
    for index in 0..39 {
        agents.push(agent(index, index / 8, 6_000, 6_482));
    }
    for turn in 0..12 {
        for (step, agent) in (2 + turn * 39..).zip(&mut agents) {
            agent.turn(&mut scenario, step, tokenizer, 3_000);
        }
        let (charged, held) = (charged(&scenario) as f64, held(&agents, tokenizer));
        assert!((charged / held - 1.0).abs() < 0.02, "{charged} for {held}");
    }
}

#[test]
fn an_estimate_refuses_nothing_and_a_count_does() {
    let mut scenario = Scenario::with_workers(&[262_144]);
    send(&mut scenario, "warm-up", 1, &[(5, 2)]);
    scenario.finish(1, 13, 1).release("warm-up");
    // Whatever its estimate: the engine itself refuses prompts that are too long.
    send(&mut scenario, "long", 2, &[(6, 400_012)]);
    send(&mut scenario, "too-long", 3, &[(7, 4_000_000)]);
    scenario.wait_s(1);
    assert!(scenario.refusals().is_empty(), "{:?}", scenario.refusals());
    scenario.arrive("counted", 4, 300_000);
    assert_eq!(scenario.refusals().len(), 1);
}

#[test]
fn an_engine_that_counts_nothing_leaves_the_estimate() {
    let mut scenario = Scenario::with_workers(&[100_000]);
    send(&mut scenario, "p", 1, &[(5, 4_000)]);
    scenario.finish(1, 0, 100);
    let p = scenario.core.programs().program("p").unwrap();
    assert_eq!(p.context_tokens, 1_110);
    assert!(scenario.core.programs().estimates.tokens().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For any tokenizer, first prompt and order: once an engine has counted a turn or two of each
    /// program, the sum of charges equals the tokens that it holds. Shared tokens are only known
    /// from the counts of whole prompts, so histories that are short and share nearly everything
    /// leave them undetermined.
    #[test]
    fn charges_are_what_engines_hold(
        request in 0.0_f64..40.0,
        message in 0.0_f64..15.0,
        bytes_per_token in 2.5_f64..5.5,
        first in proptest::collection::vec(1_u64..200, 0..4),
        (system, task) in (2_000_u64..12_000, 500_u64..6_000),
        turns in proptest::collection::vec((0_usize..12, 500_u64..12_000), 24..80),
    ) {
        let tokenizer = Tokenizer { request, message, bytes_per_token };
        let mut scenario = Scenario::with_workers(&[1_000_000_000]);
        let mut step = 0;
        for bytes in first {
            step += 1;
            send(&mut scenario, "first", step, &[(step + 100, bytes)]);
            scenario.finish(step, tokenizer.prompt(bytes, 1), 5).release("first");
        }
        let mut agents: Vec<Agent> = (0..12)
            .map(|index| agent(index, index / 4, system, task))
            .collect();
        let all = (0..24).map(|turn: usize| (turn % 12, 6_000));
        for (index, grows) in all.chain(turns) {
            step += 1;
            agents[index].turn(&mut scenario, step, tokenizer, grows);
        }
        let (charged, held) = (charged(&scenario) as f64, held(&agents, tokenizer));
        prop_assert!((charged / held - 1.0).abs() < 0.02, "{} for {}", charged, held);
    }
}
