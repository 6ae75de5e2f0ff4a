//! Gateways in other processes: their steps outlive a scheduler, and end with the gateway.

use crate::programs::explain::{Because, DecisionKind};
use crate::programs::scheduling::explanation::Explanation;
use crate::programs::step::{GivesWay, StepState};
use crate::programs::timers::Timer;
use crate::{Mode, Programs};
use treadle_model::{GatewayId, ProgramId, StepId, WorkerId};

impl Programs {
    /// None of the daemon's own connections survived the restart: their steps are over, programs
    /// and their placements remain. Questions are lost with the process that was asked, and are
    /// asked again if they still matter.
    pub(crate) fn daemon_restarted(&mut self) {
        for (ask, open) in self.state.asks.remove_all() {
            self.state.timers.disarm(open.deadline, Timer::Ask(ask));
        }
        self.end_steps_of(GatewayId::LOCAL);
        for s in self.state.steps.values_mut() {
            // The gateway may never have received the request.
            if s.gives_way == GivesWay::Asked {
                s.gives_way = GivesWay::Unasked;
            }
        }
        // No client could send a step while no daemon ran, however long that was by the clock.
        let programs: Vec<Box<str>> = self.state.keys.keys().cloned().collect();
        for program in programs {
            self.put_off_idleness(&program);
        }
        let moving = self.state.memory.migrations_mut().end_all();
        for (program, ended) in moving {
            let deadline = ended.since + self.config.kv.transfer_max;
            self.state.timers.disarm(deadline, Timer::Transfer(program));
            if let Some(w) = self.state.workers.get_mut(&ended.to) {
                w.ledger.give_room_back(program);
            }
            self.account(program);
            self.ask_again(program);
        }
        self.forget_transfers();
        self.ask_routes_again();
        self.state.waiting.want_restore();
    }

    /// Ends the steps of a gateway whose process is gone.
    pub(crate) fn gateway_lost(&mut self, gateway: GatewayId) {
        self.end_steps_of(gateway);
    }

    /// Ends the steps of one gateway, which are adjacent. Waiting steps end before running ones: a
    /// step that may stay at its worker only beside another would otherwise look for a new place,
    /// and cost its program the old one, a moment before it ends too.
    fn end_steps_of(&mut self, gateway: GatewayId) {
        let first = StepId::of(gateway, 0);
        let next = StepId::of(GatewayId(gateway.0 + 1), 0);
        let open = self.state.steps.range(first..next);
        let (waiting, running): (Vec<_>, Vec<_>) = open
            .map(|(id, s)| (*id, s.state))
            .partition(|(_, state)| *state == StepState::Waiting);
        for (step, _) in waiting.into_iter().chain(running) {
            self.step_cancelled(step);
        }
    }

    /// Records a step that an earlier scheduler sent to the worker before it died without recording
    /// that. It is charged there whatever the room; pressure is relieved as usual.
    pub(crate) fn step_adopted(&mut self, step: StepId, worker: WorkerId) {
        let Some(s) = self.state.steps.get(&step) else {
            return;
        };
        let (program, at) = (s.program, s.state.worker());
        if at == Some(worker) || !self.state.workers.contains_key(&worker) {
            return;
        }
        self.dequeue(step);
        self.resume_waiting(step);
        self.leave_engine(step);
        if let Some(s) = self.state.steps.get_mut(&step).filter(|_| at.is_some()) {
            // It never ran at the worker where it was last sent, so no engine failed it.
            s.attempts = s.attempts.saturating_sub(1);
        }
        self.move_adopted(program, worker);
        self.run_at(step, worker);
        self.refresh_demand(program);
        self.state.adopted.push(program);
        if self.config.mode == Mode::ProgramAware {
            self.relieve(worker);
        }
    }

    /// Sends the other waiting steps of an adopted step's program, which is placed now. They wait
    /// until nothing more is adopted: until then a gateway may have them open too.
    pub(crate) fn settle_adopted(&mut self) {
        if self.state.adopted.is_empty() || self.due.adopts {
            return;
        }
        // The run queues stood still meanwhile.
        self.due.serve.extend(self.state.workers.keys());
        for program in std::mem::take(&mut self.state.adopted) {
            if let Some(place) = self.serving_worker_of(program) {
                self.send_waiting(program, place);
            }
        }
    }

    /// Places the program where its step runs, unless other steps of it bind it elsewhere.
    fn move_adopted(&mut self, program: ProgramId, worker: WorkerId) {
        let Some(p) = self.state.live.get(&program) else {
            return;
        };
        let is_there = p.placement.is_some_and(|place| place.worker == worker);
        let answers = self
            .state
            .workers
            .get(&worker)
            .is_some_and(crate::programs::worker::Worker::is_healthy);
        if is_there || !answers || !p.running.is_empty() || self.config.mode == Mode::LeastLoad {
            return;
        }
        self.unplace(program);
        let explanation = Explanation::new(DecisionKind::Place, Because::Adopted);
        self.explain(program, worker, &explanation);
        self.place(program, worker);
    }
}
