//! Gateways: they submit steps, carry out their instructions and report.
//!
//! Messages between them and the daemon are numbered. The network loses, duplicates, delays and
//! reorders them; each side resends lost messages and restores the order of those it receives.

use super::Simulation;
use super::calendar::ScheduledEvent;
use super::daemon::AckTo;
use super::remote::Remote;
use super::schedule::FaultKind;
use std::collections::BTreeMap;
use treadle_core::Event;
use treadle_core::programs::{ProgramEvent, Refusal, StepFailure};
use treadle_dst_outcome::{Checked, broken};
use treadle_model::{StepId, WorkerId};
use treadle_scheduler::link::{FromGateway, ToGateway};
use treadle_scheduler::{Dispatch, Instruction};

/// Time after which a lost message is sent again.
const RESEND_US: u64 = 200_000;
/// Maximum number of consecutive losses of a message.
const LOSSES_MAX: u64 = 8;
/// Maximum delay of a late message.
const LATE_US_MAX: u64 = 4_000_000;

/// A report of a gateway to the daemon.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) body: ReportBody,
    pub(crate) ack: Option<AckTo>,
}

/// The content of a report.
#[derive(Clone, Debug)]
pub(crate) enum ReportBody {
    /// An event of a gateway in the daemon's process.
    Event(Event),
    /// A message of a gateway in another process.
    Link(FromGateway),
}

/// A message of the daemon to a gateway.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// An instruction for a gateway in the daemon's process.
    Local(StepId, Instruction),
    /// A message for a gateway in another process.
    Link(ToGateway),
}

/// Restores the order of numbered messages.
#[derive(Debug)]
pub(crate) struct Inbox<T> {
    next: u64,
    held: BTreeMap<u64, T>,
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self {
            next: 0,
            held: BTreeMap::new(),
        }
    }
}

impl<T> Inbox<T> {
    /// Accepts a message, and returns those that are next in order.
    pub(crate) fn accept(&mut self, number: u64, message: T) -> Vec<T> {
        if number >= self.next {
            self.held.entry(number).or_insert(message);
        }
        let mut ready = Vec::new();
        while let Some(message) = self.held.remove(&self.next) {
            ready.push(message);
            self.next += 1;
        }
        ready
    }
}

/// An unanswered request of a client.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) agent: usize,
    pub(crate) branch: usize,
    /// Number of its request at an engine.
    pub(crate) request: Option<u64>,
    /// Tokens generated before a preemption.
    pub(crate) generated: u64,
}

/// A gateway.
#[derive(Default)]
pub(crate) struct Gateway {
    /// Its end of the link, if it is in its own process.
    pub(crate) remote: Option<Remote>,
    pub(crate) exchanges: BTreeMap<StepId, Exchange>,
    /// Its connection to the daemon.
    pub(crate) link: Option<u64>,
    pub(crate) inbox: Inbox<Order>,
    pub(super) sent: u64,
}

/// The end of a request for its client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Answer {
    Whole,
    /// The request may be sent again.
    Failed,
    /// Sending the request again is pointless.
    Hopeless,
}

impl Simulation {
    /// Reports an event to the daemon.
    pub(crate) fn send_report(&mut self, gateway: usize, event: Event, ack: Option<AckTo>) {
        if let Some(remote) = &mut self.gateways[gateway].remote {
            remote.report(event, ack);
            return self.relay(gateway);
        }
        let body = ReportBody::Event(event);
        self.send(gateway, Report { body, ack });
    }

    /// Sends a report over the gateway's connection, if it has one.
    pub(crate) fn send(&mut self, gateway: usize, report: Report) {
        let Some(link) = self.gateways[gateway].link else {
            return;
        };
        let number = self.gateways[gateway].sent;
        self.gateways[gateway].sent += 1;
        let report = Box::new(report);
        for delay in self.transits(gateway) {
            let report = report.clone();
            let message = ScheduledEvent::Report {
                gateway,
                link,
                number,
                report,
            };
            self.calendar.put(self.now_us + delay, message);
        }
    }

    /// Sends an order over the gateway's connection, if it has one.
    pub(crate) fn order(&mut self, gateway: usize, number: u64, order: &Order) {
        let Some(link) = self.gateways[gateway].link else {
            return;
        };
        for delay in self.transits(gateway) {
            let order = order.clone();
            let message = ScheduledEvent::Order {
                gateway,
                link,
                number,
                order,
            };
            self.calendar.put(self.now_us + delay, message);
        }
    }

    /// Delays of a message, one for each time that it arrives.
    fn transits(&mut self, gateway: usize) -> Vec<u64> {
        let of = self.gateways.len();
        let stream = &mut self.streams.network;
        let mut delay = 20 + stream.below(self.plan.behaviour.message_us_max);
        if let Some(strength) = self
            .active_faults
            .strikes(FaultKind::MessagesLost, gateway, of)
        {
            let mut losses = 0;
            while losses < LOSSES_MAX && stream.percent(strength) {
                losses += 1;
                delay += RESEND_US;
                self.counts.count(FaultKind::MessagesLost.name());
            }
        }
        if let Some(strength) = self
            .active_faults
            .strikes(FaultKind::MessagesDelayed, gateway, of)
            && stream.percent(strength)
        {
            delay += stream.below(LATE_US_MAX);
            self.counts.count(FaultKind::MessagesDelayed.name());
        }
        let mut delays = vec![delay];
        if let Some(strength) =
            self.active_faults
                .strikes(FaultKind::MessagesDuplicated, gateway, of)
            && stream.percent(strength)
        {
            delays.push(stream.below(delay + RESEND_US));
            self.counts.count(FaultKind::MessagesDuplicated.name());
        }
        delays
    }

