//! Handlers of timers.

use crate::programs::Refusal;
use crate::programs::action::OWN;
use crate::programs::timers::Timer;
use crate::programs::worker::Worker;
use crate::{Mode, Programs};
use treadle_model::{Phase, ProgramId, Span, StepId, WorkerId};

impl Programs {
    pub(crate) fn timer_fired(&mut self) {
        while let Some(timer) = self.state.timers.pop_due(self.state.now) {
            match timer {
                Timer::Tick => self.tick(),
                Timer::Ask(ask) => self.ask_expired(ask),
                Timer::StepWait(step) => self.wait_exceeded(step),
                Timer::ProgramIdle(program) => self.look_for_idleness(program),
                Timer::Gather => self.gathered(),
                Timer::Migrate => self.ask_migrate(),
                Timer::Transfer(program) => {
                    self.move_exceeded(program);
                    self.transfer_exceeded(program);
                }
                Timer::Link => self.link_free(),
            }
        }
    }

    /// The periodic check (`ThunderAgent` §4.3.1): weights are renewed, pressure is relieved, and
    /// the queue is served.
    fn tick(&mut self) {
        let workers: Vec<WorkerId> = self
            .state
            .workers
            .values()
            .filter(|w| w.is_healthy())
            .map(|w| w.id)
            .collect();
        for worker in workers {
            self.expire_prompts(worker);
            self.ask_weigh(worker);
            self.ask_retain(worker);
            self.relieve(worker);
        }
        self.make_room_for_starved();
        self.prefetch();
        self.state.waiting.want_restore();
    }

    /// Arms the tick only while there is something to check.
    pub(crate) fn settle_tick(&mut self) {
        let placed = self.state.workers.values().any(|w| !w.programs.is_empty());
        let busy = placed
            || !self.state.waiting.queue().is_empty()
            || !self.state.memory.offloads().is_empty();
        let needed = self.config.mode == Mode::ProgramAware && busy;
        if needed {
            let at = self.state.now + self.config.tick;
            self.state.timers.arm_single(at, Timer::Tick);
        }
    }

    /// What counts is the time in the queue: without time at engines, and without time while all
    /// workers that could take the step are fenced, unless that takes as long as the limit in one
    /// go. Time while they are paused or asleep counts: they only report that, and nothing that
    /// treadle knows of will end it.
    fn wait_exceeded(&mut self, step: StepId) {
        let Some(s) = self.state.steps.get(&step) else {
            return;
        };
        let now = self.state.now;
        let waited_ms = s.waited(now).millis();
        let suspended = s.suspended_since.map(|since| now.since(since));
        let holding = |w: &&Worker| w.is_healthy() && w.holds_programs();
        let healthy = || self.state.workers.values().filter(holding);
        let refusal = Refusal::QueueWaitExceeded {
            waited_ms,
            suspended_ms: suspended.unwrap_or_default().millis(),
            healthy_workers: healthy().count() as u32,
            cordoned_workers: healthy().filter(|w| !w.takes_programs()).count() as u32,
        };
        self.refuse(step, refusal);
    }

    /// Arms the program's idle deadline, unless one is pending: a timer that fires early checks the
    /// phase again.
    pub(super) fn watch_idleness(&mut self, program: ProgramId) {
        let bound = self.idle_max(program);
        let Some(p) = self.state.live.get_mut(&program) else {
            return;
        };
        if p.idle_check_at.is_none() {
            let at = p.silent_since() + bound;
            p.idle_check_at = Some(at);
            self.state.timers.arm(at, Timer::ProgramIdle(program));
        }
    }

    /// Restarts a program's idle deadline when an action that treadle ran for it ends: its client
    /// only learns of that now.
    pub(super) fn put_off_idleness(&mut self, program: &str) {
        let Some(id) = self.state.keys.get(program).copied() else {
            return;
        };
        let at = self.state.now + self.idle_max(id);
        let p = self.state.live.get_mut(&id);
        let pending = p.and_then(|p| p.idle_check_at.as_mut());
        if let Some(before) = pending.map(|pending| std::mem::replace(pending, at)) {
            let timer = Timer::ProgramIdle(id);
            self.state.timers.disarm(before, timer);
            self.state.timers.arm(at, timer);
        }
    }

    /// The idle limit of a program. Most requests of inferred programs are never continued, so
    /// these programs are kept for a shorter time until they have been.
    fn idle_max(&self, program: ProgramId) -> Span {
        let known = self.state.live.get(&program);
        if known.is_some_and(|p| p.inferred && p.steps_finished < 2) {
            self.config.inferred_idle_max
        } else {
            self.config.program_idle_max
        }
    }

    fn look_for_idleness(&mut self, program: ProgramId) {
        let now = self.state.now;
        let bound = self.idle_max(program);
        let Some(p) = self.state.live.get_mut(&program) else {
            return;
        };
        p.idle_check_at = None;
        if p.phase == Phase::Reasoning || !p.is_between_steps() {
            return;
        }
        if p.actions.keys().any(|action| action.starts_with(OWN)) {
            // Its action waits or runs here: the program is kept until that is over.
            p.idle_check_at = Some(now + bound);
            let timer = Timer::ProgramIdle(program);
            return self.state.timers.arm(now + bound, timer);
        }
        if now.since(p.silent_since()) >= bound {
            self.close_program(program);
        } else {
            self.watch_idleness(program);
        }
    }
}
