//! Engines join, report their capacity, stop answering, come back and leave.

use crate::estimates::DecodeTime;
use crate::memory::Capacity;
use crate::programs::ProgramCommand;
use crate::programs::explain::{Because, DecisionKind};
use crate::programs::scheduling::explanation::Explanation;
use crate::programs::step::Step;
use crate::programs::worker::{Health, Rest, Worker, WorkerRole};
use crate::{Mode, Programs};
use treadle_machine::Notice;
use treadle_model::{EngineKind, ProgramId, StepId, WorkerId};

impl Programs {
    pub(crate) fn worker_added(
        &mut self,
        worker: WorkerId,
        url: &str,
        engine: EngineKind,
        capacity: Capacity,
        role: Option<WorkerRole>,
    ) {
        let role = role.unwrap_or(WorkerRole::Both);
        if let Some(known) = self.state.workers.get_mut(&worker) {
            if std::mem::take(&mut known.leaving) {
                self.join_endpoint(worker);
                self.notices.push_back(Notice::WorkersChanged);
                // The worker is registered again, whatever it was before it was removed.
                self.worker_class_set(worker, None);
                self.worker_role_set(worker, role, None);
            }
            self.worker_capacity_read(worker, engine, capacity);
            return self.refuse_waiting_too_long();
        }
        let added = Worker::new(worker, url.into(), engine, capacity);
        let added = Worker { role, ..added };
        self.state.workers.insert(worker, added);
        self.join_endpoint(worker);
        self.notices.push_back(Notice::WorkersChanged);
        self.forget_reuse(worker);
        self.account_worker(worker);
        self.state.waiting.want_restore();
        self.refuse_waiting_too_long();
    }

    pub(crate) fn worker_capacity_read(
        &mut self,
        worker: WorkerId,
        engine: EngineKind,
        capacity: Capacity,
    ) {
        let known = self.state.workers.get(&worker);
        let is_another = known.is_some_and(|w| w.is_another(engine, capacity.gpus));
        if is_another {
            self.remember_class(worker);
        }
        let Some(w) = self.state.workers.get_mut(&worker) else {
            return;
        };
        if is_another {
            w.speeds.forget();
        }
        w.engine = engine;
        // A value declared at registration stands in for one that the engine does not report.
        let gpus = capacity.gpus.or(w.capacity.gpus);
        let capacity = Capacity { gpus, ..capacity };
        if w.capacity == capacity {
            return;
        }
        let fewer_slots = capacity.slots != w.capacity.slots;
        let is_other = capacity.offloads != w.capacity.offloads;
        w.capacity = capacity;
        if is_other {
            self.forget_reuse(worker);
        }
        self.account_worker(worker);
        if fewer_slots {
            // Slots are assigned again; their caches are no longer known.
            self.vacate(worker);
        }
        self.state.waiting.want_restore();
        self.due.serve.insert(worker);
        self.leave_small_worker(worker);
        self.relieve(worker);
        self.refuse_waiting_too_long();
    }

    /// Adjusts the ledger to the engine: memory of other requests is unavailable.
    pub(crate) fn worker_use_read(&mut self, worker: WorkerId, untracked_tokens: u64) {
        let Some(w) = self.state.workers.get_mut(&worker) else {
            return;
        };
        w.ledger.set_untracked(untracked_tokens);
        self.state.waiting.want_restore();
        self.relieve(worker);
    }

    /// Handles a lost worker: programs lose their placement there. Those between steps are paused,
    /// and steps that have not produced a token yet are taken back.
    pub(crate) fn worker_lost(&mut self, worker: WorkerId, cause: &str) {
        let Some(w) = self.state.workers.get(&worker) else {
            return;
        };
        if w.health == Health::Lost {
            return;
        }
        self.remember_class(worker);
        let Some(w) = self.state.workers.get_mut(&worker) else {
            return;
        };
        w.health = Health::Lost;
        // It may be another process once it answers again.
        w.weights = None;
        w.forget_prefilled();
        self.notices.push_back(Notice::WorkersChanged);
        w.ledger.set_untracked(0);
        w.speeds.remember();
        self.forget_reuse(worker);
        self.account_worker(worker);
        self.state.waiting.unreserve(worker);
        self.vacate(worker);
        self.end_moves_of(worker);
        self.end_transfers_of(worker);
        self.unplace_waiting(worker);
        for step in self.unanswered_steps(worker) {
            self.command(ProgramCommand::AbortStep {
                step,
                cause: cause.into(),
            });
        }
        self.state.waiting.want_restore();
    }

