//! What must hold after every event. Tests and the simulator call this after
//! each one; it recomputes every sum from scratch.

use crate::step::StepState;
use crate::timers::Timer;
use crate::{Core, State};
use std::collections::BTreeMap;
use treadle_model::Status;

impl Core {
    /// Panics with the first invariant that does not hold.
    pub fn assert_invariants(&self) {
        let state = &self.state;
        assert_ledgers(state);
        assert_programs(state);
        assert_steps(state, self);
        assert_moves(state);
        assert_eq!(
            state.keys.len(),
            state.programs.len(),
            "one key per program"
        );
    }
}

fn assert_ledgers(state: &State) {
    for (id, w) in &state.workers {
        let placed: Vec<_> = state
            .programs
            .values()
            .filter(|p| p.place.is_some_and(|place| place.worker == *id))
            .collect();
        assert_eq!(placed.len(), w.programs.len(), "{id}: placed programs");
        let charged: u64 = placed.iter().map(|p| p.weighted_tokens()).sum();
        assert_eq!(charged, w.charged_tokens, "{id}: charged tokens");
        let mut sharers: BTreeMap<u64, u32> = BTreeMap::new();
        for segment in placed.iter().flat_map(|p| &p.prefix) {
            *sharers.entry(segment.hash).or_default() += 1;
        }
        let counted: BTreeMap<u64, u32> = w
            .shared
            .iter()
            .map(|(hash, shared)| (*hash, shared.programs))
            .collect();
        assert_eq!(sharers, counted, "{id}: sharers of prefixes");
        let shared: u64 = w.shared.values().map(|shared| shared.tokens).sum();
        assert_eq!(shared, w.shared_tokens, "{id}: shared tokens");
        let idle: Vec<_> = placed
            .iter()
            .filter(|p| p.is_between_steps())
            .map(|p| p.id)
            .collect();
        assert!(
            idle.iter().eq(w.idle.iter()),
            "{id}: programs between steps"
        );
        let slots = placed
            .iter()
            .filter(|p| p.place.is_some_and(|x| x.slot.is_some()))
            .count();
        assert_eq!(slots, w.slots_taken.len(), "{id}: seats are held once");
    }
}

fn assert_programs(state: &State) {
    let mut waiting = 0;
    for (id, p) in &state.programs {
        assert_eq!(state.keys.get(&p.key), Some(id), "{id}: found by its key");
        waiting += p.waiting.len() as u64;
        assert_eq!(
            p.queued.is_some(),
            !p.waiting.is_empty(),
            "{id}: queued if a step waits"
        );
        if let Some(entry) = p.queued {
            assert!(
                state.queue.contains(entry.since, entry.need_tokens, *id),
                "{id}: filed"
            );
            assert_eq!(
                entry.need_tokens,
                p.private_tokens(),
                "{id}: filed under its need"
            );
        }
        assert_eq!(
            p.place.is_some(),
            p.status == Status::Active,
            "{id}: active if placed"
        );
    }
    let queued = state
        .programs
        .values()
        .filter(|p| p.queued.is_some())
        .count();
    assert_eq!(queued, state.queue.len(), "nobody else is in the queue");
    assert_eq!(waiting, state.waiting_steps, "waiting steps");
}

fn assert_moves(state: &State) {
    let mut ends = Vec::new();
    for (id, m) in &state.migrations.moving {
        ends.extend([m.from, m.to]);
        let p = state.programs.get(id);
        let place = p.and_then(|p| p.place).map(|place| place.worker);
        assert_eq!(place, Some(m.from), "{id}: is where it is moved from");
        let runs = p.is_some_and(|p| !p.running.is_empty());
        assert!(!runs, "{id}: does not run while it is moved");
    }
    let all = ends.len();
    ends.sort_unstable();
    ends.dedup();
    assert_eq!(ends.len(), all, "no worker sends or receives two caches");
}

fn assert_steps(state: &State, core: &Core) {
    let mut running: BTreeMap<_, u32> = BTreeMap::new();
    for (id, s) in &state.steps {
        let p = &state.programs[&s.program];
        match s.state {
            StepState::Running { worker, .. } => {
                *running.entry(worker).or_default() += 1;
                assert!(
                    p.running.contains(id),
                    "{id}: known to its program as running"
                );
            }
            StepState::Waiting => {
                assert!(
                    p.waiting.contains(id),
                    "{id}: known to its program as waiting"
                );
                let deadline = s.waits_since + core.config.queue_wait_max;
                assert!(
                    state.timers.contains(deadline, Timer::StepWait(*id)),
                    "{id}: bounded"
                );
            }
        }
    }
    let listed: usize = state
        .programs
        .values()
        .map(|p| p.running.len() + p.waiting.len())
        .sum();
    assert_eq!(listed, state.steps.len(), "each step is listed once");
    for (id, w) in &state.workers {
        assert_eq!(
            running.get(id).copied().unwrap_or(0),
            w.running_steps,
            "{id}: running steps"
        );
    }
}
