//! Devices of nodes in chunks, and the models that they hold (`ARL-Tangram` §5.3).

use treadle_core::actions::Chunk;

/// A model on devices.
#[derive(Clone, Debug)]
struct Resident {
    service: Box<str>,
    chunk: Chunk,
    used: u64,
}

/// Devices of several nodes.
#[derive(Clone, Debug)]
pub(super) struct Devices {
    /// A bit for each free device of a node.
    free: Vec<u8>,
    residents: Vec<Resident>,
    uses: u64,
}

fn mask(chunk: Chunk) -> u8 {
    (((1_u16 << chunk.size) - 1) << chunk.first) as u8
}

fn overlap(left: Chunk, right: Chunk) -> bool {
    left.node == right.node && mask(left) & mask(right) != 0
}

impl Devices {
    pub(super) fn new(nodes: &[u32]) -> Self {
        let free = |devices: &u32| ((1_u16 << devices) - 1) as u8;
        Self {
            free: nodes.iter().map(free).collect(),
            residents: Vec::new(),
            uses: 0,
        }
    }

    pub(super) fn free_units(&self) -> u32 {
        self.free.iter().map(|free| free.count_ones()).sum()
    }

    fn aligned(&self, size: u32) -> impl Iterator<Item = Chunk> + '_ {
        let nodes = 0..self.free.len() as u32;
        nodes
            .flat_map(move |node| (0..8 / size).map(move |index| (node, index * size)))
            .map(move |(node, first)| Chunk { node, first, size })
            .filter(|chunk| {
                let wanted = mask(*chunk);
                self.free[chunk.node as usize] & wanted == wanted
            })
    }

    /// Size of the largest free chunk that a free one is part of.
    fn whole(&self, chunk: Chunk) -> u32 {
        let larger = [8, 4, 2, 1].into_iter().find(|size| {
            *size >= chunk.size
                && self
                    .aligned(*size)
                    .any(|whole| overlap(whole, chunk) && whole.size == *size)
        });
        larger.unwrap_or(chunk.size)
    }

    /// Free chunks of 1, 2, 4 and 8, none part of another.
    pub(super) fn free_chunks(&self) -> [u32; 4] {
        let mut counts = [0; 4];
        let mut left = self.clone();
        for (level, size) in [(3, 8), (2, 4), (1, 2), (0, 1)] {
            let chunks: Vec<Chunk> = left.aligned(size).collect();
            counts[level] = chunks.len() as u32;
            for chunk in chunks {
                left.free[chunk.node as usize] &= !mask(chunk);
            }
        }
        counts
    }

    fn holds(&self, chunk: Chunk, service: &str) -> Option<&Resident> {
        let mut residents = self.residents.iter();
        residents.find(|resident| resident.chunk == chunk && *resident.service == *service)
    }

    /// Whether a free chunk of this size holds a service.
    pub(super) fn has(&self, size: u32, service: &str) -> bool {
        self.aligned(size)
            .any(|chunk| self.holds(chunk, service).is_some())
    }

    /// Takes a chunk: one that holds the service, else one of the smallest whole chunk whose models
    /// have been unused for longest. With it come the models that go, `None` where the service was
    /// there.
    pub(super) fn take(
        &mut self,
        size: u32,
        service: &str,
    ) -> Option<(Chunk, Option<Vec<Box<str>>>)> {
        self.uses += 1;
        let uses = self.uses;
        let last_use = |chunk: Chunk| {
            let there = self.residents.iter();
            let there = there.filter(|resident| overlap(resident.chunk, chunk));
            there.map(|resident| resident.used).max().unwrap_or(0)
        };
        let rank = |chunk: &Chunk| {
            let is_there = self.holds(*chunk, service).is_some();
            (!is_there, self.whole(*chunk), last_use(*chunk))
        };
        let chunk = self.aligned(size).min_by_key(rank)?;
        self.free[chunk.node as usize] &= !mask(chunk);
        let mut evicted = None;
        if self.holds(chunk, service).is_none() {
            let (gone, stay) = std::mem::take(&mut self.residents)
                .into_iter()
                .partition::<Vec<_>, _>(|resident| overlap(resident.chunk, chunk));
            self.residents = stay;
            self.residents.push(Resident {
                service: service.into(),
                chunk,
                used: uses,
            });
            evicted = Some(gone.into_iter().map(|resident| resident.service).collect());
        }
        let mut residents = self.residents.iter_mut();
        if let Some(resident) = residents.find(|resident| resident.chunk == chunk) {
            resident.used = uses;
        }
        Some((chunk, evicted))
    }

    pub(super) fn give_back(&mut self, chunk: Chunk) {
        self.free[chunk.node as usize] |= mask(chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_found_where_it_is_and_evicted_where_it_was_unused_longest() {
        let mut devices = Devices::new(&[8]);
        let (first, load) = devices.take(4, "a").unwrap();
        assert!(load.is_some_and(|evicted| evicted.is_empty()));
        devices.give_back(first);
        let (second, _) = devices.take(4, "b").unwrap();
        assert_ne!(first, second);
        devices.give_back(second);
        assert!(devices.has(4, "a") && !devices.has(2, "a"));
        assert_eq!(devices.take(4, "a"), Some((first, None)));
        devices.give_back(first);
        let (_, evicted) = devices.take(4, "c").unwrap();
        assert_eq!(evicted, Some(vec!["b".into()]));
    }

    #[test]
    fn chunks_are_counted_once() {
        let mut devices = Devices::new(&[8, 4]);
        assert_eq!(devices.free_chunks(), [0, 0, 1, 1]);
        devices.take(1, "a").unwrap();
        assert_eq!(devices.free_chunks(), [1, 1, 0, 1]);
        assert_eq!(devices.free_units(), 11);
    }
}
