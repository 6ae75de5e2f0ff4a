//! Versions of sampled tokens, whatever the ranges in which they are told.

use std::fmt;
use std::ops::Range;

/// Versions that may have sampled a token: one, or several if they changed meanwhile.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Bounds {
    pub(crate) oldest: u64,
    pub(crate) newest: u64,
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { oldest, newest } = self;
        if oldest == newest {
            return write!(f, "version {oldest}");
        }
        write!(f, "versions {oldest} to {newest}")
    }
}

/// Where each version begins, in order; two that follow each other differ. `None` for tokens without
/// a version.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Versions(Vec<(usize, Option<Bounds>)>);

/// Where two differ.
pub(crate) struct Other {
    pub(crate) position: usize,
    pub(crate) found: Option<Bounds>,
    pub(crate) expected: Option<Bounds>,
}

impl Versions {
    /// Of a number of tokens, by ranges in order.
    pub(crate) fn of(ranges: Vec<(Range<usize>, Bounds)>, tokens: usize) -> Self {
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

    fn push(&mut self, start: usize, version: Option<Bounds>) {
        if self.0.last().is_none_or(|(_, last)| *last != version) {
            self.0.push((start, version));
        }
    }

    fn at(&self, position: usize) -> Option<Bounds> {
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

    fn of(ranges: &[(Range<usize>, u64)], tokens: usize) -> Versions {
        let one = |version| Bounds {
            oldest: version,
            newest: version,
        };
        let ranges = ranges.iter().map(|(range, own)| (range.clone(), one(*own)));
        Versions::of(ranges.collect(), tokens)
    }

    #[test]
    fn ranges_with_the_same_version_are_one() {
        let whole = of(&[(0..5, 3)], 5);
        let parts = of(&[(0..2, 3), (2..2, 9), (2..5, 3)], 5);
        assert_eq!(whole, parts);
        assert!(whole.other(&parts).is_none());
    }

    #[test]
    fn the_first_difference_is_found() {
        let changed = of(&[(0..2, 3), (2..5, 4)], 5);
        let later = of(&[(0..3, 3), (3..5, 4)], 5);
        let found = |a: &Versions, b: &Versions| {
            let other = a.other(b).expect("they differ");
            let oldest = |bounds: Option<Bounds>| bounds.map(|own| own.oldest);
            (other.position, oldest(other.found), oldest(other.expected))
        };
        assert_eq!(found(&changed, &later), (2, Some(4), Some(3)));
        let short = of(&[(0..2, 3)], 5);
        assert_eq!(found(&short, &changed), (2, None, Some(4)));
    }
}
