//! Devices that an action or a service has, and who changes what is on them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;
use treadle_core::actions::{Chunk, Grant};

/// Some devices, or where there are none, what stands in for them.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Devices {
    chunk: Option<Chunk>,
    /// A service without devices has itself.
    stand_in: Option<String>,
}

impl Devices {
    /// The devices among what was granted.
    pub(crate) fn among(grants: &[Grant]) -> Self {
        Self {
            chunk: grants.iter().find_map(|grant| grant.chunk),
            stand_in: None,
        }
    }

    /// The same for a service.
    pub(super) fn of(&self, service: &str) -> Self {
        let stand_in = self.chunk.is_none().then(|| service.to_owned());
        Self {
            stand_in,
            ..self.clone()
        }
    }

    /// Their numbers on their node, as `0,1`; empty where there are none.
    pub(crate) fn list(&self) -> String {
        let Some(chunk) = self.chunk else {
            return String::new();
        };
        let numbers = chunk.first..chunk.first.saturating_add(chunk.size);
        let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
        numbers.join(",")
    }

    /// A port of their own, from that of the first device on. Nodes have their own ports each.
    pub(super) fn port(&self, first: u16) -> u16 {
        let number = self.chunk.map_or(0, |chunk| chunk.first);
        first.saturating_add(u16::try_from(number).unwrap_or(u16::MAX))
    }

    pub(super) fn overlap(&self, other: &Self) -> bool {
        match (self.chunk, other.chunk) {
            (Some(one), Some(two)) => {
                one.node == two.node
                    && one.first < two.first.saturating_add(two.size)
                    && two.first < one.first.saturating_add(one.size)
            }
            (None, None) => self.stand_in == other.stand_in,
            _ => false,
        }
    }

    /// Names of locks, in one order for everybody.
    fn locks(&self) -> Vec<String> {
        match (self.chunk, &self.stand_in) {
            (Some(chunk), _) => (chunk.first..chunk.first.saturating_add(chunk.size))
                .map(|device| format!("{:08}/{device:08}", chunk.node))
                .collect(),
            (None, name) => name.iter().map(|name| format!("service {name}")).collect(),
        }
    }
}

impl std::fmt::Display for Devices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.chunk, &self.stand_in) {
            (Some(Chunk { node, first, size }), _) => write!(f, "{node}-{first}-{size}"),
            (None, name) => f.write_str(name.as_deref().unwrap_or("none")),
        }
    }
}

/// A lock for each device: one change at a time. There are as many as devices and services.
#[derive(Debug, Default)]
pub(super) struct Locks(Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl Locks {
    pub(super) async fn lock(&self, devices: &Devices) -> Vec<OwnedMutexGuard<()>> {
        let locks: Vec<_> = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let names = devices.locks().into_iter();
            names
                .map(|name| all.entry(name).or_default().clone())
                .collect()
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

    fn devices(node: u32, first: u32, size: u32) -> Devices {
        let chunk = Some(Chunk { node, first, size });
        Devices {
            chunk,
            stand_in: None,
        }
    }

    #[test]
    fn devices_overlap_where_they_share_one() {
        let two = devices(0, 2, 2);
        assert_eq!((two.list().as_str(), two.port(9_000)), ("2,3", 9_002));
        for (other, overlaps) in [
            (devices(0, 0, 4), true),
            (devices(0, 3, 1), true),
            (devices(0, 4, 4), false),
            (devices(0, 0, 2), false),
            (devices(1, 2, 2), false),
            (Devices::default().of("a"), false),
        ] {
            assert_eq!(two.overlap(&other), overlaps, "{other:?}");
            assert_eq!(other.overlap(&two), overlaps, "{other:?}");
        }
        let none = Devices::default();
        assert!(none.of("a").overlap(&none.of("a")) && !none.of("a").overlap(&none.of("b")));
        assert_eq!(two.of("a"), two);
    }
}
