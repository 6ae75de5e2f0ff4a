//! A step's usage and how it ended, read from the engine's reply.

mod fast_scan;
mod lenient;
mod reply;
mod response;
mod weights;

use crate::endpoint::Endpoint;
use fast_scan::{FastScan, fast_scan};
use lenient::Kind;
use reply::{MetaInfo, Reply, Timings, Usage, account};
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};
pub use weights::WeightVersion;

/// Most outputs of one batch that are distinguished; further ones are not counted.
const OUTPUTS_MAX: usize = 16_384;
/// Most bytes of an engine's error message that are stored.
const ERROR_BYTES_MAX: usize = 512;

/// How an output ended. Of several outputs the worst counts, the last in this order.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Finish {
    /// The model ended it, or a stop sequence did.
    Stop,
    /// Some other way.
    Other,
    /// With tool calls.
    ToolCalls,
    /// At its limit of tokens.
    Length,
    /// The engine aborted it, for example before a weight sync.
    Abort,
}

impl Finish {
    /// Parses an engine's finish reason.
    pub fn of(reason: &str) -> Finish {
        match reason {
            "stop" | "end_turn" | "stop_sequence" => Finish::Stop,
            "length" | "max_tokens" | "max_output_tokens" => Finish::Length,
            "tool_calls" | "tool_use" | "function_call" => Finish::ToolCalls,
            "abort" => Finish::Abort,
            _ => Finish::Other,
        }
    }
}

/// The usage of one step, as far as the engine reports it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StepUsage {
    /// Tokens of the prompt, including cached ones.
    pub prompt_tokens: Option<u64>,
    /// Tokens generated, over all outputs.
    pub output_tokens: Option<u64>,
    /// Tokens of the prompt that the engine had in its cache.
    pub cached_tokens: Option<u64>,
    /// How it ended.
    pub finish: Option<Finish>,
    /// Version of the engine's weights at the end.
    pub weights: WeightVersion,
}

/// The usage in the body of a whole reply; `None` where the body is not JSON or has none.
///
/// A list of replies, as SGLang gives for a batch, is added up.
pub fn usage_of_body(endpoint: Endpoint, body: &[u8]) -> Option<StepUsage> {
    let mut stream = StreamUsage::new(endpoint);
    if body.trim_ascii_start().starts_with(b"[") {
        let replies: Vec<Reply<'_>> = serde_json::from_slice(body).ok()?;
        for (index, mut reply) in replies.into_iter().enumerate() {
            reply.index.0 = Some(index as u64);
            stream.take(&reply);
        }
    } else {
        stream.take(&serde_json::from_slice(body).ok()?);
    }
    let told = StepUsage {
        // A whole reply is not measured in events: only what it reports and lists counts.
        output_tokens: stream.reported().output_tokens.or(stream.token_ids),
        ..stream.usage()
    };
    Some(told).filter(|told| *told != StepUsage::default())
}

/// Follows the usage along a stream of events.
#[derive(Debug)]
pub struct StreamUsage {
    endpoint: Endpoint,
    /// Number of events with output, each counted as a token, or of the listed token ids.
    counted: Option<u64>,
    /// Number of listed token ids.
    token_ids: Option<u64>,
    usage: Usage,
    timings: Timings,
    /// SGLang's usage so far of each output.
    metas: BTreeMap<u64, MetaInfo>,
    /// Numbers of the outputs that have ended, except in SGLang's own API.
    ended: BTreeSet<u64>,
    /// Whether the engine has announced the end.
    is_over: bool,
    finish: Option<Finish>,
    weights: WeightVersion,
    error: Option<String>,
}

impl StreamUsage {
    /// At the beginning of a stream.
    pub fn new(endpoint: Endpoint) -> Self {
        StreamUsage {
            endpoint,
            counted: None,
            token_ids: None,
            usage: Usage::default(),
            timings: Timings::default(),
            metas: BTreeMap::new(),
            ended: BTreeSet::new(),
            is_over: false,
            finish: None,
            weights: WeightVersion::default(),
            error: None,
        }
    }

