//! Devices of nodes, granted in chunks of 1, 2, 4 or 8 (§5.3), and the services loaded on them.
//!
//! A node is one byte, a bit for each free device. The free chunks of a buddy allocator that joins
//! all it can are the largest aligned runs of set bits, so splitting and joining need no list.

use crate::resource::{Chunk, Instance, NODE_DEVICES};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use treadle_model::Timestamp;

/// Chunk sizes, the largest first.
const SIZES: [u32; 4] = [8, 4, 2, 1];

/// The free devices of all nodes.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FreeDevices {
    nodes: Vec<u8>,
}

/// The bit mask of consecutive devices.
const fn bits(first: u32, size: u32) -> u8 {
    (((1_u32 << size) - 1) << first) as u8
}

/// Whether this is a chunk size.
pub(crate) const fn is_size(units: u64) -> bool {
    matches!(units, 1 | 2 | 4 | 8)
}

/// Free chunks of a node, joined as far as possible.
fn chunks(node: u8) -> impl Iterator<Item = (u32, u32)> {
    let mut left = node;
    let places = SIZES.into_iter().flat_map(|size| {
        let firsts = (0..NODE_DEVICES).step_by(size as usize);
        firsts.map(move |first| (first, size))
    });
    places.filter(move |(first, size)| {
        let all = bits(*first, *size);
        let is_free = left & all == all;
        if is_free {
            left &= !all;
        }
        is_free
    })
}

impl FreeDevices {
    /// All devices of the given nodes.
    pub fn of(nodes: &[u32]) -> Self {
        let node = |devices: &u32| bits(0, (*devices).min(NODE_DEVICES));
        Self {
            nodes: nodes.iter().map(node).collect(),
        }
    }

    /// Number of free devices.
    pub fn units(&self) -> u64 {
        self.nodes.iter().map(|n| u64::from(n.count_ones())).sum()
    }

    /// Number of free chunks of 1, 2, 4 and 8 devices.
    pub fn counts(&self) -> [u32; 4] {
        let mut counts = [0; 4];
        for (_, size) in self.nodes.iter().flat_map(|node| chunks(*node)) {
            counts[size.ilog2() as usize] += 1;
        }
        counts
    }

    /// Whether all devices of a chunk are free.
    pub fn has(&self, chunk: Chunk) -> bool {
        let node = self.nodes.get(chunk.node as usize).copied().unwrap_or(0);
        let all = bits(chunk.first, chunk.size);
        node & all == all
    }

    /// Removes a chunk, if it is free.
    pub(crate) fn remove(&mut self, chunk: Chunk) -> bool {
        let is_free = self.has(chunk);
        if is_free && let Some(node) = self.nodes.get_mut(chunk.node as usize) {
            *node &= !bits(chunk.first, chunk.size);
        }
        is_free
    }

    pub(crate) fn add(&mut self, chunk: Chunk) {
        if let Some(node) = self.nodes.get_mut(chunk.node as usize) {
            *node |= bits(chunk.first, chunk.size);
        }
    }

    /// All chunks of this size within the smallest free chunks that it fits into (best fit).
    fn best(&self, size: u32) -> Vec<Chunk> {
        let all = self.nodes.iter().enumerate().flat_map(|(number, node)| {
            let fitting = chunks(*node).filter(move |(_, of)| *of >= size);
            fitting.map(move |(first, of)| (number as u32, first, of))
        });
        let all: Vec<_> = all.collect();
        let Some(level) = all.iter().map(|(_, _, of)| *of).min() else {
            return Vec::new();
        };
        let smallest = all.into_iter().filter(|(_, _, of)| *of == level);
        let parts = smallest.flat_map(|(node, first, of)| {
            let firsts = (first..first + of).step_by(size as usize);
            firsts.map(move |first| Chunk { node, first, size })
        });
        parts.collect()
    }

    /// Whether some free chunk has at least this size.
    pub(crate) fn fits(&self, size: u64) -> bool {
        let mut all = self.nodes.iter().flat_map(|node| chunks(*node));
        all.any(|(_, of)| u64::from(of) >= size)
    }

    /// Removes any chunk of this size by best fit. Which of several equal chunks it is makes no
    /// difference to what fits afterwards.
    pub(crate) fn take_any(&mut self, size: u32) -> bool {
        let best = self.nodes.iter().enumerate().flat_map(|(number, node)| {
            let fitting = chunks(*node).filter(move |(_, of)| *of >= size);
            fitting.map(move |(first, of)| (of, number, first))
        });
        match best.min() {
            Some((_, node, first)) => self.remove(Chunk {
                node: node as u32,
                first,
                size,
            }),
            None => false,
        }
    }
}

