//! The world `eviction-retention`: what becomes of the KV caches of acting programs,
//! beside what the world `eviction` decides.

use crate::columns::columns;
use crate::{EvictionPolicy, PolicyError};

columns! {
    /// Programs that act at one worker, one row each. Where something cannot be done
    /// its time is [`u64::MAX`].
    RetentionColumns
    rows {
        /// Context length in tokens.
        tokens: u64,
        /// Time in the tool call so far, in milliseconds.
        phase_ms: u64,
        /// Time that the tool call is expected to last yet, in milliseconds: the mean
        /// of what remained of earlier calls of this job and tool that had lasted as
        /// long.
        idle_ms: u64,
        /// Time in which one in ten of such calls ended, in milliseconds.
        soonest_ms: u64,
        /// Time to bring the cache back from host memory, in milliseconds.
        back_ms: u64,
        /// Time to move the cache to another worker, in milliseconds.
        moved_ms: u64,
        /// Time to compute the cache again, in milliseconds; 0 where the worker's pace
        /// is not known.
        prefill_ms: u64,
        /// LLM calls finished so far.
        steps: u32,
    }
}

/// What becomes of the KV cache of an acting program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Fate {
    /// It stays, and so does the program's place.
    #[default]
    Keep,
    /// It goes to host memory, and comes back with the program.
    Offload,
    /// It goes to a worker with room.
    Migrate,
    /// It is given up, and computed again when the program comes back.
    Drop,
}

impl Fate {
    /// All fates, in the order of their codes.
    pub const ALL: [Self; 4] = [Self::Keep, Self::Offload, Self::Migrate, Self::Drop];

    /// Its code in the contract.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The fate with this code, `None` where there is none.
    pub fn of_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// A policy of the world `eviction-retention`. Answers depend on nothing but the
/// configuration, the columns and [`host::now_ms`](crate::host::now_ms).
pub trait RetentionPolicy: EvictionPolicy {
    /// What becomes of the cache of each acting program. What cannot be carried out
    /// counts as [`Fate::Keep`].
    ///
    /// The worker holds `capacity_tokens`, [`u64::MAX`] where that is not known;
    /// `free_tokens` are left below the worker's low watermark, below 0 when it holds
    /// more; `wanted_tokens` are needed by all programs without a place that wait for
    /// one.
    ///
    /// # Errors
    /// Any [`PolicyError`]; all caches then stay.
    fn retain(
        &mut self,
        capacity_tokens: u64,
        free_tokens: i64,
        wanted_tokens: u64,
        programs: &RetentionColumns<'_>,
    ) -> Result<Vec<Fate>, PolicyError>;
}

#[cfg(test)]
mod tests {
    use super::Fate;

    #[test]
    fn codes_are_those_of_the_contract() {
        assert_eq!(Fate::ALL.map(Fate::code), [0, 1, 2, 3]);
        assert_eq!(Fate::of_code(2), Some(Fate::Migrate));
        assert_eq!(Fate::of_code(4), None);
    }
}
