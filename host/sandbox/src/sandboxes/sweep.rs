//! Periodic work: expired sandboxes, disk limits, unused copies.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::Sandboxes;
use crate::agent::Beyond;
use crate::blocking::blocking;
use crate::layers;
use crate::record::OnExpiry;
use crate::sandbox::{Sandbox, State};
use crate::shares::Shared;
use crate::wire::Guard;

/// Interval of checks of lifetimes and disks.
const PERIOD: Duration = Duration::from_millis(250);
/// How long a failed sandbox is listed.
const FAILED_MAX: Duration = Duration::from_mins(10);
/// How long a sandbox that was paused at its expiry is kept.
const PAUSED_MAX: Duration = Duration::from_hours(30 * 24);
/// Interval of collecting unused copies.
const COLLECTION_PERIOD: Duration = Duration::from_mins(1);
/// A sandbox that is slow to measure is measured less often, unless the free disk space shrinks by
/// this fraction of a sandbox's limit.
const URGENT_PART: u64 = 16;

/// The action for an expired sandbox.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Due {
    Pause,
    Removal,
}

impl Sandboxes {
    /// Does the periodic work until all handles are dropped.
    pub(super) fn watch(&self) {
        let shared = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            let mut collected = Instant::now();
            let mut free = u64::MAX;
            loop {
                tokio::time::sleep(PERIOD).await;
                let Some(shared) = shared.upgrade() else {
                    return;
                };
                let sandboxes = Self(shared);
                sandboxes.expire();
                sandboxes.measure(&mut free);
                sandboxes.hold_to_shares();
                sandboxes.limit_memory();
                if collected.elapsed() >= COLLECTION_PERIOD && sandboxes.set_aside().await {
                    collected = Instant::now();
                    sandboxes.note_time();
                    // Run separately, because both may take long.
                    let own = sandboxes.clone();
                    tokio::spawn(async move {
                        own.remove_set_aside().await;
                        own.keep_within_budget().await;
                    });
                }
            }
        });
    }

    fn all(&self) -> Vec<Arc<Sandbox>> {
        self.0.lock().values().cloned().collect()
    }

    fn expire(&self) {
        for (sandbox, due) in self.due() {
            let own = self.clone();
            tokio::spawn(async move {
                match due {
                    Due::Removal => own.remove(&sandbox.id).await,
                    Due::Pause => {
                        if let Err(error) = sandbox.pause().await {
                            tracing::warn!(sandbox = %sandbox.id, %error, "could not pause an expired sandbox");
                        }
                    }
                }
            });
        }
    }

    /// Expired sandboxes by the agent's clock, and the action for each.
    fn due(&self) -> Vec<(Arc<Sandbox>, Due)> {
        let now = self.0.agent.clock.now_us();
        let mut all = Vec::new();
        for sandbox in self.all() {
            let state = sandbox.state.borrow().clone();
            let (over_us, on_expiry) = {
                let record = &sandbox.lock().record;
                // Failed sandboxes have no lifetime of their own.
                let failed_us = matches!(state, State::Failed(_)).then_some(record.made_us);
                let ends_us = record.life.map(|life| life.ends_us).or(failed_us);
                let over_us = ends_us.and_then(|ends| now.checked_sub(ends));
                (over_us, record.spec.on_expiry)
            };
            let Some(over) = over_us.map(Duration::from_micros) else {
                continue;
            };
            let due = match (on_expiry, state) {
                (_, State::Failed(_)) if over < FAILED_MAX => continue,
                // Not while a change is in progress, which may take seconds.
                (OnExpiry::Pause, State::Ready) if sandbox.changing.try_lock().is_err() => continue,
                (OnExpiry::Pause, State::Ready) => Due::Pause,
                (OnExpiry::Pause, State::Paused | State::Stopped) if over < PAUSED_MAX => continue,
                _ => Due::Removal,
            };
            all.push((sandbox, due));
        }
        all
    }

    /// Records the clock's time; called every minute.
    pub(super) fn note_time(&self) {
        if let Err(error) = self.0.agent.clock.note() {
            tracing::warn!(%error, "could not record the clock; after a restart of the machine, sandboxes may live longer");
        }
    }

    /// Measures running sandboxes, and stops those that exceed their limit. `free` is the free disk
    /// space at the last measurement of all.
    fn measure(&self, free: &mut u64) {
        let config = &self.0.agent.config;
        let left = free_bytes(&config.folder);
        let is_urgent = left.saturating_add(config.disk_bytes_max / URGENT_PART) < *free;
        if is_urgent || left > *free {
            *free = left;
        }
        for sandbox in self.all() {
            // Files of a paused sandbox may be written from outside. An ended one keeps its last
            // size, and one of an earlier agent has to be measured once.
            let is_there = match *sandbox.state.borrow() {
                State::Ready | State::Paused => true,
                State::Stopped => !sandbox.was_measured(),
                _ => false,
            };
            if !is_there || sandbox.lock().is_over_disk {
                continue;
            }
            // Separate tasks, so that a slow one does not delay the others.
            if std::mem::replace(&mut sandbox.lock().is_measured, true) {
                continue;
            }
            let is_bounded = !config.without.contains(&Guard::Disk);
            tokio::spawn(async move {
                if sandbox.measure(is_urgent).await && is_bounded {
                    end_writing(&sandbox).await;
                }
                sandbox.lock().is_measured = false;
            });
        }
    }

    /// Removes copies used by no sandbox or snapshot; called every minute. Returns whether it
    /// could: not while a sandbox is made.
    pub async fn collect_copies(&self) -> bool {
        let could = self.set_aside().await;
        if could {
            self.remove_set_aside().await;
        }
        could
    }

    /// Renames unused copies out of the list, which is fast, while nothing can be made. Does
    /// nothing while it is unknown which are unused.
    async fn set_aside(&self) -> bool {
        let Ok(_none_is_made) = self.0.copying.try_write() else {
            return false;
        };
        if self.0.has_unread {
            return true;
        }
        let all = self.all();
        let of_sandboxes = all
            .iter()
            .map(|sandbox| sandbox.lock().record.layers.clone());
        let of_snapshots = self.snapshots().into_iter().map(|snapshot| snapshot.layers);
        let kept: BTreeSet<String> = of_sandboxes.chain(of_snapshots).flatten().collect();
        let folder = self.layers_folder();
        let renamed = blocking(move || {
            for layer in layers::names(&folder) {
                if !kept.contains(&layer) && !layer.starts_with('.') {
                    fs::rename(folder.join(&layer), folder.join(format!(".{layer}")))?;
                }
            }
            Ok(())
        });
        if let Err(error) = renamed.await {
            tracing::warn!(%error, "could not remove copies of sandboxes");
        }
        true
    }

    async fn remove_set_aside(&self) {
        let folder = self.layers_folder();
        let own = self.clone();
        let removed = blocking(move || {
            for layer in layers::names(&folder) {
                if let Some(name) = layer.strip_prefix('.') {
                    layers::remove(&folder.join(&layer))?;
                    own.0.copies.gone(name);
                }
            }
            Ok(())
        });
        if let Err(error) = removed.await {
            tracing::warn!(%error, "could not remove copies of sandboxes");
        }
    }
}

