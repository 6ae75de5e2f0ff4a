//! Counts connections per peer.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// Connections by client address. IPv6 addresses count by their first 64 bits, since hosts choose
/// the rest.
#[derive(Debug, Default)]
pub(crate) struct Peers(Mutex<HashMap<IpAddr, usize>>);

/// A connection of a peer, counted as long as this lives.
pub(crate) struct Counted {
    peers: Arc<Peers>,
    of: IpAddr,
}

impl Peers {
    /// Counts a connection; `None` if its peer has `max` already.
    pub(crate) fn count(self: &Arc<Self>, peer: IpAddr, max: usize) -> Option<Counted> {
        let of = network(peer);
        let mut peers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = peers.entry(of).or_default();
        if *count >= max {
            return None;
        }
        *count += 1;
        let peers = self.clone();
        Some(Counted { peers, of })
    }
}

fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut peers = self.peers.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = peers.get_mut(&self.of) {
            *count -= 1;
            if *count == 0 {
                peers.remove(&self.of);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_so_many_connections_and_others_have_theirs() {
        let peers = Arc::new(Peers::default());
        let count = |address: &str| peers.count(address.parse().unwrap(), 2);
        let (one, _two) = (
            count("10.0.0.1").unwrap(),
            count("::ffff:10.0.0.1").unwrap(),
        );
        assert!(count("10.0.0.1").is_none());
        let other = count("10.0.0.2");
        assert!(other.is_some());
        drop(one);
        assert!(count("10.0.0.1").is_some());
        let _nearby = (count("2001:db8::1").unwrap(), count("2001:db8::2").unwrap());
        assert!(count("2001:db8::3").is_none());
        assert!(count("2001:db8:0:1::3").is_some());
        drop(other);
        assert_eq!(peers.0.lock().unwrap().len(), 2, "none is kept for nothing");
    }
}
