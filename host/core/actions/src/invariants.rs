//! Invariants that hold after every event. Tests and the simulator check them after each one; every
//! sum is recomputed from scratch.

use crate::Actions;
use crate::action::Stage;
use crate::devices::FreeDevices;
use crate::index::Index;
use crate::resource::{Chunk, Supply};
use crate::state::{State, Timer};
use std::collections::BTreeMap;

impl Actions {
    /// Panics with the first invariant that does not hold.
    pub(crate) fn check_invariants(&self) {
        assert_pools(&self.state);
        assert_chunks(&self.state);
        assert_deadlines(&self.state);
        assert_eq!(Index::of(&self.state), self.index, "all are found");
        assert!(self.unranked.is_empty(), "newcomers are ranked");
        self.assert_bounds();
        self.assert_nobody_waits_in_vain();
    }

    fn assert_bounds(&self) {
        let state = &self.state;
        for (id, action) in &state.live {
            let has_ended = matches!(action.stage, Stage::Ended(_));
            assert!(!has_ended, "{id}: live ones have not ended");
        }
        for (id, action) in &state.ended {
            assert!(action.ended().is_some(), "{id}: ended");
            assert!(action.deadline.is_none(), "{id}: nothing is due any more");
            assert!(!state.live.contains_key(id), "{id}: is over");
        }
        assert_eq!(state.ended.len(), state.ended_order.len(), "in their order");
        let (ended, most) = (state.ended.len() as u64, self.config.ended_max);
        assert!(ended <= most, "few of them are remembered");
    }

    /// Every action that could start has started, unless the policy held it back.
    fn assert_nobody_waits_in_vain(&self) {
        if self.state.ask.is_none() {
            assert!(!self.state.pass_wanted, "passes are made");
            let startable = self.candidates().rows;
            assert!(startable.is_empty(), "{startable:?} could start");
        }
    }
}

fn assert_pools(state: &State) {
    let mut used: BTreeMap<&str, u64> = BTreeMap::new();
    let grants = state.live.values().filter_map(|a| a.started());
    for grant in grants.flat_map(|started| &started.grants) {
        *used.entry(&grant.resource).or_default() += grant.units;
    }
    for pool in &state.pools {
        let name = &*pool.resource.name;
        let sum = used.remove(name).unwrap_or(0);
        assert_eq!(sum, pool.used, "{name}: units in use");
        assert!(pool.used <= pool.total(), "{name}: no more than there is");
    }
    assert!(used.is_empty(), "{used:?}: given from what is there");
}

fn assert_chunks(state: &State) {
    for pool in &state.pools {
        let (Supply::Devices { nodes }, Some(devices)) = (&pool.resource.supply, &pool.devices)
        else {
            assert!(pool.devices.is_none(), "only devices come in chunks");
            continue;
        };
        let mut free = FreeDevices::of(nodes);
        let started = state.live.values().filter_map(|a| a.started());
        let grants = started.flat_map(|started| &started.grants);
        for grant in grants.filter(|grant| grant.resource == pool.resource.name) {
            let chunk = grant.chunk;
            let is_right =
                |c: &Chunk| u64::from(c.size) == grant.units && c.first.is_multiple_of(c.size);
            assert!(chunk.is_some_and(|c| is_right(&c)), "{grant:?}: aligned");
            let is_taken = chunk.is_some_and(|c| free.remove(c));
            assert!(is_taken, "{grant:?}: each device is given once");
        }
        assert_eq!(free, devices.free, "{}: free devices", pool.resource.name);
        for (service, held) in &devices.held {
            let mut chunks: Vec<_> = held.iter().map(|h| h.chunk).collect();
            chunks.dedup();
            assert_eq!(chunks.len(), held.len(), "{service}: each instance once");
        }
    }
}

fn assert_deadlines(state: &State) {
    let mut due = 0;
    for (id, action) in &state.live {
        let is_due = |at| state.timers.contains(at, Timer::Action(*id));
        assert!(action.deadline.is_none_or(is_due), "{id}: has its deadline");
        due += usize::from(action.deadline.is_some());
        let has_one = action.started().is_none() || action.deadline.is_some();
        assert!(has_one, "{id}: a started one is bounded");
    }
    for (number, pool) in (0..).zip(&state.pools) {
        let is_due = |at| state.timers.contains(at, Timer::Quota(number));
        assert!(pool.wake_at.is_none_or(is_due), "looked at again");
        due += usize::from(pool.wake_at.is_some());
    }
    let asked = |ask: &crate::Ask| state.timers.contains(ask.deadline, Timer::Ask(ask.ask));
    assert!(state.ask.as_ref().is_none_or(asked), "answered in time");
    due += usize::from(state.ask.is_some());
    assert_eq!(state.timers.len(), due, "nothing else is due");
}
