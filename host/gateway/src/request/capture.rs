//! A step of a training run whose tokens are captured: its engine is asked for them, its client
//! does not see them, and they are stored before it has the end of its answer.

use super::as_sampled::History;
use super::attempt::Answer;
use super::cause::Cause;
use super::first_event::is_whole_event;
use super::generate::{Call, GatewayState};
use super::media::media_of;
use super::native::Pieces;
use super::scores::Engine;
use super::versions::spans as spans_of;
use crate::captures::{Captures, key_of};
use axum::http::{HeaderMap, Method};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use treadle_auth::Principal;
use treadle_core::training::{self, MemberRef};
use treadle_core::{CapturedVersion, ServedVersions};
use treadle_model::{EngineKind, StepId, WorkerId};
use treadle_samples::{CallFacts, Output, Span, places_of_media};
use treadle_scheduler::Dispatch;
use treadle_wire::{
    Endpoint, LogprobKind, Shown, SseError, SseScanner, StreamUsage, TokenReader, TokenRequest,
};

/// Longest answer to the request for a prompt's tokens.
const PROMPT_BYTES_MAX: usize = 64 << 20;
/// Longest wait for it.
const PROMPT_TIMEOUT: Duration = Duration::from_mins(1);

/// A step that is captured.
pub(super) struct Capture {
    captures: Arc<Captures>,
    member: MemberRef,
    step: StepId,
    principal: Arc<Principal>,
    /// What its engine had when the step was sent there.
    begun: CapturedVersion,
    worker: WorkerId,
    /// The slot that has its cache.
    slot: Option<u32>,
    engine: EngineKind,
    media: Vec<String>,
    /// The model that the request names, if it is another one than the job's.
    other_model: Option<String>,
    reader: TokenReader,
    /// Of a job whose history is fed as it was sampled.
    history: Option<History>,
    app: Arc<GatewayState>,
    /// The engine's address.
    url: Arc<str>,
    /// Of a stream.
    scanner: SseScanner,
    /// The request that asks for tokens.
    pub(super) request: Bytes,
    /// Whether its whole answer is to be played as a stream.
    pub(super) is_played: bool,
}

/// Prepares to capture a step, if it is one of a member whose tokens are captured. A step that
/// can't be captured is marked, and runs on without.
pub(super) async fn capture_of(
    call: &Call,
    dispatch: &Dispatch,
    pieces: &Pieces,
) -> Option<Capture> {
    let captures = call.app.captures.as_ref().filter(|_| call.is_captured)?;
    let member = call.member.clone()?;
    let (driver, worker) = (&captures.driver, dispatch.worker);
    let begun = driver.captured_version(member.clone(), Some(worker)).await;
    let begun = begun.ok().flatten()?;
    if !pieces.is_empty() {
        // It began at an engine that gives no tokens, which is on record.
        return None;
    }
    let is_chat = call.endpoint == Endpoint::ChatCompletions;
    let is_fed = is_chat && begun.history == training::History::AsSampled;
    let history = is_fed.then(|| History::of(&call.body)).flatten();
    let (engine, streams) = (dispatch.engine, call.head.stream);
    let asked = match history {
        Some(_) => TokenRequest::ask_whole(engine, &call.body, streams),
        None => TokenRequest::ask(call.endpoint, engine, &call.body, streams),
    };
    let asked = match asked {
        Ok(asked) => asked,
        Err(error) => {
            captures.failed(&member, &error.to_string()).await;
            return None;
        }
    };
    let (own, named) = (begun.model.as_deref(), call.head.model.as_deref());
    let other_model = named.filter(|named| own.is_some_and(|own| own != *named));
    Some(Capture {
        captures: captures.clone(),
        member,
        step: call.step,
        principal: call.principal.clone(),
        begun,
        worker,
        slot: dispatch.slot,
        engine: dispatch.engine,
        media: media_of(&call.body),
        other_model: other_model.map(str::to_owned),
        reader: asked.reader,
        history,
        app: call.app.clone(),
        url: dispatch.url.clone(),
        scanner: SseScanner::new(call.app.answer_bytes_max),
        request: asked.body.into(),
        is_played: asked.is_played,
    })
}

