//! Usage of a shared resource, and each request's part of it.

use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The amount of a resource that is in use, such as bytes of bodies or steps.
#[derive(Debug, Default)]
pub struct Tally(AtomicU64);

impl Tally {
    /// The amount in use.
    pub fn used(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A tally and its limit.
pub type Bounded = (Arc<Tally>, u64);

/// A request's part of some tallies, given back when it is dropped.
#[derive(Debug)]
pub struct InUse<const N: usize> {
    of: [Bounded; N],
    used: u64,
}

impl<const N: usize> InUse<N> {
    /// A part of these tallies that is still empty.
    pub fn new(of: [Bounded; N]) -> Self {
        Self { of, used: 0 }
    }

    /// Uses more of each tally.
    ///
    /// # Errors
    /// The index of the first tally whose limit would be exceeded; then no tally has changed.
    pub fn grow(&mut self, more: u64) -> Result<(), usize> {
        for (at, (tally, max)) in self.of.iter().enumerate() {
            let before = tally.0.fetch_add(more, Ordering::Relaxed);
            if before.saturating_add(more) > *max {
                for (tally, _) in &self.of[..=at] {
                    tally.0.fetch_sub(more, Ordering::Relaxed);
                }
                return Err(at);
            }
        }
        self.used += more;
        Ok(())
    }
}

impl<const N: usize> InUse<N> {
    /// Bytes that are in use until the last copy of them is dropped.
    #[must_use]
    pub fn hold(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(CountedBytes {
            bytes,
            _in_use: self,
        })
    }
}

struct CountedBytes<const N: usize> {
    bytes: Bytes,
    _in_use: InUse<N>,
}

impl<const N: usize> AsRef<[u8]> for CountedBytes<N> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<const N: usize> Drop for InUse<N> {
    fn drop(&mut self) {
        for (tally, _) in &self.of {
            tally.0.fetch_sub(self.used, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_given_back() {
        let (all, own) = (Arc::new(Tally::default()), Arc::new(Tally::default()));
        let of = || InUse::new([(all.clone(), 10), (own.clone(), 6)]);
        let (mut one, mut other) = (of(), of());
        assert_eq!(one.grow(4), Ok(()));
        assert_eq!(one.grow(3), Err(1), "the tenant's part is used up");
        assert_eq!(other.grow(2), Ok(()));
        assert_eq!((all.used(), own.used()), (6, 6));
        let mut third = InUse::new([(all.clone(), 10)]);
        assert_eq!(third.grow(5), Err(0));
        assert_eq!(third.grow(4), Ok(()));
        drop((one, third));
        assert_eq!((all.used(), own.used()), (2, 2));
        let copy = {
            let held = other.hold(Bytes::from_static(b"ab"));
            held.clone()
        };
        assert_eq!((all.used(), &copy[..]), (2, &b"ab"[..]));
        drop(copy);
        assert_eq!((all.used(), own.used()), (0, 0));
    }
}
