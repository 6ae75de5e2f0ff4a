//! The files that projects are created from: the SDKs, their templates, the contract.

/// Paths relative to the repository's root, and the files' content.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/sdk_files.rs"));

/// A file's content; empty if there is no such file, which a test excludes.
pub(super) fn text(path: &str) -> &'static str {
    let file = FILES.iter().find(|(name, _)| *name == path);
    file.map_or("", |(_, text)| text)
}

/// Files below a folder: their paths relative to it, and their content.
pub(super) fn below(folder: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    FILES.iter().filter_map(move |(path, text)| {
        let path = path.strip_prefix(folder)?.strip_prefix('/')?;
        Some((path, *text))
    })
}
