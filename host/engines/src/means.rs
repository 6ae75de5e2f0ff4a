//! Host memory and moves as the scheduler may plan with them. Where no engine takes part they would
//! cost more than nothing: each program that was to be offloaded loses its cache.

use super::transfers::Abilities;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use treadle_core::{CoreConfig, Event};
use treadle_model::WorkerId;
use treadle_scheduler::DriverHandle;

/// Keeps the scheduler's settings to what the engines can do.
pub(super) struct Means {
    driver: DriverHandle,
    configured: CoreConfig,
    seen: Mutex<Seen>,
}

struct Seen {
    /// All engines that are watched; what is not known of one is taken to be possible.
    engines: BTreeMap<WorkerId, Option<Abilities>>,
    /// What the scheduler plans with.
    planned: Possible,
}

/// What at least one engine can do with caches.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Possible {
    offload: bool,
    migrate: bool,
}

impl Possible {
    const ALL: Self = Self {
        offload: true,
        migrate: true,
    };

    fn of(engines: &[Option<&Abilities>]) -> Self {
        let any = |can: fn(&Abilities) -> bool| {
            engines.is_empty() || engines.iter().any(|found| found.is_none_or(can))
        };
        Self {
            offload: any(|found| found.offload),
            migrate: any(|found| found.migrate),
        }
    }

    /// The settings without what is not possible.
    fn within(self, configured: &CoreConfig) -> CoreConfig {
        let mut config = configured.clone();
        if !self.offload {
            config.kv.host_tokens_max = 0;
        }
        if !self.migrate {
            config.kv.migration_tokens_per_s = 0;
        }
        config
    }
}

impl Means {
    /// The scheduler plans with all that is configured.
    pub(super) fn new(driver: DriverHandle, configured: CoreConfig) -> Self {
        let seen = Mutex::new(Seen {
            engines: BTreeMap::new(),
            planned: Possible::ALL,
        });
        Self {
            driver,
            configured,
            seen,
        }
    }

    /// What an engine can do; `None` as long as that is not known. A lost one counts as before, so
    /// that copies outlive its restart.
    pub(super) fn found(&self, worker: WorkerId, abilities: Option<Abilities>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.engines.insert(worker, abilities);
    }

    /// An engine is gone.
    pub(super) fn forget(&self, worker: WorkerId) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.engines.remove(&worker);
    }

    /// Tells the scheduler where that makes a difference.
    pub(super) fn settle(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let found: Vec<_> = seen.engines.values().map(Option::as_ref).collect();
        let possible = Possible::of(&found);
        let (before, now) = (
            seen.planned.within(&self.configured),
            possible.within(&self.configured),
        );
        if before == now {
            return;
        }
        let (host_tokens_max, migration_tokens_per_s) =
            (now.kv.host_tokens_max, now.kv.migration_tokens_per_s);
        if now == self.configured {
            tracing::info!(
                host_tokens_max,
                migration_tokens_per_s,
                "an engine can offload and move caches as configured"
            );
        } else {
            let lacks = |found: &&Abilities| !found.missing.is_empty();
            let missing = found.iter().copied().flatten().find(lacks);
            tracing::warn!(
                host_tokens_max,
                migration_tokens_per_s,
                missing = missing.map(|found| &*found.missing),
                "no engine can offload or move caches as configured: the scheduler plans with this"
            );
        }
        seen.planned = possible;
        let config = Box::new(now);
        self.driver.event(Event::Configured { config });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_engine_can_is_not_planned_with() {
        let mut configured = CoreConfig::default();
        configured.kv.host_tokens_max = 1_000;
        configured.kv.migration_tokens_per_s = 50;
        let able = |offload, migrate| {
            let missing = "a connector".into();
            Some(Abilities {
                offload,
                migrate,
                missing,
            })
        };
        let planned = |engines: &[Option<Abilities>]| {
            let found: Vec<_> = engines.iter().map(Option::as_ref).collect();
            let kv = Possible::of(&found).within(&configured).kv;
            (kv.host_tokens_max, kv.migration_tokens_per_s)
        };
        assert_eq!(planned(&[]), (1_000, 50), "nothing is known");
        assert_eq!(planned(&[able(false, false), None]), (1_000, 50));
        assert_eq!(
            planned(&[able(false, false), able(true, true)]),
            (1_000, 50)
        );
        assert_eq!(planned(&[able(false, true), able(false, true)]), (0, 50));
        assert_eq!(planned(&[able(true, false)]), (1_000, 0));
        assert_eq!(planned(&[able(false, false)]), (0, 0));
    }
}
