//! Detached signatures of uploads.
//!
//! A signature is Ed25519 over the text `treadle-policy-sha256:` and the upload's SHA-256 in
//! hexadecimal, so that other tools can create and check it too. It is written as the public key
//! and the signature together (96 bytes), or as only the signature (64 bytes), in hexadecimal or
//! base64.

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
/// Maximum length of a signature's text.
const TEXT_BYTES_MAX: usize = 512;
/// Prefix of the signed text, so that a signature for another purpose is not valid for a policy.
const PURPOSE: &str = "treadle-policy-sha256:";

/// Which uploads need a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignaturePolicy {
    /// None; but a given signature must be valid.
    #[default]
    UnsignedAllowed,
    /// All.
    SignedOnly,
}

impl SignaturePolicy {
    /// Checks the signature of an upload with this digest (see [`upload_digest`]); returns the
    /// signer, if it is signed.
    ///
    /// # Errors
    /// `signature-missing`, and the refusals of [`TrustedKeys::verify`].
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

/// A key pair cannot be created or read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KeyError {
    /// The machine has no source of randomness.
    #[error("no random bytes from the system: {0}; try again")]
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
        /// Number of keys.
        found: usize,
        /// The limit.
        max: usize,
    },
}

/// The signing key, which is never shown or logged.
#[derive(Clone)]
pub struct SecretKey(SigningKey);

impl SecretKey {
    /// Parses the output of [`to_text`](Self::to_text).
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

    /// The key in hexadecimal, for a file that only its owner may read.
    pub fn to_text(&self) -> String {
        hex(self.0.as_bytes())
    }

    /// The public key for verification, in hexadecimal.
    pub fn public_key(&self) -> String {
        hex(self.0.verifying_key().as_bytes())
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SecretKey of {}", self.public_key())
    }
}

/// Creates a key from the machine's randomness.
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

/// SHA-256 of an upload in hexadecimal: the signed digest, and the upload's id everywhere.
pub fn upload_digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn message(digest: &str) -> String {
    format!("{PURPOSE}{digest}")
}

#[cfg(test)]
mod tests;
