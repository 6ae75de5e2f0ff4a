//! Steps of training jobs whose `history` is `as_sampled`: a chat that continues a captured answer
//! gets the answer's tokens as its prompt, and what follows them. If anything is not as it has to be,
//! the step is sent as its client sent it, with the reason on record.

use super::attempt::{Answer, exchange_within, is_rejection};
use super::capture::{parse, post};
use super::cause::Cause;
use super::generate::Call;
use axum::http::header;
use bytes::Bytes;
use serde::Deserialize;
use std::time::Duration;
use treadle_model::EngineKind;
use treadle_scheduler::Dispatch;
use treadle_wire::history::{
    AnswerMessage, AnsweredConversation, AsSent, Conversation, Derender, Generation, Renderings,
    chat_answer,
};
use treadle_wire::{Endpoint, insert_fields};

/// Longest wait for the renderings of a request, and for the text of its answer.
const RENDER_TIMEOUT: Duration = Duration::from_mins(1);
/// How a step is recorded that continued an answer by its tokens.
const AS_SAMPLED: &str = "as_sampled";

/// A chat whose history is fed as it was sampled.
pub(super) struct History {
    conversation: Conversation,
    answer: Option<AnswerMessage>,
    /// How it was sent; empty before there is an answer to continue.
    how: &'static str,
    /// The prompt that its engine was given.
    fed: Option<Vec<i32>>,
    /// Whether an engine was asked for an answer to a prompt of tokens.
    pub(super) was_sent: bool,
}

/// A prompt that continues an answer.
struct Prompt {
    ids: Vec<i32>,
    /// The client's messages give the same one.
    is_sent: bool,
    /// For vLLM.
    generation: Option<Generation>,
    /// Of prompt and answer together.
    tokens_max: usize,
    /// The prompt that the client's messages give.
    sent: Vec<i32>,
}

/// Why there is no answer to a prompt of tokens.
enum Unanswered {
    /// The step is sent as its client sent it.
    AsSent(AsSent),
    /// It was answered, and the answer's text is not known: its tokens are lost.
    Lost(String),
    Failed(Cause),
}

impl From<AsSent> for Unanswered {
    fn from(reason: AsSent) -> Self {
        Self::AsSent(reason)
    }
}

#[derive(Deserialize)]
struct Tokenized {
    tokens: Vec<i32>,
    max_model_len: Option<i64>,
}

impl History {
    pub(super) fn of(body: &[u8]) -> Option<Self> {
        Some(Self {
            conversation: Conversation::parse(body)?,
            answer: None,
            how: "",
            fed: None,
            was_sent: false,
        })
    }

    /// Reads the whole answer.
    pub(super) fn read(&mut self, body: &[u8]) {
        self.answer = AnswerMessage::parse(body);
    }

