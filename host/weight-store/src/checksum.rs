//! Checksums of tensors, by the algorithms that the format has.

use serde::{Deserialize, Serialize};
use simd_adler32::Adler32;
use std::fmt;
use xxhash_rust::xxh3::Xxh3;

/// An algorithm of checksums.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
pub enum Algorithm {
    /// 128 bits of XXH3: fast, and not meant to withstand an attacker.
    #[default]
    #[serde(rename = "xxh3-128")]
    Xxh3,
    /// BLAKE3.
    #[serde(rename = "blake3")]
    Blake3,
    /// Adler-32.
    #[serde(rename = "adler32")]
    Adler32,
}

/// A checksum.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Digest {
    pub(crate) algorithm: Algorithm,
    /// In hexadecimal digits, as Python writes them.
    pub(crate) hex: Box<str>,
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex)
    }
}

/// Computes a checksum piece by piece.
pub(crate) enum Hasher {
    Xxh3(Box<Xxh3>),
    Blake3(Box<blake3::Hasher>),
    Adler32(Adler32),
}

impl Hasher {
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Xxh3 => Self::Xxh3(Box::default()),
            Algorithm::Blake3 => Self::Blake3(Box::default()),
            Algorithm::Adler32 => Self::Adler32(Adler32::new()),
        }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Xxh3(hasher) => hasher.update(bytes),
            Self::Blake3(hasher) => {
                hasher.update(bytes);
            }
            Self::Adler32(hasher) => hasher.write(bytes),
        }
    }

    pub(crate) fn finish(self) -> Digest {
        let (algorithm, hex) = match self {
            Self::Xxh3(hasher) => (Algorithm::Xxh3, format!("{:032x}", hasher.digest128())),
            Self::Blake3(hasher) => (Algorithm::Blake3, hasher.finalize().to_hex().to_string()),
            Self::Adler32(hasher) => (Algorithm::Adler32, format!("{:08x}", hasher.finish())),
        };
        Digest {
            algorithm,
            hex: hex.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_peers() {
        // xxhash.xxh3_128(b"abc"), blake3.blake3(b"abc") and zlib.adler32(b"abc") of Python.
        let vectors = [
            (Algorithm::Xxh3, "06b05ab6733a618578af5f94892f3950"),
            (
                Algorithm::Blake3,
                "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85",
            ),
            (Algorithm::Adler32, "024d0127"),
        ];
        for (algorithm, hex) in vectors {
            let mut hasher = Hasher::new(algorithm);
            hasher.update(b"a");
            hasher.update(b"bc");
            assert_eq!(&*hasher.finish().hex, hex);
        }
    }
}
