//! Placement of new sandboxes: on the node with the fewest sandboxes per core, among those with its
//! image and free memory.

use super::{Node, Nodes};
use sha2::{Digest, Sha256};
use treadle_sandbox::SYSTEM_IMAGE;

/// Memory that a node must have free to be preferred, in MiB.
const MEMORY_MIB_MIN: u64 = 1_024;

/// The load of the daemon's own machine.
pub struct Own {
    /// Its sandboxes.
    pub sandboxes: u64,
    /// Its limit on sandboxes.
    pub sandboxes_max: u64,
    /// Its images.
    pub images: Vec<String>,
}

/// A place for a sandbox.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Place {
    /// The daemon's own machine.
    Here,
    /// A node, by its mark and URL.
    Node(String, String),
}

impl Place {
    /// A sort key that orders machines differently for each `key`.
    pub fn for_key(&self, key: &[u8]) -> [u8; 32] {
        let mark = match self {
            Self::Here => "",
            Self::Node(mark, _) => mark,
        };
        Sha256::new()
            .chain_update(mark)
            .chain_update(key)
            .finalize()
            .into()
    }
}

/// How well a machine suits a new sandbox; the smallest is best.
#[derive(Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Rank {
    lacks_image: bool,
    is_full: bool,
    is_short_of_memory: bool,
    /// Sandboxes per thousand cores.
    crowded: u64,
}

impl Rank {
    fn of(sandboxes: u64, cores: u64, sandboxes_max: u64, memory: u64, has_image: bool) -> Self {
        Self {
            lacks_image: !has_image,
            is_full: sandboxes >= sandboxes_max,
            is_short_of_memory: memory < MEMORY_MIB_MIN,
            crowded: sandboxes.saturating_mul(1_000) / cores.max(1),
        }
    }
}

impl Node {
    fn rank(&self, image: &str) -> Option<Rank> {
        let hello = self.hello.as_ref().filter(|hello| !hello.cordoned)?;
        self.link.as_ref()?;
        let has_image = is_everywhere(image) || self.load.images.iter().any(|own| own == image);
        Some(Rank::of(
            self.load.sandboxes + self.chosen,
            hello.cores,
            hello.sandboxes_max,
            self.load.memory_free_mib,
            has_image,
        ))
    }
}

/// Whether every machine has an image.
fn is_everywhere(image: &str) -> bool {
    image.is_empty() || image == SYSTEM_IMAGE
}

impl Nodes {
    /// Places for a new sandbox of an image, the best first.
    pub fn places(&self, own: Option<&Own>, image: &str) -> Vec<Place> {
        let own = own.map(|own| {
            let has_image = is_everywhere(image) || own.images.iter().any(|own| own == image);
            let cores = treadle_actions::cores().len() as u64;
            let memory = crate::machine::memory_free_mib();
            let rank = Rank::of(own.sandboxes, cores, own.sandboxes_max, memory, has_image);
            (rank, Place::Here)
        });
        let state = self.lock();
        let of_nodes = state.nodes.iter().filter_map(|(mark, node)| {
            let url = node.hello.as_ref()?.url.clone();
            Some((node.rank(image)?, Place::Node(mark.clone(), url)))
        });
        let mut places: Vec<_> = own.into_iter().chain(of_nodes).collect();
        // Among equals the daemon's own machine is first, as it needs no forwarding.
        places.sort_by(|(one, _), (other, _)| one.cmp(other));
        if places.first().is_some_and(|(best, _)| !best.lacks_image) {
            // Others would report the image as missing although it exists.
            places.retain(|(rank, _)| !rank.lacks_image);
        }
        places.into_iter().map(|(_, place)| place).collect()
    }

    /// Counts a sandbox that is about to be created on a node.
    pub fn chose(&self, mark: &str) {
        if let Some(node) = self.lock().nodes.get_mut(mark) {
            node.chosen += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_emptiest_machine_that_can_is_first() {
        let rank = |sandboxes, cores, memory, has_image| {
            Rank::of(sandboxes, cores, 100, memory, has_image)
        };
        let order = [
            rank(8, 16, 4_000, true),
            rank(2, 2, 4_000, true),
            rank(0, 2, 10, true),
            rank(100, 64, 4_000, true),
            rank(0, 64, 4_000, false),
        ];
        assert!(order.is_sorted());
    }
}
