//! Trusted keys, and the check of signatures against them.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use ed25519_dalek::{Signature, VerifyingKey};
use serde::Serialize;

use super::{KeyError, PUBLIC_BYTES, SIGNATURE_BYTES, TEXT_BYTES_MAX, message};
use crate::error::UploadRefusal;
use crate::guarded::cut;

const PLACE: &str = "the signature beside the upload";

/// The signer of an upload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SignedBy {
    /// The name under which the key is trusted.
    pub name: String,
    /// The key, in hexadecimal.
    pub public_key: String,
}

struct TrustedKey {
    name: String,
    key: VerifyingKey,
}

/// Keys whose signatures are accepted, by name.
#[derive(Default)]
pub struct TrustedKeys {
    keys: Vec<TrustedKey>,
}

impl TrustedKeys {
    /// Maximum number of keys.
    pub const KEYS_MAX: usize = 64;

    /// Creates the set from names and keys; each key is 32 bytes in hexadecimal or base64.
    ///
    /// # Errors
    /// An invalid or weak key, or too many keys.
    pub fn new<'k>(keys: impl IntoIterator<Item = (&'k str, &'k str)>) -> Result<Self, KeyError> {
        let mut trusted = Vec::new();
        for (name, text) in keys {
            let what = format!("trusted key {:?}", cut(name.to_owned(), 64));
            let bytes: Option<[u8; PUBLIC_BYTES]> =
                bytes_of(text, &[PUBLIC_BYTES]).and_then(|bytes| bytes.try_into().ok());
            let Some(bytes) = bytes else {
                return Err(KeyError::Malformed { what });
            };
            let key = VerifyingKey::from_bytes(&bytes)
                .ok()
                .filter(|key| !key.is_weak());
            trusted.push(TrustedKey {
                name: name.to_owned(),
                key: key.ok_or(KeyError::Weak { what })?,
            });
        }
        let (found, max) = (trusted.len(), Self::KEYS_MAX);
        if found > max {
            return Err(KeyError::TooMany { found, max });
        }
        Ok(Self { keys: trusted })
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Checks a signature of an upload with this digest.
    ///
    /// # Errors
    /// `signature-malformed`, `signature-unknown-key`, or `signature-mismatch`.
    pub fn verify(&self, digest: &str, signature: &str) -> Result<SignedBy, UploadRefusal> {
        let with_key = PUBLIC_BYTES + SIGNATURE_BYTES;
        let bytes = bytes_of(signature, &[with_key, SIGNATURE_BYTES]).ok_or_else(malformed)?;
        let (public, signature) = bytes.split_at(bytes.len() - SIGNATURE_BYTES);
        let signature = Signature::from_slice(signature).map_err(|_| malformed())?;
        let signed = message(digest);
        let is_meant = |trusted: &&TrustedKey| {
            public.is_empty() || trusted.key.as_bytes().as_slice() == public
        };
        let mut meant = self.keys.iter().filter(is_meant).peekable();
        if meant.peek().is_none() {
            return Err(unknown_key(public));
        }
        let is_right = |trusted: &&TrustedKey| {
            let verified = trusted.key.verify_strict(signed.as_bytes(), &signature);
            verified.is_ok()
        };
        match meant.find(is_right) {
            Some(trusted) => Ok(SignedBy {
                name: trusted.name.clone(),
                public_key: hex(trusted.key.as_bytes()),
            }),
            None => Err(mismatch(digest)),
        }
    }
}

fn malformed() -> UploadRefusal {
    UploadRefusal::new(
        "signature-malformed",
        "the signature is neither 96 nor 64 bytes in hexadecimal or base64",
        PLACE,
        "send what signing the file gave, unchanged",
    )
}

fn unknown_key(public: &[u8]) -> UploadRefusal {
    let what = if public.is_empty() {
        "the upload is signed, but no key is trusted here".to_owned()
    } else {
        format!(
            "signed with the key {}, which is not trusted here",
            hex(public)
        )
    };
    let remedy = "sign with a trusted key, or have the operator trust this one";
    UploadRefusal::new("signature-unknown-key", what, PLACE, remedy)
}

fn mismatch(digest: &str) -> UploadRefusal {
    UploadRefusal::new(
        "signature-mismatch",
        format!("the signature is not for the upload with the SHA-256 {digest}"),
        PLACE,
        "sign the very file that is sent: every build, strip or conversion changes it",
    )
}

/// Decodes bytes in hexadecimal or base64 that have one of these lengths.
pub(super) fn bytes_of(text: &str, lengths: &[usize]) -> Option<Vec<u8>> {
    let text = text.trim();
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    // No length of keys and signatures in one encoding is a valid length in the other.
    let base64 = || {
        [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD]
            .iter()
            .find_map(|writing| writing.decode(text).ok())
    };
    let fits = |bytes: &Vec<u8>| lengths.contains(&bytes.len());
    unhex(text).filter(fits).or_else(|| base64().filter(fits))
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    if !text.len().is_multiple_of(2) {
        return None;
    }
    let pairs = text.as_bytes().chunks_exact(2);
    pairs
        .map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?))
        .collect()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    let mut hex = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}
