//! Gateways in other processes, from the scheduler's side.

use super::{Observer, Output, Policies, Scheduler};
use crate::instruction::{Instruction, LiveLimit};
use crate::link::{ToGateway, WireInstruction};
use std::collections::BTreeMap;
use std::mem;
use std::time::{Duration, Instant};
use treadle_core::programs::ProgramEvent;
use treadle_core::programs::{OpenStep, reconcile};
use treadle_core::{DaemonEvent, Event, Origin};
use treadle_model::{GatewayId, StepId, Timestamp};

/// The id of a connection to a gateway; a later connection of the same gateway has another one.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ConnectionId(pub u64);

/// An input about a gateway in another process.
#[derive(Debug)]
pub enum LinkInput {
    /// It connected, replacing any earlier connection.
    Joined {
        /// The gateway.
        gateway: GatewayId,
        /// Its connection.
        connection: ConnectionId,
    },
    /// It relayed an event.
    Relayed {
        /// The origin of the event.
        origin: Origin,
        /// Boxed: the largest input decides the size of the queue's entries.
        event: Box<Event>,
        /// The limit on its tenant's live programs.
        live: Option<LiveLimit>,
    },
    /// It has relayed everything that was not on record, and reports its open steps.
    Open {
        /// The gateway.
        gateway: GatewayId,
        /// Its connection.
        connection: ConnectionId,
        /// Its open steps.
        steps: Vec<OpenStep>,
    },
    /// Its connection ended.
    Left {
        /// The gateway.
        gateway: GatewayId,
        /// The connection.
        connection: ConnectionId,
        /// When it ended: the gateway's time to come back counts from then, however late this is
        /// handled.
        at: Instant,
    },
    /// Its time to come back is over.
    Overdue {
        /// The gateway.
        gateway: GatewayId,
        /// The time it had.
        timeout: Duration,
        /// The time.
        at: Instant,
    },
    /// A message for all gateways.
    Notify(ToGateway),
}

/// A gateway that is connected.
struct Joined {
    connection: ConnectionId,
    /// `None` once both sides agree on the gateway's steps. Until then a step may be elsewhere than
    /// this scheduler assumes, so the gateway gets no instructions; refusals are kept.
    refused: Option<BTreeMap<StepId, Instruction>>,
}

/// Gateways in other processes.
pub(super) struct Links {
    joined: BTreeMap<GatewayId, Joined>,
    left: BTreeMap<GatewayId, Instant>,
    started: Instant,
    /// The last event that each gateway has relayed since the last flush.
    relayed: BTreeMap<GatewayId, u64>,
}

impl Links {
    pub(super) fn new(started: Instant) -> Self {
        Self {
            joined: BTreeMap::new(),
            left: BTreeMap::new(),
            started,
            relayed: BTreeMap::new(),
        }
    }

    /// Gateways to notify once the rows so far are on record.
    pub(super) fn take_relayed(&mut self) -> Vec<(GatewayId, ConnectionId, u64)> {
        let relayed = mem::take(&mut self.relayed).into_iter();
        let joined = |(gateway, n)| Some((gateway, self.joined.get(&gateway)?.connection, n));
        relayed.filter_map(joined).collect()
    }

    /// The message with a step's instruction for its gateway. A gateway that is not connected gets
    /// it when it comes back.
    pub(super) fn instruct(&mut self, step: StepId, instruction: Instruction) -> Option<Output> {
        let joined = self.joined.get_mut(&step.gateway())?;
        if let Some(refused) = &mut joined.refused {
            if matches!(
                instruction,
                Instruction::Refuse(_) | Instruction::RefuseLive { .. }
            ) {
                refused.insert(step, instruction);
            }
            return None;
        }
        let word = WireInstruction::from(instruction);
        let message = ToGateway::Step { step, word };
        Some(Output::ToGateway(joined.connection, message))
    }

    /// Records that both sides agree from now on; returns the refusals that were kept.
    fn agree(&mut self, gateway: GatewayId) -> BTreeMap<StepId, Instruction> {
        let joined = self.joined.get_mut(&gateway);
        let refused = joined.and_then(|joined| joined.refused.take());
        refused.unwrap_or_default()
    }

    /// Whether this is the gateway's present connection; messages of earlier ones are outdated.
    fn is_current(&self, gateway: GatewayId, connection: ConnectionId) -> bool {
        let joined = self.joined.get(&gateway);
        joined.is_some_and(|joined| joined.connection == connection)
    }
}

