//! Requests and answers of other APIs as chat completions, and back, without IO.

pub mod anthropic;
mod chat;
pub mod responses;

pub use anthropic::{MessageBuilder, MessagesRequest};
pub use chat::ChatTranslator;
pub use responses::{AnswerHead, Answered, ChatForm, ResponseBuilder, ResponsesRequest};
