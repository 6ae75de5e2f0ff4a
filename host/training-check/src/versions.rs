//! Versions of sampled tokens, whatever the ranges in which they are told.

use std::ops::Range;

/// Where each version begins, in order; two that follow each other differ. `None` for tokens without
/// a version.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Versions(Vec<(usize, Option<u64>)>);

/// Where two differ.
pub(crate) struct Other {
    pub(crate) position: usize,
    pub(crate) found: Option<u64>,
    pub(crate) expected: Option<u64>,
}

impl Versions {
    /// Of a number of tokens, by ranges in order.
    pub(crate) fn of(ranges: Vec<(Range<usize>, u64)>, tokens: usize) -> Self {
        let mut versions = Self(Vec::new());
        let mut known = 0;
        for (range, version) in ranges.into_iter().filter(|(range, _)| !range.is_empty()) {
            if range.start > known {
                versions.push(known, None);
            }
            versions.push(range.start, Some(version));
            known = range.end;
        }
        if known < tokens {
            versions.push(known, None);
        }
        versions
    }

    fn push(&mut self, start: usize, version: Option<u64>) {
        if self.0.last().is_none_or(|(_, last)| *last != version) {
            self.0.push((start, version));
        }
    }

    fn at(&self, position: usize) -> Option<u64> {
        let after = self.0.partition_point(|(start, _)| *start <= position);
        self.0.get(after.checked_sub(1)?)?.1
    }

    /// Where these first differ from those that are expected.
    pub(crate) fn other(&self, expected: &Self) -> Option<Other> {
        let starts = self.0.iter().chain(&expected.0).map(|(start, _)| *start);
        let differs = |position: &usize| self.at(*position) != expected.at(*position);
        let position = starts.filter(differs).min()?;
        Some(Other {
            position,
            found: self.at(position),
            expected: expected.at(position),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_with_the_same_version_are_one() {
        let whole = Versions::of(vec![(0..5, 3)], 5);
        let parts = Versions::of(vec![(0..2, 3), (2..2, 9), (2..5, 3)], 5);
        assert_eq!(whole, parts);
        assert!(whole.other(&parts).is_none());
    }

    #[test]
    fn the_first_difference_is_found() {
        let changed = Versions::of(vec![(0..2, 3), (2..5, 4)], 5);
        let later = Versions::of(vec![(0..3, 3), (3..5, 4)], 5);
        let other = changed.other(&later).expect("they differ");
        let found = (other.position, other.found, other.expected);
        assert_eq!(found, (2, Some(4), Some(3)));
        let short = Versions::of(vec![(0..2, 3)], 5);
        let other = short.other(&changed).expect("they differ");
        assert_eq!(
            (other.position, other.found, other.expected),
            (2, None, Some(4))
        );
    }
}
