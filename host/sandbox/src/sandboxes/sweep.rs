//! What is looked after: time that is over, disks that fill, copies that nobody has any more.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Sandboxes;
use crate::agent::blocking;
use crate::layers;
use crate::record::{OnExpiry, now_us};
use crate::sandbox::{Sandbox, State};
use crate::wire::Guard;

/// How often time and disks are looked at.
const PERIOD: Duration = Duration::from_millis(250);
/// How often copies are looked for that nobody has.
const COLLECTION_PERIOD: Duration = Duration::from_mins(1);
/// A sandbox that takes long to measure is measured seldom, unless the disk as a whole lost this part
/// of what one sandbox may write.
const URGENT_PART: u64 = 16;
/// For how long a copy is kept that no sandbox has: it may be in the making.
const COPY_MAX: Duration = Duration::from_hours(1);

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
                sandboxes.expire().await;
                sandboxes.measure(&mut free).await;
                if collected.elapsed() >= COLLECTION_PERIOD {
                    sandboxes.collect().await;
                    collected = Instant::now();
                }
            }
        });
    }

    fn all(&self) -> Vec<Arc<Sandbox>> {
        self.0.lock().values().cloned().collect()
    }

    async fn expire(&self) {
        let now = now_us();
        for sandbox in self.all() {
            let on_expiry = {
                let inner = sandbox.lock();
                let over = inner
                    .record
                    .expires_at_us
                    .is_some_and(|expires| expires <= now);
                over.then_some(inner.record.spec.on_expiry)
            };
            match on_expiry {
                Some(OnExpiry::Remove) => self.remove(&sandbox.id).await,
                Some(OnExpiry::Pause) if *sandbox.state.borrow() == State::Ready => {
                    if let Err(error) = sandbox.pause().await {
                        tracing::warn!(sandbox = %sandbox.id, %error, "it can't be paused");
                    }
                }
                _ => {}
            }
        }
    }

    /// Measures those that run, and ends what goes on writing beyond its bound. `free` is what was
    /// left of the disk when all were measured last.
    async fn measure(&self, free: &mut u64) {
        let config = &self.0.agent.config;
        let left = free_bytes(&config.folder);
        let is_urgent = left.saturating_add(config.disk_bytes_max / URGENT_PART) < *free;
        if is_urgent || left > *free {
            *free = left;
        }
        for sandbox in self.all() {
            if *sandbox.state.borrow() != State::Ready || sandbox.lock().is_over_disk {
                continue;
            }
            if sandbox.measure(is_urgent).await && !config.without.contains(&Guard::Disk) {
                let bytes = sandbox.lock().disk_bytes;
                tracing::warn!(sandbox = %sandbox.id, bytes, "it wrote more than it may");
                sandbox.lock().is_over_disk = true;
                // Aside: a copy of its files may be in the making.
                tokio::spawn(end_writing(sandbox));
            }
        }
    }

    /// Removes copies that lie under no sandbox.
    pub(super) async fn collect(&self) {
        let kept: BTreeSet<String> = self
            .all()
            .iter()
            .flat_map(|sandbox| sandbox.lock().record.layers.clone())
            .collect();
        let folder = self.0.agent.config.folder.join("layers");
        let removed = blocking(move || {
            for layer in layers::names(&folder) {
                // A copy is made before the first sandbox over it.
                let path = folder.join(&layer);
                let is_new = std::fs::metadata(&path)
                    .and_then(|metadata| metadata.modified())
                    .is_ok_and(|made| made.elapsed().is_ok_and(|age| age < COPY_MAX));
                if !kept.contains(&layer) && !is_new {
                    layers::remove(&path)?;
                }
            }
            Ok(())
        });
        if let Err(error) = removed.await {
            tracing::warn!(%error, "copies of sandboxes stay");
        }
    }
}

/// Ends the processes of what has more on disk than it may.
async fn end_writing(sandbox: Arc<Sandbox>) {
    let _changing = sandbox.changing.lock().await;
    sandbox.end_processes().await;
    sandbox.bear().await;
    sandbox.set(State::Stopped);
}

/// Bytes that are left of the disk that a folder is on.
fn free_bytes(folder: &Path) -> u64 {
    let told = rustix::fs::statvfs(folder);
    told.map_or(0, |told| told.f_bfree.saturating_mul(told.f_frsize))
}
