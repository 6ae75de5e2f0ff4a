//! Why a request is sent as its client sent it.

/// Why a request that continues an answer is not continued by the answer's tokens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AsSent {
    /// The kind of engine takes no token ids for a chat.
    Engine,
    /// It has a field that the paths for token ids don't have, or read in another way.
    Field,
    /// It asks for several answers.
    Several,
    /// It has images, audio or video.
    Media,
    /// Its last message is the begin of an answer.
    Prefill,
    /// The answer is not held: another program's, one from before a restart, or too old.
    NotHeld,
    /// Messages before the answer, or the answer, are not those that were sent and answered.
    Edited,
    /// Its tools are others than those of the answer's request.
    Tools,
    /// Its model or arguments of the template are others than those of the answer's request.
    Settings,
    /// The answer does not end with a stop token, or the client got a part of it.
    Cut,
    /// The engine did not tokenise the messages.
    Tokenize,
    /// The template renders what stands before the new messages in another way once they follow.
    Prefix,
    /// The end of the answer can't be told from the rendering.
    StopToken,
    /// In the whole conversation the template renders the new messages in another way.
    Context,
    /// The tokens leave no room for an answer.
    Length,
    /// The engine refused the tokens.
    Refused,
    /// The engine did not parse the answer. Its tokens are lost, and the member is not trained.
    Unparsed,
    /// The engine reports another prompt than the one that it was given.
    Ignored,
}

impl AsSent {
    /// Its name in steps and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Field => "field",
            Self::Several => "several",
            Self::Media => "media",
            Self::Prefill => "prefill",
            Self::NotHeld => "not_held",
            Self::Edited => "edited",
            Self::Tools => "tools",
            Self::Settings => "settings",
            Self::Cut => "cut",
            Self::Tokenize => "tokenize",
            Self::Prefix => "prefix",
            Self::StopToken => "stop_token",
            Self::Context => "context",
            Self::Length => "length",
            Self::Refused => "refused",
            Self::Unparsed => "unparsed",
            Self::Ignored => "ignored",
        }
    }
}