impl Capture {
    /// The answer to a prompt that continues an earlier answer by its tokens; `None` if the request
    /// is to be sent as it is.
    pub(super) async fn continued(
        &mut self,
        call: &Call,
        dispatch: &Dispatch,
    ) -> Result<Option<Answer>, Cause> {
        let Some(history) = &mut self.history else {
            return Ok(None);
        };
        let key = key_of(&self.member);
        let answer = history.continued(call, dispatch, &key, &self.request);
        match answer.await? {
            Ok(answer) => Ok(answer),
            Err(lost) => {
                self.captures.failed(&self.member, &lost).await;
                Ok(None)
            }
        }
    }

    /// Whether the engine was asked for an answer to a prompt of tokens.
    pub(super) fn was_sent(&self) -> bool {
        let history = self.history.as_ref();
        history.is_some_and(|history| history.was_sent)
    }

    /// The client's part of a whole answer.
    pub(super) fn whole(&mut self, body: Bytes) -> Bytes {
        if let Some(history) = &mut self.history {
            history.read(&body);
        }
        let shown = self.reader.whole(&body);
        shown.map_or(body, Bytes::from)
    }

    /// The client's part of a whole answer, as the stream that it asked for.
    pub(super) fn played(&self, body: &[u8]) -> Option<Bytes> {
        self.reader.played(body).map(Bytes::from)
    }

    /// The client's part of a stream's bytes; `usage` gets all events.
    pub(super) fn passed(
        &mut self,
        data: &[u8],
        usage: &mut StreamUsage,
    ) -> Result<Bytes, SseError> {
        let (reader, mut out) = (&mut self.reader, Vec::with_capacity(data.len()));
        self.scanner.feed(data, &mut |event| {
            usage.observe(event);
            write(&reader.event(event), event, &mut out);
        })?;
        Ok(out.into())
    }

    /// At the end of a stream: the client's part of a last event without terminator.
    pub(super) fn rest(&mut self, usage: &mut StreamUsage) -> Bytes {
        let (reader, mut out) = (&mut self.reader, Vec::new());
        self.scanner.finish(&mut |event| {
            if is_whole_event(event) {
                usage.observe(event);
                write(&reader.event(event), event, &mut out);
            }
        });
        out.into()
    }

    /// Marks the step as not captured.
    pub(super) async fn failed(self, cause: &str) {
        self.captures.failed(&self.member, cause).await;
    }

    /// Stores the step's tokens and puts them on record, or why it has none.
    pub(super) async fn keep(self) {
        let (captures, member) = (self.captures.clone(), self.member.clone());
        if let Err(cause) = self.kept().await {
            captures.failed(&member, &cause).await;
        }
    }

    async fn kept(self) -> Result<(), String> {
        let served = self.served().await;
        // The weights of another model have no version of the job's.
        let served = self.other_model.is_none().then_some(served);
        let bounds = served.as_ref().map(ServedVersions::bounds).transpose();
        let bounds = bounds.map_err(|error| error.to_string())?;
        let version = bounds.map_or(0, |bounds| bounds.oldest);
        let mut tokens = self.reader.finish()?;
        if let Some(text) = tokens.prompt_text.filter(|_| tokens.prompt.is_empty()) {
            tokens.prompt = prompt_of(&self.app, &self.url, &text).await?;
        }
        let (app, url, slot) = (&*self.app, &*self.url, self.slot);
        // Its answers lack some log-probabilities.
        let lacking = (self.engine == EngineKind::Llamacpp).then_some(Engine { app, url, slot });
        let (mut outputs, mut spans, mut text) = (Vec::new(), Vec::new(), None);
        for mut choice in tokens.choices.into_values() {
            if let Some(engine) = &lacking {
                let scored = engine.score(&tokens.prompt, &choice.ids, &mut choice.logprobs);
                scored.await?;
            }
            if let Some(served) = &served {
                let found = spans_of(served, &choice.versions, choice.ids.len());
                spans.push(found.map_err(|error| error.to_string())?);
            }
            text.get_or_insert(choice.text);
            outputs.push(Output {
                ids: choice.ids,
                logprobs: choice.logprobs,
            });
        }
        if outputs.is_empty() {
            return Err("the answer has no choices".to_owned());
        }
        let kind = self.captures.kinds.of(self.worker);
        let is_one = |span: &Span| span.version == version && span.newest == version;
        if spans.iter().flatten().all(is_one) {
            spans.clear();
        }
        let places = Some(self.media.len()).filter(|images| *images > 0);
        let places = places.and_then(|images| places_of_media(&tokens.prompt, images));
        let mut call = treadle_samples::Call {
            number: self.step.0,
            prompt: tokens.prompt,
            outputs,
            facts: CallFacts {
                version,
                spans,
                prompt_tokens: tokens.prompt_tokens,
                output_tokens: tokens.output_tokens,
                media: self.media,
                places: places.unwrap_or_default(),
                engine: self.engine.to_string(),
                other_model: self.other_model.unwrap_or_default(),
                logprobs: kind.unwrap_or(LogprobKind::Unknown).name().to_owned(),
                text: text.unwrap_or_default(),
                history: String::new(),
            },
        };
        if let Some(history) = &self.history {
            let how = history.how(&call.prompt);
            self.app.metrics.continued(how);
            how.clone_into(&mut call.facts.history);
        }
        call.check()?;
        let (captures, member) = (self.captures, self.member);
        let kept = captures.keep(&member, self.step, &self.principal, &call);
        kept.await?;
        hold(&captures, &member, self.history.as_ref(), &call);
        Ok(())
    }

