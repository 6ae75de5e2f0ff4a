//! Trial starts: a pass finds what fits before it starts anything.

use crate::Actions;
use crate::devices::FreeDevices;
use crate::index::Needs;
use crate::pool::Pool;
use crate::shares::Holdings;
use std::collections::{BTreeMap, BTreeSet};

/// What is left of one resource.
#[derive(Clone, Debug)]
struct Left {
    units: u64,
    devices: Option<FreeDevices>,
    /// An earlier action waits for it.
    blocked: bool,
    /// Groups with an action that waits because the group holds its whole share of the resource.
    blocked_groups: BTreeSet<Box<str>>,
}

/// What is left of all resources during a trial.
#[derive(Clone, Debug)]
pub(crate) struct Trial<'a> {
    pools: Vec<Left>,
    actions: &'a Actions,
    /// What each group was granted.
    taken: BTreeMap<Box<str>, (u64, BTreeMap<u32, u64>)>,
}

impl Left {
    fn fits(&self, units: u64) -> bool {
        let chunk = self.devices.as_ref().is_none_or(|free| free.fits(units));
        self.units >= units && chunk
    }

    fn take(&mut self, units: u64) {
        self.units = self.units.saturating_sub(units);
        if let Some(free) = &mut self.devices {
            free.take_any(units as u32);
        }
    }
}

impl<'a> Trial<'a> {
    pub(crate) fn of(actions: &'a Actions) -> Self {
        let state = &actions.state;
        let left = |pool: &Pool| Left {
            units: pool.free(state.now),
            devices: pool.devices.as_ref().map(|devices| devices.free.clone()),
            blocked: false,
            blocked_groups: BTreeSet::new(),
        };
        Self {
            pools: state.pools.iter().map(left).collect(),
            actions,
            taken: BTreeMap::new(),
        }
    }

    fn left(&self, pool: u32) -> Option<&Left> {
        self.pools.get(pool as usize)
    }

    /// Whether an earlier action waits for a resource that this one needs.
    pub(crate) fn is_blocked(&self, needs: &Needs) -> bool {
        let blocked = |(pool, _): &(u32, u64)| {
            let left = self.left(*pool);
            left.is_none_or(|left| left.blocked || left.blocked_groups.contains(&needs.group))
        };
        needs.least.iter().any(blocked)
    }

    /// The first resource that does not suffice, with these units of the key resource.
    pub(crate) fn short_of(&self, needs: &Needs, units: u64) -> Option<u32> {
        let fits = |pool, units| self.left(pool).is_some_and(|left| left.fits(units));
        let mut takes = needs.with(units);
        takes
            .find(|(pool, units)| !fits(*pool, *units))
            .map(|(pool, _)| pool)
    }

    /// Whether its group may hold these units as well. An action submitted under a larger share may
    /// get its minimum once the group holds nothing else of it.
    pub(crate) fn is_within_share(&self, needs: &Needs, units: u64) -> bool {
        let actions = self.actions;
        if actions.state.shares.is_none() {
            return true;
        }
        let held = actions.index.holdings.get(&needs.group);
        let taken = self.taken.get(&needs.group);
        let started =
            held.map_or(0, |held| held.started) + taken.map_or(0, |(started, _)| *started);
        let started_max = actions.most_of(&needs.group, actions.config.started_max);
        let mut least = needs.least.iter().map(|(_, least)| *least);
        started < started_max
            && needs.with(units).all(|(pool, units)| {
                let least = least.next().unwrap_or(0);
                let before = taken.and_then(|(_, taken)| taken.get(&pool)).copied();
                let before = self.held_of(held, pool) + before.unwrap_or(0);
                let known = actions.state.pools.get(pool as usize);
                let total = known.map_or(0, Pool::total);
                before.saturating_add(units) <= actions.most_of(&needs.group, total)
                    || (before == 0 && units == least)
            })
    }

    fn held_of(&self, held: Option<&Holdings>, pool: u32) -> u64 {
        let pool = self.actions.state.pools.get(pool as usize);
        let units = held
            .zip(pool)
            .and_then(|(held, pool)| held.units.get(&pool.resource.name));
        units.copied().unwrap_or(0)
    }

    /// Takes what an action needs, if it is free, no earlier action waits for it and its group may
    /// hold it.
    pub(crate) fn take(&mut self, needs: &Needs, units: u64) -> bool {
        if self.is_blocked(needs)
            || self.short_of(needs, units).is_some()
            || !self.is_within_share(needs, units)
        {
            return false;
        }
        for (pool, units) in needs.with(units) {
            self.take_of(pool, units);
        }
        if self.actions.state.shares.is_some() {
            let (started, taken) = self.taken.entry(needs.group.clone()).or_default();
            *started += 1;
            for (pool, units) in needs.with(units) {
                *taken.entry(pool).or_default() += units;
            }
        }
        true
    }

    /// Takes units of one resource.
    pub(crate) fn take_of(&mut self, pool: u32, units: u64) {
        if let Some(left) = self.pools.get_mut(pool as usize) {
            left.take(units);
        }
    }

    /// Marks what a waiting action needs as blocked for later ones. An action that waits for its
    /// group's share blocks only that group.
    pub(crate) fn block(&mut self, needs: &Needs) {
        let least = needs.least_of_key();
        // Actions of its group behind it wait for the share, too.
        let is_behind = |(pool, _): &(u32, u64)| {
            let left = self.left(*pool);
            left.is_some_and(|left| left.blocked_groups.contains(&needs.group))
        };
        let is_behind = needs.least.iter().any(is_behind);
        let of_group = is_behind || !self.is_within_share(needs, least);
        for (pool, _) in &needs.least {
            self.block_pool(*pool, of_group.then_some(&*needs.group));
        }
    }

    /// Sets aside an action that could start but waits: later ones may not take its key resource,
    /// nor its minimum of others. If groups share, it blocks only its own.
    pub(crate) fn set_aside(&mut self, needs: &Needs) {
        let shares = self.actions.state.shares.is_some();
        for (demand, (pool, units)) in needs.least.iter().enumerate() {
            let fits = self.left(*pool).is_some_and(|left| left.fits(*units));
            if demand == needs.key_demand || !fits {
                self.block_pool(*pool, shares.then_some(&*needs.group));
            } else {
                self.take_of(*pool, *units);
            }
        }
    }

    fn block_pool(&mut self, pool: u32, group: Option<&str>) {
        let Some(left) = self.pools.get_mut(pool as usize) else {
            return;
        };
        match group {
            Some(group) => {
                left.blocked_groups.insert(group.into());
            }
            None => left.blocked = true,
        }
    }

    /// What is left of one resource: units, and free chunks if it consists of devices.
    pub(crate) fn rest(&self, pool: u32) -> (u64, Option<[u32; 4]>) {
        let left = self.left(pool);
        let chunks = left.and_then(|left| left.devices.as_ref());
        (
            left.map_or(0, |left| left.units),
            chunks.map(FreeDevices::counts),
        )
    }
}