    /// Records the model that an engine reports. Another model has other speeds.
    pub(crate) fn worker_model_read(&mut self, worker: WorkerId, model: &str) {
        let known = self.state.workers.get(&worker);
        let known = known.and_then(|w| w.model.as_deref());
        let is_another = known.is_some_and(|known| known != model);
        if is_another && !model.is_empty() {
            self.remember_class(worker);
        }
        let w = self.state.workers.get_mut(&worker);
        let Some(w) = w.filter(|_| !model.is_empty()) else {
            return;
        };
        if is_another {
            w.speeds.forget();
        }
        if w.model.as_deref() != Some(model) {
            w.model = Some(model.into());
            self.leave_other_models(worker);
        }
    }

    /// Records further names under which an engine serves models.
    pub(crate) fn worker_other_models_read(&mut self, worker: WorkerId, models: &[Box<str>]) {
        let models = models.iter().cloned().collect();
        let w = self.state.workers.get_mut(&worker);
        if let Some(w) = w.filter(|w| w.other_models != models) {
            w.other_models = models;
            self.leave_other_models(worker);
        }
    }

    /// Remembers the speeds of a worker that leaves or gets another engine, for its class.
    fn remember_class(&mut self, worker: WorkerId) {
        if let Some(w) = self.state.workers.get(&worker) {
            let now = self.state.now;
            self.state.estimates.engine_left(&w.as_engine(), now);
        }
    }

    /// Records the class of its hardware. What was learnt of another class is not true of this one;
    /// what it did before it had a name stays.
    pub(crate) fn worker_class_set(&mut self, worker: WorkerId, class: Option<&str>) {
        let known = self.state.workers.get(&worker);
        let Some(before) = known.map(|w| w.class.as_deref()) else {
            return;
        };
        if before == class {
            return;
        }
        let is_another = before.is_some() && class.is_some();
        if is_another {
            self.remember_class(worker);
        }
        if let Some(w) = self.state.workers.get_mut(&worker) {
            w.class = class.map(Box::from);
            if is_another {
                w.speeds.forget();
            }
        }
        self.state.waiting.want_restore();
    }

    /// Records a measured speed; a value of 0 is unknown.
    pub(crate) fn worker_speed_read(&mut self, worker: WorkerId, prefill: u64, time: DecodeTime) {
        let Some(w) = self.state.workers.get_mut(&worker) else {
            return;
        };
        if w.speeds.measured(prefill, time) {
            self.compare_speeds();
        }
    }

    /// Records a speed declared at registration, which holds as long as nothing else is known of
    /// this engine.
    pub(super) fn worker_speed_declared(
        &mut self,
        worker: WorkerId,
        prefill: u64,
        time: DecodeTime,
    ) {
        let Some(w) = self.state.workers.get_mut(&worker) else {
            return;
        };
        if w.speeds.declared(prefill, time) {
            self.compare_speeds();
        }
    }

    pub(crate) fn worker_recovered(&mut self, worker: WorkerId) {
        let Some(w) = self.state.workers.get_mut(&worker) else {
            return;
        };
        w.health = Health::Healthy;
        self.notices.push_back(Notice::WorkersChanged);
        self.account_worker(worker);
        self.state.waiting.want_restore();
        // Steps that stayed in its run queue continue.
        self.due.serve.insert(worker);
        if self.config.mode != Mode::ProgramAware {
            // No other worker may take programs that are placed there.
            self.route_waiting();
        }
    }

    /// Records whether the engine takes steps. Running steps continue: a paused engine keeps them.
    /// Steps that wait there look for another worker; without one they wait.
    pub(crate) fn worker_rest_read(&mut self, worker: WorkerId, rest: Option<Rest>) {
        let Some(w) = self.state.workers.get_mut(&worker) else {
            return;
        };
        if std::mem::replace(&mut w.rest, rest) != rest {
            self.takes_steps_again(worker, rest.is_none());
        }
    }

