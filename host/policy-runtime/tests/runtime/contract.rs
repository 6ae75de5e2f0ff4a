//! The contract's text changes only on purpose, and an upload has its version.

use std::path::PathBuf;

use treadle_policy_runtime::upload_digest;

use crate::fixture::{WIT, engine, policy, policy_of};

#[test]
fn the_text_is_the_one_that_its_digest_stands_for() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../wit/digest.txt");
    let text: Vec<&str> = WIT
        .iter()
        .flat_map(|(name, text)| [*name, "\n", text])
        .collect();
    let text = text.concat();
    let digest = format!("{}\n", upload_digest(text.as_bytes()));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &digest).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        digest,
        "the contract has changed: every policy must be built again. If that is meant, run this \
         test with UPDATE_DOCS=1"
    );
}

#[test]
fn an_upload_of_another_version_is_refused_with_both_versions() {
    let wat = |version: &str| {
        let edit = |text: &str| text.replace("@1.0.0", &format!("@{version}"));
        policy_of("", edit)
    };
    assert!(engine().inspect(&wat("1.0.0")).is_ok());
    // The module's own names are of 1.0.0, its WIT is of another version.
    for version in ["1.1.0", "0.9.0", "2.0.0"] {
        let refusal = engine().inspect(&wat(version)).unwrap_err();
        assert_eq!(refusal.code, "unknown-version", "{refusal}");
        assert!(
            refusal.what.contains(&format!("treadle:policy@{version}")),
            "{refusal}"
        );
        assert!(refusal.remedy.contains("1.0.0"), "{refusal}");
    }
}

#[test]
fn one_interface_of_another_version_is_enough() {
    let mut upload = policy("");
    let name = b"treadle:policy/host@1.0.0";
    let last = upload.windows(name.len()).rposition(|at| at == name);
    upload[last.expect("the embedded WIT names it") + name.len() - 1] = b'1';
    assert_eq!(
        engine().inspect(&upload).unwrap_err().code,
        "unknown-version"
    );
}
