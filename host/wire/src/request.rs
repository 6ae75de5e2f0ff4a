//! What the gateway needs to know of a request before it forwards the bytes unchanged.
//!
//! A body is looked at once for its form (`form.rs`), and then read in one pass. Prompts are hashed
//! and measured while they are read and are never kept; every field that the gateway has no use for
//! is skipped.
//!
//! Of equal names engines' parsers take the first or the last, so none is there twice. A field whose
//! value is `null` is as absent. A field that is not read may hold anything, within
//! [`LEVELS_MAX`] levels.

mod body;
mod engine_fields;
mod fields;
mod form;
mod forwarded;
mod hash_key;
mod identity;
mod media;
mod messages;
mod outputs;
mod places;
mod prefix_hasher;
mod prompt;
mod value_hash;

use crate::endpoint::Endpoint;
use crate::error::{ErrorCode, RequestError};
use body::Draft;
pub use engine_fields::{ForeignFields, OwnedField, OwnedKind, salt_field};
pub use form::LEVELS_MAX;
pub use forwarded::{Forwarded, ForwardedHead};
pub use hash_key::share_hash_key;
pub use identity::{Named, NamedParent};
pub use media::MediaTargets;
pub use prefix_hasher::{BLOCK_BYTES, BLOCK_TOKENS};
use serde_json::value::RawValue;
use treadle_model::ClientName;

/// Links of a chain of messages, at most; the newest stay.
pub const CHAIN_MESSAGES_MAX: usize = 1_024;
/// Links of a chain of blocks of token ids or text, at most; the newest stay.
pub const CHAIN_BLOCKS_MAX: usize = 4_096;
/// Prefix segments of a prompt of messages, at most.
pub const PREFIX_MESSAGES_MAX: usize = 4;
/// Prefix segments of a prompt of token ids or text, at most.
pub const PREFIX_SEGMENTS_MAX: usize = 16;

/// The size of a prompt.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PromptSize {
    /// Tokens, exact, where the prompt came as token ids.
    pub tokens: Option<u64>,
    /// Bytes of UTF-8 text and keys, tool definitions included, attachments excluded; 0 where
    /// the prompt came as token ids.
    pub bytes: u64,
    /// Messages; 0 where the prompt came as plain text or as token ids.
    pub messages: u32,
}

/// A stretch of a prompt's prefix, from the end of the segment before it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PrefixSegment {
    /// The hash of the whole prompt up to the segment's end.
    pub hash: u64,
    /// Tokens in this segment alone, where they are known.
    pub tokens: Option<u64>,
    /// Bytes in this segment alone; 0 where tokens are known.
    pub bytes: u64,
}

/// The head of a request: all that decides where and when it runs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RequestHead {
    /// The model asked for.
    pub model: Option<String>,
    /// Whether the answer is to come as a stream.
    pub stream: bool,
    /// Whether the stream is to end with its usage.
    pub include_usage: bool,
    /// Tokens to generate, at most; the largest of a batch.
    pub max_output_tokens: Option<u64>,
    /// The program that the body names.
    pub named: Option<Named>,
    /// The program by a key of a provider's cache, which counts if nothing else names one.
    pub named_by_cache_key: Option<Named>,
    /// The request's own id.
    pub request_id: Option<ClientName>,
    /// Whether the client sets the request's priority (`priority`).
    pub has_priority: bool,
    /// Fields that treadle sets itself where tenants share engines, in the order of the body.
    pub owned: Vec<OwnedField>,
    /// Fields that engines may be given only if the operator lets them pass.
    pub foreign: ForeignFields,
    /// What its engine is to fetch.
    pub media: MediaTargets,
    /// The prompt's size, summed over a batch.
    pub prompt: PromptSize,
    /// The first few boundaries of the prompt, to count a shared prefix once per worker: each of
    /// the first 4 messages, or 64, 128, 256, ... token ids, or 256, 512, ... bytes of text. Tool
    /// definitions and a separate system prompt belong to the first. Empty for a batch of several
    /// prompts.
    pub prefix: Vec<PrefixSegment>,
    /// One chained hash per message, per full block of 64 token ids, or per full block of 256
    /// bytes of text: a request whose chain holds the last link of another's goes on where
    /// that one ended. Empty for a batch of several prompts.
    pub chain: Vec<u64>,
    /// The hash of the whole prompt, tool definitions and a separate system prompt included: the
    /// same for equal prompts alone. Nothing for a batch of several prompts.
    pub whole: Option<u64>,
}

