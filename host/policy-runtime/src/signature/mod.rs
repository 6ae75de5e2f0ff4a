//! Detached signatures of uploads: who vouches for a policy.
//!
//! A signature is Ed25519 over the text `treadle-policy-sha256:` and the upload's
//! SHA-256 in hexadecimal, so that it can be made and checked with other tools too. It
//! is written as the public key and the signature together (96 bytes), or as the
//! signature alone (64 bytes), in hexadecimal or base64.

mod keys;

use std::fmt;

use ed25519_dalek::{Signature, Signer, SigningKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

pub use keys::{SignedBy, TrustedKeys};

use crate::error::UploadRefusal;
use keys::{bytes_of, hex};

const PUBLIC_BYTES: usize = 32;
const SIGNATURE_BYTES: usize = 64;
/// Longest text of a signature that is looked at.
const TEXT_BYTES_MAX: usize = 512;
/// So that a signature for something else is none for a policy.
const PURPOSE: &str = "treadle-policy-sha256:";

/// Which uploads need a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignaturePolicy {
    /// None; but one that is given must be right.
    #[default]
    UnsignedAllowed,
    /// All.
    SignedOnly,
}

impl SignaturePolicy {
    /// Checks what came with an upload, which has this digest (see
    /// [`upload_digest`]); gives who signed, if it is signed.
    ///
    /// # Errors
    /// `signature-missing`, and what [`TrustedKeys::verify`] refuses.
    pub fn check(
        self,
        keys: &TrustedKeys,
        digest: &str,
        signature: Option<&str>,
    ) -> Result<Option<SignedBy>, UploadRefusal> {
        match (signature, self) {
            (Some(signature), _) => keys.verify(digest, signature).map(Some),
            (None, Self::UnsignedAllowed) => Ok(None),
            (None, Self::SignedOnly) => Err(UploadRefusal::new(
                "signature-missing",
                "the upload is not signed, and unsigned policies are not accepted here",
                "the signature beside the upload",
                "sign the file with a key that is trusted here, and send the signature with it",
            )),
        }
    }
}

/// A key pair cannot be made or read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KeyError {
    /// The machine gives no randomness.
    #[error("the machine gives no random bytes: {0}; try again")]
    Randomness(String),
    /// The text is not a key.
    #[error("{what} is not a key: give 32 bytes in hexadecimal or base64")]
    Malformed {
        /// Which key.
        what: String,
    },
    /// The bytes are not a usable point of the curve.
    #[error("{what} is not a usable Ed25519 key; create a new one")]
    Weak {
        /// Which key.
        what: String,
    },
    /// Too many keys.
    #[error("{found} trusted keys; give at most {max}")]
    TooMany {
        /// How many.
        found: usize,
        /// The bound.
        max: usize,
    },
}

/// The key that signs. Shown and logged as nothing.
#[derive(Clone)]
pub struct SecretKey(SigningKey);

impl SecretKey {
    /// Reads what [`to_text`](Self::to_text) gave.
    ///
    /// # Errors
    /// [`KeyError::Malformed`]; the text is not repeated.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let malformed = || KeyError::Malformed {
            what: "the secret key".to_owned(),
        };
        let bytes = bytes_of(text, &[PUBLIC_BYTES]).ok_or_else(malformed)?;
        let bytes: [u8; 32] = bytes.try_into().map_err(|_| malformed())?;
        Ok(Self(SigningKey::from_bytes(&bytes)))
    }

    /// In hexadecimal, for a file that its owner alone may read.
    pub fn to_text(&self) -> String {
        hex(self.0.as_bytes())
    }

    /// The key that others check with, in hexadecimal.
    pub fn public_key(&self) -> String {
        hex(self.0.verifying_key().as_bytes())
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SecretKey of {}", self.public_key())
    }
}

/// A new key from the randomness of the machine.
///
/// # Errors
/// [`KeyError::Randomness`].
pub fn generate_key() -> Result<SecretKey, KeyError> {
    let mut seed = [0; PUBLIC_BYTES];
    getrandom::fill(&mut seed).map_err(|error| KeyError::Randomness(error.to_string()))?;
    Ok(SecretKey(SigningKey::from_bytes(&seed)))
}

/// Signs an upload by its digest (see [`upload_digest`]): public key and signature in
/// hexadecimal.
pub fn sign(digest: &str, key: &SecretKey) -> String {
    let signature: Signature = key.0.sign(message(digest).as_bytes());
    key.public_key() + &hex(&signature.to_bytes())
}

/// SHA-256 of an upload in hexadecimal: what is signed, and what names it everywhere.
pub fn upload_digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn message(digest: &str) -> String {
    format!("{PURPOSE}{digest}")
}

#[cfg(test)]
mod tests;
