//! What is looked after: time that is over, disks that fill, copies that nobody has any more.

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

/// How often time and disks are looked at.
const PERIOD: Duration = Duration::from_millis(250);
/// How long what could not be made is there to be asked about.
const FAILED_MAX: Duration = Duration::from_mins(10);
/// How long a sandbox is kept that was paused because its time was over.
const PAUSED_MAX: Duration = Duration::from_hours(30 * 24);
/// How often copies are looked for that nobody has.
const COLLECTION_PERIOD: Duration = Duration::from_mins(1);
/// A sandbox that takes long to measure is measured seldom, unless the disk as a whole lost this part
/// of what one sandbox may write.
const URGENT_PART: u64 = 16;

/// What becomes of a sandbox whose time is over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Due {
    Pause,
    Removal,
}

impl Sandboxes {
    /// Looks after sandboxes until all handles are gone.
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
                if collected.elapsed() >= COLLECTION_PERIOD && sandboxes.set_aside().await {
                    collected = Instant::now();
                    sandboxes.note_time();
                    // Aside: both may take long.
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
                            tracing::warn!(sandbox = %sandbox.id, %error, "it can't be paused");
                        }
                    }
                }
            });
        }
    }

    /// Those whose time is over, by the agent's clock, and what is to become of them.
    fn due(&self) -> Vec<(Arc<Sandbox>, Due)> {
        let now = self.0.agent.clock.now_us();
        let mut all = Vec::new();
        for sandbox in self.all() {
            let state = sandbox.state.borrow().clone();
            let (over_us, on_expiry) = {
                let record = &sandbox.lock().record;
                // One that could not be made has no other time.
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
                // Not while it is tried already: it may take seconds.
                (OnExpiry::Pause, State::Ready) if sandbox.changing.try_lock().is_err() => continue,
                (OnExpiry::Pause, State::Ready) => Due::Pause,
                (OnExpiry::Pause, State::Paused | State::Stopped) if over < PAUSED_MAX => continue,
                _ => Due::Removal,
            };
            all.push((sandbox, due));
        }
        all
    }

    /// Notes what the clock is at, as is done each minute.
    pub(super) fn note_time(&self) {
        if let Err(error) = self.0.agent.clock.note() {
            tracing::warn!(%error, "after a restart of the machine sandboxes may live longer");
        }
    }

    /// Measures those that run, and ends what goes on writing beyond its bound. `free` is what was
    /// left of the disk when all were measured last.
    fn measure(&self, free: &mut u64) {
        let config = &self.0.agent.config;
        let left = free_bytes(&config.folder);
        let is_urgent = left.saturating_add(config.disk_bytes_max / URGENT_PART) < *free;
        if is_urgent || left > *free {
            *free = left;
        }
        for sandbox in self.all() {
            // Files of a paused one may be written from outside.
            // What has ended has what it had, and what an earlier agent left is to be known.
            let is_there = match *sandbox.state.borrow() {
                State::Ready | State::Paused => true,
                State::Stopped => !sandbox.was_measured(),
                _ => false,
            };
            if !is_there || sandbox.lock().is_over_disk {
                continue;
            }
            // Aside: one that takes long keeps no other from being measured.
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

    /// Removes copies that lie under no sandbox and are no snapshot's, as is done each minute. Gives
    /// whether it could: not while one is made.
    pub async fn collect_copies(&self) -> bool {
        let could = self.set_aside().await;
        if could {
            self.remove_set_aside().await;
        }
        could
    }

    /// Takes such copies out of sight, which is quick. Nothing can be made meanwhile. As long as it is
    /// not known which there are, none.
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
            tracing::warn!(%error, "copies of sandboxes stay");
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
            tracing::warn!(%error, "copies of sandboxes stay");
        }
    }
}

/// A sandbox at work, and what it has on disk.
type Measured = (u64, Arc<Sandbox>);

impl Sandboxes {
    /// What the files of all sandboxes may take of the disk.
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

    /// Stops the largest sandbox at work of a tenant whose sandboxes have more on disk than its share,
    /// and another one each time that they have more yet.
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
                    tracing::warn!(tenant, has, most, "its sandboxes wrote more than its share");
                    tokio::spawn(async move { end_writing(&sandbox).await });
                    has + most / URGENT_PART
                }
                None => next,
            };
            beyond.insert(tenant, Beyond { has, most, next });
        }
    }
}

/// Ends the processes of what has more on disk than it may.
async fn end_writing(sandbox: &Arc<Sandbox>) {
    let bytes = sandbox.lock().disk_bytes;
    tracing::warn!(sandbox = %sandbox.id, bytes, "it wrote more than it may");
    sandbox.lock().is_over_disk = true;
    let _changing = sandbox.changing.lock().await;
    sandbox.end_processes().await;
    sandbox.bear().await;
    sandbox.set(State::Stopped);
}

/// Bytes of the disk that a folder is on.
fn disk_bytes(folder: &Path) -> u64 {
    let told = rustix::fs::statvfs(folder);
    told.map_or(u64::MAX, |told| told.f_blocks.saturating_mul(told.f_frsize))
}

/// Bytes that are left of the disk that a folder is on.
fn free_bytes(folder: &Path) -> u64 {
    let told = rustix::fs::statvfs(folder);
    told.map_or(0, |told| told.f_bfree.saturating_mul(told.f_frsize))
}
