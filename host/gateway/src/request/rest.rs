//! Rewrites the rest of an interrupted answer as if there had been only one request.

use super::continuation::{Continuation, NAMES};
use super::counts::Counts;
use super::first_event::is_whole_event;
use super::joined::join_meta;
use super::obstacles::is_empty;
use bytes::Bytes;
use serde_json::{Map, Value};
use treadle_wire::{SseError, SseScanner, StreamUsage};

/// Rewrites an engine's events to those that the client requested, and those of a continuation to
/// parts of one answer.
pub(super) struct Rewriter {
    scanner: SseScanner,
    of: Option<Continuation>,
    counts: Counts,
}

impl Rewriter {
    /// Starts at the beginning of an answer or of its rest; `bytes_max` limits an event.
    pub(super) fn new(of: Option<Continuation>, counts: Counts, bytes_max: usize) -> Self {
        Self {
            scanner: SseScanner::new(bytes_max),
            of,
            counts,
        }
    }

    /// The client's part of these bytes. `usage` also gets what is hidden from the client.
    pub(super) fn feed(&mut self, data: &[u8], usage: &mut StreamUsage) -> Result<Bytes, SseError> {
        let (of, counts) = (self.of.as_ref(), self.counts);
        let mut out = Vec::with_capacity(data.len());
        let mut on_event = |event: &[u8]| write(event, of, counts, usage, &mut out);
        self.scanner.feed(data, &mut on_event)?;
        Ok(out.into())
    }

    /// The client's part of a last event without terminator, if it is complete.
    pub(super) fn finish(&mut self, usage: &mut StreamUsage) -> Bytes {
        let (of, counts) = (self.of.as_ref(), self.counts);
        let mut out = Vec::new();
        self.scanner.finish(&mut |event| {
            if is_whole_event(event) {
                write(event, of, counts, usage, &mut out);
            }
        });
        out.into()
    }

    /// True between two events.
    pub(super) fn is_between_events(&self) -> bool {
        self.scanner.ended_cleanly()
    }
}

/// Writes the client's part of an event.
fn write(
    event: &[u8],
    of: Option<&Continuation>,
    counts: Counts,
    usage: &mut StreamUsage,
    out: &mut Vec<u8>,
) {
    let shown = match serde_json::from_slice(event) {
        Ok(event) => shown(event, of, counts, usage),
        // The end of the stream, or non-JSON, unchanged.
        Err(_) => Some(event.to_vec()),
    };
    if let Some(event) = shown {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(&event);
        out.extend_from_slice(b"\n\n");
    }
}

/// The client's part of an event.
fn shown(
    event: Value,
    of: Option<&Continuation>,
    counts: Counts,
    usage: &mut StreamUsage,
) -> Option<Vec<u8>> {
    let event = match of {
        Some(of) => of.rewrite(event)?,
        None => event,
    };
    usage.observe(&serde_json::to_vec(&event).ok()?);
    serde_json::to_vec(&counts.hide(event)?).ok()
}

impl Continuation {
    /// Rewrites an event; `None` for one that repeats what the client already has.
    pub(super) fn rewrite(&self, mut event: Value) -> Option<Value> {
        let fields = event.as_object_mut()?;
        for name in NAMES {
            if let (Some(field), Some(first)) = (fields.get_mut(name), self.names.get(name)) {
                *field = first.clone();
            }
        }
        fields.remove("prompt_token_ids");
        let mut opens = false;
        if let Some(Value::Array(choices)) = fields.get_mut("choices") {
            for choice in choices.iter_mut().filter_map(Value::as_object_mut) {
                choice.remove("prompt_token_ids");
                self.shift_offsets(choice);
                let ends = choice
                    .get("finish_reason")
                    .is_some_and(|end| !end.is_null());
                if let Some(Value::Object(delta)) = choice.get_mut("delta") {
                    let had_role = delta.remove("role").is_some();
                    opens |= had_role && !ends && delta.values().all(is_empty);
                }
            }
        }
        if let Some(Value::Object(usage)) = fields.get_mut("usage") {
            self.add_up(usage);
        }
        if let Some(Value::Object(timings)) = fields.get_mut("timings") {
            add(timings, "predicted_n", self.seen);
            take_off(timings, &["cache_n", "prompt_n"], self.seen);
        }
        if fields.contains_key("meta_info") {
            self.repeat(fields);
        }
        (!opens).then_some(event)
    }

    /// Sets usage to the first request's prompt and the whole output.
    fn add_up(&self, usage: &mut Map<String, Value>) {
        add(usage, "completion_tokens", self.seen);
        take_off(usage, &["prompt_tokens"], self.seen);
        let prompt = usage.get("prompt_tokens").and_then(Value::as_u64);
        let details = usage.get_mut("prompt_tokens_details");
        if let Some(Value::Object(details)) = details {
            at_most(details, "cached_tokens", prompt);
        }
    }

    /// Shifts the text offsets of a completion's tokens.
    fn shift_offsets(&self, choice: &mut Map<String, Value>) {
        let logprobs = choice.get_mut("logprobs");
        let offsets = logprobs.and_then(|all| all.get_mut("text_offset"));
        let before = self.so_far.text.chars().count() as u64;
        for offset in offsets.and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(at) = offset.as_u64() {
                *offset = at.saturating_add(before).into();
            }
        }
    }

    /// Prepends the earlier output, which SGLang's events repeat.
    fn repeat(&self, fields: &mut Map<String, Value>) {
        let so_far = &self.so_far;
        if let Some(Value::String(fresh)) = fields.get_mut("text") {
            fresh.insert_str(0, &so_far.text);
        }
        if let Some(Value::Array(fresh)) = fields.get_mut("output_ids") {
            fresh.splice(0..0, so_far.ids.iter().cloned());
        }
        if let Some(Value::Object(meta)) = fields.get_mut("meta_info") {
            join_meta(&so_far.meta, self.seen, meta);
        }
    }
}

pub(super) fn add(counts: &mut Map<String, Value>, name: &str, more: u64) {
    if let Some(count) = counts.get(name).and_then(Value::as_u64) {
        counts.insert(name.into(), count.saturating_add(more).into());
    }
}

/// Subtracts `less` from these counts in order.
pub(super) fn take_off(counts: &mut Map<String, Value>, names: &[&str], mut less: u64) {
    for name in names {
        if let Some(count) = counts.get(*name).and_then(Value::as_u64) {
            let taken = count.min(less);
            less -= taken;
            counts.insert((*name).into(), (count - taken).into());
        }
    }
}

pub(super) fn at_most(counts: &mut Map<String, Value>, name: &str, most: Option<u64>) {
    if let (Some(count), Some(most)) = (counts.get(name).and_then(Value::as_u64), most) {
        counts.insert(name.into(), count.min(most).into());
    }
}
