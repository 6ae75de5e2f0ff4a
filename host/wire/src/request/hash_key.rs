//! The key of the hashes of prompts. It is secret, so that nobody can construct colliding prompts
//! to confuse programs or shared prefixes.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

static KEY: OnceLock<u64> = OnceLock::new();

/// Sets the key, as in other processes with the same scheduler. Has no effect once something was
/// hashed: a process has one key.
pub fn share_hash_key(key: u64) {
    // The first call decides.
    let _ = KEY.set(key);
}

/// A constant of this crate, combined with the process's key.
pub(super) fn keyed(constant: u64) -> u64 {
    constant ^ KEY.get_or_init(|| RandomState::new().hash_one(constant))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_have_a_key_that_stays() {
        let key = keyed(0);
        assert_ne!(key, 0, "it is random");
        assert_eq!(keyed(5), key ^ 5);
        share_hash_key(!key);
        assert_eq!(
            keyed(0),
            key,
            "hashes with another key would match none of these"
        );
    }
}