/// A running sandbox and its size on disk.
type Measured = (u64, Arc<Sandbox>);

impl Sandboxes {
    /// Disk space for the files of all sandboxes.
    pub(super) fn files_bytes_max(&self) -> u64 {
        let config = &self.0.agent.config;
        match config.files_bytes_max {
            0 => *self
                .0
                .disk_part
                .get_or_init(|| disk_bytes(&config.folder) / 10 * 9),
            most => most,
        }
    }

    /// Stops the largest running sandbox of a tenant that exceeds its share, and another one each
    /// time the tenant's size has grown further.
    fn hold_to_shares(&self) {
        let (agent, all_max) = (&self.0.agent, self.files_bytes_max());
        if agent.config.without.contains(&Guard::Disk) {
            return;
        }
        let mut of_tenants = BTreeMap::<String, (u64, Option<Measured>)>::new();
        for sandbox in self.all() {
            let bytes = sandbox.lock().disk_bytes;
            let (sum, largest) = of_tenants.entry(sandbox.tenant()).or_default();
            *sum += bytes;
            let is_larger = largest.as_ref().is_none_or(|(most, _)| bytes > *most);
            if is_larger && *sandbox.state.borrow() == State::Ready {
                *largest = Some((bytes, sandbox));
            }
        }
        let mut beyond = agent.beyond.lock().unwrap_or_else(PoisonError::into_inner);
        beyond.retain(|tenant, _| of_tenants.contains_key(tenant));
        for (tenant, (has, largest)) in of_tenants {
            let most = agent
                .config
                .shares
                .most(&tenant, Shared::FilesBytes, all_max);
            if has <= most {
                beyond.remove(&tenant);
                continue;
            }
            let next = beyond.get(&tenant).map_or(0, |before| before.next);
            let next = match largest.filter(|_| has >= next) {
                Some((_, sandbox)) => {
                    tracing::warn!(
                        tenant,
                        has,
                        most,
                        "the sandboxes of a tenant exceed its share of the disk"
                    );
                    tokio::spawn(async move { end_writing(&sandbox).await });
                    has + most / URGENT_PART
                }
                None => next,
            };
            beyond.insert(tenant, Beyond { has, most, next });
        }
    }
}

