//! The copies that a scheduler's core knows.

use std::collections::{HashMap, VecDeque};
use treadle_model::ProgramId;
use treadle_transfer::CopyId;

/// Copies that were evicted before they were known here, and are remembered.
const GONE_MAX: usize = 1_024;

/// Whose copy it is, and what the core calls it.
pub(super) type Known = (ProgramId, Box<str>);

/// Copies that the core knows, as it knows them.
#[derive(Default)]
pub(super) struct CopyIndex {
    known: HashMap<CopyId, Known>,
    /// Copies of others, of the past, or of transfers that were not reported yet.
    gone: VecDeque<CopyId>,
}

impl CopyIndex {
    /// Adds a copy; gives it back if it was evicted already.
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

    /// A copy was evicted; gives what the core knows of it.
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

    /// The core knows a copy no more.
    pub(super) fn forget(&mut self, id: CopyId) {
        self.known.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_gave_way_before_it_was_known_is_lost_all_the_same() {
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
