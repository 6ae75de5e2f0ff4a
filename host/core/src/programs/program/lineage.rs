//! The beginnings of a program's prompts, and what its forks share of the rest.
//!
//! Hashes of a prompt cover its beginning: the first few messages, or the largest power of two of
//! its blocks. A fork continues all of its parent's history, and engines keep that once. So if a
//! program's prompt begins like the latest one of its parent, and is no shorter, the rest of the
//! parent's context becomes one more segment of both prefixes, under a hash that no prompt has.

use super::Program;
use crate::memory::PrefixSegment;
use serde::{Deserialize, Serialize};
use treadle_model::ProgramId;

/// Maximum number of history segments of one program: one for each time it was forked.
const HISTORIES_MAX: u32 = 8;

/// The origin of a program's prefix.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lineage {
    /// Number of segments in the prefix of its first prompt.
    #[serde(default)]
    first: u32,
    /// Number of history segments at the end of its prefix.
    #[serde(default)]
    histories: u32,
    /// Number of those that are its parent's.
    #[serde(default)]
    inherited: u32,
    /// The prefix of its latest prompt, if it differs.
    #[serde(default)]
    latest: Vec<PrefixSegment>,
    /// Number of live programs that share its history.
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
    /// The lineage of a program whose first prompt has this prefix.
    pub(crate) fn opened(prefix: &[PrefixSegment]) -> Self {
        Self {
            first: u32::try_from(prefix.len()).unwrap_or(u32::MAX),
            ..Self::default()
        }
    }

    /// True if there is nothing to report.
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

    /// Whether the prefix of an arriving prompt differs from the known one.
    pub(crate) fn begins_otherwise(&self, arriving: &[PrefixSegment]) -> bool {
        let known = self.hashed();
        known.len() != arriving.len() || !begins_with(arriving, known)
    }

    /// Handles a prompt of `prompt_tokens` whose prefix differs. The charged prefix can only change
    /// while it is charged nowhere. The history that forks share stays, if this prompt contains it.
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

    /// Handles a prompt that begins with its prefix.
    pub(crate) fn begin_alike(&mut self) {
        self.lineage.latest = Vec::new();
    }

    /// Whether another program's prompt begins like this program's first one.
    pub(crate) fn is_forked_by(&self, fork: &Program) -> bool {
        let known = self.hashed();
        let first = match self.lineage.first as usize {
            // The program was opened before this was recorded.
            0 => known.len(),
            first => first.min(known.len()),
        };
        first > 0 && begins_with(&fork.prefix, &known[..first])
    }

    /// Its prefix once `fork` has forked it, the number of history segments in it, and whether the
    /// fork has all of them.
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

    /// Sets the number of history segments at the end of its prefix, and counts further forks.
    pub(crate) fn was_forked(&mut self, histories: u32, by: u32) {
        self.lineage.histories = histories;
        self.lineage.inherited = self.lineage.inherited.min(histories);
        self.lineage.forks += by;
    }

    /// Records that it shares the history of its parent.
    pub(crate) fn inherit(&mut self, parent: ProgramId, histories: u32) {
        (self.lineage.histories, self.lineage.inherited) = (histories, histories);
        self.lineage.fork_of = Some(parent);
    }

    /// Records that a fork ended. After the last one its history is no longer shared: gives its
    /// prefix then.
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
