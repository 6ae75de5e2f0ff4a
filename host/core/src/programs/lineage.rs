//! What a program's prompts begin with, and what its forks share of what followed.
//!
//! Hashes of a prompt cover its beginning: the first few messages, or the largest power of two of its
//! blocks. A fork goes on with all of its parent's history, and engines keep that once. So where a
//! program's prompt begins as the latest one of its parent did, and is no shorter, the rest of the
//! parent's context is one more segment of both prefixes, under a hash that no prompt has.

use crate::PrefixSegment;
use crate::programs::program::Program;
use serde::{Deserialize, Serialize};
use treadle_model::ProgramId;

/// Segments of history of one program, at most: one for each time at which it was forked.
const HISTORIES_MAX: u32 = 8;

/// Where a program's prefix comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lineage {
    /// Segments that the prefix of its first prompt had.
    #[serde(default)]
    first: u32,
    /// Segments at the end of its prefix that are history.
    #[serde(default)]
    histories: u32,
    /// Of those, its parent's.
    #[serde(default)]
    inherited: u32,
    /// The prefix of its latest prompt, where it is another one.
    #[serde(default)]
    latest: Vec<PrefixSegment>,
    /// Live programs that share its history.
    #[serde(default)]
    forks: u32,
    /// The parent whose history it shares.
    #[serde(default)]
    pub(crate) fork_of: Option<ProgramId>,
}

/// Whether a prefix begins with these segments.
fn begins_with(prefix: &[PrefixSegment], with: &[PrefixSegment]) -> bool {
    let hash = |segment: &PrefixSegment| segment.hash;
    let own = prefix.iter().map(hash).take(with.len());
    own.eq(with.iter().map(hash))
}

fn tokens(prefix: &[PrefixSegment]) -> u64 {
    let tokens = prefix.iter().map(|segment| segment.tokens);
    tokens.fold(0, u64::saturating_add)
}

/// A hash of the history of a program at this length (`splitmix64`).
fn history_hash(program: ProgramId, tokens: u64, before: u64) -> u64 {
    let mix = |number: u64| {
        let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    };
    mix(mix(mix(program.0) ^ tokens) ^ before)
}

impl Lineage {
    /// Of a program that opens with such a prefix.
    pub(crate) fn opened(prefix: &[PrefixSegment]) -> Self {
        Self {
            first: u32::try_from(prefix.len()).unwrap_or(u32::MAX),
            ..Self::default()
        }
    }

    /// True if there is nothing to know.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Program {
    /// Its prefix without history.
    fn hashed(&self) -> &[PrefixSegment] {
        let histories = self.lineage.histories as usize;
        &self.prefix[..self.prefix.len().saturating_sub(histories)]
    }

    /// The prefix of its latest prompt.
    fn latest(&self) -> &[PrefixSegment] {
        if self.lineage.latest.is_empty() {
            self.hashed()
        } else {
            &self.lineage.latest
        }
    }

    /// Whether an arriving prompt begins otherwise than its prefix is.
    pub(crate) fn begins_otherwise(&self, arriving: &[PrefixSegment]) -> bool {
        let known = self.hashed();
        known.len() != arriving.len() || !begins_with(arriving, known)
    }

    /// A prompt of so many tokens has arrived that begins otherwise. The prefix that is charged can
    /// only change while it is charged nowhere. What forks share stays, if this prompt has it.
    pub(crate) fn begin_otherwise(&mut self, arriving: Vec<PrefixSegment>, prompt_tokens: u64) {
        let first = (self.lineage.first as usize).min(self.hashed().len());
        let goes_on =
            begins_with(&arriving, self.hashed()) && prompt_tokens >= self.prefix_tokens();
        if self.placement.is_some() || (goes_on && self.lineage.histories > 0) {
            self.lineage.latest = arriving;
            return;
        }
        if !begins_with(&arriving, &self.hashed()[..first]) {
            self.lineage.first = u32::try_from(arriving.len()).unwrap_or(u32::MAX);
        }
        self.prefix = arriving;
        self.lineage.latest = Vec::new();
        (self.lineage.histories, self.lineage.inherited) = (0, 0);
    }

    /// Its prompt begins as its prefix is.
    pub(crate) fn begin_alike(&mut self) {
        self.lineage.latest = Vec::new();
    }

    /// Whether another program's prompt begins as its own first one did.
    pub(crate) fn is_forked_by(&self, fork: &Program) -> bool {
        let known = self.hashed();
        let first = match self.lineage.first as usize {
            // It was opened before that was kept.
            0 => known.len(),
            first => first.min(known.len()),
        };
        first > 0 && begins_with(&fork.prefix, &known[..first])
    }

    /// What its prefix is once this program has forked it, with the segments of history in it, and
    /// whether the fork has all of that.
    pub(crate) fn forked_prefix(
        &self,
        fork: &Program,
        is_exact: bool,
    ) -> (Vec<PrefixSegment>, u32, bool) {
        let latest = self.latest();
        let extends = self.lineage.histories > 0 && begins_with(latest, self.hashed());
        let (mut prefix, mut histories) = if extends {
            (self.prefix.clone(), self.lineage.histories)
        } else {
            (latest.to_vec(), 0)
        };
        let known = tokens(&prefix);
        let prompt = self.context_tokens.saturating_sub(self.last_output_tokens);
        // An estimate may be less than the prompt has.
        let least = if is_exact { prompt } else { prompt / 4 * 3 };
        let shared = self.context_tokens.min(fork.first_prompt_tokens);
        let goes_on = begins_with(&fork.prefix, latest)
            && self.context_tokens > 0
            && fork.first_prompt_tokens >= least
            && shared >= known;
        if goes_on && shared > known && histories < HISTORIES_MAX {
            let before = prefix.last().map_or(0, |segment| segment.hash);
            prefix.push(PrefixSegment {
                hash: history_hash(self.id, shared, before),
                tokens: shared - known,
            });
            histories += 1;
        }
        (prefix, histories, goes_on && histories > 0)
    }

    /// So many segments at the end of its prefix are history now, with one more fork.
    pub(crate) fn was_forked(&mut self, histories: u32, by: u32) {
        self.lineage.histories = histories;
        self.lineage.inherited = self.lineage.inherited.min(histories);
        self.lineage.forks += by;
    }

    /// It shares the history of its parent.
    pub(crate) fn inherit(&mut self, parent: ProgramId, histories: u32) {
        (self.lineage.histories, self.lineage.inherited) = (histories, histories);
        self.lineage.fork_of = Some(parent);
    }

    /// A fork has ended. After the last one its history is its own again: its prefix then.
    pub(crate) fn fork_ended(&mut self) -> Option<Vec<PrefixSegment>> {
        let lineage = &mut self.lineage;
        lineage.forks = lineage.forks.saturating_sub(1);
        if lineage.forks > 0 || lineage.histories == lineage.inherited {
            return None;
        }
        let own = (lineage.histories - lineage.inherited) as usize;
        lineage.histories = lineage.inherited;
        let kept = self.prefix.len().saturating_sub(own);
        Some(self.prefix[..kept].to_vec())
    }
}
