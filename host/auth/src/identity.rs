//! How a daemon proves that it knows a token before the client sends the token.
//!
//! The client names the token by something that reveals nothing of it, and sends random characters.
//! The daemon that knows the token answers with an HMAC over them and over the address that it was
//! reached at, keyed by the token's hash. An impostor at that address has no such key; one that
//! forwards the question gets an answer for another address than the client has called.

use super::secret::{Hash, hex};
use ring::hmac::{HMAC_SHA256, Key, sign};
use std::net::SocketAddr;

/// Longest challenge, in bytes.
pub const CHALLENGE_BYTES_MAX: usize = 128;
/// Bytes of the HMAC that a token is named by.
const NAME_BYTES: usize = 8;

/// What a token with this hash is named by.
pub fn name(hash: &Hash) -> String {
    let tag = sign(&key(hash), b"treadle token name");
    hex(&tag.as_ref()[..NAME_BYTES])
}

/// The proof that the daemon reached at this address knows the token with this hash.
pub fn proof(hash: &Hash, reached_at: SocketAddr, challenge: &str) -> String {
    // A socket for both IPv4 and IPv6 writes addresses of the former as ones of the latter.
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
