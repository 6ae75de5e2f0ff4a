//! Paged KV memory: blocks with reference counts, a prefix cache keyed by chained hashes, and
//! least-recently-used eviction of cached blocks without references.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::host_tier::HostTier;

/// Index of a block in its pool.
pub(super) type BlockIndex = u32;

/// Hasher for keys that are hashes already. The map is never iterated, so its order can't affect
/// the model.
#[derive(Clone, Default)]
pub(super) struct HashedKey(u64);

impl Hasher for HashedKey {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, key: u64) {
        // The table uses the top bits as tags, so weak keys are spread over them.
        self.0 = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[derive(Clone, Debug)]
struct Block {
    hash: Option<u64>,
    references: u32,
    previous: BlockIndex,
    next: BlockIndex,
    /// Number of the watch that it belongs to; only the pool's current one counts.
    watch: u32,
}

/// All blocks of one engine. Unreferenced blocks form the free list, evicted from its front; those
/// with a hash can be reused from it.
#[derive(Clone)]
pub(super) struct BlockPool {
    /// One more than the number of blocks: the last entry is the head of the circular free list.
    blocks: Vec<Block>,
    free: u32,
    cached: HashMap<u64, BlockIndex, BuildHasherDefault<HashedKey>>,
    evicted: u64,
    /// Number of the current watch: see [`watch`](Self::watch).
    watch: u32,
    watch_broken: bool,
}

impl BlockPool {
    pub(super) fn new(count: u32) -> Self {
        let blocks = (0..=count)
            .map(|index| {
                let (previous, next) = neighbours(index, count);
                Block {
                    hash: None,
                    references: 0,
                    previous,
                    next,
                    watch: 0,
                }
            })
            .collect();
        Self {
            blocks,
            free: count,
            cached: HashMap::default(),
            evicted: 0,
            watch: 0,
            watch_broken: false,
        }
    }

    pub(super) fn total(&self) -> u32 {
        self.head()
    }

    pub(super) fn free(&self) -> u32 {
        self.free
    }

    pub(super) fn used(&self) -> u32 {
        self.total() - self.free
    }

    /// Number of cached blocks evicted since the start.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    pub(super) fn lookup(&self, hash: u64) -> Option<BlockIndex> {
        self.cached.get(&hash).copied()
    }

    pub(super) fn is_held(&self, index: BlockIndex) -> bool {
        self.blocks[index as usize].references > 0
    }

    /// Adds a reference to a cached block.
    pub(super) fn hold(&mut self, index: BlockIndex) {
        if !self.is_held(index) {
            self.unlink(index);
        }
        self.blocks[index as usize].references += 1;
    }

    /// Takes the block at the front of the free list. Its cached content goes to the host tier.
    pub(super) fn allocate(&mut self, tier: &mut HostTier) -> Option<BlockIndex> {
        if self.free == 0 {
            return None;
        }
        let index = self.blocks[self.head() as usize].next;
        self.unlink(index);
        let block = &mut self.blocks[index as usize];
        block.references = 1;
        if let Some(hash) = block.hash.take() {
            self.cached.remove(&hash);
            tier.store(hash);
            self.evicted += 1;
            self.watch_broken |= block.watch == self.watch;
        }
        Some(index)
    }

    /// Watches only these cached blocks for eviction from now on.
    pub(super) fn watch(&mut self, blocks: &[BlockIndex]) {
        self.watch += 1;
        self.watch_broken = false;
        for index in blocks {
            self.blocks[*index as usize].watch = self.watch;
        }
    }

    /// Number of blocks, up to `count_max`, that can be taken before a watched one is evicted.
    pub(super) fn free_before_watched(&self, count_max: u32) -> u32 {
        let mut index = self.blocks[self.head() as usize].next;
        for count in 0..count_max.min(self.free) {
            let block = &self.blocks[index as usize];
            if block.watch == self.watch && block.hash.is_some() {
                return count;
            }
            index = block.next;
        }
        count_max.min(self.free)
    }

    /// Whether one of the watched blocks was evicted.
    pub(super) fn watch_broken(&self) -> bool {
        self.watch_broken
    }

    /// Makes a full block findable by its hash. A second block with the same content stays private.
    pub(super) fn register(&mut self, index: BlockIndex, hash: u64) {
        if let std::collections::hash_map::Entry::Vacant(entry) = self.cached.entry(hash) {
            entry.insert(index);
            self.blocks[index as usize].hash = Some(hash);
        }
    }

    /// Drops a sequence's references to its blocks, the last block first, so that a chain is
    /// evicted from its tail.
    pub(super) fn release_all(&mut self, blocks: &mut Vec<BlockIndex>) {
        for index in blocks.drain(..).rev() {
            self.release(index);
        }
    }

    fn release(&mut self, index: BlockIndex) {
        let block = &mut self.blocks[index as usize];
        block.references -= 1;
        if block.references > 0 {
            return;
        }
        // A block that can't be found again is useless, so it is reused first.
        let head = self.head();
        let after = if self.blocks[index as usize].hash.is_some() {
            self.blocks[head as usize].previous
        } else {
            head
        };
        self.link_after(index, after);
    }

