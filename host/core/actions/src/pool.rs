//! One resource: what is in use, and what is free.

use crate::devices::{Devices, FreeDevices, is_size};
use crate::quota::Quota;
use crate::resource::{Chunk, Grant, Instance, Resource, Supply};
use serde::{Deserialize, Serialize};
use treadle_model::{Span, Timestamp};

/// A resource and what is in use of it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    /// The resource.
    pub resource: Resource,
    /// Units that started actions hold.
    pub used: u64,
    /// Its devices, if it consists of devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<Devices>,
    /// Its recent requests, if it is a quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<Quota>,
    /// When to look at it again, because time alone frees some of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<Timestamp>,
}

/// What an action is granted, and what must change on its devices first.
pub(crate) struct Granted {
    pub(crate) grant: Grant,
    pub(crate) loads: bool,
    pub(crate) evicted: Vec<Instance>,
}

impl Pool {
    pub(crate) fn new(resource: Resource) -> Self {
        let (mut devices, mut quota) = (None, None);
        match &resource.supply {
            Supply::Units { .. } => {}
            Supply::Devices { nodes } => {
                devices = Some(Devices {
                    free: FreeDevices::of(nodes),
                    ..Devices::default()
                });
            }
            Supply::Quota { .. } => quota = Some(Quota::default()),
        }
        Self {
            resource,
            used: 0,
            devices,
            quota,
            wake_at: None,
        }
    }

    /// The most that can be granted to one action.
    pub fn most(&self) -> u64 {
        match &self.resource.supply {
            Supply::Units { total } => *total,
            Supply::Devices { nodes } => {
                let counts = FreeDevices::of(nodes).counts();
                let largest = (0..4).rev().find(|level| counts[*level as usize] > 0);
                largest.map_or(0, |level| 1 << level)
            }
            Supply::Quota {
                concurrent_max,
                requests_max,
                ..
            } => concurrent_max
                .unwrap_or(u64::MAX)
                .min(requests_max.unwrap_or(u64::MAX)),
        }
    }

    /// Its total: units, devices, or concurrent requests.
    pub fn total(&self) -> u64 {
        match &self.resource.supply {
            Supply::Devices { nodes } => FreeDevices::of(nodes).units(),
            Supply::Units { total } => *total,
            Supply::Quota { concurrent_max, .. } => concurrent_max.unwrap_or(u64::MAX),
        }
    }

    /// Whether this amount can be granted at all.
    pub(crate) fn has_amount(&self, units: u64) -> bool {
        self.devices.is_none() || is_size(units)
    }

    /// The free units at `now`.
    pub fn free(&self, now: Timestamp) -> u64 {
        match (&self.resource.supply, &self.quota) {
            (
                Supply::Quota {
                    concurrent_max,
                    requests_max,
                    period,
                },
                Some(quota),
            ) => {
                if quota.paused_until > now {
                    return 0;
                }
                let at_once = concurrent_max.map_or(u64::MAX, |most| most - most.min(self.used));
                let in_period = requests_max.map_or(u64::MAX, |most| {
                    most.saturating_sub(quota.requests(*period, now))
                });
                at_once.min(in_period)
            }
            _ => match &self.devices {
                Some(devices) => devices.free.units(),
                None => self.total().saturating_sub(self.used),
            },
        }
    }

    /// When more than now becomes free by time alone, if ever.
    pub(crate) fn eases_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.quota.as_ref()?.eases_at(self.period(), now)
    }

    fn period(&self) -> Span {
        match self.resource.supply {
            Supply::Quota { period, .. } => period,
            Supply::Units { .. } | Supply::Devices { .. } => Span(0),
        }
    }

    /// Takes units, if they are free.
    pub(crate) fn take(
        &mut self,
        units: u64,
        service: Option<&str>,
        now: Timestamp,
        services_max: u32,
    ) -> Option<Granted> {
        if self.free(now) < units {
            return None;
        }
        let mut given = Granted {
            grant: Grant {
                resource: self.resource.name.clone(),
                units,
                chunk: None,
            },
            loads: false,
            evicted: Vec::new(),
        };
        if let Some(devices) = &mut self.devices {
            let handed = devices.take(units as u32, service, now, services_max)?;
            given.grant.chunk = Some(handed.chunk);
            given.loads = handed.loads;
            given.evicted = handed.evicted;
        }
        let period = self.period();
        if let Some(quota) = &mut self.quota {
            quota.ask(units, period, now);
        }
        self.used += units;
        Some(given)
    }

    /// Takes a started action's grant again after the resources were declared anew; `false` if it
    /// no longer exists.
    pub(crate) fn take_again(&mut self, grant: &Grant) -> bool {
        let fits = self.used.saturating_add(grant.units) <= self.total();
        let fits = fits
            && match (&mut self.devices, grant.chunk) {
                (Some(devices), Some(chunk)) => devices.free.remove(chunk),
                (None, None) => true,
                _ => false,
            };
        if fits {
            self.used += grant.units;
        }
        fits
    }

    pub(crate) fn give_back(&mut self, units: u64, chunk: Option<Chunk>) {
        self.used = self.used.saturating_sub(units);
        if let (Some(devices), Some(chunk)) = (&mut self.devices, chunk) {
            devices.free.add(chunk);
        }
    }
}
