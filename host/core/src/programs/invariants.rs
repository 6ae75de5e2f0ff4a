//! Invariants that hold after every event. Tests and the simulator check them after each one; every
//! sum is recomputed from scratch.

use crate::estimates::JOBS_MAX;
use crate::memory::{Account, Charge, Direction, Use};
use crate::programs::program::Program;
use crate::programs::step::StepState;
use crate::programs::timers::Timer;
use crate::programs::worker::Worker;
use crate::programs::{Programs, State};
use std::collections::{BTreeMap, BTreeSet};
use treadle_model::{Status, WorkerId};

impl Programs {
    /// Panics with the first invariant that does not hold.
    pub(crate) fn check_invariants(&self) {
        let state = &self.state;
        assert_ledgers(state);
        assert_programs(state);
        assert_steps(state, self);
        assert_moves(state);
        assert_copies(self);
        assert_engines(self);
        assert_accounts(self);
        assert_jobs(state);
        assert_eq!(state.keys.len(), state.live.len(), "one key per program");
    }
}

fn assert_ledgers(state: &State) {
    for (id, w) in &state.workers {
        let placed: Vec<_> = state
            .live
            .values()
            .filter(|p| p.placement.is_some_and(|place| place.worker == *id))
            .collect();
        assert_eq!(placed.len(), w.programs.len(), "{id}: placed programs");
        let charged: u64 = placed.iter().map(|p| p.weighted_tokens()).sum();
        assert_eq!(charged, w.ledger.charged_tokens(), "{id}: charged tokens");
        let mut sharers: BTreeMap<u64, u32> = BTreeMap::new();
        for segment in placed.iter().flat_map(|p| &p.prefix) {
            *sharers.entry(segment.hash).or_default() += 1;
        }
        let counted: BTreeMap<u64, u32> = w
            .ledger
            .shared()
            .iter()
            .map(|(hash, shared)| (*hash, shared.programs))
            .collect();
        assert_eq!(sharers, counted, "{id}: sharers of prefixes");
        let shared: u64 = w.ledger.shared().values().map(|shared| shared.tokens).sum();
        assert_eq!(shared, w.ledger.shared_tokens(), "{id}: shared tokens");
        let idle: Vec<_> = placed
            .iter()
            .filter(|p| p.is_between_steps())
            .map(|p| p.id)
            .collect();
        assert!(
            idle.iter().eq(w.idle.iter()),
            "{id}: programs between steps"
        );
        assert_run_queues(state, *id, w, &placed);
        let slots = placed
            .iter()
            .filter(|p| p.placement.is_some_and(|x| x.slot.is_some()))
            .count();
        let kept = w.ledger.kept().values();
        let kept = kept.filter(|room| room.slot.is_some()).count();
        let slots = slots + kept;
        for program in w.ledger.kept().keys() {
            let to = state.memory.move_of(*program).map(|m| m.to);
            assert_eq!(to, Some(*id), "{id}: room is kept for who comes");
        }
        assert_eq!(slots, w.ledger.slots_taken(), "{id}: slots are held once");
    }
}

fn assert_run_queues(state: &State, id: WorkerId, w: &Worker, placed: &[&Program]) {
    let waiting: BTreeSet<_> = placed.iter().flat_map(|p| &p.waiting).collect();
    for queued_step in &w.line {
        assert!(
            waiting.contains(&queued_step.step),
            "{id}: queued steps wait"
        );
        let s = &state.steps[&queued_step.step];
        assert_eq!(
            *queued_step,
            s.queued_step(queued_step.step),
            "{id}: at its position in the run queue"
        );
        assert!(s.routed, "{id}: queued steps were routed there");
    }
}

fn assert_programs(state: &State) {
    let mut waiting = 0;
    for (id, p) in &state.live {
        assert_eq!(state.keys.get(&p.key), Some(id), "{id}: found by its key");
        waiting += p.waiting.len() as u64;
        assert_eq!(
            p.queued.is_some(),
            !p.waiting.is_empty(),
            "{id}: queued if a step waits"
        );
        if let Some(entry) = p.queued {
            assert!(
                state
                    .waiting
                    .queue()
                    .contains(entry.since, entry.need_tokens, *id),
                "{id}: filed"
            );
            assert_eq!(
                entry.need_tokens,
                p.private_tokens(),
                "{id}: filed under its need"
            );
        }
        for awaited in p.awaited.iter().flat_map(|awaited| &awaited.programs) {
            let parent = state.live.get(awaited).and_then(|p| p.parent.as_ref());
            assert_eq!(parent, Some(&p.key), "{id}: waits for its own subagents");
        }
        assert_eq!(
            p.placement.is_some(),
            p.status == Status::Active,
            "{id}: active if placed"
        );
    }
    let queued = state.live.values().filter(|p| p.queued.is_some()).count();
    assert_eq!(
        queued,
        state.waiting.queue().len(),
        "no other program is in the queue"
    );
    assert_eq!(waiting, state.waiting.steps(), "waiting steps");
    let contexts: u64 = state.live.values().map(|p| p.context_tokens).sum();
    assert_eq!(contexts, state.context_tokens, "contexts of live programs");
}

