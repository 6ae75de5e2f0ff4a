//! Names that come from outside: of programs, jobs, actions, tools and requests.

use crate::StepId;
use serde::Serialize;
use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

/// Longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 512;
/// Longest name of a class of hardware, in bytes.
pub const CLASS_BYTES_MAX: usize = 64;

/// A name that was checked: 1 to [`NAME_BYTES_MAX`] bytes of text without control characters.
///
/// [`ClientName::parse`] is the only way from text that a client sent to a name. It takes the name
/// of the field, so this type has no `Deserialize`.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct ClientName(Cow<'static, str>);

impl ClientName {
    /// Checks a name that came from outside in `field`.
    ///
    /// # Errors
    /// [`NameError`] if it is empty, too long, or holds a control character.
    pub fn parse(field: &str, name: impl AsRef<str> + Into<String>) -> Result<Self, NameError> {
        Self::parse_within(field, name, NAME_BYTES_MAX)
    }

    /// Checks the name of a class of hardware, at most [`CLASS_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// [`NameError`], as for any name.
    pub fn parse_class(
        field: &str,
        name: impl AsRef<str> + Into<String>,
    ) -> Result<Self, NameError> {
        Self::parse_within(field, name, CLASS_BYTES_MAX)
    }

    fn parse_within(
        field: &str,
        name: impl AsRef<str> + Into<String>,
        bytes_max: usize,
    ) -> Result<Self, NameError> {
        let text = name.as_ref();
        let problem = if text.is_empty() {
            Problem::Empty { bytes_max }
        } else if text.len() > bytes_max {
            let bytes = text.len();
            Problem::TooLong { bytes, bytes_max }
        } else if let Some(found) = text.chars().find(|c| c.is_control()) {
            Problem::Control(found)
        } else {
            return Ok(Self(Cow::Owned(name.into())));
        };
        Err(NameError {
            field: field.to_owned(),
            problem,
        })
    }

    /// A name that is a literal in the program's text.
    ///
    /// # Panics
    /// If it is empty, too long, or holds an ASCII control character; in a constant, that is an
    /// error of the compiler.
    pub const fn literal(name: &'static str) -> Self {
        let bytes = name.as_bytes();
        assert!(!bytes.is_empty() && bytes.len() <= NAME_BYTES_MAX);
        let mut at = 0;
        while at < bytes.len() {
            assert!(!bytes[at].is_ascii_control());
            at += 1;
        }
        Self(Cow::Borrowed(name))
    }

    /// A name of treadle's own for what no client named: `start` and the number.
    pub fn numbered(start: &'static str, number: u64) -> Self {
        Self(Cow::Owned(format!("{start}{number}")))
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<StepId> for ClientName {
    fn from(step: StepId) -> Self {
        Self(Cow::Owned(step.to_string()))
    }
}

impl Deref for ClientName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a text is not a valid name: which field, what is wrong, and what would be right.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{field}` {problem}")]
pub struct NameError {
    field: String,
    problem: Problem,
}

impl NameError {
    /// The field that holds the text.
    pub fn field(&self) -> &str {
        &self.field
    }
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Problem {
    Empty { bytes_max: usize },
    TooLong { bytes: usize, bytes_max: usize },
    Control(char),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty { bytes_max } => {
                write!(f, "is empty; send a name of 1 to {bytes_max} bytes")
            }
            Self::TooLong { bytes, bytes_max } => write!(
                f,
                "has {bytes} bytes; send a name of 1 to {bytes_max} bytes"
            ),
            Self::Control(found) => write!(
                f,
                "holds the control character U+{:04X}; send a name without control characters",
                u32::from(*found)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(name: &str) -> String {
        let error = ClientName::parse("job", name).expect_err(name);
        assert_eq!(error.field(), "job");
        error.to_string()
    }

    #[test]
    fn names_are_taken_as_they_are() {
        let longest = "n".repeat(NAME_BYTES_MAX);
        for name in ["p", "*", "task/7 ü", " ", "日本", "a\u{200b}", &longest] {
            assert_eq!(&*ClientName::parse("job", name).expect(name), name);
        }
        assert_eq!(ClientName::numbered("auto-", 17).as_str(), "auto-17");
        assert_eq!(ClientName::from(StepId(7)).as_str(), "s7");
        assert_eq!(ClientName::literal("*").to_string(), "*");
    }

    #[test]
    fn every_control_character_is_refused_at_any_position() {
        let all = '\0'..=char::MAX;
        for c in all {
            for name in [format!("{c}"), format!("{c}p"), format!("a{c}b")] {
                let taken = ClientName::parse("job", name).is_ok();
                assert_eq!(taken, !c.is_control(), "{c:?}");
            }
        }
    }

    #[test]
    fn refusals_name_the_field_and_the_remedy() {
        let remedy = "send a name of 1 to 512 bytes";
        assert_eq!(refusal(""), format!("`job` is empty; {remedy}"));
        let long = "ü".repeat(NAME_BYTES_MAX / 2 + 1);
        assert_eq!(refusal(&long), format!("`job` has 514 bytes; {remedy}"));
        assert_eq!(
            refusal("\u{1f}acme\u{1f}p"),
            "`job` holds the control character U+001F; send a name without control characters"
        );
        assert!(refusal("p\u{85}").contains("U+0085"));
    }

    #[test]
    fn classes_have_short_names() {
        let longest = "h".repeat(CLASS_BYTES_MAX);
        for name in ["h20", "H800 80GB", &longest] {
            assert_eq!(&*ClientName::parse_class("class", name).expect(name), name);
        }
        let error = ClientName::parse_class("class", format!("{longest}h")).expect_err("long");
        let told = "`class` has 65 bytes; send a name of 1 to 64 bytes";
        assert_eq!(error.to_string(), told);
    }

    #[test]
    #[should_panic(expected = "is_ascii_control")]
    fn literals_are_checked_too() {
        ClientName::literal("a\u{1f}b");
    }
}
