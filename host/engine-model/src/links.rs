//! Transfers between workers and hosts: links that are shared fairly.
//!
//! Every end has its own links, one for each direction: a worker NVLink and PCIe (one of each per
//! GPU), a node its network card, a cluster its uplink. A transfer uses all links on its path at
//! once. Rates are max-min fair: no transfer can be faster without taking from one that is not
//! faster than it. They change only when a transfer starts or ends; in between, time is in integer
//! microseconds, rates are whole bytes per second, and remaining bytes are counted exactly.
//!
//! ```
//! use treadle_engine_model::links::{Links, TransferEnd, Topology, Worker};
//!
//! let workers = vec![Worker { node: 0, gpus: 1 }, Worker { node: 1, gpus: 1 }];
//! let mut links = Links::new(Topology::new(workers));
//! links.start(0, 7, TransferEnd::Worker(0), TransferEnd::Worker(1), 4_000_000_000);
//! let at_us = links.next_event_at().unwrap();
//! let mut done = Vec::new();
//! links.advance(at_us, &mut done);
//! assert_eq!((done[0].id, done[0].at_us), (7, 100_000));
//! ```

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

/// Identifies a transfer; the caller chooses it.
pub type TransferId = u64;

/// An end of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TransferEnd {
    /// The GPU memory of a worker, by its index.
    Worker(u32),
    /// The host memory of a node, by its index.
    Host(u32),
}

/// The location of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Its node.
    pub node: u32,
    /// Number of its GPUs, and so of its NVLink and PCIe links.
    pub gpus: u32,
}

/// The links. Rates are per direction, as transfers reach them, in bytes per second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// All workers.
    pub workers: Vec<Worker>,
    /// The cluster of each node; nodes past its end are in cluster 0.
    pub clusters: Vec<u32>,
    /// NVLink of one GPU.
    pub nvlink_bytes_per_s: u64,
    /// PCIe of one GPU, to host memory and to the network card.
    pub pcie_bytes_per_s: u64,
    /// A node's network card (InfiniBand).
    pub network_bytes_per_s: u64,
    /// A cluster's uplink to others (Ethernet).
    pub uplink_bytes_per_s: u64,
}

/// NVLink of a Hopper GPU, both directions (Heddle §7), in bytes a second.
pub const NVLINK_BYTES_PER_S: u64 = 900_000_000_000;
/// PCIe 5.0 with 16 lanes, one direction, in bytes a second.
pub const PCIE_BYTES_PER_S: u64 = 64_000_000_000;
/// InfiniBand of a node (Heddle §7: 400 Gb/s), one direction, in bytes a second.
pub const INFINIBAND_BYTES_PER_S: u64 = 50_000_000_000;
/// Ethernet between clusters (RollArt §7.1: 200 Gb/s), one direction, in bytes a second.
pub const ETHERNET_BYTES_PER_S: u64 = 25_000_000_000;
/// Share of a link's rate that transfers reach, in percent.
pub const LINK_PERCENT: u64 = 80;

impl Topology {
    /// Workers of one cluster, with the figures of `docs/simulation-parameters.md`.
    pub fn new(workers: Vec<Worker>) -> Self {
        let reached = |bytes_per_s: u64| bytes_per_s / 100 * LINK_PERCENT;
        Self {
            workers,
            clusters: Vec::new(),
            nvlink_bytes_per_s: reached(NVLINK_BYTES_PER_S / 2),
            pcie_bytes_per_s: reached(PCIE_BYTES_PER_S),
            network_bytes_per_s: reached(INFINIBAND_BYTES_PER_S),
            uplink_bytes_per_s: reached(ETHERNET_BYTES_PER_S),
        }
    }

    fn node(&self, place: TransferEnd) -> u32 {
        match place {
            TransferEnd::Worker(worker) => {
                self.workers.get(worker as usize).map_or(0, |it| it.node)
            }
            TransferEnd::Host(node) => node,
        }
    }

    fn cluster(&self, node: u32) -> u32 {
        self.clusters.get(node as usize).copied().unwrap_or(0)
    }

    fn bytes_per_s(&self, link: Link) -> u64 {
        let gpus = |worker: u32| {
            let gpus = self.workers.get(worker as usize).map_or(1, |it| it.gpus);
            u64::from(gpus.max(1))
        };
        let rate = match link.kind {
            Kind::NvLink => self.nvlink_bytes_per_s * gpus(link.owner),
            Kind::Pcie => self.pcie_bytes_per_s * gpus(link.owner),
            Kind::Network => self.network_bytes_per_s,
            Kind::Uplink => self.uplink_bytes_per_s,
        };
        rate.max(1)
    }

    /// The links that a transfer uses; empty if nothing has to move.
    fn path(&self, from: TransferEnd, to: TransferEnd) -> Vec<Link> {
        if from == to {
            return Vec::new();
        }
        let (here, there) = (self.node(from), self.node(to));
        let ends = |kind| {
            [(from, true), (to, false)]
                .into_iter()
                .filter_map(move |(place, out)| match place {
                    TransferEnd::Worker(owner) => Some(Link { kind, owner, out }),
                    TransferEnd::Host(_) => None,
                })
        };
        let both = |kind, from, to| {
            [(from, true), (to, false)].map(|(owner, out)| Link { kind, owner, out })
        };
        let workers = matches!((from, to), (TransferEnd::Worker(_), TransferEnd::Worker(_)));
        if here == there && workers {
            return ends(Kind::NvLink).collect();
        }
        let mut path: Vec<Link> = ends(Kind::Pcie).collect();
        if here != there {
            path.extend(both(Kind::Network, here, there));
        }
        let (here, there) = (self.cluster(here), self.cluster(there));
        if here != there {
            path.extend(both(Kind::Uplink, here, there));
        }
        path
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    NvLink,
    Pcie,
    Network,
    Uplink,
}

/// One direction of one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Link {
    kind: Kind,
    owner: u32,
    out: bool,
}