fn assert_jobs(state: &State) {
    let mut counted = state.estimates.jobs().clone();
    counted.recount(state.live.values().map(|p| &*p.job));
    assert_eq!(
        &counted,
        state.estimates.jobs(),
        "jobs by their live programs"
    );
    let live: BTreeSet<_> = state.live.values().map(|p| &p.job).collect();
    let most = JOBS_MAX.max(live.len());
    assert!(state.estimates.jobs().len() <= most, "jobs are bounded");
}

fn assert_moves(state: &State) {
    let mut ends = Vec::new();
    for (id, m) in state.memory.migrations().moving() {
        ends.extend([m.from, m.to]);
        let p = state.live.get(id);
        let place = p.and_then(|p| p.placement).map(|place| place.worker);
        assert_eq!(place, Some(m.from), "{id}: is where it is moved from");
        let runs = p.is_some_and(|p| !p.running.is_empty());
        assert!(!runs, "{id}: does not run while it is moved");
    }
    let all = ends.len();
    ends.sort_unstable();
    ends.dedup();
    assert_eq!(ends.len(), all, "no worker sends or receives two caches");
}

fn assert_copies(core: &Programs) {
    let (state, offloads) = (&core.state, core.state.memory.offloads());
    offloads.assert_sums();
    let most = core.config.kv.host_tokens_max;
    assert!(offloads.taken_tokens() <= most, "host memory is bounded");
    for id in offloads.held().keys() {
        let p = &state.live[id];
        assert!(p.running.is_empty(), "{id}: one valid copy at most");
        let returns = offloads.is_returning(*id);
        assert_eq!(p.placement.is_some(), returns, "{id}: is not at an engine");
    }
    for (id, transfer) in offloads.moving() {
        let p = &state.live[id];
        let place = p.placement.map(|place| place.worker);
        assert_eq!(place, Some(transfer.worker), "{id}: has its placement");
        assert!(p.running.is_empty(), "{id}: does not run in a transfer");
        let back = transfer.direction == Direction::Back;
        assert!(back || p.waiting.is_empty(), "{id}: nothing waits to leave");
        assert_eq!(
            back,
            offloads.held().contains_key(id),
            "{id}: comes from a copy"
        );
        let timer = Timer::Transfer(*id);
        assert!(
            state.timers.contains(transfer.deadline, timer),
            "{id}: bounded"
        );
    }
    let out = offloads.moving().values();
    let out = out.filter(|t| t.direction == Direction::Out).count();
    let workers = offloads.busy(Direction::Out).len();
    assert_eq!(out, workers, "one cache at a time leaves a worker");
}

/// Checks the data about engines' memory beyond the ledger.
fn assert_engines(core: &Programs) {
    let state = &core.state;
    for (id, w) in &state.workers {
        let engine = w.ledger.engine();
        engine.assert_sums();
        assert!(
            engine.headroom_ppm().is_none_or(|ppm| ppm <= 1_000_000),
            "{id}: headroom"
        );
        for step in engine.prompts() {
            let s = state.steps.get(&step);
            let p = s.and_then(|s| state.live.get(&s.program));
            let place = p.and_then(|p| p.placement).map(|place| place.worker);
            let leg = s
                .and_then(|s| s.prefill)
                .filter(|leg| leg.done_at.is_none());
            let own = s.and_then(|s| s.state.worker()).or(place);
            let at = leg.map(|leg| leg.worker).or(own);
            assert_eq!(at, Some(*id), "{id}: {step} has its prompt there");
        }
    }
    let memory = &state.memory;
    let offloads = memory.offloads();
    for program in offloads.wanted().iter().chain(offloads.moving().keys()) {
        let migrates = memory.move_of(*program).is_some();
        assert!(!migrates, "{program}: goes one way at a time");
    }
}

