//! The code blocks of the documentation: which are commands, and marks of those that no test runs.
//! A mark is a comment in the line above a block:
//!
//! - `<!-- not run: REASON -->` with one of [`REASONS`];
//! - `<!-- needs: WHAT -->` with one of [`NEEDS`], which the tests have unless they are told to do
//!   without;
//! - `<!-- way: NAME -->` with one of [`WAYS`] before each of several blocks that do the same: a reader
//!   follows one;
//! - `<!-- file: NAME -->` before the content of a file that the commands below it read.

use std::path::{Path, PathBuf};

/// Why no test runs a block.
pub const REASONS: [(&str, &str); 5] = [
    ("gpu", "it takes a GPU, or a model and its engine"),
    ("machine", "it takes other machines"),
    ("network", "it downloads or builds much"),
    (
        "minutes",
        "it runs for minutes; what it runs has tests of its own",
    ),
    (
        "yours",
        "it names what a reader would have: a policy, a trace, a key",
    ),
];
/// What some blocks need.
pub const NEEDS: [(&str, &str); 3] = [
    ("services", "PostgreSQL and sqlite3"),
    ("packages", "packages that pip or npm installs"),
    ("agents", "Codex and Claude Code"),
];
/// Names of ways. `tests/e2e/guides.rs` follows each.
pub const WAYS: [&str; 3] = ["rust", "python", "typescript"];
/// Languages of blocks of shell commands; no language means the same.
const SHELLS: [&str; 3] = ["", "sh", "bash"];
/// Languages of blocks that are not shell commands.
const OTHERS: [&str; 9] = [
    "text", "json", "toml", "yaml", "python", "rust", "ts", "sql", "wit",
];

/// The mark of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark<'p> {
    /// No test runs it, for this reason.
    NotRun(&'p str),
    /// It is run if the tests have this.
    Needs(&'p str),
    /// It is one of several ways to do the same.
    Way(&'p str),
    /// It is the content of this file.
    File(&'p str),
}

/// A block between fences.
#[derive(Clone, Debug)]
pub struct Block<'p> {
    /// The line of its first fence, from 1.
    pub line: usize,
    /// Its language, or nothing.
    pub language: &'p str,
    /// Its mark.
    pub mark: Option<Mark<'p>>,
    /// Its text.
    pub text: String,
}

impl Block<'_> {
    /// Whether a shell reads it.
    pub fn is_commands(&self) -> bool {
        SHELLS.contains(&self.language) && !matches!(self.mark, Some(Mark::File(_)))
    }

    /// A violation of the rules for blocks.
    pub fn complaint(&self) -> Option<String> {
        let is_known = SHELLS.contains(&self.language) || OTHERS.contains(&self.language);
        if !is_known {
            return Some(format!("`{}` is no language of a block", self.language));
        }
        match self.mark {
            Some(Mark::NotRun(why)) if REASONS.iter().all(|(name, _)| *name != why) => {
                Some(format!("`{why}` is no reason; the reasons are {REASONS:?}"))
            }
            Some(Mark::Needs(what)) if NEEDS.iter().all(|(name, _)| *name != what) => {
                Some(format!("`{what}` is not among the needs: {NEEDS:?}"))
            }
            Some(Mark::Way(way)) if !WAYS.contains(&way) => {
                Some(format!("`{way}` is not among the ways: {WAYS:?}"))
            }
            Some(Mark::NotRun(_) | Mark::Needs(_) | Mark::Way(_)) if !self.is_commands() => {
                Some("only commands have such a mark".to_owned())
            }
            _ => None,
        }
    }
}

/// The blocks of a page.
pub fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut found: Vec<Block<'_>> = Vec::new();
    let mut is_open = false;
    let mut before = "";
    for (number, line) in page.lines().enumerate() {
        match line.trim_start().strip_prefix("```") {
            Some(_) if is_open => is_open = false,
            Some(language) => {
                is_open = true;
                found.push(Block {
                    line: number + 1,
                    language: language.trim(),
                    mark: mark(before),
                    text: String::new(),
                });
            }
            None if is_open => {
                let block = found.last_mut().expect("a block that is open");
                block.text.push_str(line);
                block.text.push('\n');
            }
            None => {}
        }
        before = line;
    }
    found
}

fn mark(line: &str) -> Option<Mark<'_>> {
    let inner = line.trim().strip_prefix("<!--")?.strip_suffix("-->")?;
    let (what, value) = inner.split_once(':')?;
    match what.trim() {
        "not run" => Some(Mark::NotRun(value.trim())),
        "needs" => Some(Mark::Needs(value.trim())),
        "way" => Some(Mark::Way(value.trim())),
        "file" => Some(Mark::File(value.trim())),
        _ => None,
    }
}

/// All pages: those at the top of the repository, and those of docs/.
pub fn pages(root: &Path) -> Vec<PathBuf> {
    let mut found = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(folder).expect("a folder");
        for entry in entries {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Pages whose commands are run from top to bottom (`tests/e2e/guides.rs`,
/// `tests/e2e/sandboxes/guides.rs`). On every other page each block is marked as not run.
pub const FOLLOWED: [&str; 11] = [
    "README.md",
    "docs/quickstart.md",
    "docs/actions.md",
    "docs/what-if.md",
    "docs/rollouts.md",
    "docs/sandboxes.md",
    "docs/training.md",
    "docs/guides/connect.md",
    "docs/guides/operate.md",
    "docs/guides/sandbox-clients.md",
    "docs/guides/write-a-policy.md",
];