    /// Processes the data of the next event. Non-JSON is ignored.
    pub fn observe(&mut self, event: &[u8]) {
        if event.trim_ascii() == b"[DONE]" {
            self.is_over = true;
            return;
        }
        match fast_scan(event) {
            FastScan::Plain { has_output } => self.count(u64::from(has_output)),
            FastScan::NeedsParse => {
                if let Ok(reply) = serde_json::from_slice::<Reply<'_>>(event) {
                    self.take(&reply);
                }
            }
        }
    }

    /// Tokens generated so far: the larger of the engine's last report and the own count.
    pub fn output_tokens_seen(&self) -> u64 {
        let reported = self.output_tokens_reported().unwrap_or(0);
        reported.max(self.counted.unwrap_or(0))
    }

    /// Tokens generated so far, by the engine's last report.
    pub fn output_tokens_reported(&self) -> Option<u64> {
        self.reported().output_tokens
    }

    /// Whether the answer with this many requested outputs is complete: the engine has said how each
    /// output ended. Proxies announce the end of answers that broke off, so that announcement only
    /// counts for engines that never say how outputs end.
    pub fn is_complete(&self, outputs: u64) -> bool {
        let metas = self.metas.values().filter(|meta| meta.has_ended()).count();
        let ended = self.ended.len().max(metas) as u64;
        let says_no_ends = ended == 0
            && outputs <= 1
            && self.endpoint != Endpoint::Responses
            && self.output_tokens_seen() > 0;
        ended >= outputs.clamp(1, OUTPUTS_MAX as u64) || (self.is_over && says_no_ends)
    }

    /// Whether the engine has announced the end.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The message of an error event.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// The usage so far. Output tokens are the engine's number, or else the own count.
    pub fn usage(&self) -> StepUsage {
        let reported = self.reported();
        StepUsage {
            output_tokens: reported.output_tokens.or(self.counted),
            finish: self.finish.max(reported.finish),
            weights: reported.weights.or(self.weights),
            ..reported
        }
    }

    fn reported(&self) -> StepUsage {
        let metas: Vec<MetaInfo> = self.metas.values().copied().collect();
        account(&self.usage, &self.timings, &metas)
    }

    fn count(&mut self, tokens: u64) {
        *self.counted.get_or_insert(0) += tokens;
    }

    fn take(&mut self, reply: &Reply<'_>) {
        self.take_opening(reply);
        self.usage.update(&reply.usage.0);
        self.take_response(reply);
        self.timings.update(&reply.timings.0);
        self.take_metas(reply);
        self.finish = self.finish.max(reply.finish());
        for output in reply.ended() {
            if self.ended.len() < OUTPUTS_MAX {
                self.ended.insert(output);
            }
        }
        self.is_over |= reply.kind == Kind::MessageStop;
        self.weights = reply.weights().or(self.weights);
        if let Some(ids) = reply.token_ids() {
            *self.token_ids.get_or_insert(0) += ids;
            self.count(ids);
        } else {
            self.count(u64::from(reply.has_output()));
        }
        if let Some(error) = reply.error {
            self.error = Some(message_of(error));
        } else if [reply.kind, reply.object].contains(&Kind::Error) {
            self.error = Some("the engine reported an error".to_owned());
        }
    }

    /// The first event of Anthropic's streams. Its output tokens are a placeholder.
    fn take_opening(&mut self, reply: &Reply<'_>) {
        if self.endpoint == Endpoint::Messages {
            let mut opening = reply.message.0.usage.0;
            opening.output_tokens = lenient::Count(None);
            self.usage.update(&opening);
        }
    }

    /// The last event of `/v1/responses`, or all of an answer there.
    fn take_response(&mut self, reply: &Reply<'_>) {
        if self.endpoint == Endpoint::Responses {
            self.usage.update(&reply.response.0.usage.0);
            let finish = reply.finish_of_response().or(match reply.kind {
                Kind::ResponseOver(finish) => Some(finish),
                _ => None,
            });
            self.finish = self.finish.max(finish);
            self.ended.extend(finish.map(|_| 0));
        }
    }

    fn take_metas(&mut self, reply: &Reply<'_>) {
        let first = reply.index.0.unwrap_or(0);
        for (offset, meta) in reply.meta_info.0.iter().enumerate() {
            let index = first.saturating_add(offset as u64);
            if self.metas.len() < OUTPUTS_MAX || self.metas.contains_key(&index) {
                self.metas.insert(index, *meta);
            }
        }
    }
}

/// The message within an error, or all of it.
fn message_of(error: &RawValue) -> String {
    #[derive(serde::Deserialize)]
    struct WithMessage {
        message: String,
    }
    let whole = error.get();
    let mut message = serde_json::from_str::<WithMessage>(whole)
        .map(|error| error.message)
        .or_else(|_| serde_json::from_str::<String>(whole))
        .unwrap_or_else(|_| whole.to_owned());
    message.truncate(message.floor_char_boundary(ERROR_BYTES_MAX));
    message
}

#[cfg(test)]
mod tests;
