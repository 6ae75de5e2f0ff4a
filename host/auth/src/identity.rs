//! How a daemon proves that it knows a token before the client sends the token.
//!
//! The client sends an id of the token that reveals nothing of it, and random characters. A daemon
//! that knows the token responds with an HMAC over them and the address at which it was reached,
//! keyed by the token's hash. An impostor at that address lacks the key; one that forwards the
//! challenge gets a proof for another address than the client called.

use super::secret::{Hash, hex};
use ring::hmac::{HMAC_SHA256, Key, sign};
use std::net::SocketAddr;

/// Longest challenge, in bytes.
pub const CHALLENGE_BYTES_MAX: usize = 128;
/// Number of HMAC bytes in a token's id.
const NAME_BYTES: usize = 8;

/// The id of a token with this hash.
pub fn name(hash: &Hash) -> String {
    let tag = sign(&key(hash), b"treadle token name");
    hex(&tag.as_ref()[..NAME_BYTES])
}

/// The proof that the daemon reached at this address knows the token with this hash.
pub fn proof(hash: &Hash, reached_at: SocketAddr, challenge: &str) -> String {
    // Dual-stack sockets show IPv4 addresses as mapped IPv6 addresses.
    let (ip, port) = (reached_at.ip().to_canonical(), reached_at.port());
    let text = format!("treadle identity\n{ip}\n{port}\n{challenge}");
    hex(sign(&key(hash), text.as_bytes()).as_ref())
}

fn key(hash: &Hash) -> Key {
    Key::new(HMAC_SHA256, hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret;

    #[test]
    fn a_proof_is_of_one_token_one_address_and_one_challenge() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (own, other) = (secret::hash("tr_1"), secret::hash("tr_2"));
        let good = proof(&own, at("127.0.0.1:8300"), "c");
        assert_eq!(good, proof(&own, at("[::ffff:127.0.0.1]:8300"), "c"));
        for bad in [
            proof(&other, at("127.0.0.1:8300"), "c"),
            proof(&own, at("127.0.0.1:8301"), "c"),
            proof(&own, at("127.0.0.2:8300"), "c"),
            proof(&own, at("[::1]:8300"), "c"),
            proof(&own, at("127.0.0.1:8300"), "d"),
        ] {
            assert_ne!(good, bad);
        }
        assert_ne!(name(&own), name(&other));
        assert!(!good.contains(&name(&own)));
    }
}
