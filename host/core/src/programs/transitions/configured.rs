//! Changes of settings between two runs of the daemon, or after engines reported what they can do.

use crate::programs::step::StepState;
use crate::programs::timers::Timer;
use crate::{CoreConfig, Programs};

impl Programs {
    /// Applies new settings, also to steps that wait already.
    pub(crate) fn configured(&mut self, config: &CoreConfig) {
        let (old, new) = (self.config.queue_wait_max, config.queue_wait_max);
        if old != new {
            let timers = &mut self.state.timers;
            let steps = self.state.steps.iter();
            for (step, s) in steps.filter(|(_, s)| s.state == StepState::Waiting) {
                timers.disarm(s.wait_deadline(old), Timer::StepWait(*step));
                timers.arm(s.wait_deadline(new), Timer::StepWait(*step));
            }
        }
        let other_queues = self.config.rollout.engine_steps_max != config.rollout.engine_steps_max;
        let other_mode = self.config.mode != config.mode;
        self.forget_copies(config);
        let fill = |config: &CoreConfig| (config.low_watermark_ppm, config.kv.clone());
        let other_fill = fill(&self.config) != fill(config);
        self.config = config.clone();
        if other_fill {
            self.forget_headroom();
        }
        self.state.config = Some(config.clone());
        self.state.waiting.want_restore();
        self.due.serve.extend(self.state.workers.keys());
        if other_mode {
            self.account_all();
        }
        if other_mode || other_queues {
            self.route_placed_again();
        }
    }

    /// Routes the waiting steps of placed programs again, since what they wait for depends on the
    /// policy that ranks them.
    pub(crate) fn route_placed_again(&mut self) {
        let programs = self.state.live.values();
        let waiting = programs.filter(|p| p.placement.is_some() && !p.waiting.is_empty());
        let waiting: Vec<_> = waiting.map(|p| p.id).collect();
        for program in waiting {
            self.give_up_move(program);
            self.give_up_transfer(program);
            self.ask_again(program);
        }
    }
}
