//! What is looked after: time that is over, disks that fill, copies that nobody has any more.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Sandboxes, blocking};
use crate::layers;
use crate::record::{OnExpiry, now_us};
use crate::sandbox::{Sandbox, State};
use crate::wire::Guard;

/// How often time and disks are looked at.
const PERIOD: Duration = Duration::from_millis(250);
/// How often copies are looked for that nobody has.
const COLLECTION_PERIOD: Duration = Duration::from_secs(60);
/// Measuring disks takes at most one part in so many of the time.
const MEASURING_SHARE: u32 = 20;

impl Sandboxes {
    /// Looks after sandboxes until all handles are gone.
    pub(super) fn watch(&self) {
        let shared = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            let mut collected = Instant::now();
            let mut measured = (Instant::now(), Duration::ZERO);
            loop {
                tokio::time::sleep(PERIOD).await;
                let Some(shared) = shared.upgrade() else {
                    return;
                };
                let sandboxes = Self(shared);
                sandboxes.expire().await;
                if measured.0.elapsed() >= measured.1 * MEASURING_SHARE {
                    let began = Instant::now();
                    sandboxes.measure().await;
                    measured = (Instant::now(), began.elapsed());
                }
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

    /// Measures those that run, and ends what goes on writing beyond its bound.
    async fn measure(&self) {
        for sandbox in self.all() {
            if *sandbox.state.borrow() != State::Ready {
                continue;
            }
            let folder = sandbox.folder.clone();
            let size = blocking(move || Ok(layers::size(&folder)))
                .await
                .unwrap_or(0);
            let is_over = {
                let mut inner = sandbox.lock();
                let grows = size >= inner.disk_bytes;
                inner.disk_bytes = size;
                size > self.0.config.disk_bytes_max && grows
            };
            if is_over && !self.0.config.without.contains(&Guard::Disk) {
                tracing::warn!(sandbox = %sandbox.id, bytes = size, "it wrote more than it may");
                let _changing = sandbox.changing.lock().await;
                sandbox.lock().is_over_disk = true;
                sandbox.end_processes().await;
                sandbox.state.send_if_modified(|state| {
                    let is_there = *state != State::Removed;
                    if is_there {
                        *state = State::Stopped;
                    }
                    is_there
                });
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
        let folder = self.0.config.folder.join("layers");
        let removed = blocking(move || {
            for layer in layers::names(&folder) {
                // A copy is made before the first sandbox over it: those of this hour may yet get one.
                let path = folder.join(&layer);
                let is_new = std::fs::metadata(&path)
                    .and_then(|metadata| metadata.modified())
                    .is_ok_and(|made| made.elapsed().is_ok_and(|age| age < COLLECTION_PERIOD));
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