impl RequestHead {
    /// Reads the body of a request to this endpoint.
    ///
    /// # Errors
    ///
    /// `invalid_json`, `body_not_object`, `invalid_field` where a name is there twice, a field that
    /// is read has a wrong type or an id is not a [`ClientName`], `missing_field` where there is no
    /// prompt.
    pub fn parse(endpoint: Endpoint, body: &[u8]) -> Result<RequestHead, RequestError> {
        let mut body = Draft::read(endpoint, body)?;
        let model = body
            .model
            .map(|raw| fields::text(raw, "model"))
            .transpose()?;
        let mut head = RequestHead {
            model,
            stream: fields::flag(body.stream, "stream")?,
            include_usage: include_usage(&body)?,
            max_output_tokens: max_output_tokens(&body)?,
            named: identity::program_of(&body)?,
            named_by_cache_key: identity::program_of_cache_key(endpoint, &body),
            request_id: identity::request_id_of(&body)?,
            has_priority: body.has_priority,
            owned: std::mem::take(&mut body.owned),
            foreign: std::mem::take(&mut body.foreign),
            media: std::mem::take(&mut body.media),
            prompt: PromptSize::default(),
            prefix: Vec::new(),
            chain: Vec::new(),
            whole: None,
        };
        match endpoint {
            Endpoint::ChatCompletions | Endpoint::Messages => {
                head.take_messages("messages", &mut body)?;
            }
            Endpoint::Responses => head.take_messages("input", &mut body)?,
            _ => head.take_prompt(endpoint, &mut body)?,
        }
        Ok(head)
    }

    fn take_messages(&mut self, param: &str, body: &mut Draft<'_>) -> Result<(), RequestError> {
        let messages = body
            .messages
            .take()
            .ok_or_else(|| missing(param, "give the conversation as a list of messages"))?;
        if messages.count == 0 {
            return Err(fields::invalid(param, "a list of at least one message"));
        }
        let preamble_bytes = body.tools.bytes + body.system.bytes;
        self.prompt.bytes = messages.bytes + preamble_bytes;
        self.prompt.messages = u32::try_from(messages.count).unwrap_or(u32::MAX);
        self.chain = messages.chain;
        self.prefix = messages.prefix;
        let in_front = |hash| body.tools.before(body.system.before(hash));
        self.whole = Some(in_front(messages.whole));
        for segment in &mut self.prefix {
            segment.hash = in_front(segment.hash);
        }
        if let Some(first) = self.prefix.first_mut() {
            first.bytes += preamble_bytes;
        }
        Ok(())
    }

    fn take_prompt(
        &mut self,
        endpoint: Endpoint,
        body: &mut Draft<'_>,
    ) -> Result<(), RequestError> {
        let prompt = body.prompt.take().or(body.text.take());
        let prompt = prompt.ok_or_else(|| match endpoint {
            Endpoint::VllmGenerate => missing("token_ids", "give the prompt as token ids"),
            Endpoint::SglangGenerate => {
                missing("input_ids", "give the prompt as `input_ids` or as `text`")
            }
            _ => missing("prompt", "give the prompt as text or as token ids"),
        })?;
        self.prompt = PromptSize {
            tokens: prompt.tokens,
            bytes: prompt.bytes,
            messages: 0,
        };
        self.prefix = prompt.prefix;
        self.chain = prompt.chain;
        self.whole = prompt.whole;
        Ok(())
    }
}

fn missing(param: &str, remedy: &str) -> RequestError {
    RequestError {
        code: ErrorCode::MissingField,
        param: Some(param.to_owned()),
        message: format!("`{param}` is missing: {remedy}"),
    }
}

fn include_usage(body: &Draft<'_>) -> Result<bool, RequestError> {
    let Some(options) = body.stream_options else {
        return Ok(false);
    };
    let [include_usage] = fields::pick(options, ["include_usage"], "stream_options")?;
    fields::flag(include_usage, "stream_options.include_usage")
}

fn max_output_tokens(body: &Draft<'_>) -> Result<Option<u64>, RequestError> {
    let limits = [
        (body.max_completion_tokens, "max_completion_tokens"),
        (body.max_tokens, "max_tokens"),
        (body.max_output_tokens, "max_output_tokens"),
    ];
    if let Some(limit) = first_count(limits)? {
        return Ok(Some(limit));
    }
    let Some(sampling) = body.sampling_params else {
        return Ok(None);
    };
    if !sampling.get().starts_with('[') {
        return limit_of_sampling(sampling);
    }
    let list = serde_json::from_str::<Vec<Option<&RawValue>>>(sampling.get())
        .map_err(|_| fields::invalid("sampling_params", "an object or a list of objects"))?;
    let mut limit_max = None;
    for sampling in list.into_iter().flatten() {
        limit_max = limit_max.max(limit_of_sampling(sampling)?);
    }
    Ok(limit_max)
}

fn limit_of_sampling(sampling: &RawValue) -> Result<Option<u64>, RequestError> {
    let names = ["max_new_tokens", "max_tokens"];
    let [new_tokens, tokens] = fields::pick(sampling, names, "sampling_params")?;
    first_count([
        (new_tokens, "sampling_params.max_new_tokens"),
        (tokens, "sampling_params.max_tokens"),
    ])
}

fn first_count<const N: usize>(
    limits: [(Option<&RawValue>, &str); N],
) -> Result<Option<u64>, RequestError> {
    for (raw, param) in limits {
        let count = raw.map_or(Ok(None), |raw| fields::count(raw, param))?;
        if count.is_some() {
            return Ok(count);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
