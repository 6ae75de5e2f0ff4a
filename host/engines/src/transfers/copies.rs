//! The copies of caches that a scheduler's core tracks.

use std::collections::{HashMap, VecDeque};
use treadle_model::ProgramId;
use treadle_transfer::CopyId;

/// Evicted copies that are remembered because the core did not track them yet.
const GONE_MAX: usize = 1_024;

/// The copy's program, and the core's handle of it.
pub(super) type Known = (ProgramId, Box<str>);

/// Copies by id, with the core's view of each.
#[derive(Default)]
pub(super) struct CopyIndex {
    known: HashMap<CopyId, Known>,
    /// Evicted copies that were unknown: those of others, old ones, or of transfers not reported
    /// yet.
    gone: VecDeque<CopyId>,
}

impl CopyIndex {
    /// Adds a copy; returns it if it was already evicted.
    pub(super) fn insert(
        &mut self,
        id: CopyId,
        program: ProgramId,
        handle: Box<str>,
    ) -> Option<Known> {
        if self.gone.contains(&id) {
            return Some((program, handle));
        }
        self.known.insert(id, (program, handle));
        None
    }

    /// Removes an evicted copy; returns the core's view of it.
    pub(super) fn lost(&mut self, id: CopyId) -> Option<Known> {
        let known = self.known.remove(&id);
        if known.is_none() {
            if self.gone.len() == GONE_MAX {
                self.gone.pop_front();
            }
            self.gone.push_back(id);
        }
        known
    }

    /// Removes a copy that the core no longer tracks.
    pub(super) fn forget(&mut self, id: CopyId) {
        self.known.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_evicted_before_it_was_added_is_reported_as_lost() {
        let mut copies = CopyIndex::default();
        let [early, late, dropped] = [(); 3].map(|()| CopyId::random().unwrap());
        let copy = || (ProgramId(1), Box::from("c"));
        assert_eq!(copies.lost(early), None);
        assert_eq!(copies.insert(early, ProgramId(1), "c".into()), Some(copy()));
        assert_eq!(copies.insert(late, ProgramId(1), "c".into()), None);
        assert_eq!(copies.lost(late), Some(copy()));
        assert_eq!(copies.lost(late), None);
        assert_eq!(copies.insert(dropped, ProgramId(1), "c".into()), None);
        copies.forget(dropped);
        assert_eq!(copies.lost(dropped), None);
        for _ in 0..2 * GONE_MAX {
            copies.lost(CopyId::random().unwrap());
        }
        assert_eq!(copies.gone.len(), GONE_MAX);
    }
}
