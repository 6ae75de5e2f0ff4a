//! Invariants that hold after every event.

use crate::WeightsMachine;
use crate::holding::Phase;
use crate::job::Stage;
use std::collections::BTreeSet;

impl WeightsMachine {
    /// Panics with the first invariant that does not hold.
    pub(crate) fn check_invariants(&self) {
        let mut numbers = BTreeSet::new();
        for (worker, holding) in &self.state.holdings {
            let is_fenced = self.state.fenced.contains(worker);
            let Some(job) = self.state.jobs.get(&holding.job) else {
                assert!(
                    is_fenced,
                    "{worker}: its job was released before it proved anything"
                );
                continue;
            };
            assert_eq!(
                !is_fenced,
                job.admits(*worker, holding),
                "{worker}: gets steps only while it holds an admitted version"
            );
            if !is_fenced {
                assert_eq!(holding.phase, Phase::Held, "{worker}: gets steps");
                assert!(holding.sound, "{worker}: gets steps, so it is whole");
            }
            if matches!(holding.phase, Phase::Torn | Phase::Unknown) {
                assert!(!holding.sound, "{worker}: is not whole");
                assert!(holding.cause.is_some(), "{worker}: says why");
            }
            if let Some(call) = holding.call {
                assert!(call.number <= self.state.calls, "{worker}: its call");
                assert!(numbers.insert(call.number), "{worker}: a call of its own");
            }
        }
        for (name, job) in &self.state.jobs {
            let Some(update) = &job.update else { continue };
            for worker in &update.workers {
                let holding = self.state.holdings.get(worker);
                let is_own = holding.is_some_and(|h| h.job == *name);
                assert!(is_own, "{worker}: takes part with its own job");
                assert!(!update.behind.contains_key(worker), "{worker}: in or out");
            }
            assert_eq!(
                update.stage != Stage::Preparing,
                update.fenced.is_some(),
                "{name}: engines are fenced once enough are ready"
            );
        }
        assert!(self.touched.is_empty(), "all jobs are settled");
    }
}
