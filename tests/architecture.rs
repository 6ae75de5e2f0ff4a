//! Checks that the repository has the shape that `STYLE.md` and `ARCHITECTURE.md` describe. Each
//! check lists all that offends.

#[path = "architecture/circles.rs"]
mod circles;
#[path = "architecture/code.rs"]
mod code;
#[path = "architecture/contract.rs"]
mod contract;
#[path = "architecture/dependencies.rs"]
mod dependencies;
#[path = "architecture/docs.rs"]
mod docs;
#[path = "architecture/doors.rs"]
mod doors;
#[path = "architecture/files.rs"]
mod files;
#[path = "architecture/licences.rs"]
mod licences;
#[path = "architecture/tree.rs"]
mod tree;
#[path = "architecture/words.rs"]
mod words;

/// Fails with a list unless it is empty.
fn none(rule: &str, offenders: &[String]) {
    assert!(
        offenders.is_empty(),
        "{rule}:\n  {}\n",
        offenders.join("\n  ")
    );
}
