//! Gateways in other processes, as the driver sees them.

use super::run::Driver;
use crate::instruction::{Instruction, LiveLimit};
use crate::link::{ToGateway, Word};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;
use treadle_core::link::{OpenStep, reconcile};
use treadle_core::{Event, Origin};
use treadle_model::{GatewayId, StepId};

/// How words reach a gateway. What waits in it is bounded by the gateway's
/// open steps; a connection that does not take it is cut.
pub type Words = UnboundedSender<ToGateway>;

/// Something about a gateway in another process.
pub enum LinkInput {
    /// It is connected, in place of any connection that it had before.
    Joined {
        /// The gateway.
        gateway: GatewayId,
        /// The way back to it.
        words: Words,
    },
    /// It relays an event.
    Relayed {
        /// Where the event comes from.
        origin: Origin,
        /// Boxed: the largest input decides the size of the queue's places.
        event: Box<Event>,
        /// How many programs its tenant may have.
        live: Option<LiveLimit>,
    },
    /// It has relayed all that was not on record, and has these steps.
    Open {
        /// The gateway.
        gateway: GatewayId,
        /// The way back to it.
        words: Words,
        /// Its open steps.
        steps: Vec<OpenStep>,
    },
    /// Its connection ended.
    Left {
        /// The gateway.
        gateway: GatewayId,
        /// The way back to it.
        words: Words,
        /// When; it has as long to come back as from then, however late this is taken.
        at: Instant,
    },
    /// It has had this long to come back.
    Overdue {
        /// The gateway.
        gateway: GatewayId,
        /// How long to wait for it.
        patience: Duration,
    },
    /// A word for all gateways.
    Tell(ToGateway),
}

/// Gateways in other processes.
pub(super) struct Links {
    joined: HashMap<GatewayId, Words>,
    left: HashMap<GatewayId, Instant>,
    started: Instant,
    /// Relayed since the last flush.
    relayed: HashMap<GatewayId, u64>,
}

impl Default for Links {
    fn default() -> Self {
        Self {
            joined: HashMap::new(),
            left: HashMap::new(),
            started: Instant::now(),
            relayed: HashMap::new(),
        }
    }
}

impl Links {
    /// Whom to tell what is on record once the rows seen so far are.
    pub(super) fn take_relayed(&mut self) -> Vec<(GatewayId, Words, u64)> {
        let joined = &self.joined;
        let relayed = self.relayed.drain();
        let told =
            relayed.filter_map(|(gateway, n)| Some((gateway, joined.get(&gateway)?.clone(), n)));
        told.collect()
    }

    /// Says a word about a step to its gateway. One that is not connected asks
    /// when it comes back.
    pub(super) fn instruct(&self, step: StepId, instruction: Instruction) {
        if let Some(words) = self.joined.get(&step.gateway()) {
            let word = Word::from(instruction);
            let _ = words.send(ToGateway::Step { step, word });
        }
    }
}

impl Driver {
    pub(super) fn take_link(&mut self, input: LinkInput) {
        match input {
            LinkInput::Joined { gateway, words } => {
                let handled = self.core.state().gateways.get(&gateway);
                let handled = handled.copied().unwrap_or_default();
                let _ = words.send(ToGateway::Welcome { handled });
                self.links.left.remove(&gateway);
                self.links.joined.insert(gateway, words);
                // What was handled by this scheduler before is told again once
                // it is on record.
                self.links.relayed.insert(gateway, handled);
            }
            LinkInput::Relayed {
                origin,
                event,
                live,
            } => self.relayed(origin, *event, live.as_ref()),
            LinkInput::Open {
                gateway,
                words,
                steps,
            } => {
                // What an earlier connection still says is no longer so.
                let held = self.links.joined.get(&gateway);
                if held.is_some_and(|held| held.same_channel(&words)) {
                    self.agree(gateway, &steps);
                }
            }
            LinkInput::Left { gateway, words, at } => {
                let held = self.links.joined.get(&gateway);
                if held.is_some_and(|held| held.same_channel(&words)) {
                    self.links.joined.remove(&gateway);
                    self.links.left.insert(gateway, at);
                }
            }
            LinkInput::Overdue { gateway, patience } => {
                let left = self.links.left.get(&gateway);
                let left = left.copied().unwrap_or(self.links.started);
                let is_here = self.links.joined.contains_key(&gateway);
                if !is_here && left.elapsed() >= patience {
                    self.links.left.remove(&gateway);
                    self.handle(Event::GatewayLost { gateway });
                }
            }
            LinkInput::Tell(word) => {
                for words in self.links.joined.values() {
                    let _ = words.send(word.clone());
                }
            }
        }
    }

