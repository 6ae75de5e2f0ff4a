//! Gateways in their own processes: they outlive a daemon, and continue their steps under the next
//! one. Their end of the link is the real one.

use super::Simulation;
use super::calendar::ScheduledEvent;
use super::daemon::AckTo;
use super::gateway::{Answer, Gateway, Inbox, Report, ReportBody};
use super::schedule::FaultKind;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use treadle_core::Event;
use treadle_core::programs::ProgramEvent;
use treadle_dst_outcome::{Checked, broken};
use treadle_model::{GatewayId, StepId};
use treadle_scheduler::link::{FromGateway, RemoteScheduler, ToGateway};
use treadle_scheduler::scheduler::{ConnectionId, Input, LinkInput};
use treadle_scheduler::{Instruction, Recording};

/// Maximum time until a gateway has found the daemon.
const CONNECT_US_MAX: u64 = 2_000_000;
/// Maximum time until a daemon notices that a connection has ended.
const NOTICE_US_MAX: u64 = 4_000_000;
/// How long the daemon waits for a gateway that may be gone.
const TIMEOUT_US: u64 = 10_000_000;

/// A gateway's end of the link to a daemon in another process.
pub(crate) struct Remote {
    pub(crate) link: RemoteScheduler,
    /// Whether the daemon has responded on the current connection.
    is_welcome: bool,
    steps: u64,
    /// Number of events so far.
    events: u64,
    handlers: BTreeMap<StepId, UnboundedReceiver<Instruction>>,
    /// Acknowledgements to send once the event with that number is on record.
    waiting: VecDeque<(u64, Recording, AckTo)>,
}

