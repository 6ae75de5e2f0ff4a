//! The key of the hashes of prompts. It is secret, so that nobody can make up two prompts with one
//! hash and have their programs, or what they share, taken for each other.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

static KEY: OnceLock<u64> = OnceLock::new();

/// Hashes with this key from now on, as other processes do that hash for the same scheduler.
/// Nothing changes if something was hashed before: a process has one key.
pub fn share_hash_key(key: u64) {
    // The first call decides.
    let _ = KEY.set(key);
}

/// A constant of this crate under the process' key.
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