    /// What the engine had when the step was sent there, and what it has now.
    async fn served(&self) -> ServedVersions {
        let (begun, driver) = (self.begun.clone(), &self.captures.driver);
        let ended = driver.served_version(self.member.job.clone(), self.worker);
        // The steps of a job that was forgotten need no version.
        let ended = ended.await.ok().flatten().unwrap_or_else(|| begun.clone());
        ServedVersions { begun, ended }
    }
}

/// Keeps an answer in mind whose tokens a later prompt may continue.
fn hold(
    captures: &Captures,
    member: &MemberRef,
    history: Option<&History>,
    call: &treadle_samples::Call,
) {
    let said = history.and_then(History::said);
    if let (Some(said), [output]) = (said, &*call.outputs) {
        let context = [&*call.prompt, &*output.ids].concat();
        captures.answers.put(&key_of(member), said, context);
    }
}

fn write(shown: &Shown, event: &[u8], out: &mut Vec<u8>) {
    let event = match shown {
        Shown::All => event,
        Shown::Part(part) => part,
        Shown::Nothing => return,
    };
    for line in event.split(|byte| *byte == b'\n') {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line);
        out.push(b'\n');
    }
    out.push(b'\n');
}

#[derive(Deserialize)]
struct Tokens {
    tokens: Vec<i32>,
}

/// Asks llama.cpp for the ids of a prompt that it reported as text.
async fn prompt_of(app: &GatewayState, url: &str, text: &str) -> Result<Vec<i32>, String> {
    // The template wrote all special tokens.
    let text = json!({"content": text, "add_special": false, "parse_special": true});
    let tokens = post(app, url, "/tokenize", text.to_string().into());
    let tokens = tokio::time::timeout(PROMPT_TIMEOUT, tokens).await;
    let tokens = tokens.map_err(|_| "the engine did not tokenise the prompt in time".to_owned())?;
    parse(&tokens?).map(|tokens: Tokens| tokens.tokens)
}

pub(super) fn parse<T: for<'a> Deserialize<'a>>(body: &[u8]) -> Result<T, String> {
    let parsed = serde_json::from_slice(body);
    parsed.map_err(|error| format!("the engine's answer about its tokens can't be read: {error}"))
}

pub(super) async fn post(
    app: &GatewayState,
    url: &str,
    path: &str,
    body: Bytes,
) -> Result<Bytes, String> {
    let headers = HeaderMap::new();
    let sent = app.upstream.send(Method::POST, url, path, &headers, body);
    let response = sent.await.map_err(|error| error.to_string())?;
    if !response.status().is_success() {
        let status = response.status();
        return Err(format!("the engine answered {status} to POST {path}"));
    }
    let body = Limited::new(response.into_body(), PROMPT_BYTES_MAX).collect();
    let body = body.await.map_err(|error| error.to_string())?;
    Ok(body.to_bytes())
}