    /// Removes the content of every unreferenced block.
    pub(super) fn forget_free(&mut self) {
        let head = self.head();
        let mut index = self.blocks[head as usize].next;
        while index != head {
            if let Some(hash) = self.blocks[index as usize].hash.take() {
                self.cached.remove(&hash);
            }
            index = self.blocks[index as usize].next;
        }
    }

    fn head(&self) -> BlockIndex {
        (self.blocks.len() - 1) as BlockIndex
    }

    fn unlink(&mut self, index: BlockIndex) {
        let Block { previous, next, .. } = self.blocks[index as usize];
        self.blocks[previous as usize].next = next;
        self.blocks[next as usize].previous = previous;
        self.free -= 1;
    }

    fn link_after(&mut self, index: BlockIndex, previous: BlockIndex) {
        let next = self.blocks[previous as usize].next;
        self.blocks[index as usize].previous = previous;
        self.blocks[index as usize].next = next;
        self.blocks[previous as usize].next = index;
        self.blocks[next as usize].previous = index;
        self.free += 1;
    }

    /// Checks everything against `holders`, the blocks of all sequences: slow, for checkers.
    pub(super) fn audit<'a>(
        &self,
        holders: impl Iterator<Item = &'a BlockIndex>,
    ) -> Result<(), String> {
        let mut references = vec![0_u32; self.total() as usize];
        for index in holders {
            references[*index as usize] += 1;
        }
        let mut on_list = vec![false; self.total() as usize];
        let mut index = self.blocks[self.head() as usize].next;
        let mut listed = 0;
        while index != self.head() {
            if std::mem::replace(&mut on_list[index as usize], true) {
                return Err(format!("block {index} is twice on the free list"));
            }
            listed += 1;
            index = self.blocks[index as usize].next;
        }
        if listed != self.free {
            return Err(format!(
                "free count {} but {listed} blocks on the free list",
                self.free
            ));
        }
        for (index, held) in references.iter().enumerate() {
            let block = &self.blocks[index];
            if block.references != *held || on_list[index] != (*held == 0) {
                return Err(format!(
                    "block {index}: {} references, {held} holders",
                    block.references
                ));
            }
            if block
                .hash
                .is_some_and(|hash| self.lookup(hash) != Some(index as BlockIndex))
            {
                return Err(format!("block {index} carries a hash that leads elsewhere"));
            }
        }
        let hashed = self
            .blocks
            .iter()
            .filter(|block| block.hash.is_some())
            .count();
        if hashed != self.cached.len() {
            return Err(format!(
                "{hashed} hashed blocks, {} cache entries",
                self.cached.len()
            ));
        }
        Ok(())
    }
}

/// Neighbours of a block in the ring that ends with `last`.
fn neighbours(index: BlockIndex, last: BlockIndex) -> (BlockIndex, BlockIndex) {
    let previous = index.checked_sub(1).unwrap_or(last);
    let next = if index == last { 0 } else { index + 1 };
    (previous, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_closes_however_large_it_is() {
        for last in [1, u32::MAX - 1, u32::MAX] {
            assert_eq!(neighbours(0, last), (last, 1.min(last)));
            assert_eq!(neighbours(last, last), (last - 1, 0));
        }
        assert_eq!(neighbours(u32::MAX / 2 + 5, u32::MAX).0, u32::MAX / 2 + 4);
    }

    #[test]
    fn a_released_chain_is_evicted_from_its_tail() {
        let mut pool = BlockPool::new(3);
        let mut chain: Vec<_> = (0..3)
            .map(|_| pool.allocate(&mut HostTier::default()).unwrap())
            .collect();
        for (hash, index) in [10, 11, 12].into_iter().zip(&chain) {
            pool.register(*index, hash);
        }
        assert_eq!(pool.allocate(&mut HostTier::default()), None);
        pool.release_all(&mut chain);
        pool.allocate(&mut HostTier::default()).unwrap();
        assert_eq!(pool.lookup(12), None);
        assert!(pool.lookup(11).is_some() && pool.lookup(10).is_some());
        assert_eq!(pool.evicted(), 1);
    }

    #[test]
    fn a_duplicate_stays_private_and_goes_first() {
        let mut pool = BlockPool::new(2);
        let first = pool.allocate(&mut HostTier::default()).unwrap();
        let second = pool.allocate(&mut HostTier::default()).unwrap();
        pool.register(first, 7);
        pool.register(second, 7);
        pool.release_all(&mut vec![first]);
        pool.release_all(&mut vec![second]);
        assert_eq!(pool.allocate(&mut HostTier::default()), Some(second));
        assert_eq!(pool.lookup(7), Some(first));
    }

    #[test]
    fn eviction_spares_referenced_blocks() {
        let mut pool = BlockPool::new(2);
        let held = pool.allocate(&mut HostTier::default()).unwrap();
        let freed = pool.allocate(&mut HostTier::default()).unwrap();
        pool.register(held, 1);
        pool.register(freed, 2);
        pool.release_all(&mut vec![freed]);
        pool.forget_free();
        assert_eq!((pool.lookup(1), pool.lookup(2)), (Some(held), None));
        pool.audit([held].iter()).unwrap();
    }
}
