//! The bound on what images and snapshots take of the disk: those that nobody used for the longest
//! go first, as container runtimes collect images.

use std::collections::BTreeSet;

use super::Sandboxes;
use crate::blocking::blocking;
use crate::usage;

/// Something that may go.
#[derive(Debug, Eq, PartialEq)]
enum Unused {
    Image(String),
    Snapshot(String),
}

impl Sandboxes {
    /// Removes images and snapshots that no sandbox has, those first that were not used for the
    /// longest, until all are within `images_bytes_max`, as is done each minute. Gives what it
    /// removed, by id or name.
    pub async fn keep_within_budget(&self) -> Vec<String> {
        let most = self.0.agent.config.images_bytes_max;
        if most == 0 {
            return Vec::new();
        }
        let folder = self.layers_folder();
        let of_layers = blocking(move || Ok(usage::of_folder(&folder))).await;
        let measured = self.0.agent.platform.measured().await;
        let (images, mut bytes) = match (measured, of_layers) {
            (Ok(images), Ok(of_layers)) => (images, of_layers),
            (Err(error), _) | (_, Err(error)) => {
                tracing::warn!(%error, "images can't be measured");
                return Vec::new();
            }
        };
        bytes += images.iter().map(|image| image.bytes).sum::<u64>();
        let (in_use, layers_in_use) = self.in_use();
        let snapshots = self.snapshots().into_iter();
        let snapshots = snapshots.filter(|one| !layers_in_use.contains(&one.layers[0]));
        let snapshots =
            snapshots.map(|one| (one.used_at_us, one.disk_bytes, Unused::Snapshot(one.id)));
        let images = images.into_iter();
        let images = images.filter(|image| !in_use.contains(&image.name));
        let images = images.map(|image| (image.used_at_us, image.bytes, Unused::Image(image.name)));
        let mut unused: Vec<_> = snapshots.chain(images).collect();
        unused.sort_by_key(|(used_at_us, ..)| *used_at_us);
        let mut gone = Vec::new();
        for (_, freed, what) in unused {
            if bytes <= most {
                break;
            }
            let removed = match &what {
                Unused::Image(name) => self.remove_image(name).await,
                Unused::Snapshot(id) => self.forget_snapshot(id).await,
            };
            match removed {
                Ok(()) => {
                    tracing::info!(
                        ?what,
                        freed,
                        "it made room: images and snapshots are bounded"
                    );
                    bytes = bytes.saturating_sub(freed);
                    let (Unused::Image(name) | Unused::Snapshot(name)) = what;
                    gone.push(name);
                }
                // Something was made of it just now.
                Err(error) => tracing::debug!(?what, %error, "it stays"),
            }
        }
        gone
    }

    /// Images and copies that sandboxes lie over; images below snapshots too.
    fn in_use(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        let (mut images, mut layers) = (BTreeSet::new(), BTreeSet::new());
        let all: Vec<_> = self.0.lock().values().cloned().collect();
        for sandbox in all {
            let record = &sandbox.lock().record;
            images.insert(record.spec.image.clone());
            layers.extend(record.layers.iter().cloned());
        }
        images.extend(self.snapshots().into_iter().map(|snapshot| snapshot.image));
        (images, layers)
    }
}
