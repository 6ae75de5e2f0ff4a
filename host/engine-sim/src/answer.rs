//! From a request to its answer: the engine's progress as events of a stream or as one body.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::Stream;
use treadle_engine_model::engine::{RequestSpec, SubmitError};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::driver::{EngineClient, OpenRequest, Progress};
use super::error::{ApiError, OpenError};
use super::faults::{self, Faults};
use super::frames::{event_response, json_string, now_s, whole_response};
use super::request::{self, Generation, Limit};
use super::shape::{Encoder, End, Shape};
use super::tools::Call;
use super::{Shared, handover, instant, tokens};

/// Answers one generation request.
pub(super) async fn answer(
    shared: Arc<Shared>,
    shape: Shape,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    answer_within(shared, shape, headers, body, Limit::Exactly).await
}

/// Answers one generation request; `limit` defines what its number of tokens means.
pub(super) async fn answer_within(
    shared: Arc<Shared>,
    shape: Shape,
    headers: HeaderMap,
    body: Bytes,
    limit: Limit,
) -> Response {
    shared.weights.begin_step().await;
    let faults = shared.faults.take();
    if let Err(error) = misbehave_before(&shared, &faults).await {
        return error.into_response();
    }
    let answered = match &shared.client {
        None => instant::answer(&shared, shape, &body, &faults),
        Some(client) => modelled(&shared, client, shape, &headers, &body, limit, &faults).await,
    };
    answered.unwrap_or_else(IntoResponse::into_response)
}

async fn misbehave_before(shared: &Shared, faults: &Faults) -> Result<(), ApiError> {
    if faults.header_delay_ms > 0 {
        tokio::time::sleep(Duration::from_millis(faults.header_delay_ms)).await;
    }
    if faults.never_answer {
        shared.stopping().await;
    }
    if let Some(status) = faults
        .error_status
        .and_then(|code| StatusCode::from_u16(code).ok())
    {
        return Err(ApiError::new(status, "a requested fault"));
    }
    Ok(())
}

async fn modelled(
    shared: &Arc<Shared>,
    client: &EngineClient,
    shape: Shape,
    headers: &HeaderMap,
    body: &[u8],
    limit: Limit,
    faults: &Faults,
) -> Result<Response, ApiError> {
    let fallback_id = shared.next_id.fetch_add(1, Ordering::Relaxed).to_string();
    let mut generation = request::read(shape, body, headers, &shared.options, &fallback_id)?;
    if limit == Limit::AtMost {
        generation.limit = limit;
    }
    let stream = generation.stream;
    handover::fetch(shared, &generation).await;
    let mut choices = Vec::with_capacity(generation.choices);
    for choice in 0..generation.choices {
        let (encoder, spec, end) = prepare(shared, &generation, choice)?;
        let name = serde_json::from_str(&encoder.id).unwrap_or_default();
        let total_tokens = spec.output_tokens as usize;
        let open = client.open(generation.rank, spec, name).await?;
        choices.push(Answer {
            shared: Arc::clone(shared),
            encoder,
            open,
            end,
            total_tokens,
            is_over: false,
        });
    }
    if stream {
        let events = EventStream {
            choices,
            queue: VecDeque::new(),
            done: false,
        };
        return Ok(event_response(faults::event_body(events, faults)));
    }
    let body = collect(choices).await?;
    let body = handover::announce(shared, &generation, body).await;
    Ok(whole_response(faults::whole_body(body, faults)))
}

/// Computes the engine model's input, lengths and block hashes, and with it the text.
fn prepare(
    shared: &Shared,
    generation: &Generation,
    choice: usize,
) -> Result<(Encoder, RequestSpec, End), ApiError> {
    let prompt = &generation.prompt;
    let seed = shared.options.seed ^ generation.seed ^ ((choice as u64) << 32);
    let prompt_tokens = tokens::count(prompt);
    let limit_tokens = shared.profile.sequence_limit_tokens();
    let room = (limit_tokens as usize).saturating_sub(prompt_tokens);
    let (output_tokens, call, end) = length_of(generation, room, seed);
    if output_tokens > room {
        let wanted_tokens = (prompt_tokens + output_tokens) as u64;
        return Err(OpenError::Refused(SubmitError::TooLong {
            wanted_tokens,
            limit_tokens,
        })
        .into());
    }
    let output = match &call {
        Some(call) => tokens::padded(&call.arguments),
        None => tokens::generated(seed, prompt_tokens, output_tokens),
    };
    let model = generation.model.as_deref();
    let salt = shared.options.salt(model, generation.salt.as_deref());
    let spec = RequestSpec {
        id: 0,
        prompt_tokens: prompt_tokens as u32,
        output_tokens: output_tokens as u32,
        blocks: tokens::block_hashes(salt.as_deref(), prompt, &output).into(),
        priority: generation.priority,
    };
    let encoder = Encoder {
        shape: generation.shape,
        id: json_string(&generation.id),
        model: model.map_or_else(|| shared.model_json.clone(), json_string),
        versions: Vec::new(),
        created_s: now_s(),
        prompt_tokens,
        prompt_ids: generation.return_token_ids.then(|| tokens::ids(prompt)),
        return_token_ids: generation.return_token_ids,
        return_logprobs: generation.return_logprobs && call.is_none(),
        top_logprobs: generation.top_logprobs,
        include_usage: generation.include_usage,
        continuous_usage: generation.continuous_usage,
        output: output.into(),
        cached_tokens: 0,
        written_tokens: 0,
        choice,
        other_tokens: 0,
        call,
    };
    Ok((encoder, spec, end))
}

