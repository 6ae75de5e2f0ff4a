//! The places of services, and locks for changes to them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;
use treadle_core::actions::Chunk;

/// Where a service is.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Place {
    /// On devices.
    Devices(Chunk),
    /// A service without devices has its own place.
    Alone(String),
}

impl Place {
    pub(crate) fn of(chunk: Option<Chunk>, service: &str) -> Self {
        chunk.map_or_else(|| Self::Alone(service.to_owned()), Self::Devices)
    }

    pub(crate) fn chunk(&self) -> Option<Chunk> {
        match self {
            Self::Devices(chunk) => Some(*chunk),
            Self::Alone(_) => None,
        }
    }

    pub(super) fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Devices(one), Self::Devices(two)) => one.overlaps(*two),
            _ => self == other,
        }
    }

    /// Its parts, always in the same order.
    fn parts(&self) -> Vec<Self> {
        let Self::Devices(chunk) = self else {
            return vec![self.clone()];
        };
        let node = chunk.node;
        let devices = (chunk.first..chunk.first.saturating_add(chunk.size)).map(|first| {
            let size = 1;
            Self::Devices(Chunk { node, first, size })
        });
        devices.collect()
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Devices(Chunk { node, first, size }) => write!(f, "{node}-{first}-{size}"),
            Self::Alone(_) => f.write_str("alone"),
        }
    }
}

/// A lock for each part of a place, so that only one change happens at a time. Their number is that
/// of devices and services.
#[derive(Debug, Default)]
pub(super) struct Locks(Mutex<BTreeMap<Place, Arc<tokio::sync::Mutex<()>>>>);

impl Locks {
    pub(super) async fn lock(&self, place: &Place) -> Vec<OwnedMutexGuard<()>> {
        let locks: Vec<_> = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let parts = place.parts().into_iter();
            let locks = parts.map(|part| all.entry(part).or_default().clone());
            locks.collect()
        };
        let mut held = Vec::with_capacity(locks.len());
        for lock in locks {
            held.push(lock.lock_owned().await);
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices(node: u32, first: u32, size: u32) -> Place {
        Place::Devices(Chunk { node, first, size })
    }

    #[test]
    fn places_overlap_where_they_share_a_device() {
        let two = devices(0, 2, 2);
        let alone = |name: &str| Place::of(None, name);
        for (other, overlaps) in [
            (devices(0, 0, 4), true),
            (devices(0, 3, 1), true),
            (devices(0, 4, 4), false),
            (devices(0, 0, 2), false),
            (devices(1, 2, 2), false),
            (alone("a"), false),
        ] {
            assert_eq!(two.overlaps(&other), overlaps, "{other:?}");
            assert_eq!(other.overlaps(&two), overlaps, "{other:?}");
            let shares = two.parts().iter().any(|part| other.parts().contains(part));
            assert_eq!(shares, overlaps, "{other:?}");
        }
        assert!(alone("a").overlaps(&alone("a")) && !alone("a").overlaps(&alone("b")));
    }
}