impl Sandboxes {
    /// Applies the tenants' current shares of memory, in the background. If the system can't take
    /// memory from a tenant that has more, its largest sandbox is stopped.
    fn limit_memory(&self) {
        let Ok(limiting) = self.0.limiting.clone().try_lock_owned() else {
            return;
        };
        let own = self.clone();
        tokio::spawn(async move {
            let _limiting = limiting;
            let config = &own.0.agent.config;
            let tenants: BTreeSet<String> = own.all().iter().map(|one| one.tenant()).collect();
            for tenant in tenants {
                let shares = &config.shares;
                let most = shares.most(&tenant, Shared::MemoryBytes, config.memory_bytes_all);
                let Err(error) = own.0.agent.platform.limit_memory(&tenant, most).await else {
                    continue;
                };
                tracing::warn!(tenant, most, %error, "the sandboxes of a tenant exceed its share of memory");
                let mut running = own.all();
                running.retain(|one| {
                    let runs = matches!(*one.state.borrow(), State::Ready | State::Paused);
                    runs && one.tenant() == tenant
                });
                let largest = running.iter().max_by_key(|one| one.place.memory_bytes());
                if let Some(sandbox) = largest {
                    let _changing = sandbox.changing.lock().await;
                    sandbox.end_processes().await;
                    sandbox.set(State::Stopped);
                }
            }
        });
    }
}

/// Ends the processes of a sandbox that exceeds its disk limit.
async fn end_writing(sandbox: &Arc<Sandbox>) {
    let bytes = sandbox.lock().disk_bytes;
    tracing::warn!(sandbox = %sandbox.id, bytes, "a sandbox exceeds its disk limit; its processes are ended");
    sandbox.lock().is_over_disk = true;
    let _changing = sandbox.changing.lock().await;
    sandbox.end_processes().await;
    sandbox.bear().await;
    sandbox.set(State::Stopped);
}

/// Size of the disk with a folder.
fn disk_bytes(folder: &Path) -> u64 {
    let told = rustix::fs::statvfs(folder);
    told.map_or(u64::MAX, |told| told.f_blocks.saturating_mul(told.f_frsize))
}

/// Free space of the disk with a folder.
fn free_bytes(folder: &Path) -> u64 {
    let told = rustix::fs::statvfs(folder);
    told.map_or(0, |told| told.f_bfree.saturating_mul(told.f_frsize))
}
