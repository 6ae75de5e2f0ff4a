//! Adapts the scheduler's plans to the engines' abilities to offload and migrate caches. Planning
//! with host memory or migration that no engine supports would lose the cache of each program to be
//! offloaded.

use super::transfers::Abilities;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use treadle_core::{CoreConfig, DaemonEvent, Event};
use treadle_model::WorkerId;
use treadle_scheduler::DriverHandle;

/// Limits the scheduler's settings to the engines' abilities.
pub(super) struct Capabilities {
    driver: DriverHandle,
    configured: CoreConfig,
    state: Mutex<State>,
}

struct State {
    /// All watched engines; unknown abilities count as present.
    engines: BTreeMap<WorkerId, Option<Abilities>>,
    /// The abilities that the scheduler plans with.
    planned: Possible,
}

/// The abilities that at least one engine has.
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

    /// The settings without the missing abilities.
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

impl Capabilities {
    /// Starts with the assumption that everything configured is possible.
    pub(super) fn new(driver: DriverHandle, configured: CoreConfig) -> Self {
        let state = Mutex::new(State {
            engines: BTreeMap::new(),
            planned: Possible::ALL,
        });
        Self {
            driver,
            configured,
            state,
        }
    }

    /// Records an engine's abilities; `None` while they are unknown. A lost engine keeps its last
    /// ones, so that its copies outlive a restart.
    pub(super) fn found(&self, worker: WorkerId, abilities: Option<Abilities>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.engines.insert(worker, abilities);
    }

    /// Removes an engine.
    pub(super) fn forget(&self, worker: WorkerId) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.engines.remove(&worker);
    }

    /// Reconfigures the scheduler if the abilities have changed its settings.
    pub(super) fn settle(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let found: Vec<_> = state.engines.values().map(Option::as_ref).collect();
        let possible = Possible::of(&found);
        let (before, now) = (
            state.planned.within(&self.configured),
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
                "no engine can offload or move caches as configured; the scheduler plans without"
            );
        }
        state.planned = possible;
        let config = Box::new(now);
        self.driver
            .event(Event::Daemon(DaemonEvent::Configured { config }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_exclude_what_no_engine_supports() {
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