/// Length of the answer in tokens, its tool call if any, and how it ends.
fn length_of(generation: &Generation, room: usize, seed: u64) -> (usize, Option<Call>, End) {
    let wanted = generation.max_tokens.map(|wanted| wanted as usize);
    let at_most = wanted.unwrap_or(usize::MAX).min(room.max(1));
    if let Some(call) = &generation.call {
        let tokens = tokens::count(call.arguments.as_bytes());
        if tokens <= at_most {
            return (tokens, Some(call.clone()), End::ToolCalls);
        }
    }
    match wanted {
        Some(wanted) if generation.limit == Limit::Exactly => (wanted, None, End::Length),
        _ => {
            let chosen = chosen_tokens(&generation.prompt, seed);
            let end = if wanted.is_some_and(|wanted| wanted < chosen) {
                End::Length
            } else {
                End::Stop
            };
            (chosen.min(at_most), None, end)
        }
    }
}

/// Length of the answer if the request does not set one: 16 to 256 tokens, depending on its prompt.
fn chosen_tokens(prompt: &[u8], seed: u64) -> usize {
    16 + (xxh3_64_with_seed(prompt, seed) % 241) as usize
}

/// One choice of an answer in progress.
struct Answer {
    shared: Arc<Shared>,
    encoder: Encoder,
    open: OpenRequest,
    /// How the answer ends if it is not aborted.
    end: End,
    total_tokens: usize,
    is_over: bool,
}

impl Answer {
    /// Processes progress; returns the number of new tokens, and the end if they are the last.
    fn take(&mut self, progress: Progress) -> (usize, Option<End>) {
        let count = match progress {
            Progress::First { cached_tokens } => {
                self.encoder.cached_tokens = cached_tokens;
                1
            }
            Progress::Tokens { count } => count as usize,
            Progress::Aborted => 0,
        };
        if count > 0 && matches!(self.encoder.shape, Shape::Tokens | Shape::Sglang) {
            let version = self.shared.weights.name_json();
            self.encoder.sampled(version, count);
        }
        let complete = self.encoder.written_tokens + count >= self.total_tokens;
        let end = match progress {
            Progress::Aborted => Some(End::Abort),
            _ => complete.then_some(self.end),
        };
        if let Some(end) = end {
            self.shared.totals.count(end);
        }
        (count, end)
    }
}

/// Collects all choices into one body.
async fn collect(choices: Vec<Answer>) -> Result<Bytes, ApiError> {
    let mut written = Vec::with_capacity(choices.len());
    let mut last = None;
    for mut choice in choices {
        let end = loop {
            let Some(progress) = choice.open.progress.recv().await else {
                return Err(OpenError::Closed.into());
            };
            let (count, end) = choice.take(progress);
            choice.encoder.written_tokens += count;
            if let Some(end) = end {
                break end;
            }
        };
        let before = last.map_or(0, |(before, _): (Encoder, End)| before.all_tokens());
        choice.encoder.other_tokens = before;
        written.push(choice.encoder.choice_json(end));
        last = Some((choice.encoder, end));
    }
    let (encoder, end) = last.ok_or(OpenError::Closed)?;
    Ok(encoder.body(&written, end))
}

/// The events of one answer. Dropping it aborts the remaining choices.
struct EventStream {
    choices: Vec<Answer>,
    queue: VecDeque<Bytes>,
    done: bool,
}

impl EventStream {
    fn push(&mut self, at: usize, progress: Progress) {
        let choice = &mut self.choices[at];
        if matches!(progress, Progress::First { .. }) {
            self.queue.extend(choice.encoder.opening());
        }
        let (count, end) = choice.take(progress);
        self.queue.push_back(choice.encoder.tokens(count, end));
        choice.is_over = end.is_some();
        if choice.is_over && self.choices.iter().all(|choice| choice.is_over) {
            let written = self.choices.iter().map(|each| each.encoder.written_tokens);
            let written: usize = written.sum();
            let encoder = &mut self.choices[at].encoder;
            encoder.other_tokens = written - encoder.written_tokens;
            self.queue.push_back(encoder.closing());
            self.done = true;
        }
    }

    /// Polls all unfinished choices for progress.
    fn poll_progress(&mut self, cx: &mut Context<'_>) -> Poll<(usize, Option<Progress>)> {
        for (at, choice) in self.choices.iter_mut().enumerate() {
            if choice.is_over {
                continue;
            }
            if let Poll::Ready(progress) = choice.open.progress.poll_recv(cx) {
                return Poll::Ready((at, progress));
            }
        }
        Poll::Pending
    }
}

impl Stream for EventStream {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            if self.done {
                return Poll::Ready(None);
            }
            match self.poll_progress(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready((at, Some(progress))) => self.push(at, progress),
                Poll::Ready((_, None)) => {
                    self.done = true;
                    let gone = io::Error::new(io::ErrorKind::UnexpectedEof, "the engine is gone");
                    return Poll::Ready(Some(Err(gone)));
                }
            }
        }
    }
}
