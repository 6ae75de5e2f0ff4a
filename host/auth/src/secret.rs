//! Secrets of tokens: created here, shown once, and stored only as hashes.
//!
//! A secret is looked up by its SHA-256, so that timing reveals nothing about existing secrets.

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use std::fmt::Write;

/// Prefix of every secret.
pub const SECRET_START: &str = "tr_";
/// Random bytes in a secret.
const SECRET_BYTES: usize = 32;
/// Random bytes in the id of a token.
const ID_BYTES: usize = 8;

/// The operating system provides no random numbers.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the operating system provides no random numbers; no token can be created")]
pub struct NoRandomness;

/// SHA-256 of a secret.
pub type Hash = [u8; 32];

/// A new secret: `tr_` and 64 hexadecimal digits.
pub fn new_secret() -> Result<String, NoRandomness> {
    Ok(format!("{SECRET_START}{}", random_hex::<SECRET_BYTES>()?))
}

/// A new id of a token.
pub fn new_id() -> Result<String, NoRandomness> {
    random_hex::<ID_BYTES>()
}

/// Newly generated random characters.
pub fn new_challenge() -> Result<String, NoRandomness> {
    random_hex::<SECRET_BYTES>()
}

/// Whether a text holds a secret, in whatever form.
pub fn is_held_in(text: &[u8]) -> bool {
    let start = SECRET_START.len();
    text.windows(start + 2 * SECRET_BYTES).any(|part| {
        part[..start].eq_ignore_ascii_case(SECRET_START.as_bytes())
            && part[start..].iter().all(u8::is_ascii_hexdigit)
    })
}

fn random_hex<const N: usize>() -> Result<String, NoRandomness> {
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| NoRandomness)?;
    Ok(hex(&bytes))
}

/// Bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The hash of a secret.
pub fn hash(secret: &str) -> Hash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, secret.as_bytes()).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_differ_and_have_their_form() {
        let (one, two) = (new_secret().unwrap(), new_secret().unwrap());
        assert_ne!(one, two);
        assert_eq!(one.len(), 67);
        assert!(one.starts_with("tr_"));
        let within = format!("x {} y", two.to_uppercase());
        for held in [&one, &within] {
            assert!(is_held_in(held.as_bytes()), "{held}");
        }
        for other in ["", "tr_1", &one[1..], &one[..66]] {
            assert!(!is_held_in(other.as_bytes()), "{other}");
        }
        assert_ne!(hash(&one), hash(&two));
        assert_eq!(hash("abc")[..4], [0xba, 0x78, 0x16, 0xbf]);
    }
}
