//! One request inside the engine, and its allocation of blocks.

use std::sync::Arc;

use super::blocks::{BlockIndex, BlockPool};
use super::host_tier::HostTier;
use super::request::{FinishReason, Finished, RequestId, RequestSpec};

/// Order of service: priority, then arrival.
pub(super) type ServiceKey = (i32, u64);

/// A request with its progress and memory.
#[derive(Clone)]
pub(super) struct Sequence {
    pub(super) id: RequestId,
    pub(super) key: ServiceKey,
    pub(super) prompt_tokens: u32,
    output_tokens: u32,
    chain: Arc<[u64]>,
    pub(super) blocks: Vec<BlockIndex>,
    /// Tokens whose KV is in `blocks`, including those of the current iteration.
    pub(super) computed_tokens: u32,
    /// Maximum of `computed_tokens` so far: tokens below it are computed again.
    computed_peak_tokens: u32,
    pub(super) generated_tokens: u32,
    /// Generated tokens not yet reported.
    pub(super) unreported_tokens: u32,
    /// Tokens of the current iteration; 0 if the sequence is not part of it.
    pub(super) scheduled_tokens: u32,
    /// Time until which blocks of its prefix are loaded from host memory, in microseconds.
    pub(super) loading_until_us: u64,
    /// Prefix hits of the first admission; `None` before it.
    pub(super) cached_tokens: Option<u32>,
    pub(super) preemptions: u32,
    submitted_at_us: u64,
    pub(super) first_token_at_us: Option<u64>,
}

/// The part of a waiting sequence's prefix that is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PrefixHit {
    /// Leading blocks found.
    pub(super) blocks: u32,
    /// Those of them that are unreferenced: taking them shortens the free list.
    pub(super) free_blocks: u32,
    /// Blocks after these that are in host memory.
    pub(super) host_blocks: u32,
}

impl PrefixHit {
    /// Number of blocks that need not be computed.
    pub(super) fn all_blocks(self) -> u32 {
        self.blocks + self.host_blocks
    }
}

impl Sequence {
    pub(super) fn new(spec: RequestSpec, arrival: u64, now_us: u64) -> Self {
        Self {
            id: spec.id,
            key: (spec.priority, arrival),
            prompt_tokens: spec.prompt_tokens,
            output_tokens: spec.output_tokens,
            chain: spec.blocks,
            blocks: Vec::new(),
            computed_tokens: 0,
            computed_peak_tokens: 0,
            generated_tokens: 0,
            unreported_tokens: 0,
            scheduled_tokens: 0,
            loading_until_us: 0,
            cached_tokens: None,
            preemptions: 0,
            submitted_at_us: now_us,
            first_token_at_us: None,
        }
    }

    /// Number of tokens of prompt and output so far.
    pub(super) fn total_tokens(&self) -> u32 {
        self.prompt_tokens + self.generated_tokens
    }

    pub(super) fn is_complete(&self) -> bool {
        self.generated_tokens >= self.output_tokens
    }

    /// The hash of the block at that position, if the caller gave one.
    pub(super) fn hash_at(&self, block: u32) -> Option<u64> {
        self.chain.get(block as usize).copied()
    }

    /// The longest cached prefix, in whole blocks; `found` is set to its blocks. The last token is
    /// always computed, because its output is needed.
    pub(super) fn find_prefix(
        &self,
        pool: &BlockPool,
        tier: &HostTier,
        block_tokens: u32,
        found: &mut Vec<BlockIndex>,
    ) -> PrefixHit {
        found.clear();
        let limit = ((self.total_tokens() - 1) / block_tokens) as usize;
        let mut hit = PrefixHit {
            blocks: 0,
            free_blocks: 0,
            host_blocks: 0,
        };
        for hash in self.chain.iter().take(limit) {
            let Some(index) = pool.lookup(*hash) else {
                break;
            };
            found.push(index);
            hit.blocks += 1;
            hit.free_blocks += u32::from(!pool.is_held(index));
        }
        if !tier.is_absent() {
            let rest = self.chain.iter().take(limit).skip(hit.blocks as usize);
            hit.host_blocks = rest.take_while(|hash| tier.holds(**hash)).count() as u32;
        }
        hit
    }

    /// References the blocks of a prefix just found.
    pub(super) fn take_prefix(
        &mut self,
        pool: &mut BlockPool,
        found: &[BlockIndex],
        block_tokens: u32,
    ) {
        debug_assert!(self.blocks.is_empty());
        for index in found {
            pool.hold(*index);
        }
        self.blocks.extend_from_slice(found);
        self.computed_tokens = found.len() as u32 * block_tokens;
    }

