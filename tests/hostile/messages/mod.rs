//! Parsers of untrusted input, each with its invariants. They are tried with damaged inputs, and
//! with every input that broke one of them before.
//!
//! `corpus/<target>/` has messages that were recorded between real programs, and those inputs.

mod frames;
mod link;
mod pages;
mod request;
mod sse;
mod usage;

use std::path::{Path, PathBuf};

/// A parser and its invariants.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and that of its folder of the corpus.
    pub name: &'static str,
    /// Words of its format that mutations insert into inputs.
    pub words: &'static [&'static [u8]],
    /// Checks the invariants for any input.
    ///
    /// # Errors
    /// A description of the violated invariant.
    pub check: fn(&[u8]) -> Result<(), String>,
    /// Whether an input is valid: most of a corpus has to be, or mutations of it test little.
    pub accepts: fn(&[u8]) -> bool,
}

/// All parsers.
pub const TARGETS: &[Target] = &[
    sse::TARGET,
    usage::TARGET,
    request::TARGET,
    pages::TARGET,
    link::TARGET,
    frames::TARGET,
];

impl Target {
    /// The parser with this name.
    pub fn of(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }

    /// Where its corpus is.
    pub fn folder(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("corpus")
            .join(self.name)
    }

    /// Its corpus, in the order of the files' names, with them.
    ///
    /// # Errors
    /// If the folder can't be read.
    pub fn corpus(&self) -> std::io::Result<Vec<(String, Vec<u8>)>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(self.folder())? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            files.push((name.into_owned(), std::fs::read(&path)?));
        }
        files.sort();
        Ok(files)
    }
}

/// Fails with the expectation unless it holds.
fn ensure(is_so: bool, expected: impl FnOnce() -> String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(expected()) }
}

/// A few places at which to cut an input of `bytes` bytes: some near the start, where formats have
/// their headers, the others spread.
fn cuts(bytes: usize) -> impl Iterator<Item = usize> {
    let near = 0..bytes.min(24);
    let spread = (1..24).map(move |part| bytes * part / 24);
    near.chain(spread)
}

/// The pieces between the places, the first and the last included.
fn pieces<'b>(bytes: &'b [u8], places: &[usize]) -> Vec<&'b [u8]> {
    let mut from = 0;
    let mut pieces = Vec::new();
    for place in places.iter().copied().chain([bytes.len()]) {
        let place = place.clamp(from, bytes.len());
        pieces.push(&bytes[from..place]);
        from = place;
    }
    pieces
}
