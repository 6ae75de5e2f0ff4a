//! The runs in the order in which slots take them; when they run out they come again under other
//! names.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use treadle_simulator::workload::AgentRun;

/// Hands runs to slots.
pub(super) struct RunQueue {
    runs: Arc<[AgentRun]>,
    taken: AtomicUsize,
}

impl RunQueue {
    /// None of the runs, of which there is at least one, is taken yet.
    pub(super) fn new(runs: Arc<[AgentRun]>) -> Self {
        Self {
            runs,
            taken: AtomicUsize::new(0),
        }
    }

    /// The next run.
    pub(super) fn take(&self) -> AgentRun {
        let place = self.taken.fetch_add(1, Ordering::Relaxed);
        let (lap, place) = (place / self.runs.len(), place % self.runs.len());
        let mut run = self.runs[place].clone();
        if lap > 0 {
            run.id = format!("{}+{lap}", run.id);
        }
        run
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
        let taken: Vec<AgentRun> = (0..5).map(|_| run_queue.take()).collect();
        assert_eq!(taken[..2], runs[..]);
        assert_eq!(taken[2].id, format!("{}+1", runs[0].id));
        assert_eq!(taken[4].id, format!("{}+2", runs[0].id));
        assert_eq!(taken[4].steps, runs[0].steps);
    }
}