    /// Allocates the next blocks of its prefix, which are loaded from host memory.
    pub(super) fn take_from_host(
        &mut self,
        pool: &mut BlockPool,
        tier: &mut HostTier,
        count: u32,
        block_tokens: u32,
    ) {
        // Room is made first: what is evicted for it must not push these out.
        let from = self.blocks.len() as u32;
        let hashes: Vec<u64> = (from..from + count)
            .filter_map(|block| self.hash_at(block))
            .collect();
        for hash in &hashes {
            tier.take(*hash);
        }
        for hash in hashes {
            let Some(index) = pool.allocate(tier) else {
                return;
            };
            pool.register(index, hash);
            self.blocks.push(index);
            self.computed_tokens += block_tokens;
        }
    }

    /// Number of additional blocks needed for `tokens` more tokens.
    pub(super) fn blocks_wanted(&self, tokens: u32, block_tokens: u32) -> u32 {
        let end = (self.computed_tokens + tokens).div_ceil(block_tokens);
        end.saturating_sub(self.blocks.len() as u32)
    }

    /// Schedules `tokens` for the next iteration: allocates memory and makes the blocks that it
    /// fills findable, as the current batch computes them before anyone reads them. Returns how
    /// many of the tokens had been computed before, or `None`, with nothing changed, if memory is
    /// short.
    pub(super) fn schedule(
        &mut self,
        pool: &mut BlockPool,
        tier: &mut HostTier,
        tokens: u32,
        block_tokens: u32,
    ) -> Option<u32> {
        let wanted = self.blocks_wanted(tokens, block_tokens);
        if wanted > pool.free() {
            return None;
        }
        for _ in 0..wanted {
            self.blocks.push(pool.allocate(tier)?);
        }
        let from = self.computed_tokens;
        let to = from + tokens;
        for block in from / block_tokens..to / block_tokens {
            if let Some(hash) = self.hash_at(block) {
                pool.register(self.blocks[block as usize], hash);
            }
        }
        let again = to.min(self.computed_peak_tokens).saturating_sub(from);
        self.computed_tokens = to;
        self.computed_peak_tokens = self.computed_peak_tokens.max(to);
        self.scheduled_tokens = tokens;
        Some(again)
    }

    /// Tokens until the next report, if it decodes.
    pub(super) fn tokens_to_report(&self, interval_tokens: u32) -> u32 {
        let interval = interval_tokens.max(1) - self.unreported_tokens;
        interval.min(self.output_tokens - self.generated_tokens)
    }

    /// Whether it decodes in the current iteration, without recomputing tokens.
    pub(super) fn just_decodes(&self) -> bool {
        self.scheduled_tokens == 1
            && self.generated_tokens > 0
            && self.computed_tokens == self.total_tokens()
            && self.computed_peak_tokens == self.computed_tokens
    }

    /// Ends `tokens` iterations of decoding and starts the next; the caller handles blocks.
    pub(super) fn decode_on(&mut self, tokens: u32) {
        self.generated_tokens += tokens;
        self.unreported_tokens += tokens;
        self.computed_tokens += tokens;
        self.computed_peak_tokens = self.computed_tokens;
    }

    /// Allocates the next block, or makes the last full block findable; called before
    /// [`decode_on`](Self::decode_on).
    pub(super) fn cross_block(&mut self, pool: &mut BlockPool, tier: &mut HostTier, fills: bool) {
        if !fills {
            let block = pool.allocate(tier);
            debug_assert!(
                block.is_some(),
                "the leap was planned by the memory there is"
            );
            self.blocks.extend(block);
        } else if let (Some(index), Some(hash)) = (
            self.blocks.last(),
            self.hash_at((self.blocks.len() as u32).saturating_sub(1)),
        ) {
            pool.register(*index, hash);
        }
    }

    /// Frees all memory; the generated tokens are kept.
    pub(super) fn release(&mut self, pool: &mut BlockPool) {
        pool.release_all(&mut self.blocks);
        self.computed_tokens = 0;
        self.scheduled_tokens = 0;
        self.loading_until_us = 0;
    }

    pub(super) fn finish(&self, at_us: u64, reason: FinishReason) -> Finished {
        Finished {
            id: self.id,
            submitted_at_us: self.submitted_at_us,
            first_token_at_us: self.first_token_at_us,
            at_us,
            prompt_tokens: self.prompt_tokens,
            output_tokens: self.generated_tokens,
            cached_tokens: self.cached_tokens.unwrap_or(0),
            preemptions: self.preemptions,
            reason,
        }
    }
}
