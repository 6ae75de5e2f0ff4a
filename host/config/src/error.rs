//! Errors of the configuration.

use std::path::PathBuf;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The configuration file.
    File(PathBuf),
    /// An environment variable.
    Environment(String),
    /// An argument of the command line.
    Set,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::Set => write!(f, "--set"),
        }
    }
}

/// Errors of [`super::Config::load`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file could not be read.
    #[error("can't read the configuration {path}: {source}; check the path and its permissions")]
    Read {
        /// Its path.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("the configuration {path} is not TOML: {source}")]
    Syntax {
        /// Its path.
        path: PathBuf,
        /// The parser's error, with its position.
        source: Box<toml::de::Error>,
    },
    /// An argument that is not `section.key=value`.
    #[error("--set {text}: write section.key=value, for example --set server.listen=0.0.0.0:8300")]
    NotAnAssignment {
        /// The argument.
        text: String,
    },
    /// An unknown key.
    #[error("{origin}: there is no key `{key}`; {}", suggestion(nearest.as_deref()))]
    UnknownKey {
        /// Where it was written.
        origin: Origin,
        /// The key.
        key: String,
        /// The most similar key, if one is similar enough.
        nearest: Option<String>,
    },
    /// A fixed limit, which is not a key.
    #[error("{origin}: there is no key `{key}`; the value is fixed, leave it out")]
    Fixed {
        /// Where it was written.
        origin: Origin,
        /// The name that was written as a key.
        key: String,
    },
    /// A value of the wrong form.
    #[error("{origin}: `{key}` is {value}; write {expected}")]
    WrongForm {
        /// Where it was written.
        origin: Origin,
        /// The key.
        key: String,
        /// What was written.
        value: String,
        /// What to write.
        expected: String,
    },
    /// A number out of its bounds.
    #[error(
        "{origin}: `{key}` is {value}; write a value from {least} to {greatest}{}",
        unit_after(unit)
    )]
    OutOfBounds {
        /// Where it was written.
        origin: Origin,
        /// The key.
        key: String,
        /// What was written.
        value: String,
        /// Least value.
        least: f64,
        /// Greatest value.
        greatest: f64,
        /// Unit of all three; empty without a unit.
        unit: &'static str,
    },
    /// A value that is invalid, or conflicts with another value.
    #[error("`{key}` {problem}; {remedy}")]
    Conflict {
        /// The key to change.
        key: String,
        /// What is wrong with it.
        problem: String,
        /// What to do about it.
        remedy: String,
    },
}

fn suggestion(nearest: Option<&str>) -> String {
    match nearest {
        Some(key) => format!("did you mean `{key}`?"),
        None => "docs/configuration.md lists all keys".to_owned(),
    }
}

fn unit_after(unit: &str) -> String {
    if unit.is_empty() {
        String::new()
    } else {
        format!(" {unit}")
    }
}
