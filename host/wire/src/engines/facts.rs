//! What an engine says that it is, beside what it holds.

/// Longest text of an engine that is kept, in characters.
const TEXT_CHARS_MAX: usize = 100;

/// What an engine says that it is. Nothing is guessed: what it does not say is not there.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct EngineFacts {
    /// The version of its software.
    pub version: Option<Box<str>>,
    /// What it does for others, if it does not do all of a step: prefill or decode.
    pub role: Option<Box<str>>,
    /// Whether it serves the steps with the greatest priority first.
    pub priorities: Option<bool>,
}

/// A text of an engine as it is kept.
pub(super) fn kept(text: Option<&str>) -> Option<Box<str>> {
    let text: String = text?.chars().take(TEXT_CHARS_MAX).collect();
    (!text.is_empty()).then(|| text.into())
}
