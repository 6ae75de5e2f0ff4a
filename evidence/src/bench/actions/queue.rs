//! The core with a long queue for one resource: the questions that it asks of the allocation policy,
//! and the processor time that it takes itself.

use super::decisions::{CORES, QUEUED, UNITS};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};
use tangram_allocation::TangramAllocation;
use treadle_core::actions::{
    ActionCommand, ActionEvent, ActionSpec, Demand, Outcome, Resource, Supply,
};
use treadle_model::{ActionId, PolicyRef, Span, Timestamp};
use treadle_plugin::harness::{Actions, draw};
use treadle_plugin::random::SplitMix64;
use treadle_plugin::{Policy, PolicyError};
use treadle_report::latencies::Latencies;
use treadle_simulator::actions::{Allocator, Machine, Treadle};
use treadle_systems::actions::Linked;

/// What all of them draw from.
const RESOURCE: &str = "pool";
/// Services that devices are asked for.
const SERVICES: u64 = 10;
/// Numbers of devices that they run on.
const DEVICES: [u32; 4] = [1, 2, 4, 8];

/// A queue under way.
pub(super) struct Queue {
    core: Treadle,
    policy: Linked<TangramAllocation>,
    random: SplitMix64,
    chunked: bool,
    now_us: u64,
    submitted: u64,
    /// When each running action ends.
    running: BinaryHeap<Reverse<(u64, u64)>>,
    /// Questions since they were last taken.
    questions: Vec<Actions>,
}

impl Queue {
    /// One with all actions queued, of cores or of devices.
    pub(super) fn new(config: &str, chunked: bool) -> Result<Self, PolicyError> {
        let mut queue = Self {
            core: Treadle::default(),
            policy: Linked(TangramAllocation::configure(config)?),
            random: SplitMix64::new(7),
            chunked,
            now_us: 0,
            submitted: 0,
            running: BinaryHeap::new(),
            questions: Vec::new(),
        };
        let supply = if chunked {
            Supply::Devices {
                nodes: vec![8; UNITS as usize / 8],
            }
        } else {
            Supply::Units {
                total: u64::from(UNITS),
            }
        };
        queue.tell(ActionEvent::ResourcesSet {
            resources: vec![Resource {
                name: RESOURCE.into(),
                supply,
            }],
        });
        for service in 0..SERVICES {
            queue.tell(ActionEvent::ServiceDeclared {
                service: format!("model-{service}").into(),
                load: Span::from_millis(800),
            });
        }
        queue.fill();
        Ok(queue)
    }

    /// Submits actions until the queue is as long as it should be.
    fn fill(&mut self) {
        while self.core.core().actions().waiting().count() < QUEUED {
            self.submit();
        }
    }

    /// The next action ends and another one is submitted, `actions` times. The time that the core
    /// takes for both, answers of the policy aside, and the questions that it asks.
    pub(super) fn run(&mut self, actions: usize) -> (Latencies, Vec<Actions>) {
        self.questions.clear();
        let mut times = Latencies::default();
        for _ in 0..actions {
            times.push(self.end() + self.submit());
            self.fill();
        }
        (times, std::mem::take(&mut self.questions))
    }

    fn end(&mut self) -> Duration {
        let Some(Reverse((at_us, id))) = self.running.pop() else {
            return Duration::ZERO;
        };
        self.now_us = self.now_us.max(at_us);
        self.tell(ActionEvent::ActionEnded {
            action: ActionId(id),
            attempt: 1,
            outcome: Outcome::Exited { code: 0 },
            output: None,
        })
    }

    fn submit(&mut self) -> Duration {
        self.submitted += 1;
        self.now_us += 1_000;
        let spec = Box::new(self.spec());
        self.tell(ActionEvent::ActionSubmitted {
            action: ActionId(self.submitted),
            spec,
        })
    }

    /// Hands an event over and does what follows from it; the time of the core.
    fn tell(&mut self, event: ActionEvent) -> Duration {
        let now = Timestamp(self.now_us);
        let mut spent = Duration::ZERO;
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let began = Instant::now();
            self.core.handle(now, event);
            let mut commands = Vec::new();
            while let Some(command) = self.core.poll() {
                commands.push(command);
            }
            spent += began.elapsed();
            let follows = commands.into_iter().filter_map(|c| self.carry_out(c));
            events.extend(follows);
        }
        spent
    }

    fn carry_out(&mut self, command: ActionCommand) -> Option<ActionEvent> {
        match command {
            ActionCommand::StartAction {
                action, attempt, ..
            } => {
                let started = self.core.core().actions().action(action)?.started()?;
                let expected_us = started.expected.map_or(self.now_us, |at| at.0);
                self.running.push(Reverse((expected_us, action.0)));
                Some(ActionEvent::ActionBegan { action, attempt })
            }
            ActionCommand::AskElastic { ask, question, .. } => {
                self.questions
                    .push(Linked::<TangramAllocation>::table(&question));
                Some(ActionEvent::ElasticAnswered {
                    ask,
                    policy: PolicyRef("tangram-allocation".into()),
                    answer: self.policy.allocate(&question),
                })
            }
            ActionCommand::StopAction { .. } | ActionCommand::AnswerAction { .. } => None,
        }
    }

    /// Most can do with several amounts, as rewards can; one in four has the least, as commands.
    fn spec(&mut self) -> ActionSpec {
        let random = &mut self.random;
        let alone_us = 1_000 + draw::below(random, 120_000_000);
        let parallel_ppm = 800_000 + draw::below(random, 190_000);
        let options: &[u32] = if self.chunked { &DEVICES } else { &CORES };
        let options = match draw::below(random, 4) {
            0 => &options[..1],
            _ => options,
        };
        let with = |units: &u32| {
            let apart_us = alone_us * parallel_ppm / 1_000_000;
            Span(alone_us - apart_us + apart_us / u64::from(*units))
        };
        let service = draw::below(random, SERVICES);
        ActionSpec {
            program: None,
            job: "bench".into(),
            kind: "reward".into(),
            demands: vec![Demand {
                resource: RESOURCE.into(),
                options: options.iter().copied().map(u64::from).collect(),
            }],
            durations: options.iter().map(with).collect(),
            service: self.chunked.then(|| format!("model-{service}").into()),
            run_max: Span::from_secs(86_400),
            start_by: None,
            idempotent: false,
            idempotency_key: None,
            body: format!("{:x}", self.submitted).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_stays_long_and_the_core_asks_about_it() {
        for chunked in [false, true] {
            let mut queue = Queue::new("{}", chunked).unwrap();
            let (times, questions) = queue.run(50);
            assert_eq!(times.count(), 50);
            assert!(questions.len() > 20, "{}", questions.len());
            for question in &questions {
                question.columns().check(0).unwrap();
            }
            let state = queue.core.core().actions();
            assert_eq!(state.waiting().count(), QUEUED);
            assert_eq!(
                (state.counters.corrected, state.counters.unanswered),
                (0, 0)
            );
            queue.core.core().assert_invariants();
        }
    }
}