    /// A message has reached a gateway.
    pub(crate) fn ordered(
        &mut self,
        gateway: usize,
        link: u64,
        number: u64,
        order: Order,
    ) -> Checked {
        if self.gateways[gateway].link != Some(link) {
            return Ok(());
        }
        for order in self.gateways[gateway].inbox.accept(number, order) {
            self.trace.line(self.now_us, || {
                format!("gateway {gateway} is sent {order:?}")
            });
            match order {
                Order::Local(step, instruction) => self.instructed(gateway, step, instruction)?,
                Order::Link(message) => self.hear(gateway, message)?,
            }
        }
        Ok(())
    }

    /// The handler of a step receives an instruction.
    pub(crate) fn instructed(
        &mut self,
        gateway: usize,
        step: StepId,
        instruction: Instruction,
    ) -> Checked {
        match instruction {
            Instruction::Dispatch(Dispatch { worker, slot, .. }) => {
                return self.request(gateway, step, worker, slot);
            }
            Instruction::Refuse(refusal) => return self.turn_away(gateway, step, &refusal),
            Instruction::Abort(_) | Instruction::Cut => self.abort(gateway, step),
            Instruction::Preempt => self.interrupt(gateway, step),
            Instruction::Forget | Instruction::RefuseLive { .. } => self.give_up(gateway, step),
        }
        Ok(())
    }

    fn request(
        &mut self,
        gateway: usize,
        step: StepId,
        worker: WorkerId,
        slot: Option<u32>,
    ) -> Checked {
        let Some(exchange) = self.gateways[gateway].exchanges.get(&step) else {
            // Its client disconnected; the daemon is about to be notified.
            return Ok(());
        };
        if let Some(open) = exchange.request {
            return broken(
                "one-dispatch",
                format!(
                    "{step} is at an engine (request {open}) and is sent to {worker} (slot {slot:?})"
                ),
            );
        }
        let (agent, branch, before) = (exchange.agent, exchange.branch, exchange.generated);
        let request = self.start_request(gateway, step, worker, (agent, branch), before);
        if let Some(exchange) = self.gateways[gateway].exchanges.get_mut(&step) {
            exchange.request = Some(request);
        }
        Ok(())
    }

    fn turn_away(&mut self, gateway: usize, step: StepId, refusal: &Refusal) -> Checked {
        let exchange = self.gateways[gateway].exchanges.get(&step);
        if let Some(request) = exchange.and_then(|exchange| exchange.request) {
            return broken(
                "one-dispatch",
                format!("{step} is at an engine (request {request}) and is refused: {refusal:?}"),
            );
        }
        self.refused(gateway, step, refusal);
        Ok(())
    }

    /// Reports to a client that its step is refused.
    fn refused(&mut self, gateway: usize, step: StepId, refusal: &Refusal) {
        let Some(exchange) = self.gateways[gateway].exchanges.remove(&step) else {
            return;
        };
        self.ends.count(refusal_name(refusal));
        let answer = match refusal {
            Refusal::ContextTooLong { .. } => Answer::Hopeless,
            _ => Answer::Failed,
        };
        self.answer(exchange.agent, exchange.branch, answer);
    }

    fn abort(&mut self, gateway: usize, step: StepId) {
        let open = self.gateways[gateway]
            .exchanges
            .get(&step)
            .and_then(|e| e.request);
        if let Some(request) = open {
            self.request_failed(request, "the worker was lost");
        }
    }

    /// A request failed: whether the step may be retried depends on whether its client has received
    /// any of the answer.
    pub(crate) fn request_failed(&mut self, request: u64, cause: &str) {
        let Some(request) = self.requests.remove(&request) else {
            return;
        };
        let (gateway, step) = (request.gateway, request.step);
        let retryable = !request.began;
        let failure = StepFailure {
            cause: cause.into(),
            retryable,
            rejected: false,
            busy: None,
        };
        self.send_report(
            gateway,
            Event::Program(ProgramEvent::StepFailed { step, failure }),
            None,
        );
        if retryable {
            let Some(exchange) = self.gateways[gateway].exchanges.get_mut(&step) else {
                return;
            };
            exchange.request = None;
        } else if let Some(exchange) = self.gateways[gateway].exchanges.remove(&step) {
            self.answer(exchange.agent, exchange.branch, Answer::Failed);
        }
    }

    /// A client disconnects.
    pub(crate) fn client_leaves(&mut self, agent: usize, branch: usize, attempt: u64) {
        let Some(step) = self.agents[agent].open_attempt(branch, attempt) else {
            return;
        };
        let gateway = agent % self.gateways.len();
        let Some(exchange) = self.gateways[gateway].exchanges.remove(&step) else {
            return;
        };
        if let Some(request) = exchange.request {
            self.requests.remove(&request);
        }
        self.counts.count("client-left");
        self.send_report(
            gateway,
            Event::Program(ProgramEvent::StepCancelled { step }),
            None,
        );
        self.answer(agent, branch, Answer::Failed);
    }
}

const fn refusal_name(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::ContextTooLong { .. } => "refused: context too long",
        Refusal::QueueWaitExceeded { .. } => "refused: waited too long",
        Refusal::QueueFull { .. } => "refused: queue full",
        Refusal::ProgramsFull { .. } => "refused: programs full",
        Refusal::EngineFailed { .. } => "refused: engines failed",
        Refusal::ProgramReleased => "refused: program released",
        Refusal::ModelUnknown { .. } => "refused: model unknown",
    }
}
