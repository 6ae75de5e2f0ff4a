//! Deadlines that pass.

use crate::Actions;
use crate::action::Stage;
use crate::event::Outcome;
use crate::state::Timer;
use std::collections::BTreeSet;
use treadle_model::ActionId;

impl Actions {
    pub(crate) fn timer_fired(&mut self) {
        while let Some(timer) = self.state.timers.pop_due(self.state.now) {
            match timer {
                Timer::Ask(ask) => self.ask_expired(ask),
                Timer::Action(id) => self.action_due(id),
                Timer::Quota(pool) => {
                    if let Some(pool) = self.state.pools.get_mut(pool as usize) {
                        pool.wake_at = None;
                    }
                    self.look_again();
                }
            }
        }
    }

    fn action_due(&mut self, id: ActionId) {
        let Some(action) = self.state.live.get_mut(&id) else {
            return;
        };
        action.deadline = None;
        match &action.stage {
            Stage::Waiting { .. } => self.end(id, Outcome::Expired, None),
            // It may still run, but its resources can't be kept for it forever.
            Stage::Started(s) if s.stopping.is_some() => self.end(id, Outcome::Unknown, None),
            Stage::Started(s) if s.begun.is_some() => self.stop(id, Outcome::TimedOut),
            Stage::Started(_) => {
                let cause = "it did not begin in time".into();
                self.stop(id, Outcome::InfrastructureFailure { cause });
            }
            Stage::Ended(_) => {}
        }
    }

    /// Arms a timer for when time alone frees some of the quotas that actions wait for. Call it
    /// once everything that can start has started.
    pub(crate) fn watch_quotas(&mut self, short: &BTreeSet<u32>) {
        let now = self.state.now;
        for number in short {
            let Some(pool) = self.state.pools.get_mut(*number as usize) else {
                continue;
            };
            let Some(at) = pool.eases_at(now) else {
                continue;
            };
            if let Some(before) = pool.wake_at.replace(at) {
                self.state.timers.disarm(before, Timer::Quota(*number));
            }
            self.state.timers.arm(at, Timer::Quota(*number));
        }
    }
}
