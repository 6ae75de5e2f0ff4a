//! Resources of actions: cores, memory, devices and quotas.

use serde::{Deserialize, Serialize};
use treadle_model::Span;

/// Maximum number of resources of a daemon.
pub const RESOURCES_MAX: usize = 256;
/// Maximum number of devices of one node, and the largest chunk that is granted (§5.3).
pub const NODE_DEVICES: u32 = 8;

/// A named amount that actions share.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Resource {
    /// Its name: `cpu`, `memory`, `gpu`, or that of a quota.
    pub name: Box<str>,
    /// How much there is of it, and how it is granted.
    pub supply: Supply,
}

/// How much there is of a resource, and how it is granted.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Supply {
    /// Interchangeable units, such as cores or bytes.
    Units {
        /// Total units.
        total: u64,
    },
    /// Devices of nodes, granted in chunks of 1, 2, 4 or 8 that start at a multiple of their size.
    Devices {
        /// Devices of each node, at most [`NODE_DEVICES`].
        nodes: Vec<u32>,
    },
    /// Limits on requests to an external service.
    Quota {
        /// Maximum number of concurrent requests.
        concurrent_max: Option<u64>,
        /// Maximum number of requests per period.
        requests_max: Option<u64>,
        /// The period; 0 if there is no limit on requests.
        period: Span,
    },
}

/// What an action was granted of one resource.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Grant {
    /// The resource.
    pub resource: Box<str>,
    /// The amount.
    pub units: u64,
    /// The devices, if the resource consists of devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk: Option<Chunk>,
}

/// An instance of a service on devices.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub struct Instance {
    /// The service.
    pub service: Box<str>,
    /// Its devices; on another number of devices it is another instance.
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