    /// How the step was sent, if its engine reports this prompt.
    pub(super) fn how(&self, prompt: &[i32]) -> &'static str {
        match &self.fed {
            Some(fed) if fed != prompt => AsSent::Ignored.name(),
            _ => self.how,
        }
    }

    /// What later requests are compared with.
    pub(super) fn said(&self) -> Option<AnsweredConversation> {
        Some(self.conversation.answered(self.answer?))
    }

    /// The answer to a prompt that continues an earlier answer; `None` if the request is to be sent
    /// as it is. `request` asks for tokens. The cause is that of tokens that are lost.
    pub(super) async fn continued(
        &mut self,
        call: &Call,
        dispatch: &Dispatch,
        key: &str,
        request: &Bytes,
    ) -> Result<Result<Option<Answer>, String>, Cause> {
        if !self.conversation.has_answer() {
            return Ok(Ok(None));
        }
        match self.answer(call, dispatch, key, request).await {
            Ok(answer) => {
                self.how = AS_SAMPLED;
                Ok(Ok(answer))
            }
            Err(Unanswered::AsSent(reason)) => {
                (self.how, self.fed) = (reason.name(), None);
                Ok(Ok(None))
            }
            Err(Unanswered::Lost(cause)) => {
                (self.how, self.fed) = (AsSent::Unparsed.name(), None);
                Ok(Err(cause))
            }
            Err(Unanswered::Failed(cause)) => Err(cause),
        }
    }

    async fn answer(
        &mut self,
        call: &Call,
        dispatch: &Dispatch,
        key: &str,
        request: &Bytes,
    ) -> Result<Option<Answer>, Unanswered> {
        let prompt = self.prompt(call, dispatch, key, request).await?;
        self.fed = Some(prompt.ids.clone());
        if prompt.is_sent {
            return Ok(None);
        }
        self.was_sent = true;
        let answer = if let Some(generation) = &prompt.generation {
            generated(call, dispatch, generation, &prompt).await?
        } else {
            let ids = ("input_ids", format!("{:?}", prompt.ids));
            let body = insert_fields(request, &[ids]).ok_or(AsSent::Refused)?;
            taken(exchange_within(call, dispatch, &body.into()).await)?
        };
        Ok(Some(answer))
    }

    /// The tokens that continue the answer.
    async fn prompt(
        &self,
        call: &Call,
        dispatch: &Dispatch,
        key: &str,
        request: &Bytes,
    ) -> Result<Prompt, AsSent> {
        if !matches!(dispatch.engine, EngineKind::Vllm | EngineKind::Sglang) {
            return Err(AsSent::Engine);
        }
        let captures = call.app.captures.as_ref().ok_or(AsSent::NotHeld)?;
        let context = captures.answers.context(key, &self.conversation)?;
        let stand_ins = self.conversation.stand_ins().ok_or(AsSent::Prefill)?;
        let (app, url) = (&call.app, &*dispatch.url);
        let tokenize = async |body: Vec<u8>| {
            let answer = post(app, url, "/tokenize", body.into()).await?;
            parse::<Tokenized>(&answer)
        };
        let sent = async {
            if dispatch.engine == EngineKind::Sglang {
                return Ok((
                    tokenize(self.conversation.as_tokenize()).await?.tokens,
                    None,
                ));
            }
            let path = "/v1/chat/completions/render";
            let rendered = post(app, url, path, request.clone()).await?;
            Ok((Vec::new(), Some(rendered)))
        };
        let renderings = async {
            tokio::try_join!(
                tokenize(stand_ins.opening),
                tokenize(stand_ins.probe),
                tokenize(stand_ins.whole),
                sent,
            )
        };
        let renderings = tokio::time::timeout(RENDER_TIMEOUT, renderings).await;
        let renderings = renderings.map_err(|_| AsSent::Tokenize)?;
        let (opening, probe, whole, sent) = renderings.map_err(|cause: String| {
            tracing::debug!(%cause, "a step is sent as its client sent it");
            AsSent::Tokenize
        })?;
        let (sent, rendered) = sent;
        let mut generation = rendered.map(|body| Generation::parse(&body)).transpose()?;
        let own = generation.as_mut().map(|own| std::mem::take(&mut own.sent));
        let tokens_max = whole.max_model_len.and_then(|most| most.try_into().ok());
        let renderings = Renderings {
            opening: opening.tokens,
            probe: probe.tokens,
            whole: whole.tokens,
            sent: own.unwrap_or(sent),
        };
        let ids = renderings.continuing(context.ids())?;
        Ok(Prompt {
            is_sent: ids == renderings.sent,
            ids,
            generation,
            tokens_max: tokens_max.unwrap_or(usize::MAX),
            sent: renderings.sent,
        })
    }
}

/// An answer that is no refusal.
fn taken(answer: Result<Answer, Cause>) -> Result<Answer, Unanswered> {
    match answer.map_err(Unanswered::Failed)? {
        Answer::Whole(parts, _) if is_rejection(parts.status) || parts.status.is_server_error() => {
            Err(AsSent::Refused.into())
        }
        answer => Ok(answer),
    }
}

/// vLLM's answer to a prompt of tokens, as its chat would give it.
async fn generated(
    call: &Call,
    dispatch: &Dispatch,
    generation: &Generation,
    prompt: &Prompt,
) -> Result<Answer, Unanswered> {
    let body = Bytes::from(generation.body(&prompt.ids, prompt.tokens_max)?);
    let as_tokens = call.at(Endpoint::VllmGenerate, body.clone());
    let answer = taken(exchange_within(&as_tokens, dispatch, &body).await)?;
    let Answer::Whole(mut parts, generated) = answer else {
        let cause = "the engine's answer to a prompt of tokens can't be read whole";
        return Err(Unanswered::Lost(cause.to_owned()));
    };
    if !parts.status.is_success() {
        return Ok(Answer::Whole(parts, generated));
    }
    let unknown = || "the engine's answer to a prompt of tokens is no such answer".to_owned();
    let derender = Derender::of(&call.body, &prompt.sent, &generated);
    let derendered = match derender.ok_or_else(unknown).map_err(Unanswered::Lost)? {
        Derender::Empty(answer) => answer.into(),
        Derender::Ask(body) => {
            let path = "/v1/chat/completions/derender";
            let text = post(&call.app, &dispatch.url, path, body.into());
            let text = tokio::time::timeout(RENDER_TIMEOUT, text).await;
            let late = || "the engine did not parse an answer in time".to_owned();
            let text = text.unwrap_or_else(|_| Err(late()));
            text.map_err(Unanswered::Lost)?
        }
    };
    let answer = chat_answer(&derendered, &generated, &prompt.ids);
    let answer = answer.ok_or_else(unknown).map_err(Unanswered::Lost)?;
    parts.headers.remove(header::CONTENT_LENGTH);
    Ok(Answer::Whole(parts, answer.into()))
}
