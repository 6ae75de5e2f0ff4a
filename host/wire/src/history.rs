//! Chats that are continued by the tokens of their answers (`history` of a training job is
//! `as_sampled`): whether a request continues an answer, which tokens follow it, and the requests
//! and answers around the engines' paths for token ids.
//!
//! The tokens behind an answer are found with the engine's own template: a stand-in of two short
//! messages, the answer's calls, and the new messages is rendered twice, the second time with
//! another text in the first new message. What both have in common ends within the new message, so
//! the answer's stop token in it tells where the answer ends. It must be there exactly once, and the
//! rendering of the whole request must end in the same tokens.

mod as_sent;
mod conversation;
mod derender;
mod message;
mod renderings;
mod stand_in;

pub use as_sent::AsSent;
pub use conversation::{AnsweredConversation, Conversation};
pub use derender::{Derender, Generation, chat_answer};
pub use message::AnswerMessage;
pub use renderings::Renderings;
pub use stand_in::StandIns;

#[cfg(test)]
mod tests;