/// Checks that accounts agree with the ledgers, and that undivided time belongs to programs.
fn assert_accounts(core: &Programs) {
    let state = &core.state;
    let mut workers: BTreeMap<WorkerId, (u64, BTreeMap<&str, u64>)> = BTreeMap::new();
    let mut jobs: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
    for (id, p) in &state.live {
        let place = p.placement.map(|place| Charge {
            worker: place.worker,
            what: core.use_of(p),
            tokens: place.charged_tokens,
        });
        assert_eq!(p.meter.placement(), place, "{id}: the use of its placement");
        assert_eq!(p.meter.kept(), core.kept_charge(*id), "{id}: room kept");
        for charge in place.into_iter().chain(p.meter.kept()) {
            let what = charge.what.as_str();
            let of_worker = workers.entry(charge.worker).or_default();
            *of_worker.1.entry(what).or_default() += charge.tokens;
            *jobs.entry(&p.job).or_default().entry(what).or_default() += charge.tokens;
        }
        if let Some(place) = place {
            workers.entry(place.worker).or_default().0 += p.meter.undivided_at(state.now);
        }
    }
    for (id, w) in &state.workers {
        let (undivided, mut uses) = workers.remove(id).unwrap_or_default();
        assert_eq!(
            w.ledger.account().at(state.now).undivided,
            undivided,
            "{id}: undivided"
        );
        uses.insert("shared", w.ledger.shared_tokens());
        let in_use: u64 = uses.values().sum();
        let tracked = w.used_tokens() - w.ledger.untracked_tokens();
        assert_eq!(in_use, tracked, "{id}: tokens in all uses");
        let capacity = w.capacity.tokens.filter(|_| w.is_healthy());
        let capacity = capacity.filter(|_| core.config.mode != crate::Mode::LeastLoad);
        uses.insert("unused", capacity.unwrap_or(0).saturating_sub(in_use));
        assert_uses(w.ledger.account(), &uses);
        let over = in_use.saturating_sub(capacity.unwrap_or(in_use));
        assert_eq!(
            w.ledger.account().tokens_over(),
            over,
            "{id}: above capacity"
        );
    }
    for (job, account) in state.memory.accounts().iter() {
        assert_uses(account, &jobs.remove(job).unwrap_or_default());
    }
    assert!(jobs.is_empty(), "each job has an account");
}

fn assert_uses(account: &Account, uses: &BTreeMap<&str, u64>) {
    for what in Use::ALL {
        let tokens = uses.get(what.as_str()).copied().unwrap_or(0);
        assert_eq!(account.tokens(what), tokens, "{what:?}: tokens now");
    }
}

fn assert_steps(state: &State, core: &Programs) {
    let mut running: BTreeMap<_, u32> = BTreeMap::new();
    for (id, s) in &state.steps {
        let p = &state.live[&s.program];
        match s.state {
            StepState::Running { worker, .. } => {
                *running.entry(worker).or_default() += 1;
                assert!(
                    p.running.contains(id),
                    "{id}: known to its program as running"
                );
                let is_suspended = s.suspended_since.is_some();
                assert!(!is_suspended, "{id}: only waits are suspended");
            }
            StepState::Waiting => {
                assert!(
                    p.waiting.contains(id),
                    "{id}: known to its program as waiting"
                );
                assert_eq!(
                    s.suspended_since.is_some(),
                    core.is_suspended(s.program),
                    "{id}: its wait is suspended while only fences are in its way"
                );
                let deadline = s.wait_deadline(core.config.queue_wait_max);
                assert!(
                    state.timers.contains(deadline, Timer::StepWait(*id)),
                    "{id}: bounded"
                );
            }
        }
    }
    let listed: usize = state
        .live
        .values()
        .map(|p| p.running.len() + p.waiting.len())
        .sum();
    assert_eq!(listed, state.steps.len(), "each step is listed once");
    for (id, w) in &state.workers {
        let legs = state.steps.values().filter_map(|s| s.prefill);
        let legs = legs.filter(|leg| leg.worker == *id && leg.done_at.is_none());
        assert_eq!(
            legs.count(),
            w.prefills as usize,
            "{id}: prompts for others"
        );
        assert_eq!(
            running.get(id).copied().unwrap_or(0),
            w.running_steps,
            "{id}: running steps"
        );
    }
}
