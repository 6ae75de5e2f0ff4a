//! What is left if actions are started: a pass tries out what fits before it starts anything.

use crate::actions::devices::FreeDevices;
use crate::actions::index::Needs;
use crate::actions::pool::Pool;
use treadle_model::Timestamp;

/// What is left of one resource.
#[derive(Clone, Debug)]
struct Left {
    units: u64,
    devices: Option<FreeDevices>,
    /// An action before this one waits for it.
    blocked: bool,
}

/// What is left of all resources.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    pools: Vec<Left>,
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

impl Trial {
    pub(crate) fn of(pools: &[Pool], now: Timestamp) -> Self {
        let left = |pool: &Pool| Left {
            units: pool.free(now),
            devices: pool.devices.as_ref().map(|devices| devices.free.clone()),
            blocked: false,
        };
        Self {
            pools: pools.iter().map(left).collect(),
        }
    }

    fn left(&self, pool: u32) -> Option<&Left> {
        self.pools.get(pool as usize)
    }

    /// Whether an action before this one waits for something that it needs.
    pub(crate) fn is_blocked(&self, needs: &Needs) -> bool {
        let blocked = |(pool, _): &(u32, u64)| self.left(*pool).is_none_or(|left| left.blocked);
        needs.least.iter().any(blocked)
    }

    /// The first resource of which it does not get enough, with so many units of its key resource.
    pub(crate) fn short_of(&self, needs: &Needs, units: u64) -> Option<u32> {
        let fits = |pool, units| self.left(pool).is_some_and(|left| left.fits(units));
        let mut takes = needs.with(units);
        takes
            .find(|(pool, units)| !fits(*pool, *units))
            .map(|(pool, _)| pool)
    }

    /// Takes what an action needs, if it is left and nobody waits for it.
    pub(crate) fn take(&mut self, needs: &Needs, units: u64) -> bool {
        if self.is_blocked(needs) || self.short_of(needs, units).is_some() {
            return false;
        }
        for (pool, units) in needs.with(units) {
            self.take_of(pool, units);
        }
        true
    }

    /// Takes units of one resource.
    pub(crate) fn take_of(&mut self, pool: u32, units: u64) {
        if let Some(left) = self.pools.get_mut(pool as usize) {
            left.take(units);
        }
    }

    /// An action waits: none after it takes of what it needs.
    pub(crate) fn block(&mut self, needs: &Needs) {
        for (pool, _) in &needs.least {
            self.block_pool(*pool);
        }
    }

    /// An action waits although it could start: none after it takes of its key resource, nor the
    /// least that it needs of others.
    pub(crate) fn set_aside(&mut self, needs: &Needs) {
        for (demand, (pool, units)) in needs.least.iter().enumerate() {
            let fits = self.left(*pool).is_some_and(|left| left.fits(*units));
            if demand == needs.key_demand || !fits {
                self.block_pool(*pool);
            } else {
                self.take_of(*pool, *units);
            }
        }
    }

    fn block_pool(&mut self, pool: u32) {
        if let Some(left) = self.pools.get_mut(pool as usize) {
            left.blocked = true;
        }
    }

    /// What is left of one resource: units, and free chunks where it is made of devices.
    pub(crate) fn rest(&self, pool: u32) -> (u64, Option<[u32; 4]>) {
        let left = self.left(pool);
        let chunks = left.and_then(|left| left.devices.as_ref());
        (
            left.map_or(0, |left| left.units),
            chunks.map(FreeDevices::counts),
        )
    }
}
