//! Answers without the engine model, as cheaply as possible, for measuring what is in front of an
//! engine. All texts of one length are equal, events are generated once and name the model even for
//! an adapter, prompts are not parsed, and the usage counts a token for every four bytes of the
//! request's body.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use axum::response::Response;
use bytes::Bytes;

use super::error::ApiError;
use super::faults::{self, Faults};
use super::frames::{event_response, now_s, whole_response};
use super::request::{CommonFields, parse};
use super::shape::{Encoder, End, Shape};
use super::{Shared, tokens};

/// Maximum number of answer lengths whose events are cached.
const CACHED_LENGTHS_MAX: usize = 256;
/// Default number of tokens.
const DEFAULT_TOKENS: u32 = 64;

/// Cached events by API and length in tokens.
#[derive(Default)]
pub(super) struct EventCache(Mutex<EventsByLength>);

type EventsByLength = HashMap<(Shape, usize), Arc<[Bytes]>>;

impl EventCache {
    fn events(&self, encoder: &mut Encoder, total: usize, per_event: usize) -> Arc<[Bytes]> {
        let key = (encoder.shape, total);
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(events) = cache.get(&key) {
            encoder.written_tokens = total;
            return Arc::clone(events);
        }
        let mut events: Vec<Bytes> = encoder.opening().into_iter().collect();
        while encoder.written_tokens < total {
            let count = per_event.min(total - encoder.written_tokens);
            let end = (encoder.written_tokens + count == total).then_some(End::Length);
            events.push(encoder.tokens(count, end));
        }
        let events: Arc<[Bytes]> = events.into();
        if cache.len() < CACHED_LENGTHS_MAX {
            cache.insert(key, Arc::clone(&events));
        }
        events
    }
}

/// Answers at once.
pub(super) fn answer(
    shared: &Shared,
    shape: Shape,
    body: &[u8],
    faults: &Faults,
) -> Result<Response, ApiError> {
    let fields: CommonFields = parse(body)?;
    shared.options.check_model(fields.model.as_deref())?;
    fields.check(1)?;
    let total = fields.tokens_wanted().unwrap_or(DEFAULT_TOKENS);
    let limit = shared.profile.context_limit_tokens;
    if total > limit {
        return Err(ApiError::invalid(format!(
            "max_tokens must be at most {limit}"
        )));
    }
    let total = total as usize;
    let mut encoder = encoder(shared, shape, &fields, body.len(), total);
    shared.totals.count(End::Length);
    shared
        .totals
        .count_tokens(encoder.prompt_tokens as u64, total as u64);
    if !fields.stream() {
        encoder.written_tokens = total;
        return Ok(whole_response(faults::whole_body(
            encoder.body(&[encoder.choice_json(End::Length)], End::Length),
            faults,
        )));
    }
    let per_event = shared.profile.stream_interval_tokens.max(1) as usize;
    let events = shared.instant_events.events(&mut encoder, total, per_event);
    let closing = encoder.closing();
    let events = (0..events.len()).map(move |place| events[place].clone());
    let events = events.chain([closing]).map(Ok::<_, io::Error>);
    Ok(event_response(faults::event_body(
        futures_util::stream::iter(events),
        faults,
    )))
}

fn encoder(
    shared: &Shared,
    shape: Shape,
    fields: &CommonFields,
    body_bytes: usize,
    total: usize,
) -> Encoder {
    Encoder {
        shape,
        id: format!("\"{}\"", shape.response_id("instant")),
        model: shared.model_json.clone(),
        versions: vec![(shared.weights.name_json(), total)],
        created_s: now_s(),
        prompt_tokens: body_bytes.div_ceil(tokens::TOKEN_BYTES),
        prompt_ids: None,
        return_token_ids: false,
        return_logprobs: false,
        top_logprobs: 0,
        choice: 0,
        other_tokens: 0,
        call: None,
        include_usage: fields.include_usage(),
        continuous_usage: false,
        output: tokens::generated(shared.options.seed, 0, total).into(),
        cached_tokens: 0,
        written_tokens: 0,
    }
}
