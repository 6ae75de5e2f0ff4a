//! What actions draw from: cores, memory, devices and quotas.

use serde::{Deserialize, Serialize};
use treadle_model::Span;

/// Resources of a daemon at most.
pub const RESOURCES_MAX: usize = 256;
/// Devices of one node at most, and the largest chunk of them that is handed out (§5.3).
pub const NODE_DEVICES: u32 = 8;

/// A named amount that actions share.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Resource {
    /// Its name: `cpu`, `memory`, `gpu`, or that of a quota.
    pub name: Box<str>,
    /// How much there is of it, and how it is handed out.
    pub supply: Supply,
}

/// How much there is of a resource, and how it is handed out.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Supply {
    /// Units of which any may go together: cores, bytes.
    Units {
        /// All of them.
        total: u64,
    },
    /// Devices of nodes, handed out in chunks of 1, 2, 4 or 8 that start at a multiple of their size.
    Devices {
        /// Devices of each node, [`NODE_DEVICES`] at most.
        nodes: Vec<u32>,
    },
    /// What may be asked of a service that others own.
    Quota {
        /// Requests at once.
        concurrent_max: Option<u64>,
        /// Requests in a period.
        requests_max: Option<u64>,
        /// The period; 0 where there is no bound on requests.
        period: Span,
    },
}

/// What an action was given of one resource.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Grant {
    /// The resource.
    pub resource: Box<str>,
    /// How much of it.
    pub units: u64,
    /// Which devices, where they are devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk: Option<Chunk>,
}

/// An instance of a service on devices.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub struct Instance {
    /// The service.
    pub service: Box<str>,
    /// Its devices; on another number of them it is another instance.
    pub chunk: Chunk,
}

/// Devices of one node, the first at a multiple of their number.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub struct Chunk {
    /// The node.
    pub node: u32,
    /// The first device.
    pub first: u32,
    /// Their number: 1, 2, 4 or 8.
    pub size: u32,
}

impl Chunk {
    /// Its devices, by their numbers on the node.
    pub fn devices(self) -> std::ops::Range<usize> {
        self.first as usize..(self.first + self.size) as usize
    }

    /// Whether two chunks share a device.
    pub fn overlaps(self, other: Self) -> bool {
        self.node == other.node
            && self.first < other.first + other.size
            && other.first < self.first + self.size
    }
}
