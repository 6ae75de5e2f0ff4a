//! The end of a simulation: its condition, and final checks.

use super::Simulation;
use super::agents::Agent;
use super::observed::bytes_of;
use treadle_dst_outcome::{Checked, broken};

impl Simulation {
    /// Whether everything has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.now_us >= self.plan.faults_end_us
            && self.is_quiet()
            && self.agents.iter().all(Agent::is_done)
            && self.executor.is_done()
    }

    /// Whether nothing is left to do and everything is written and published.
    fn is_quiet(&self) -> bool {
        self.daemon.as_ref().is_some_and(|daemon| {
            let state = daemon.scheduler.core().programs();
            state.live.is_empty()
                && state.steps.is_empty()
                && daemon.unwritten.is_empty()
                && daemon.transaction.is_none()
                && self.transfers.is_idle()
                && self.database.cursor == self.database.rows.len() as u64
        })
    }

    /// Checks the final state.
    pub(crate) fn check_end(&mut self) -> Checked {
        self.check_acknowledged()?;
        self.compare_consumer()?;
        let Some(daemon) = &self.daemon else {
            return broken("liveness", "no daemon runs");
        };
        self.database
            .compare(&bytes_of(daemon.scheduler.core())?, daemon.scheduler.seq())?;
        self.check_actions_at_end()?;
        let state = daemon.scheduler.core().programs();
        for (id, worker) in &state.workers {
            if worker.used_tokens() > 0
                || worker.running_steps > 0
                || worker.ledger.slots_taken() > 0
            {
                return broken(
                    "ledger",
                    format!("nothing is left, but {id} holds {worker:?}"),
                );
            }
        }
        if state.waiting.steps() > 0 || !state.waiting.queue().is_empty() {
            return broken("liveness", "the queue is not empty");
        }
        for ending in daemon.scheduler.observer().model.endings() {
            self.ends.count(ending.name());
        }
        Ok(())
    }

    /// Unfinished work, as text.
    pub(crate) fn what_is_left(&self) -> String {
        let Some(daemon) = &self.daemon else {
            return "no daemon runs".into();
        };
        let state = daemon.scheduler.core().programs();
        let agents: Vec<usize> = (0..self.agents.len())
            .filter(|agent| !self.agents[*agent].is_done())
            .collect();
        format!(
            "agents {agents:?}; {} programs; steps {:?}; workers {:?}; {}; {}",
            state.live.len(),
            state.steps,
            state.workers,
            self.transfers.what_is_left(),
            self.executor.what_is_left()
        )
    }
}
