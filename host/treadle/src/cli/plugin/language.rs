//! The languages that policies are written in.

use std::fmt;
use std::path::Path;

use clap::ValueEnum;
use serde::Serialize;

/// A language with an SDK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Language {
    /// Smallest and fastest; needs cargo.
    Rust,
    /// Needs componentize-py.
    Python,
    /// Needs Node.
    Typescript,
}

impl Language {
    /// All languages.
    pub(super) const ALL: [Self; 3] = [Self::Rust, Self::Python, Self::Typescript];

    /// The file that identifies a project of this language.
    pub(super) const fn manifest(self) -> &'static str {
        match self {
            Self::Rust => "Cargo.toml",
            Self::Python => "pyproject.toml",
            Self::Typescript => "package.json",
        }
    }

    /// The language of the project in a folder, if there is one.
    pub(super) fn of(folder: &Path) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|language| folder.join(language.manifest()).is_file())
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rust => "Rust",
            Self::Python => "Python",
            Self::Typescript => "TypeScript",
        })
    }
}
