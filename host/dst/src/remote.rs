//! Gateways in processes of their own: they outlive a daemon, and go on with
//! their steps under the next one.

use super::Scene;
use super::calendar::Happening;
use super::gateway::{Answer, Gateway, Order, Report, Told};
use super::outcome::Checked;
use super::schedule::FaultKind;
use std::collections::BTreeSet;
use treadle_core::Event;
use treadle_core::link::{OpenStep, reconcile};
use treadle_model::{GatewayId, StepId, WorkerId};

/// Longest time until a gateway has found the daemon.
const CONNECT_US_MAX: u64 = 2_000_000;
/// How long the daemon waits for a gateway that may be gone.
const MISSED_US: u64 = 10_000_000;

impl Scene {
    /// The step id that a gateway gives out next.
    pub(crate) fn step_id(&mut self, gateway: usize) -> StepId {
        let g = &mut self.gateways[gateway];
        if let Some(id) = g.remote {
            g.steps += 1;
            return StepId::of(id, g.steps);
        }
        let step = StepId(self.next_step);
        self.next_step += 1;
        step
    }

    /// A daemon has started: its own gateways are new, others come to it.
    pub(crate) fn connect_gateways(&mut self, known: &BTreeSet<GatewayId>) {
        let session = self.session;
        for gateway in 0..self.gateways.len() {
            if self.gateways[gateway].remote.is_some() {
                let at = self.now_us + self.streams.network.below(CONNECT_US_MAX);
                let connects = Happening::GatewayConnects { gateway, session };
                self.calendar.put(at, connects);
            } else {
                self.gateways[gateway] = Gateway::default();
                self.gateways[gateway].link = Some(self.new_link());
            }
        }
        for id in known {
            let missed = Happening::GatewayMissed { session, id: *id };
            self.calendar.put(self.now_us + MISSED_US, missed);
        }
    }

    fn new_link(&mut self) -> u64 {
        self.links += 1;
        self.links
    }

    /// The daemon is gone, and its own gateways with it: their clients get no
    /// answer. Others go on.
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

    /// A gateway connects: it sends again what it does not know to be on
    /// record, then says what it has in hand.
    pub(crate) fn gateway_connects(&mut self, gateway: usize, session: u32) {
        if self.session_is_over(session) || self.gateways[gateway].link.is_some() {
            return;
        }
        let link = self.new_link();
        let g = &mut self.gateways[gateway];
        g.link = Some(link);
        g.sent = 0;
        g.inbox = super::gateway::Inbox::default();
        let again: Vec<Report> = g.unrecorded.values().cloned().collect();
        if let Some(daemon) = &mut self.daemon {
            daemon.meet(gateway);
        }
        for report in again {
            self.send(gateway, report);
        }
        let in_hand = self.gateways[gateway].exchanges.iter();
        let engine = |request: u64| WorkerId(self.requests[&request].engine as u32);
        let in_hand = in_hand.map(|(step, exchange)| OpenStep {
            step: *step,
            at: exchange.request.map(engine),
        });
        let what = Told::InHand(in_hand.collect());
        let report = Report {
            what,
            origin: None,
            ack: None,
        };
        self.send(gateway, report);
    }

    /// Both sides agree on the gateway's steps from now on.
    pub(crate) fn gateway_met(&mut self, gateway: usize, in_hand: &[OpenStep]) -> Checked {
        let Some(id) = self.gateways[gateway].remote else {
            return Ok(());
        };
        let Some(daemon) = &mut self.daemon else {
            return Ok(());
        };
        daemon.knows[gateway] = true;
        let plan = reconcile(daemon.observed.core.state(), id, in_hand);
        let recorded = self.database.recorded(id);
        self.trace.line(self.now_us, || {
            format!("gateway {gateway} ({id}) is met: {plan:?}")
        });
        self.tell_recorded(gateway, recorded);
        for (step, worker) in plan.dispatch {
            self.instruct_again(gateway, step, worker);
        }
        for step in plan.abort {
            self.instruct(step, &Order::Abort { step });
        }
        for step in plan.over {
            self.instruct(step, &Order::Over { step });
        }
        self.handle_together(plan.events)
    }

    fn instruct_again(&mut self, _: usize, step: StepId, worker: WorkerId) {
        let slot = self.daemon.as_ref().and_then(|daemon| {
            let state = daemon.observed.core.state();
            let program = state.programs.get(&state.steps.get(&step)?.program)?;
            program.place.filter(|place| place.worker == worker)?.slot
        });
        self.instruct(step, &Order::Dispatch { step, worker, slot });
    }

    /// Tells a gateway which of its events are on record.
    pub(crate) fn tell_recorded(&mut self, gateway: usize, number: u64) {
        if let Some(id) = self.gateways[gateway].remote {
            let step = StepId::of(id, 0);
            self.instruct(step, &Order::Recorded { number });
        }
    }

    /// The daemon knows nothing of a step: its client is told so.
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

    /// A gateway's process dies. Another one takes its clients, under an id
    /// that nobody had before.
    pub(crate) fn gateway_crashes(&mut self, gateway: usize) {
        let Some(id) = self.gateways[gateway].remote else {
            return;
        };
        self.tally.count(FaultKind::GatewayCrash.name());
        self.drop_exchanges(gateway);
        self.next_gateway += 1;
        self.gateways[gateway] = Gateway {
            remote: Some(GatewayId(self.next_gateway)),
            ..Gateway::default()
        };
        self.goodbyes_lost();
        let session = self.session;
        let missed = Happening::GatewayMissed { session, id };
        self.calendar.put(self.now_us + MISSED_US, missed);
        self.gateway_comes_back(gateway);
    }

    /// The connection breaks; what was on its way is gone.
    pub(crate) fn gateway_cut_off(&mut self, gateway: usize) {
        if self.gateways[gateway].remote.is_some() && self.gateways[gateway].link.is_some() {
            self.tally.count(FaultKind::GatewayCutOff.name());
            self.gateways[gateway].link = None;
            self.gateway_comes_back(gateway);
        }
    }

    fn gateway_comes_back(&mut self, gateway: usize) {
        if let Some(daemon) = &mut self.daemon {
            daemon.knows[gateway] = false;
        }
        let session = self.session;
        let at = self.now_us + self.streams.network.below(CONNECT_US_MAX);
        self.calendar
            .put(at, Happening::GatewayConnects { gateway, session });
    }

    /// Nobody has this id any more: the steps of that process are over.
    pub(crate) fn gateway_missed(&mut self, session: u32, id: GatewayId) -> Checked {
        let lives = self.gateways.iter().any(|g| g.remote == Some(id));
        if self.session_is_over(session) || lives {
            return Ok(());
        }
        self.handle(Event::GatewayLost { gateway: id }, None)
    }
}
