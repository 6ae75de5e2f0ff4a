//! Chat completions, into which requests of other APIs are translated: what the translations have
//! in common.

mod chunk;
mod fields;
mod function;
mod message;
mod output;

pub(crate) use chunk::{CallDelta, ChatUsage, Choice, Chunk, Delta};
pub(crate) use fields::{Fields, put, put_text, read_fields, refused, write_fields};
pub(crate) use function::{Function, read_list};
pub(crate) use message::{Content, Message};
pub(crate) use output::{effort, response_format};

/// Translates the chat completion of an engine to the answer of another API.
pub trait ChatTranslator: Send {
    /// Processes an event of the engine's stream; returns the events for the client.
    fn take(&mut self, event: &[u8]) -> Vec<u8>;

    /// Handles the end of the engine's stream; returns the final events for the client.
    fn finish(&mut self) -> Vec<u8>;

    /// The answer for a whole chat completion; `None` if the body is not one.
    fn whole(self: Box<Self>, body: &[u8]) -> Option<Vec<u8>>;

    /// Bytes of buffered text.
    fn bytes(&self) -> u64;
}
