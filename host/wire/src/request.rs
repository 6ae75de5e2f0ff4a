//! Parses what the gateway needs of a request before it forwards the bytes unchanged.
//!
//! A body is scanned once for its form (`form.rs`), and then read in one pass. Prompts are hashed
//! and measured while they are read and never stored; unused fields are skipped.
//!
//! Duplicate names are refused, since engines' parsers use the first or the last. A field with the
//! value `null` counts as absent. A field that is not read may have any value, within
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

/// Most links of a chain of messages; the newest are kept.
pub const CHAIN_MESSAGES_MAX: usize = 1_024;
/// Most links of a chain of blocks of token ids or text; the newest are kept.
pub const CHAIN_BLOCKS_MAX: usize = 4_096;
/// Most prefix segments of a prompt of messages.
pub const PREFIX_MESSAGES_MAX: usize = 4;
/// Most prefix segments of a prompt of token ids or text.
pub const PREFIX_SEGMENTS_MAX: usize = 16;

/// The size of a prompt.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PromptSize {
    /// Exact number of tokens, if the prompt has token ids.
    pub tokens: Option<u64>,
    /// Bytes of UTF-8 text and keys, including tool definitions, without attachments; 0 if the
    /// prompt has token ids.
    pub bytes: u64,
    /// Number of messages; 0 if the prompt is plain text or token ids.
    pub messages: u32,
}

/// A part of a prompt's prefix, from the end of the previous segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PrefixSegment {
    /// The hash of the whole prompt up to the segment's end.
    pub hash: u64,
    /// Tokens of only this segment, if known.
    pub tokens: Option<u64>,
    /// Bytes of only this segment; 0 if tokens are known.
    pub bytes: u64,
}

/// The head of a request: all that decides where and when it runs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RequestHead {
    /// The requested model.
    pub model: Option<String>,
    /// Whether the response is a stream.
    pub stream: bool,
    /// Whether the stream ends with its usage.
    pub include_usage: bool,
    /// Limit on generated tokens; the largest of a batch.
    pub max_output_tokens: Option<u64>,
    /// The program that the body names.
    pub named: Option<Named>,
    /// The program from a prompt cache key, which counts if nothing else names one.
    pub named_by_cache_key: Option<Named>,
    /// The request's own id.
    pub request_id: Option<ClientName>,
    /// Whether the client sets the request's priority (`priority`).
    pub has_priority: bool,
    /// Fields that treadle sets itself if tenants share engines, in the order of the body.
    pub owned: Vec<OwnedField>,
    /// Fields that are only sent to engines if the operator allows them.
    pub foreign: ForeignFields,
    /// URLs that its engine would fetch.
    pub media: MediaTargets,
    /// The prompt's size, summed over a batch.
    pub prompt: PromptSize,
    /// The first few boundaries of the prompt, to count a shared prefix once per worker: each of
    /// the first 4 messages, or 64, 128, 256, ... token ids, or 256, 512, ... bytes of text. Tool
    /// definitions and a separate system prompt belong to the first. Empty for a batch of several
    /// prompts.
    pub prefix: Vec<PrefixSegment>,
    /// One chained hash per message, per full block of 64 token ids, or per full block of 256 bytes
    /// of text: a request whose chain contains the last link of another's continues that one. Empty
    /// for a batch of several prompts.
    pub chain: Vec<u64>,
    /// The hash of the whole prompt, including tool definitions and a separate system prompt.
    /// `None` for a batch of several prompts.
    pub whole: Option<u64>,
}

impl RequestHead {
    /// Reads the body of a request to this endpoint.
    ///
    /// # Errors
    ///
    /// `invalid_json`, `body_not_object`, `invalid_field` if a name occurs twice, a field that is
    /// read has a wrong type or an id is not a [`ClientName`], `missing_field` if there is no
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
