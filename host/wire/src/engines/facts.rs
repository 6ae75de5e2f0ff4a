//! Static facts that an engine reports about itself.

/// Longest text of an engine that is stored, in characters.
const TEXT_CHARS_MAX: usize = 100;

/// Facts that an engine reports about itself. Nothing is guessed: unreported facts are absent.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct EngineFacts {
    /// The version of its software.
    pub version: Option<Box<str>>,
    /// Its part of each step, if it reports that: prefill, decode or both.
    pub role: Option<Box<str>>,
    /// The port at which engines that generate meet it, if it computes prompts for them.
    pub bootstrap_port: Option<u16>,
    /// Whether it serves steps by priority.
    pub priorities: Option<bool>,
}

/// A text of an engine, cut to the limit.
pub(super) fn kept(text: Option<&str>) -> Option<Box<str>> {
    let text: String = text?.chars().take(TEXT_CHARS_MAX).collect();
    (!text.is_empty()).then(|| text.into())
}
