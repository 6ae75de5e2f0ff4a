//! Refused uploads have the right code and a readable text.

use treadle_hostile::{Outcome, POLICIES, build};
use treadle_policy_runtime::{
    Limits, PolicyEngine, SignaturePolicy, TrustedKeys, generate_key, sign, upload_digest,
};

use crate::process::memory_peak_bytes;

/// One engine for all uploads, because an upload must leave no state.
#[test]
fn each_is_refused_with_what_where_and_how_to_mend() {
    let engine = PolicyEngine::new(Limits {
        background_deadline_ms: 1_000,
        ..Limits::default()
    })
    .unwrap();
    let before = memory_peak_bytes();
    // A bomb is for a child; see the tests of compiling.
    let refused = POLICIES
        .iter()
        .filter(|policy| policy.name != "compile-bomb");
    let mut wrong = Vec::new();
    for policy in refused {
        let Outcome::Refused(codes) = policy.comes_of_it else {
            continue;
        };
        match engine.inspect(&build(policy.name)) {
            Ok(_) => wrong.push(format!("{} is accepted", policy.name)),
            Err(refusal) => {
                if !codes.contains(&refusal.code) {
                    wrong.push(format!("{}: {refusal}", policy.name));
                }
                for text in [&refusal.what, &refusal.place, &refusal.remedy] {
                    assert!(!text.is_empty() && text.len() < 8_192, "{refusal:?}");
                }
            }
        }
        assert!(
            engine.inspect(&build("tame")).is_ok(),
            "after {}",
            policy.name
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let grown = memory_peak_bytes() - before;
    assert!(grown < 256 << 20, "grown by {grown} bytes");
}

#[test]
fn a_signature_for_another_file_is_refused() {
    let key = generate_key().unwrap();
    let public = key.public_key();
    let keys = TrustedKeys::new([("ci", public.as_str())]).unwrap();
    let (signed, sent) = (build("tame"), build("trap"));
    let signature = sign(&upload_digest(&signed), &key);
    let check = |upload: &[u8], signature| {
        SignaturePolicy::SignedOnly.check(&keys, &upload_digest(upload), signature)
    };
    assert_eq!(
        check(&signed, Some(&signature)).unwrap().unwrap().name,
        "ci"
    );
    let refusal = check(&sent, Some(&signature)).unwrap_err();
    assert_eq!(refusal.code, "signature-mismatch");
    assert_eq!(check(&sent, None).unwrap_err().code, "signature-missing");
    let stranger = sign(&upload_digest(&sent), &generate_key().unwrap());
    let refusal = check(&sent, Some(&stranger)).unwrap_err();
    assert_eq!(refusal.code, "signature-unknown-key");
}
