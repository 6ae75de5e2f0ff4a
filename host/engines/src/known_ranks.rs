//! What a watched worker knows of the ranks of its engine, to notice when they are others.

use treadle_model::endpoint_of;
use treadle_wire::EngineReading;

/// Pages of metrics in a row that have nothing of a worker's rank, after which its engine is looked
/// at.
const MISSING_MAX: u32 = 3;

/// What is known of the ranks of a watched worker's endpoint.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KnownRanks {
    /// Their number; `None` before it was read.
    pub(super) known: Option<u32>,
    /// Another number that was read. It counts once it is read again: a page that an engine serves
    /// while it starts may lack some.
    pub(super) other: Option<u32>,
    /// Pages of metrics in a row that had nothing of the worker's own rank.
    missing: u32,
    /// They were looked at.
    is_read: bool,
}

impl KnownRanks {
    /// As they were just read.
    pub(super) fn told(known: Option<u32>) -> Self {
        Self {
            known,
            is_read: known.is_some(),
            ..Self::default()
        }
    }

    /// Whether they are to be looked at: nobody did yet, or the engine may be another process.
    pub(super) fn are_due(&mut self, healthy: bool) -> bool {
        let is_first = !std::mem::replace(&mut self.is_read, true);
        let is_missing = self.missing >= MISSING_MAX;
        if is_missing {
            // If this look shows nothing, there is another one after as many pages.
            self.missing = 0;
        }
        is_first || !healthy || self.other.is_some() || is_missing
    }

    /// Notes whether a page of metrics has anything of a rank.
    pub(super) fn saw(&mut self, url: &str, reading: &EngineReading) {
        let rows = [
            reading.running,
            reading.used_tokens,
            reading.capacity_tokens,
        ];
        let is_rank = endpoint_of(url).1.is_some();
        let is_missing = is_rank && rows.iter().all(Option::is_none);
        self.missing = if is_missing {
            self.missing.saturating_add(1)
        } else {
            0
        };
    }
}
