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
use super::request::{self, Generation};
use super::shape::{Encoder, End, Shape};
use super::{Shared, instant, tokens};

/// Answers one generation request.
pub(super) async fn answer(
    shared: Arc<Shared>,
    shape: Shape,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let faults = shared.faults.take();
    if let Err(error) = misbehave_before(&shared, &faults).await {
        return error.into_response();
    }
    let answered = match &shared.client {
        None => instant::answer(&shared, shape, &body, &faults),
        Some(client) => modelled(&shared, client, shape, &headers, &body, &faults).await,
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
        return Err(ApiError::new(status, "a fault that was asked for"));
    }
    Ok(())
}

async fn modelled(
    shared: &Arc<Shared>,
    client: &EngineClient,
    shape: Shape,
    headers: &HeaderMap,
    body: &[u8],
    faults: &Faults,
) -> Result<Response, ApiError> {
    let fallback_id = shared.next_id.fetch_add(1, Ordering::Relaxed).to_string();
    let generation = request::read(shape, body, headers, &shared.options, &fallback_id)?;
    let stream = generation.stream;
    let end = if generation.max_tokens.is_some() {
        End::Length
    } else {
        End::Stop
    };
    let (encoder, spec) = prepare(shared, &generation)?;
    let name = serde_json::from_str(&encoder.id).unwrap_or_default();
    let total_tokens = spec.output_tokens as usize;
    let open = client.open(spec, name).await?;
    let answer = Answer {
        shared: Arc::clone(shared),
        encoder,
        open,
        end,
        total_tokens,
    };
    if stream {
        let events = EventStream {
            answer,
            queue: VecDeque::new(),
            done: false,
        };
        return Ok(event_response(faults::event_body(events, faults)));
    }
    let body = answer.collect().await?;
    Ok(whole_response(faults::whole_body(body, faults)))
}

/// Works out what the engine model must know: lengths and block hashes, and with them the text.
fn prepare(shared: &Shared, generation: &Generation) -> Result<(Encoder, RequestSpec), ApiError> {
    let prompt = &generation.prompt;
    let seed = shared.options.seed ^ generation.seed;
    let prompt_tokens = tokens::count(prompt);
    let limit_tokens = shared.profile.sequence_limit_tokens();
    let room = (limit_tokens as usize).saturating_sub(prompt_tokens);
    let output_tokens = generation.max_tokens.map_or_else(
        || chosen_tokens(prompt, seed).min(room.max(1)),
        |wanted| wanted as usize,
    );
    if output_tokens > room {
        let wanted_tokens = (prompt_tokens + output_tokens) as u64;
        return Err(OpenError::Refused(SubmitError::TooLong {
            wanted_tokens,
            limit_tokens,
        })
        .into());
    }
    let output = tokens::generated(seed, prompt_tokens, output_tokens);
    let spec = RequestSpec {
        id: 0,
        prompt_tokens: prompt_tokens as u32,
        output_tokens: output_tokens as u32,
        blocks: tokens::block_hashes(generation.salt.as_deref(), prompt, &output).into(),
        priority: generation.priority,
    };
    let encoder = Encoder {
        shape: generation.shape,
        id: json_string(&generation.id),
        model: shared.model_json.clone(),
        created_s: now_s(),
        prompt_tokens,
        prompt_ids: generation.return_token_ids.then(|| tokens::ids(prompt)),
        return_token_ids: generation.return_token_ids,
        return_logprobs: generation.return_logprobs,
        include_usage: generation.include_usage,
        continuous_usage: generation.continuous_usage,
        output: output.into(),
        cached_tokens: 0,
        written_tokens: 0,
    };
    Ok((encoder, spec))
}

/// Length of the answer if the request does not give one: 16 to 256 tokens, by its prompt.
fn chosen_tokens(prompt: &[u8], seed: u64) -> usize {
    16 + (xxh3_64_with_seed(prompt, seed) % 241) as usize
}

/// An answer under way.
struct Answer {
    shared: Arc<Shared>,
    encoder: Encoder,
    open: OpenRequest,
    /// How it ends if all goes well.
    end: End,
    total_tokens: usize,
}

impl Answer {
    /// Takes news in; returns how many tokens they bring and whether they are the last.
    fn take(&mut self, progress: Progress) -> (usize, Option<End>) {
        let count = match progress {
            Progress::First { cached_tokens } => {
                self.encoder.cached_tokens = cached_tokens;
                1
            }
            Progress::Tokens { count } => count as usize,
            Progress::Aborted => 0,
        };
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

    async fn collect(mut self) -> Result<Bytes, ApiError> {
        while let Some(progress) = self.open.progress.recv().await {
            let (count, end) = self.take(progress);
            self.encoder.written_tokens += count;
            if let Some(end) = end {
                return Ok(self.encoder.body(end));
            }
        }
        Err(OpenError::Closed.into())
    }
}

/// The events of one answer. Dropping it aborts the rest.
struct EventStream {
    answer: Answer,
    queue: VecDeque<Bytes>,
    done: bool,
}

impl EventStream {
    fn push(&mut self, progress: Progress) {
        if matches!(progress, Progress::First { .. }) {
            self.queue.extend(self.answer.encoder.opening());
        }
        let (count, end) = self.answer.take(progress);
        self.queue.push_back(self.answer.encoder.tokens(count, end));
        if end.is_some() {
            self.queue.push_back(self.answer.encoder.closing());
            self.done = true;
        }
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
            match self.answer.open.progress.poll_recv(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(progress)) => self.push(progress),
                Poll::Ready(None) => {
                    self.done = true;
                    let gone = io::Error::new(io::ErrorKind::UnexpectedEof, "the engine is gone");
                    return Poll::Ready(Some(Err(gone)));
                }
            }
        }
    }
}
