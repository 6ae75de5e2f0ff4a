//! Enforces the limit on the disk space of images and snapshots by removing unused ones.

use std::collections::{BTreeMap, BTreeSet};

use super::Sandboxes;
use crate::platform::MeasuredImage;
use crate::snapshot::Snapshot;

impl Sandboxes {
    /// Removes unused snapshots and then unused images, until the rest fits `images_bytes_max`;
    /// runs every minute. Snapshots are taken from the tenant that uses most, the least recently
    /// used first, and images only if that is not enough. Nothing is removed if the limit can't be
    /// met. Returns the ids and names of what was removed.
    pub async fn keep_within_budget(&self) -> Vec<String> {
        let most = self.0.agent.config.images_bytes_max;
        let Ok(_one_at_a_time) = self.0.making_room.try_lock() else {
            return Vec::new();
        };
        if most == 0 {
            return Vec::new();
        }
        let images = match self.0.agent.platform.measured().await {
            Ok(images) => images,
            Err(error) => {
                tracing::warn!(%error, "could not measure images");
                return Vec::new();
            }
        };
        let snapshots = self.snapshots();
        let bytes = images.iter().map(|image| image.bytes);
        let bytes: u64 = bytes
            .chain(snapshots.iter().map(|one| one.disk_bytes))
            .sum();
        let Some(over) = bytes.checked_sub(most).filter(|over| *over > 0) else {
            return Vec::new();
        };
        let (images, snapshots) = self.unused(images, snapshots);
        let unused = images.iter().map(|image| image.bytes);
        let unused: u64 = unused
            .chain(snapshots.iter().map(|one| one.disk_bytes))
            .sum();
        if unused < over {
            tracing::warn!(
                bytes,
                most,
                "images and snapshots in use exceed sandboxes.images_bytes_max; \
                 nothing is removed for that"
            );
            return Vec::new();
        }
        self.make_room(over, images, snapshots).await
    }

    async fn make_room(
        &self,
        over: u64,
        images: Vec<MeasuredImage>,
        snapshots: Vec<Snapshot>,
    ) -> Vec<String> {
        let (mut freed, mut gone) = (0, Vec::new());
        for snapshot in in_order(snapshots) {
            if freed >= over {
                return gone;
            }
            if self.forget_snapshot(&snapshot.id).await.is_ok() {
                tracing::info!(snapshot = %snapshot.id, tenant = %snapshot.tenant, "removed an unused snapshot");
                freed += snapshot.disk_bytes;
                gone.push(snapshot.id);
            }
        }
        for image in images {
            if freed >= over {
                break;
            }
            // Fails if a sandbox was made of it meanwhile.
            if self.remove_image(&image.name).await.is_ok() {
                tracing::info!(image = %image.name, "removed an unused image");
                freed += image.bytes;
                gone.push(image.name);
            }
        }
        gone
    }

    /// Images and snapshots that neither sandboxes nor other snapshots use, least recently used
    /// images first.
    fn unused(
        &self,
        mut images: Vec<MeasuredImage>,
        mut snapshots: Vec<Snapshot>,
    ) -> (Vec<MeasuredImage>, Vec<Snapshot>) {
        let (mut below, mut layers) = (BTreeSet::new(), BTreeSet::new());
        let all: Vec<_> = self.0.lock().values().cloned().collect();
        for sandbox in all {
            let record = &sandbox.lock().record;
            below.insert(record.spec.image.clone());
            layers.extend(record.layers.iter().cloned());
        }
        for snapshot in &snapshots {
            below.insert(snapshot.image.clone());
            layers.extend(snapshot.layers[1..].iter().cloned());
        }
        images.retain(|image| !below.contains(&image.name));
        images.sort_by_key(|image| image.used_at_us);
        snapshots.retain(|snapshot| !layers.contains(&snapshot.layers[0]));
        (images, snapshots)
    }
}

/// Orders snapshots by removal: always the least recently used of the tenant that has most left.
fn in_order(mut snapshots: Vec<Snapshot>) -> Vec<Snapshot> {
    // Sorted so that the least recently used is last.
    snapshots.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.used_at_us));
    let mut tenants: BTreeMap<String, (u64, Vec<Snapshot>)> = BTreeMap::new();
    for snapshot in snapshots {
        let (bytes, own) = tenants.entry(snapshot.tenant.clone()).or_default();
        *bytes += snapshot.disk_bytes;
        own.push(snapshot);
    }
    let mut order = Vec::new();
    while let Some((bytes, own)) = tenants.values_mut().max_by_key(|(bytes, _)| *bytes) {
        match own.pop() {
            Some(snapshot) => {
                *bytes = bytes.saturating_sub(snapshot.disk_bytes);
                order.push(snapshot);
            }
            None => break,
        }
    }
    order
}