impl Remote {
    pub(crate) fn new(id: GatewayId) -> Self {
        Self {
            link: RemoteScheduler::new(id),
            is_welcome: false,
            steps: 0,
            events: 0,
            handlers: BTreeMap::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Stores an event until it is on record.
    pub(crate) fn report(&mut self, event: Event, ack: Option<AckTo>) {
        self.events += 1;
        match (event, ack) {
            (Event::Program(ProgramEvent::StepArrived(arrival)), _) => {
                let step = arrival.step;
                if let Ok(handler) = self.link.submit(arrival, None) {
                    self.handlers.insert(step, handler);
                }
            }
            (event, Some(ack)) => {
                let recording = self.link.event_to_record(event);
                self.waiting.push_back((self.events, recording, ack));
            }
            (event, None) => self.link.event(event),
        }
    }
}

impl Simulation {
    /// The gateway's next step id.
    pub(crate) fn step_id(&mut self, gateway: usize) -> StepId {
        if let Some(remote) = &mut self.gateways[gateway].remote {
            remote.steps += 1;
            return StepId::of(remote.link.gateway(), remote.steps);
        }
        let step = StepId(self.next_step);
        self.next_step += 1;
        step
    }

    /// A daemon has started: its own gateways are new, others connect to it.
    pub(crate) fn connect_gateways(&mut self, known: &BTreeSet<GatewayId>) {
        let session = self.session;
        for gateway in 0..self.gateways.len() {
            if self.gateways[gateway].remote.is_some() {
                self.gateway_comes_back(gateway);
            } else {
                self.gateways[gateway] = Gateway::default();
                self.gateways[gateway].link = Some(self.new_link());
            }
        }
        for id in known {
            let missed = ScheduledEvent::GatewayMissed { session, id: *id };
            self.calendar.put(self.now_us + TIMEOUT_US, missed);
        }
    }

    fn new_link(&mut self) -> u64 {
        self.links += 1;
        self.links
    }

    /// The daemon is gone with its own gateways: their clients get no answer. Others continue.
    pub(crate) fn disconnect_gateways(&mut self) {
        for gateway in 0..self.gateways.len() {
            self.gateways[gateway].link = None;
            if self.gateways[gateway].remote.is_none() {
                self.drop_exchanges(gateway);
            }
        }
    }

    fn drop_exchanges(&mut self, gateway: usize) {
        self.requests
            .retain(|_, request| request.gateway != gateway);
        let open = std::mem::take(&mut self.gateways[gateway].exchanges);
        for exchange in open.into_values() {
            self.answer(exchange.agent, exchange.branch, Answer::Failed);
        }
    }

    /// A gateway connects and identifies itself.
    pub(crate) fn gateway_connects(&mut self, gateway: usize, session: u32) {
        if self.session_is_over(session) || self.gateways[gateway].link.is_some() {
            return;
        }
        let link = self.new_link();
        let g = &mut self.gateways[gateway];
        let Some(remote) = &mut g.remote else {
            return;
        };
        remote.is_welcome = false;
        g.link = Some(link);
        g.sent = 0;
        g.inbox = Inbox::default();
        let hello = FromGateway::Hello {
            gateway: remote.link.gateway(),
            name: String::new(),
        };
        if let Some(daemon) = &mut self.daemon {
            daemon.meet(gateway);
        }
        self.send_frames(gateway, vec![hello]);
    }

    fn send_frames(&mut self, gateway: usize, frames: Vec<FromGateway>) {
        for frame in frames {
            let body = ReportBody::Link(frame);
            self.send(gateway, Report { body, ack: None });
        }
    }

    /// Relays events that were not relayed yet.
    pub(crate) fn relay(&mut self, gateway: usize) {
        let g = &self.gateways[gateway];
        if let Some(remote) = g.remote.as_ref().filter(|r| r.is_welcome)
            && g.link.is_some()
        {
            let frames = remote.link.unsent(usize::MAX);
            self.send_frames(gateway, frames);
        }
    }

    /// Handles a message of the daemon.
    pub(crate) fn hear(&mut self, gateway: usize, message: ToGateway) -> Checked {
        let Some(remote) = &mut self.gateways[gateway].remote else {
            return Ok(());
        };
        if let ToGateway::Welcome { handled } = message {
            remote.is_welcome = true;
            let frames = remote.link.resume(handled);
            self.send_frames(gateway, frames);
            return Ok(());
        }
        let step = match &message {
            ToGateway::Step { step, .. } => Some(*step),
            _ => None,
        };
        remote.link.hear(message);
        let handler = step.and_then(|step| remote.handlers.get_mut(&step));
        let instructions: Vec<_> = handler
            .map(|handler| std::iter::from_fn(|| handler.try_recv().ok()).collect())
            .unwrap_or_default();
        for (step, instruction) in step.into_iter().cycle().zip(instructions) {
            self.instructed(gateway, step, instruction)?;
        }
        self.hear_of_records(gateway)
    }

    /// Sends acknowledgements for events that are on record.
    fn hear_of_records(&mut self, gateway: usize) -> Checked {
        while let Some(remote) = &mut self.gateways[gateway].remote {
            let id = remote.link.gateway();
            let waits = |(_, recording, _): &mut (u64, Recording, AckTo)| {
                recording.result() == Some(Ok(()))
            };
            let Some((number, _, ack)) = remote.waiting.pop_front_if(waits) else {
                break;
            };
            let Some(row) = self.database.relayed(id, number) else {
                let what = format!("event {number} of {id} is not in the journal");
                return broken("acknowledged", what);
            };
            self.acknowledge([(row, ack)].into());
        }
        Ok(())
    }

    /// The daemon does not know a step: its client is notified.
    pub(crate) fn give_up(&mut self, gateway: usize, step: StepId) {
        let Some(exchange) = self.gateways[gateway].exchanges.remove(&step) else {
            return;
        };
        if let Some(request) = exchange.request {
            self.requests.remove(&request);
        }
        self.ends.count("steps given up");
        self.answer(exchange.agent, exchange.branch, Answer::Failed);
    }

    /// A gateway's process dies. Another one takes its clients, under a new id.
    pub(crate) fn gateway_crashes(&mut self, gateway: usize) {
        if self.gateways[gateway].remote.is_none() {
            return;
        }
        self.counts.count(FaultKind::GatewayCrash.name());
        self.connection_ends(gateway);
        self.drop_exchanges(gateway);
        self.next_gateway += 1;
        self.gateways[gateway] = Gateway {
            remote: Some(Remote::new(GatewayId(self.next_gateway))),
            ..Gateway::default()
        };
        self.goodbyes_lost();
        self.gateway_comes_back(gateway);
    }

    /// The connection breaks; messages in transit are lost.
    pub(crate) fn gateway_cut_off(&mut self, gateway: usize) {
        if self.gateways[gateway].remote.is_some() && self.gateways[gateway].link.is_some() {
            self.counts.count(FaultKind::GatewayCutOff.name());
            self.connection_ends(gateway);
            self.gateway_comes_back(gateway);
        }
    }

    /// The daemon is about to notice that a connection has ended.
    fn connection_ends(&mut self, gateway: usize) {
        let g = &mut self.gateways[gateway];
        let (Some(link), Some(remote)) = (g.link.take(), &g.remote) else {
            return;
        };
        let left = ScheduledEvent::GatewayLeft {
            session: self.session,
            id: remote.link.gateway(),
            link,
        };
        let at = self.now_us + self.streams.network.below(NOTICE_US_MAX);
        self.calendar.put(at, left);
    }

    fn gateway_comes_back(&mut self, gateway: usize) {
        let session = self.session;
        let at = self.now_us + self.streams.network.below(CONNECT_US_MAX);
        self.calendar
            .put(at, ScheduledEvent::GatewayConnects { gateway, session });
    }

    /// The daemon notices that a connection has ended.
    pub(crate) fn gateway_left(&mut self, session: u32, id: GatewayId, link: u64) -> Checked {
        if self.session_is_over(session) {
            return Ok(());
        }
        let missed = ScheduledEvent::GatewayMissed { session, id };
        self.calendar.put(self.now_us + TIMEOUT_US, missed);
        let left = LinkInput::Left {
            gateway: id,
            connection: ConnectionId(link),
            at: self.instant(),
        };
        self.give(Input::Link(left), None)
    }

    /// A gateway should have returned by now.
    pub(crate) fn gateway_missed(&mut self, session: u32, id: GatewayId) -> Checked {
        if self.session_is_over(session) {
            return Ok(());
        }
        let overdue = LinkInput::Overdue {
            gateway: id,
            timeout: Duration::from_micros(TIMEOUT_US),
            at: self.instant(),
        };
        self.give(Input::Link(overdue), None)
    }
}