impl<P: Policies, O: Observer> Scheduler<P, O> {
    pub(super) fn handle_link(&mut self, now: Timestamp, input: LinkInput) {
        match input {
            LinkInput::Joined {
                gateway,
                connection,
            } => self.join(gateway, connection),
            LinkInput::Relayed {
                origin,
                event,
                live,
            } => self.handle_relayed(now, origin, *event, live.as_ref()),
            LinkInput::Open {
                gateway,
                connection,
                steps,
            } => {
                if self.links.is_current(gateway, connection) {
                    self.agree(now, gateway, &steps);
                }
            }
            LinkInput::Left {
                gateway,
                connection,
                at,
            } => {
                if self.links.is_current(gateway, connection) {
                    self.links.joined.remove(&gateway);
                    self.links.left.insert(gateway, at);
                }
            }
            LinkInput::Overdue {
                gateway,
                timeout,
                at,
            } => {
                let left = self.links.left.get(&gateway);
                let left = left.copied().unwrap_or(self.links.started);
                let is_here = self.links.joined.contains_key(&gateway);
                if !is_here && at.saturating_duration_since(left) >= timeout {
                    self.links.left.remove(&gateway);
                    self.handle_event(
                        now,
                        Event::Daemon(DaemonEvent::GatewayLost { gateway }),
                        None,
                    );
                }
            }
            LinkInput::Notify(message) => {
                let all = self.links.joined.values();
                let all = all.map(|joined| Output::ToGateway(joined.connection, message.clone()));
                self.outputs.extend(all);
            }
        }
    }

    fn join(&mut self, gateway: GatewayId, connection: ConnectionId) {
        let handled = self.core.gateways().get(&gateway);
        let handled = handled.copied().unwrap_or_default();
        let welcome = ToGateway::Welcome { handled };
        self.outputs
            .push_back(Output::ToGateway(connection, welcome));
        self.links.left.remove(&gateway);
        let joined = Joined {
            connection,
            refused: Some(BTreeMap::new()),
        };
        self.links.joined.insert(gateway, joined);
        // Events that this scheduler handled before are confirmed again once they are on record.
        self.links.relayed.insert(gateway, handled);
    }

    fn handle_relayed(
        &mut self,
        now: Timestamp,
        origin: Origin,
        event: Event,
        live: Option<&LiveLimit>,
    ) {
        let relayed = self.links.relayed.entry(origin.gateway).or_default();
        *relayed = origin.number.max(*relayed);
        if self.core.has_handled(origin) {
            return;
        }
        if let Event::Program(ProgramEvent::StepFinished { step, .. }) = &event
            && !self.core.programs().steps.contains_key(step)
        {
            // The step was dropped, and is listed so: its client must not take the answer for
            // complete.
            self.instruct(*step, Instruction::Forget);
        }
        if let (Event::Program(ProgramEvent::StepArrived(arrival)), Some(live)) = (&event, live)
            && self.is_beyond(arrival, live)
        {
            let programs_max = live.programs_max;
            let refused = Instruction::RefuseLive { programs_max };
            return self.instruct(arrival.step, refused);
        }
        self.handle_event(now, event, Some(origin));
    }