/// An instance of a service on devices.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct LoadedService {
    /// Its devices; on another number of devices it is another instance.
    pub chunk: Chunk,
    /// When it was last used.
    pub used: Timestamp,
}

/// The devices of a resource.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Devices {
    /// The devices that no action holds.
    pub free: FreeDevices,
    /// Services loaded on them, used or not.
    pub held: BTreeMap<Box<str>, Vec<LoadedService>>,
}

/// Devices granted to an action.
pub(crate) struct GrantedDevices {
    pub(crate) chunk: Chunk,
    /// The service must be loaded first.
    pub(crate) loads: bool,
    pub(crate) evicted: Vec<Instance>,
}

impl Devices {
    /// Whether a free chunk of this size holds the service; `chunks` are the free ones.
    pub fn is_held(&self, service: &str, size: u64) -> bool {
        let held = self.held.get(service);
        let fits = |h: &LoadedService| u64::from(h.chunk.size) == size && self.free.has(h.chunk);
        held.is_some_and(|held| held.iter().any(fits))
    }

    /// Takes a chunk by best fit: among equals one that holds the service, otherwise the one whose
    /// devices were used least recently. Other services on it are evicted as far as room is needed;
    /// all of them for an action without a service.
    pub(crate) fn take(
        &mut self,
        size: u32,
        service: Option<&str>,
        now: Timestamp,
        services_max: u32,
    ) -> Option<GrantedDevices> {
        let of_service = service.and_then(|service| self.held.get(service));
        let holds = |chunk: Chunk| of_service.is_some_and(|h| h.iter().any(|h| h.chunk == chunk));
        let rank = |chunk: &Chunk| (!holds(*chunk), self.last_used(*chunk), *chunk);
        let chunk = self.free.best(size).into_iter().min_by_key(rank)?;
        let loads = service.is_some() && !holds(chunk);
        self.free.remove(chunk);
        let evicted = match service {
            Some(_) if !loads => Vec::new(),
            Some(_) => self.evict(chunk, services_max.max(1) - 1),
            None => self.evict(chunk, 0),
        };
        if let Some(service) = service {
            self.hold(service, chunk, now);
        }
        Some(GrantedDevices {
            chunk,
            loads,
            evicted,
        })
    }

    /// Records that an instance is loaded on these devices.
    pub(crate) fn hold(&mut self, service: &str, chunk: Chunk, now: Timestamp) {
        let held = self.held.entry(service.into()).or_default();
        held.retain(|h| h.chunk != chunk);
        held.push(LoadedService { chunk, used: now });
        held.sort_unstable_by_key(|h| h.chunk);
    }

    /// Forgets an instance, because it is unknown whether it is still loaded.
    pub(crate) fn drop_instance(&mut self, service: &str, chunk: Chunk) {
        if let Some(held) = self.held.get_mut(service) {
            held.retain(|h| h.chunk != chunk);
            if held.is_empty() {
                self.held.remove(service);
            }
        }
    }

    /// When any instance on the devices of a chunk was last used.
    fn last_used(&self, chunk: Chunk) -> Option<Timestamp> {
        let all = self.held.values().flatten();
        all.filter(|h| h.chunk.overlaps(chunk))
            .map(|h| h.used)
            .max()
    }

    /// Evicts the least recently used instances until each device of a chunk holds at most `most`.
    fn evict(&mut self, chunk: Chunk, most: u32) -> Vec<Instance> {
        let mut there: Vec<(Timestamp, Instance)> = Vec::new();
        for (service, held) in &self.held {
            let on_it = held.iter().filter(|h| h.chunk.overlaps(chunk));
            there.extend(on_it.map(|h| {
                let instance = Instance {
                    service: service.clone(),
                    chunk: h.chunk,
                };
                (h.used, instance)
            }));
        }
        // The most recently used stay, if there is room on all of their devices.
        there.sort_by(|a, b| (b.0, &b.1).cmp(&(a.0, &a.1)));
        let mut kept = [0_u32; NODE_DEVICES as usize];
        let mut evicted = Vec::new();
        for (_, instance) in there {
            let on = instance.chunk.devices();
            if on.clone().all(|device| kept[device] < most) {
                on.for_each(|device| kept[device] += 1);
            } else {
                self.drop_instance(&instance.service, instance.chunk);
                evicted.push(instance);
            }
        }
        evicted
    }
}