    pub(super) fn takes_steps_again(&mut self, worker: WorkerId, takes_steps: bool) {
        self.state.waiting.want_restore();
        self.state.waiting.look_for_suspensions();
        if takes_steps {
            self.due.serve.insert(worker);
        } else {
            self.state.waiting.unreserve(worker);
            self.end_moves_to(worker);
            self.unplace_waiting(worker);
        }
    }

    pub(crate) fn worker_removed(&mut self, worker: WorkerId) {
        self.worker_lost(worker, "the worker was removed");
        if let Some(w) = self.state.workers.get_mut(&worker) {
            w.leaving = true;
        }
        self.notices.push_back(Notice::WorkersChanged);
        self.refuse_waiting_too_long();
    }

    /// Drops removed workers once nothing runs on them any more.
    pub(crate) fn settle_workers(&mut self) {
        let is_used = |w: &Worker| w.running_steps + w.prefills > 0 || !w.programs.is_empty();
        let gone = |w: &Worker| w.leaving && !is_used(w);
        if self.state.workers.values().any(gone) {
            self.state.workers.retain(|_, w| !gone(w));
        }
    }

    /// Ends the placement of all programs on the worker without a running step.
    pub(super) fn vacate(&mut self, worker: WorkerId) {
        let Some(w) = self.state.workers.get(&worker) else {
            return;
        };
        let idle: Vec<ProgramId> = w.idle.iter().copied().collect();
        for program in idle {
            self.vacate_placement(program, worker);
        }
    }

    /// Makes a program that ran when its worker's slots were recounted leave as soon as it can,
    /// unless its slot still exists.
    pub(super) fn leave_missing_slot(&mut self, program: ProgramId) {
        let place = self.state.live.get(&program).and_then(|p| p.placement);
        let Some(place) = place.filter(|_| self.config.mode == Mode::ProgramAware) else {
            return;
        };
        let worker = self.state.workers.get(&place.worker);
        if worker.is_some_and(|w| !w.capacity.has_seat(place.slot)) {
            self.vacate_placement(program, place.worker);
        }
    }

    /// Steps that wait there for a cache or for their turn, and are now too long for the worker,
    /// wait for another placement.
    fn leave_small_worker(&mut self, worker: WorkerId) {
        let Some(w) = self.state.workers.get(&worker) else {
            return;
        };
        let most = w.context_tokens_max();
        let too_long = |id: &ProgramId| {
            let p = self.state.live.get(id);
            p.is_some_and(|p| p.running.is_empty() && self.prompt_tokens_least(p) > most)
        };
        let placed = w.programs.iter().copied();
        let leaving: Vec<ProgramId> = placed.filter(too_long).collect();
        for program in leaving {
            self.ask_again(program);
        }
    }

    pub(crate) fn vacate_placement(&mut self, program: ProgramId, worker: WorkerId) {
        let explanation = Explanation::new(DecisionKind::Pause, Because::WorkerGone);
        self.explain(program, worker, &explanation);
        self.unplace(program);
        self.state.counters.pauses += 1;
    }

    /// Unplaces programs whose steps wait there, as they need another worker.
    fn unplace_waiting(&mut self, worker: WorkerId) {
        let placed = self.state.workers.get(&worker).map(|w| w.programs.clone());
        for program in placed.into_iter().flatten() {
            let p = self.state.live.get(&program);
            if p.is_some_and(|p| p.running.is_empty() && !p.waiting.is_empty()) {
                self.unplace(program);
            }
        }
    }

    /// Steps without a token that the worker will not answer, and those that wait at another one
    /// for a prompt that it was to compute.
    fn unanswered_steps(&self, worker: WorkerId) -> Vec<StepId> {
        let concerns = |s: &Step| {
            let own = s.state.worker();
            let at = own.and_then(|own| self.state.workers.get(&own));
            let waits = at.is_some_and(Worker::needs_prefill);
            let to_come = s.prefill_to_come().map(|to_come| to_come.worker);
            own == Some(worker) || waits && to_come == Some(worker)
        };
        let steps = self.state.steps.iter();
        let unanswered = steps.filter(|(_, s)| s.first_token_at.is_none() && concerns(s));
        unanswered.map(|(id, _)| *id).collect()
    }
}
