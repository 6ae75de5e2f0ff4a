//! The hashes of a prompt's prefixes, collected while the prompt is read.

use super::hash_key::keyed;
use super::{CHAIN_BLOCKS_MAX, PREFIX_SEGMENTS_MAX, PrefixSegment};
use std::collections::VecDeque;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Token ids in one link of a chain.
pub const BLOCK_TOKENS: usize = 64;
/// Bytes of text in one link of a chain.
pub const BLOCK_BYTES: usize = 256;

const TOKENS_SEED: u64 = 0x746f_6b65_6e73;
const TEXT_SEED: u64 = 0x7465_7874;

/// A bounded chain that keeps its newest links.
#[derive(Debug)]
pub(super) struct Chain {
    links: VecDeque<u64>,
    links_max: usize,
}

impl Chain {
    pub(super) fn new(links_max: usize) -> Self {
        Chain {
            links: VecDeque::new(),
            links_max,
        }
    }

    pub(super) fn push(&mut self, link: u64) {
        if self.links.len() == self.links_max {
            self.links.pop_front();
        }
        self.links.push_back(link);
    }

    pub(super) fn into_vec(self) -> Vec<u64> {
        self.links.into()
    }
}

/// Blocks of equal size, chained; every doubling of their number ends a prefix segment.
#[derive(Debug)]
struct Blocks {
    hash: u64,
    count: u64,
    chain: Chain,
    /// The hash and the increment, in blocks, of each segment.
    segments: Vec<(u64, u64)>,
}

impl Blocks {
    fn new(seed: u64) -> Self {
        Blocks {
            hash: keyed(seed),
            count: 0,
            chain: Chain::new(CHAIN_BLOCKS_MAX),
            segments: Vec::new(),
        }
    }

    /// The hash of the blocks and of the rest after the last full one.
    fn whole(&self, rest: &[u8]) -> u64 {
        xxh3_64_with_seed(rest, self.hash)
    }

    fn push(&mut self, block: &[u8]) {
        self.hash = xxh3_64_with_seed(block, self.hash);
        self.count += 1;
        self.chain.push(self.hash);
        if self.count.is_power_of_two() && self.segments.len() < PREFIX_SEGMENTS_MAX {
            self.segments.push((self.hash, self.count - self.count / 2));
        }
    }
}

/// Hashes token ids incrementally.
#[derive(Debug)]
pub(super) struct TokenHasher {
    blocks: Blocks,
    pending: [u8; BLOCK_TOKENS * 8],
    filled: usize,
    /// Number of hashed ids.
    pub(super) tokens: u64,
}

impl TokenHasher {
    pub(super) fn new() -> Self {
        TokenHasher {
            blocks: Blocks::new(TOKENS_SEED),
            pending: [0; BLOCK_TOKENS * 8],
            filled: 0,
            tokens: 0,
        }
    }

    pub(super) fn push(&mut self, id: u64) {
        self.pending[self.filled..self.filled + 8].copy_from_slice(&id.to_le_bytes());
        self.filled += 8;
        self.tokens += 1;
        if self.filled == self.pending.len() {
            self.blocks.push(&self.pending);
            self.filled = 0;
        }
    }

    /// The segments, the chain, and the hash of all ids.
    pub(super) fn finish(self) -> (Vec<PrefixSegment>, Vec<u64>, u64) {
        let whole = self.blocks.whole(&self.pending[..self.filled]);
        let segment = |(hash, blocks): (u64, u64)| PrefixSegment {
            hash,
            tokens: Some(blocks * BLOCK_TOKENS as u64),
            bytes: 0,
        };
        let prefix = self.blocks.segments.into_iter().map(segment).collect();
        (prefix, self.blocks.chain.into_vec(), whole)
    }
}

/// The segments, the chain, and the hash of one text.
pub(super) fn hashes_of_text(text: &str) -> (Vec<PrefixSegment>, Vec<u64>, u64) {
    let mut blocks = Blocks::new(TEXT_SEED);
    let (full, rest) = text.as_bytes().as_chunks::<BLOCK_BYTES>();
    for block in full {
        blocks.push(block);
    }
    let whole = blocks.whole(rest);
    let segment = |(hash, blocks): (u64, u64)| PrefixSegment {
        hash,
        tokens: None,
        bytes: blocks * BLOCK_BYTES as u64,
    };
    let prefix = blocks.segments.into_iter().map(segment).collect();
    (prefix, blocks.chain.into_vec(), whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hashes_of_ids(ids: &[u64]) -> (Vec<PrefixSegment>, Vec<u64>) {
        let mut hasher = TokenHasher::new();
        for id in ids {
            hasher.push(*id);
        }
        assert_eq!(hasher.tokens, ids.len() as u64);
        let (prefix, chain, _) = hasher.finish();
        (prefix, chain)
    }

    proptest! {
        #[test]
        fn shared_beginnings_are_what_two_trails_share(
            common in proptest::collection::vec(0_u64..100, 0..400),
            one in proptest::collection::vec(100_u64..200, 1..200),
            other in proptest::collection::vec(200_u64..300, 1..200),
        ) {
            let (prefix_one, chain_one) = hashes_of_ids(&[&common[..], &one].concat());
            let (prefix_other, chain_other) = hashes_of_ids(&[&common[..], &other].concat());
            let shared = chain_one.iter().zip(&chain_other).take_while(|(a, b)| a == b).count();
            prop_assert_eq!(shared, common.len() / BLOCK_TOKENS);
            let tokens: u64 = prefix_one.iter().zip(&prefix_other)
                .take_while(|(a, b)| a.hash == b.hash).filter_map(|(a, _)| a.tokens).sum();
            // The largest 64 * 2^k within the common part.
            let blocks = common.len() / BLOCK_TOKENS;
            let covered = if blocks == 0 { 0 } else { 64 << blocks.ilog2() };
            prop_assert_eq!(tokens, covered);
        }
    }

    #[test]
    fn long_prompts_keep_the_newest_links() {
        let ids: Vec<u64> = (0..((CHAIN_BLOCKS_MAX + 3) * BLOCK_TOKENS) as u64).collect();
        let (prefix, chain) = hashes_of_ids(&ids);
        assert_eq!(chain.len(), CHAIN_BLOCKS_MAX);
        assert_eq!(prefix.len(), 13);
        assert_eq!(
            prefix.iter().filter_map(|s| s.tokens).sum::<u64>(),
            64 << 12
        );
        let (_, shorter) = hashes_of_ids(&ids[..ids.len() - BLOCK_TOKENS]);
        assert_eq!(shorter.last(), chain.get(CHAIN_BLOCKS_MAX - 2));
    }

    #[test]
    fn text_counts_in_bytes() {
        let (prefix, chain, whole) = hashes_of_text(&"é".repeat(500));
        assert_eq!(chain.len(), 3);
        let bytes: Vec<u64> = prefix.iter().map(|segment| segment.bytes).collect();
        assert_eq!(bytes, [256, 256]);
        let (prefix, chain, short) = hashes_of_text("short");
        assert_eq!((prefix, chain), (vec![], vec![]));
        assert_ne!(short, hashes_of_text("shorn").2);
        assert_ne!(whole, hashes_of_text(&"é".repeat(501)).2);
    }
}
