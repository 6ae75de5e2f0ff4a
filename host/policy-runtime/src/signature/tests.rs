//! Valid signatures, and every kind of invalid one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;

use super::*;

fn secret(seed: u8) -> SecretKey {
    SecretKey(SigningKey::from_bytes(&[seed; 32]))
}

fn trusting(secrets: &[&SecretKey]) -> TrustedKeys {
    let keys: Vec<_> = secrets
        .iter()
        .enumerate()
        .map(|(index, secret)| (format!("team-{index}"), secret.public_key()))
        .collect();
    let keys = keys.iter().map(|(name, key)| (name.as_str(), key.as_str()));
    TrustedKeys::new(keys).unwrap()
}

fn code(keys: &TrustedKeys, digest: &str, signature: &str) -> &'static str {
    keys.verify(digest, signature).unwrap_err().code
}

#[test]
fn a_valid_signature_names_the_signer() {
    let digest = upload_digest(b"upload");
    let keys = trusting(&[&secret(1), &secret(2)]);
    let signature = sign(&digest, &secret(2));
    let both = bytes_of(&signature, &[96]).unwrap();
    for text in [
        signature.clone(),
        signature.to_uppercase(),
        format!("{signature}\n"),
        hex(&both[32..]),
        STANDARD.encode(&both),
        STANDARD.encode(&both[32..]),
    ] {
        let signed_by = keys.verify(&digest, &text).unwrap();
        assert_eq!(signed_by.name, "team-1", "{text}");
        assert_eq!(signed_by.public_key, secret(2).public_key());
    }
}

#[test]
fn invalid_signatures_are_distinguished() {
    let digest = upload_digest(b"upload");
    let keys = trusting(&[&secret(1)]);
    let signature = sign(&digest, &secret(1));
    assert_eq!(
        code(&keys, &upload_digest(b"other"), &signature),
        "signature-mismatch"
    );
    let stranger = sign(&digest, &secret(9));
    assert_eq!(code(&keys, &digest, &stranger), "signature-unknown-key");
    // Without its key, the signer is unknown.
    assert_eq!(code(&keys, &digest, &stranger[64..]), "signature-mismatch");
    // A trusted key, claimed for another's signature.
    let claimed = secret(1).public_key() + &stranger[64..];
    assert_eq!(code(&keys, &digest, &claimed), "signature-mismatch");
    let none = TrustedKeys::default();
    assert_eq!(code(&none, &digest, &signature), "signature-unknown-key");
    assert_eq!(
        code(&none, &digest, &signature[64..]),
        "signature-unknown-key"
    );
    for malformed in ["", "ff", "not a signature", &"f".repeat(100_000)] {
        assert_eq!(code(&keys, &digest, malformed), "signature-malformed");
    }
}

#[test]
fn the_signature_policy_decides_what_may_be_missing() {
    let digest = upload_digest(b"upload");
    let keys = trusting(&[&secret(1)]);
    let (allowed, only) = (
        SignaturePolicy::UnsignedAllowed,
        SignaturePolicy::SignedOnly,
    );
    assert_eq!(allowed.check(&keys, &digest, None), Ok(None));
    let refusal = only.check(&keys, &digest, None).unwrap_err();
    assert_eq!(refusal.code, "signature-missing");
    let right = sign(&digest, &secret(1));
    let wrong = sign(&upload_digest(b"other"), &secret(1));
    for policy in [allowed, only] {
        assert!(
            policy
                .check(&keys, &digest, Some(&right))
                .unwrap()
                .is_some()
        );
        let refusal = policy.check(&keys, &digest, Some(&wrong)).unwrap_err();
        assert_eq!(refusal.code, "signature-mismatch");
    }
}

#[test]
fn keys_are_new_readable_and_secret() {
    let (one, other) = (generate_key().unwrap(), generate_key().unwrap());
    assert_ne!(one.to_text(), other.to_text());
    let read = SecretKey::parse(&one.to_text()).unwrap();
    assert_eq!(read.public_key(), one.public_key());
    assert!(!format!("{one:?}").contains(&one.to_text()));
    let error = SecretKey::parse("0123456789").unwrap_err();
    assert!(!error.to_string().contains("0123456789"), "{error}");
}

#[test]
fn unusable_keys_are_named() {
    let of = |key: &str| TrustedKeys::new([("ci", key)]).err().unwrap().to_string();
    assert!(of("abc").contains("\"ci\""));
    // The neutral element, with which anyone can sign anything.
    let neutral = format!("01{}", "00".repeat(31));
    assert!(of(&neutral).contains("usable"));
    let key = secret(1).public_key();
    let many = vec![("ci", key.as_str()); TrustedKeys::KEYS_MAX + 1];
    assert!(matches!(
        TrustedKeys::new(many),
        Err(KeyError::TooMany { .. })
    ));
}

#[test]
fn the_digest_is_sha256_in_hexadecimal() {
    assert_eq!(
        upload_digest(b"abc"),
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
}

/// An OpenSSL signature of the documented text, so that signatures made elsewhere stay valid.
#[test]
fn openssl_signs_alike() {
    let public = "8a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c";
    let signature = concat!(
        "7a6905974ca4a6266babd7ed93131e639714789c574d4c541ad4e4d61e40e667",
        "13c1370b2b356dcc832be8f1f069ae83d7fc9cbaa4bb339d446c5c62a4c99d08",
    );
    let digest = upload_digest(b"abc");
    assert_eq!(sign(&digest, &secret(1)), format!("{public}{signature}"));
    let keys = TrustedKeys::new([("ci", public)]).unwrap();
    assert_eq!(keys.verify(&digest, signature).unwrap().name, "ci");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_changed_bit_is_found(at in 0_usize..96 * 8, upload in prop::collection::vec(any::<u8>(), 0..64)) {
        let digest = upload_digest(&upload);
        let keys = trusting(&[&secret(1)]);
        let mut bytes = bytes_of(&sign(&digest, &secret(1)), &[96]).unwrap();
        bytes[at / 8] ^= 1 << (at % 8);
        prop_assert!(keys.verify(&digest, &hex(&bytes)).is_err());
    }

    #[test]
    fn no_text_makes_it_panic(text in any::<String>()) {
        prop_assert!(trusting(&[&secret(1)]).verify("00", &text).is_err());
    }
}
