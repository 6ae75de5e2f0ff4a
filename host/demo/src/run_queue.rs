//! The runs, in the order in which slots take them; after the last one they repeat under other
//! names.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use treadle_simulator::workload::AgentRun;

/// Hands out runs to slots.
pub(super) struct RunQueue {
    runs: Arc<[AgentRun]>,
    taken: AtomicUsize,
}

impl RunQueue {
    /// A queue of these runs; there is at least one.
    pub(super) fn new(runs: Arc<[AgentRun]>) -> Self {
        Self {
            runs,
            taken: AtomicUsize::new(0),
        }
    }

    /// The next run, and the id of the planned run that it repeats.
    pub(super) fn take(&self) -> (&str, AgentRun) {
        let place = self.taken.fetch_add(1, Ordering::Relaxed);
        let (lap, place) = (place / self.runs.len(), place % self.runs.len());
        let planned = &self.runs[place];
        let mut run = planned.clone();
        if lap > 0 {
            run.id = format!("{}+{lap}", run.id);
        }
        (&planned.id, run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use treadle_simulator::workload::LognormalAgents;

    #[test]
    fn runs_come_again_under_other_names() {
        let workload = LognormalAgents {
            programs: 2,
            ..LognormalAgents::default()
        };
        let runs: Arc<[AgentRun]> = workload.generate().unwrap().into();
        let run_queue = RunQueue::new(runs.clone());
        let taken: Vec<AgentRun> = (0..5).map(|_| run_queue.take().1).collect();
        assert_eq!(taken[..2], runs[..]);
        assert_eq!(taken[2].id, format!("{}+1", runs[0].id));
        assert_eq!(taken[4].id, format!("{}+2", runs[0].id));
        assert_eq!(taken[4].steps, runs[0].steps);
    }
}
