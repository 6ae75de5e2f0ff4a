//! A request that also asks for tokens.

use super::read::{TokenReader, ids_of};
use serde_json::value::RawValue;
use thiserror::Error;
use treadle_model::EngineKind;

/// A request that asks its engine for tokens.
#[derive(Debug)]
pub struct TokenRequest {
    /// Its body.
    pub body: Vec<u8>,
    /// Reads the answer.
    pub reader: TokenReader,
    /// The client asked for a stream and the engine can't give tokens in one: the body asks for the
    /// whole answer.
    pub is_played: bool,
}

/// Why an answer's tokens can't be had.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum NotCaptured {
    /// The path has none.
    #[error("the tokens of {0} are not captured; use /v1/chat/completions")]
    Endpoint(&'static str),
    /// Another kind of engine has the path.
    #[error("engines of kind {1} have no {0}; use /v1/chat/completions")]
    Foreign(&'static str, EngineKind),
    /// It asks for answers to several prompts.
    #[error("the tokens of requests with several prompts are not captured; send one for each")]
    Batch,
    /// Its prompt has no tokens.
    #[error("the tokens of requests with `{0}` are not captured; send text or token ids")]
    Prompt(&'static str),
    /// The kind of engine has none.
    #[error("engines of kind {0} report no token ids")]
    Engine(&'static str),
    /// A field of the request hides or changes them.
    #[error("the tokens of requests with `{0}` are not captured")]
    Field(&'static str),
    /// The body is no JSON object.
    #[error("the body is not a JSON object")]
    Malformed,
}

/// The ids of a prompt; none if it is text.
///
/// # Errors
/// It is more than one prompt.
pub(super) fn prompt_ids(prompt: &RawValue) -> Result<Vec<i32>, NotCaptured> {
    if prompt.get().starts_with('"') {
        return Ok(Vec::new());
    }
    match serde_json::from_str::<Vec<&RawValue>>(prompt.get()).as_deref() {
        Ok([one]) if one.get().starts_with(['"', '[']) => prompt_ids(one),
        _ => ids_of(prompt.get()).ok_or(NotCaptured::Batch),
    }
}
