//! Signatures of web tokens, checked by `ring`.
//!
//! `jsonwebtoken` leaves the arithmetic to an installed provider. Public keys only: nothing here
//! signs, and secrets shared with the provider (HS256 and the like) are not accepted.

#![allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "jsonwebtoken asks for functions of this shape"
)]

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::signature as schemes;
use ring::signature::{
    RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: no_signer,
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Installs this as the process's provider of signature checks.
pub(super) fn install() {
    // A second call finds the same provider installed.
    let _ = PROVIDER.install_default();
}

fn no_signer(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    Err(ErrorKind::InvalidAlgorithm.into())
}

enum Scheme {
    Rsa(&'static RsaParameters),
    Bytes(&'static dyn VerificationAlgorithm),
}

fn scheme(algorithm: Algorithm) -> Option<Scheme> {
    Some(match algorithm {
        Algorithm::RS256 => Scheme::Rsa(&schemes::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Scheme::Rsa(&schemes::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Scheme::Rsa(&schemes::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Scheme::Rsa(&schemes::RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Scheme::Rsa(&schemes::RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Scheme::Rsa(&schemes::RSA_PSS_2048_8192_SHA512),
        Algorithm::ES256 => Scheme::Bytes(&schemes::ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => Scheme::Bytes(&schemes::ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => Scheme::Bytes(&schemes::ED25519),
        _ => return None,
    })
}

struct Check {
    algorithm: Algorithm,
    scheme: Scheme,
    key: DecodingKeyKind,
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    let scheme = scheme(*algorithm).ok_or(ErrorKind::InvalidAlgorithm)?;
    Ok(Box::new(Check {
        algorithm: *algorithm,
        scheme,
        key: key.kind().clone(),
    }))
}

impl Verifier<Vec<u8>> for Check {
    fn verify(&self, message: &[u8], signed: &Vec<u8>) -> Result<(), signature::Error> {
        let checked = match (&self.scheme, &self.key) {
            (Scheme::Rsa(parameters), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                let start = n.iter().position(|byte| *byte != 0).unwrap_or(n.len());
                let key = RsaPublicKeyComponents { n: &n[start..], e };
                key.verify(parameters, message, signed)
            }
            (Scheme::Bytes(algorithm), DecodingKeyKind::SecretOrDer(key)) => {
                UnparsedPublicKey::new(*algorithm, key).verify(message, signed)
            }
            _ => return Err(signature::Error::new()),
        };
        checked.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for Check {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