/// A completed transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedTransfer {
    /// The transfer's id.
    pub id: TransferId,
    /// Time of completion, in microseconds.
    pub at_us: u64,
}

#[derive(Clone, Debug)]
struct Transfer {
    path: Vec<Link>,
    /// Remaining data in millionths of a byte, which is a byte per second for a microsecond.
    left: u128,
    bytes_per_s: u64,
}

/// Bytes a second, as rates are counted, per byte a microsecond.
const PER_BYTE: u128 = 1_000_000;

/// All transfers in progress.
#[derive(Clone, Debug)]
pub struct Links {
    topology: Topology,
    transfers: BTreeMap<TransferId, Transfer>,
    now_us: u64,
    /// Time of the next completion.
    next_us: Option<u64>,
}

impl Links {
    /// Idle links.
    pub fn new(topology: Topology) -> Self {
        Self {
            topology,
            transfers: BTreeMap::new(),
            now_us: 0,
            next_us: None,
        }
    }

    /// The topology of the links.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Starts a transfer; `false`, with nothing started, if the id is in use. Call
    /// [`advance`](Self::advance) to `now_us` first.
    pub fn start(
        &mut self,
        now_us: u64,
        id: TransferId,
        from: TransferEnd,
        to: TransferEnd,
        bytes: u64,
    ) -> bool {
        if self.transfers.contains_key(&id) {
            return false;
        }
        self.progress(now_us);
        let path = self.topology.path(from, to);
        let bytes = if path.is_empty() { 0 } else { bytes };
        let transfer = Transfer {
            path,
            left: u128::from(bytes) * PER_BYTE,
            bytes_per_s: 0,
        };
        self.transfers.insert(id, transfer);
        self.share();
        true
    }

    /// Cancels a transfer; returns the bytes that were not moved, rounded up, or `None` if there is
    /// no such transfer. Call [`advance`](Self::advance) to `now_us` first.
    pub fn cancel(&mut self, now_us: u64, id: TransferId) -> Option<u64> {
        self.progress(now_us);
        let transfer = self.transfers.remove(&id)?;
        self.share();
        Some(transfer.left.div_ceil(PER_BYTE) as u64)
    }

    /// When the next transfer ends, in microseconds; `None` when idle.
    pub fn next_event_at(&self) -> Option<u64> {
        self.next_us
    }

    /// Number of transfers in progress.
    pub fn active(&self) -> usize {
        self.transfers.len()
    }

    /// Current rate of a transfer in bytes per second; `None` if there is no such transfer.
    pub fn bytes_per_s(&self, id: TransferId) -> Option<u64> {
        self.transfers.get(&id).map(|each| each.bytes_per_s)
    }

    /// Advances time and appends the transfers that end by then, in order of time, then of id.
    pub fn advance(&mut self, until_us: u64, done: &mut Vec<CompletedTransfer>) {
        while let Some(at_us) = self.next_us.filter(|at_us| *at_us <= until_us) {
            self.progress(at_us);
            self.transfers.retain(|id, transfer| {
                let ends = transfer.left == 0;
                if ends {
                    done.push(CompletedTransfer { id: *id, at_us });
                }
                !ends
            });
            self.share();
        }
        self.progress(until_us);
    }

    fn progress(&mut self, now_us: u64) {
        let passed_us = u128::from(now_us.saturating_sub(self.now_us));
        self.now_us = self.now_us.max(now_us);
        if passed_us == 0 {
            return;
        }
        for transfer in self.transfers.values_mut() {
            let moved = u128::from(transfer.bytes_per_s) * passed_us;
            transfer.left = transfer.left.saturating_sub(moved);
        }
    }

    /// Max-min fair rates by progressive filling: the link with the smallest share per transfer
    /// determines the rates of its transfers, and so on with the rest.
    fn share(&mut self) {
        let mut loads: BTreeMap<Link, (u64, u64)> = BTreeMap::new();
        for transfer in self.transfers.values_mut() {
            transfer.bytes_per_s = if transfer.path.is_empty() {
                u64::MAX
            } else {
                0
            };
            for link in &transfer.path {
                let rate = self.topology.bytes_per_s(*link);
                loads.entry(*link).or_insert((rate, 0)).1 += 1;
            }
        }
        loop {
            let tightest = loads
                .iter()
                .filter(|(_, (_, count))| *count > 0)
                .map(|(link, (rate, count))| (rate / count, *link))
                .min();
            let Some((share, tightest)) = tightest else {
                break;
            };
            let share = share.max(1);
            for transfer in self.transfers.values_mut() {
                if transfer.bytes_per_s > 0 || !transfer.path.contains(&tightest) {
                    continue;
                }
                transfer.bytes_per_s = share;
                for link in &transfer.path {
                    if let Some((rate, count)) = loads.get_mut(link) {
                        *rate = rate.saturating_sub(share);
                        *count -= 1;
                    }
                }
            }
        }
        self.next_us = self
            .transfers
            .values()
            .map(|each| {
                let us = each.left.div_ceil(u128::from(each.bytes_per_s.max(1)));
                self.now_us
                    .saturating_add(us.min(u128::from(u64::MAX)) as u64)
            })
            .min();
    }
}