    fn relayed(&mut self, origin: Origin, event: Event, live: Option<&LiveLimit>) {
        let relayed = self.links.relayed.entry(origin.gateway).or_default();
        *relayed = origin.number.max(*relayed);
        if self.core.has_handled(origin) {
            return;
        }
        if let Event::StepFinished { step, .. } = &event
            && !self.core.state().steps.contains_key(step)
        {
            // It was given up, and is listed so: its client must not take the answer for whole.
            self.links.instruct(*step, Instruction::Forget);
        }
        if let (Event::StepArrived(arrival), Some(live)) = (&event, live)
            && self.is_beyond(arrival, live)
        {
            let programs_max = live.programs_max;
            let refused = Instruction::RefuseLive { programs_max };
            return self.links.instruct(arrival.step, refused);
        }
        self.handle_from(event, Some(origin));
    }

    /// Both sides go on with the same steps.
    fn agree(&mut self, gateway: GatewayId, steps: &[OpenStep]) {
        let plan = reconcile(self.core.state(), gateway, steps);
        self.handle_together(plan.events);
        for (step, worker) in plan.dispatch {
            let known = self.core.state().steps.get(&step);
            // The events may have changed where it is; then it was told so already.
            let Some(known) = known.filter(|s| s.state.worker() == Some(worker)) else {
                continue;
            };
            let program = Some(known.program);
            let place = program.and_then(|p| self.core.state().programs.get(&p)?.place);
            let slot = place.and_then(|place| place.slot);
            let priority = known.priority;
            if let Some(dispatch) = self.dispatch(worker, slot, priority) {
                self.links.instruct(step, Instruction::Dispatch(dispatch));
            }
        }
        for step in plan.abort {
            let cause = "the scheduler does not know the engine any more".into();
            self.links.instruct(step, Instruction::Abort(cause));
        }
        for step in plan.over {
            self.links.instruct(step, Instruction::Forget);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, DriverHandle, DriverOptions, spawn_driver};
    use tokio::sync::mpsc::unbounded_channel;
    use treadle_core::{Core, CoreConfig, StepArrival};
    use treadle_model::Timestamp;
    use treadle_policy::evaluator::{DeskLimits, PolicyDesk};

    const GATEWAY: GatewayId = GatewayId(2);
    /// How long the gateway has to come back.
    const PATIENCE: Duration = Duration::from_millis(50);

    fn driver() -> DriverHandle {
        spawn_driver(DriverOptions {
            core: Core::new(CoreConfig::default()),
            seq: 0,
            clock: Clock::start(Timestamp(0), 1.0),
            policies: PolicyDesk::new(DeskLimits::default()),
            journal: None,
            snapshot_events: u64::MAX,
            forecasts: None,
            transfers: None,
        })
        .unwrap()
    }

    fn arrived(number: u64) -> LinkInput {
        let arrival = StepArrival {
            step: StepId::of(GATEWAY, 1),
            program: "p".into(),
            job: "j".into(),
            prompt_tokens: 1,
            exact: true,
            prompt_bytes: 1,
            text: None,
            output_tokens_max: None,
            prefix: vec![],
            one_shot: false,
            unnamed: false,
        };
        LinkInput::Relayed {
            origin: Origin {
                gateway: GATEWAY,
                number,
            },
            event: Box::new(Event::StepArrived(arrival)),
            live: None,
        }
    }

    /// Once this failed, its steps held their memory for ever: the only look at whether it was
    /// back came too early by as much as the driver was late.
    #[tokio::test]
    async fn a_gateway_that_leaves_while_the_driver_is_busy_is_lost_in_time() {
        let driver = driver();
        let (words, _told) = unbounded_channel();
        let joined = words.clone();
        driver
            .link(LinkInput::Joined {
                gateway: GATEWAY,
                words: joined,
            })
            .unwrap();
        driver.link(arrived(1)).unwrap();
        let steps = |view: &crate::View<'_>| view.core.state().steps.len();
        assert_eq!(driver.read(steps).await.unwrap(), 1);
        let busy = driver.clone();
        let busy =
            tokio::spawn(async move { busy.read(|_| std::thread::sleep(PATIENCE * 2)).await });
        tokio::task::yield_now().await;
        let at = Instant::now();
        driver
            .link(LinkInput::Left {
                gateway: GATEWAY,
                words,
                at,
            })
            .unwrap();
        tokio::time::sleep(PATIENCE).await;
        driver
            .link(LinkInput::Overdue {
                gateway: GATEWAY,
                patience: PATIENCE,
            })
            .unwrap();
        assert_eq!(driver.read(steps).await.unwrap(), 0);
        busy.await.unwrap().unwrap();
        driver.stop().await;
    }
}