    /// Makes both sides agree on the gateway's steps.
    fn agree(&mut self, now: Timestamp, gateway: GatewayId, steps: &[OpenStep]) {
        let plan = reconcile(self.core.programs(), gateway, steps);
        let mut refused = self.links.agree(gateway);
        self.handle_together(now, plan.events.into_iter().map(Event::Program).collect());
        for (step, worker) in plan.dispatch {
            let known = self.core.programs().steps.get(&step);
            // The events may have changed the step's worker; then the gateway was already notified.
            let Some(known) = known.filter(|s| s.state.worker() == Some(worker)) else {
                continue;
            };
            let program = Some(known.program);
            let place = program.and_then(|p| self.core.programs().live.get(&p)?.placement);
            let slot = place.and_then(|place| place.slot);
            let priority = known.priority;
            let prefill = known.prefill_to_come();
            let prefill = prefill.and_then(|prefill| self.prefill_at(prefill));
            if let Some(dispatch) = self.dispatch(worker, slot, priority, prefill) {
                self.instruct(step, Instruction::Dispatch(dispatch));
            }
        }
        for step in plan.abort {
            self.abort(step, "the engine is no longer registered".into());
        }
        for step in plan.over {
            // A refusal gives the reason; a step at an engine can't be refused any more.
            let waits = steps
                .iter()
                .any(|open| open.step == step && open.at.is_none());
            let why = refused.remove(&step).filter(|_| waits);
            self.instruct(step, why.unwrap_or(Instruction::Forget));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::{Input, Options};
    use treadle_core::programs::StepArrival;
    use treadle_core::{Core, CoreConfig};
    use treadle_policy::evaluator::{EvaluatorLimits, PolicyEvaluator};

    const GATEWAY: GatewayId = GatewayId(2);
    const CONNECTION: ConnectionId = ConnectionId(7);
    /// The gateway's time to come back.
    const TIMEOUT: Duration = Duration::from_secs(5);

    fn scheduler(started: Instant) -> Scheduler<PolicyEvaluator> {
        let options = Options {
            core: Core::new(CoreConfig::default()),
            seq: 0,
            snapshot_seq: 0,
            journals: true,
            snapshot_events: u64::MAX,
            moves_caches: false,
            started,
        };
        Scheduler::new(
            options,
            PolicyEvaluator::new(EvaluatorLimits::default()),
            (),
        )
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
            inferred: false,
            parent: None,
            group: None,
            model: None,
        };
        LinkInput::Relayed {
            origin: Origin {
                gateway: GATEWAY,
                number,
            },
            event: Box::new(Event::Program(ProgramEvent::StepArrived(arrival))),
            live: None,
        }
    }

    fn joined() -> LinkInput {
        LinkInput::Joined {
            gateway: GATEWAY,
            connection: CONNECTION,
        }
    }

    /// This used to fail: the gateway's steps held their memory forever, as its only timeout fired
    /// too early by as much as the scheduler was late.
    #[test]
    fn a_gateway_whose_leaving_is_noticed_late_is_lost_in_time() {
        let start = Instant::now();
        let mut scheduler = scheduler(start);
        let mut link = |input| {
            scheduler.handle(Timestamp(1), Input::Link(input));
            scheduler.core().programs().steps.len()
        };
        link(joined());
        assert_eq!(link(arrived(1)), 1);
        let overdue = |at| LinkInput::Overdue {
            gateway: GATEWAY,
            timeout: TIMEOUT,
            at,
        };
        let left = start + TIMEOUT;
        link(LinkInput::Left {
            gateway: GATEWAY,
            connection: CONNECTION,
            at: left,
        });
        assert_eq!(link(overdue(left + TIMEOUT / 2)), 1, "it has time left");
        assert_eq!(link(overdue(left + TIMEOUT)), 0);
    }

    /// Instructions sent in between used to be sent twice.
    #[test]
    fn instructions_wait_until_both_sides_agree_on_the_steps() {
        let mut scheduler = scheduler(Instant::now());
        let mut give = |input| {
            scheduler.handle(Timestamp(1), input);
            let outputs = std::iter::from_fn(|| scheduler.poll_output());
            let about_steps =
                |output: &Output| matches!(output, Output::ToGateway(_, ToGateway::Step { .. }));
            outputs.filter(about_steps).count()
        };
        give(Input::Event(Event::Program(ProgramEvent::WorkerAdded {
            worker: treadle_model::WorkerId(0),
            url: "http://e".into(),
            engine: treadle_model::EngineKind::Vllm,
            capacity: treadle_core::memory::Capacity {
                tokens: Some(10_000),
                ..treadle_core::memory::Capacity::default()
            },
            role: None,
        })));
        give(Input::Link(joined()));
        assert_eq!(give(Input::Link(arrived(1))), 0, "it is dispatched");
        let open = || LinkInput::Open {
            gateway: GATEWAY,
            connection: CONNECTION,
            steps: vec![OpenStep {
                step: StepId::of(GATEWAY, 1),
                at: None,
            }],
        };
        assert_eq!(give(Input::Link(open())), 1);
    }

    #[test]
    fn what_is_relayed_twice_is_handled_once_and_confirmed_again() {
        let mut scheduler = scheduler(Instant::now());
        let mut link = |input| {
            scheduler.handle(Timestamp(1), Input::Link(input));
            let records = scheduler.take_records();
            (records.rows.events.len(), records.relayed)
        };
        link(joined());
        let confirmed = vec![(GATEWAY, CONNECTION, 1)];
        assert_eq!(link(arrived(1)).1, confirmed);
        assert_eq!(link(arrived(1)), (0, confirmed));
    }
}
