//! Requests to `/v1/responses`. They are sent unchanged to engines that have the path; for other
//! engines they are translated to chat completions and back.

use super::attempt::{Outcome, attempt};
use super::generate::{Call, GatewayState};
use super::messages::ChatMessages;
use super::native::Pieces;
use super::prefill;
use crate::guard::StepGuard;
use crate::responses::{Holding, Responding, StoredResponse};
use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Body as _;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc::UnboundedReceiver;
use treadle_auth::Principal;
use treadle_http::{InUse, error_response};
use treadle_model::ClientName;
use treadle_scheduler::{Dispatch, Instruction};
use treadle_translate::{
    AnswerHead, Answered, ChatForm, ChatTranslator, ResponseBuilder, ResponsesRequest,
};
use treadle_wire::{Endpoint, ErrorBody, ErrorCode, Named, RequestError, RequestHead};

/// State of a request beyond its body.
pub(super) struct ResponsesCall {
    /// The response that it continues.
    previous: Option<(String, StoredResponse)>,
    /// Its own items.
    items: Arc<str>,
    is_stored: bool,
    has_tools: bool,
    /// The request as a chat completion, built when an engine needs it.
    chat: OnceLock<Result<ChatCall, RequestError>>,
}

/// A request in the form of a chat completion.
struct ChatCall {
    call: Arc<Call>,
    request: ResponsesRequest,
    form: ChatForm,
}

impl ResponsesCall {
    /// Parses a body; returns the body for engines, which includes the conversation that it
    /// continues.
    pub(super) fn prepare(
        app: &GatewayState,
        principal: &Principal,
        body: &Bytes,
        room: &mut InUse<2>,
    ) -> Result<(Option<Bytes>, Self), ErrorBody> {
        let request = ResponsesRequest::parse(body)?;
        let previous = match request.previous()? {
            Some(id) => Some(held(app, principal, id)?),
            None => None,
        };
        let history = previous.as_ref().map(|(_, held)| held);
        let bytes_max = principal.body_bytes_max(app.body_bytes_max);
        let bytes = body.len() + history.map_or(0, StoredResponse::bytes);
        if bytes > bytes_max {
            let message = format!(
                "the request with its previous conversation has {bytes} bytes, but at most \
                 {bytes_max} are accepted; start a new conversation, or have server.body_bytes_max \
                 raised"
            );
            return Err(ErrorBody::new(ErrorCode::BodyTooLarge, message));
        }
        // For the body for engines, and its form as a chat.
        room.grow(2 * bytes as u64).map_err(|_| {
            let message = "the daemon's memory for request bodies is full; send fewer at once";
            ErrorBody::new(ErrorCode::TenantBusy, message)
        })?;
        let pieces = history.map(pieces_of).transpose()?;
        let for_engine = request.for_engine(pieces.as_deref())?;
        let call = Self {
            items: request.items()?.into(),
            is_stored: request.stores(),
            has_tools: request.has_tools(),
            previous,
            chat: OnceLock::new(),
        };
        Ok((for_engine.map(Bytes::from), call))
    }

    /// Assigns a request without a program to the program that it continues.
    pub(super) fn name(&self, head: &mut RequestHead) {
        if let Some((_, held)) = &self.previous
            && head.named.is_none()
        {
            let program = ClientName::parse("previous_response_id", &*held.program);
            let parent = None;
            head.named = program.ok().map(|program| Named { program, parent });
        }
    }

    /// Fails if the response to continue belongs to another program.
    pub(super) fn check_program(&self, program: Option<&str>) -> Result<(), ErrorBody> {
        match &self.previous {
            Some((id, held)) if program != Some(&*held.program) => Err(unknown(id)),
            _ => Ok(()),
        }
    }

    /// Whether this status means that the engine does not have the path. An engine that rejects the
    /// client's tools may accept them in a chat.
    pub(super) fn is_unserved(&self, status: StatusCode) -> bool {
        lacks_path(status)
            || (self.has_tools
                && matches!(
                    status,
                    StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY
                ))
    }

    fn chat(&self, call: &Arc<Call>) -> Result<&ChatCall, RequestError> {
        let chat = self.chat.get_or_init(|| ChatCall::of(call));
        chat.as_ref().map_err(Clone::clone)
    }

    fn holding(&self, call: &Call) -> Option<Holding> {
        let program = call.principal.outside(&call.program);
        let program = program.filter(|_| self.is_stored)?;
        let app = &call.app;
        let bytes_max = app.responses.held.bytes_max();
        Some(Holding {
            responses: app.responses.clone(),
            tenant: call.principal.tenant.tenant.name().into(),
            share: call.principal.share(None, bytes_max),
            program: program.into(),
            before: self.previous.as_ref().map(|(_, held)| held.clone()),
            items: self.items.clone(),
        })
    }

    fn builder(&self, call: &Call, chat: &ChatCall) -> ResponseBuilder {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let head = AnswerHead {
            name: call.app.responses.name_of(call.step),
            created_s: now.unwrap_or_default().as_secs(),
            is_stored: self.is_stored,
            previous: self.previous.as_ref().map(|(id, _)| id.clone()),
        };
        ResponseBuilder::new(&chat.request, &chat.form, head)
    }
}

impl Call {
    /// The same step as a chat completion.
    pub(super) fn as_chat(&self, body: Bytes) -> Self {
        self.at(Endpoint::ChatCompletions, body)
    }

    /// The same step at another path of its engine.
    pub(super) fn at(&self, endpoint: Endpoint, body: Bytes) -> Self {
        let mut head = self.head.clone();
        head.include_usage = true;
        Self {
            app: self.app.clone(),
            client: self.client.clone(),
            endpoint,
            target: endpoint.path().to_owned(),
            headers: self.headers.clone(),
            body,
            head,
            member: self.member.clone(),
            is_captured: self.is_captured,
            program: self.program.clone(),
            job: self.job.clone(),
            step: self.step,
            trace: self.trace.clone(),
            principal: self.principal.clone(),
            salt: self.salt.clone(),
            responses: None,
            room: self.room.clone(),
        }
    }
}

impl ChatCall {
    fn of(call: &Arc<Call>) -> Result<Self, RequestError> {
        let request = ResponsesRequest::parse(&call.body)?;
        let mut form = request.to_chat()?;
        let call = Arc::new(call.as_chat(std::mem::take(&mut form.body).into()));
        Ok(Self {
            call,
            request,
            form,
        })
    }
}

/// Parses a body. One for `/v1/responses` is appended to the conversation that it continues.
pub(super) fn read(
    app: &GatewayState,
    principal: &Principal,
    endpoint: Endpoint,
    body: Bytes,
    room: &mut InUse<2>,
) -> Result<(Bytes, Option<ResponsesCall>, RequestHead), ErrorBody> {
    let head = RequestHead::parse(endpoint, &body)?;
    if endpoint != Endpoint::Responses {
        return Ok((body, None, head));
    }
    let (changed, responses) = ResponsesCall::prepare(app, principal, &body, room)?;
    let (body, mut head) = match changed {
        Some(changed) => {
            let head = RequestHead::parse(endpoint, &changed)?;
            (changed, head)
        }
        None => (body, head),
    };
    responses.name(&mut head);
    Ok((body, Some(responses), head))
}

const fn lacks_path(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED
    )
}

fn held(
    app: &GatewayState,
    principal: &Principal,
    id: String,
) -> Result<(String, StoredResponse), ErrorBody> {
    let tenant = principal.tenant.tenant.name();
    match app.responses.held.get(tenant, &id) {
        Some(held) => Ok((id, held)),
        None => Err(unknown(&id)),
    }
}

fn pieces_of(held: &StoredResponse) -> Result<Vec<&str>, ErrorBody> {
    let pieces = held.pieces.iter().map(|piece| std::str::from_utf8(piece));
    pieces.collect::<Result<_, _>>().map_err(|error| {
        let message = format!("the stored conversation is not text: {error}; please report this");
        ErrorBody::new(ErrorCode::Internal, message)
    })
}

/// The refusal for a response that is unknown or belongs to another program, which looks the same.
fn unknown(id: &str) -> ErrorBody {
    let shown: String = id.chars().take(100).collect();
    let message = format!(
        "no stored response `{shown}` of this program; only the newest of each tenant are stored, \
         in memory, unless `store` is false; send the whole conversation as `input`, without \
         `previous_response_id`"
    );
    ErrorBody::new(ErrorCode::PreviousResponseNotFound, message).with_param("previous_response_id")
}

/// One attempt at an engine, by the path that it has.
pub(super) async fn attempt_by_path(
    call: &Arc<Call>,
    dispatch: &Dispatch,
    instructions: &mut UnboundedReceiver<Instruction>,
    guard: StepGuard,
    last_instruction: &mut Option<Instruction>,
    pieces: &mut Pieces,
) -> Outcome {
    let Some(responses) = &call.responses else {
        let chat = ChatMessages::of(call);
        let sent = chat.as_ref().map_or(call, |chat| &chat.call);
        let outcome = attempt(
            sent,
            dispatch,
            instructions,
            guard,
            last_instruction,
            pieces,
        );
        return match (outcome.await, chat) {
            (Outcome::Answered(response), Some(chat)) => {
                Outcome::Answered(chat.translated(response).await)
            }
            (outcome, _) => outcome,
        };
    };
    let unsupported = &call.app.responses.unsupported;
    let (mut guard, mut is_new, mut again) = (guard, false, None);
    // No engine gives tokens there.
    if !call.is_captured && !unsupported.contains(&dispatch.url) {
        let attempt = attempt(
            call,
            dispatch,
            instructions,
            guard,
            last_instruction,
            pieces,
        );
        match attempt.await {
            Outcome::Unserved(unsettled, status) => {
                (guard, is_new) = (unsettled, lacks_path(status));
                again = Some(prefill::again(dispatch));
            }
            Outcome::Answered(response) => {
                return Outcome::Answered(passed(call, responses, response).await);
            }
            other => return other,
        }
    }
    let chat = match responses.chat(call) {
        Ok(chat) => chat,
        Err(error) => {
            guard.failed(&error.message);
            return Outcome::Answered(error_response(&error.into()));
        }
    };
    let attempt = attempt(
        &chat.call,
        again.as_ref().unwrap_or(dispatch),
        instructions,
        guard,
        last_instruction,
        pieces,
    );
    let outcome = attempt.await;
    let Outcome::Answered(response) = outcome else {
        return outcome;
    };
    // If the chat path is not found either, the model is missing.
    if is_new && response.status() != StatusCode::NOT_FOUND {
        unsupported.insert(&dispatch.url);
    }
    let builder = Box::new(responses.builder(call, chat));
    let holding = responses.holding(call);
    Outcome::Answered(translated(call, builder, holding, response).await)
}

/// The engine's own response, stored if it may be continued.
async fn passed(
    call: &Call,
    responses: &ResponsesCall,
    response: Response<Body>,
) -> Response<Body> {
    let Some(holding) = responses.holding(call) else {
        return response;
    };
    if !response.status().is_success() {
        return response;
    }
    if is_stream(&response) {
        let room = InUse::new([call.app.room.answers.clone()]);
        return response.map(|body| Body::new(Responding::new(body, None, Some(holding), room)));
    }
    // A response that is too large to be buffered is not stored.
    let bytes_max = call.app.answer_bytes_max as u64;
    let bytes = response.body().size_hint().exact();
    if bytes.is_none_or(|bytes| bytes > bytes_max) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let Ok(body) = body.collect().await else {
        return broken("the engine's response is incomplete");
    };
    let body = body.to_bytes();
    if let Some(answered) = Answered::of_body(&body) {
        holding.hold(&answered);
    }
    Response::from_parts(parts, Body::from(body))
}

/// Translates a chat completion to the client's response.
pub(super) async fn translated(
    call: &Call,
    builder: Box<dyn ChatTranslator>,
    holding: Option<Holding>,
    response: Response<Body>,
) -> Response<Body> {
    if !response.status().is_success() {
        return response;
    }
    if is_stream(&response) {
        let room = InUse::new([call.app.room.answers.clone()]);
        let responding = |body| Responding::new(body, Some(builder), holding, room);
        return response.map(|body| Body::new(responding(body)));
    }
    let (mut parts, body) = response.into_parts();
    let gathered = Limited::new(body, call.app.answer_bytes_max)
        .collect()
        .await;
    let body = match gathered {
        Ok(body) => builder.whole(&body.to_bytes()),
        Err(_) => None,
    };
    let Some(body) = body else {
        return broken(
            "the engine's response is not a chat completion, or too large to be translated",
        );
    };
    if let (Some(holding), Some(answered)) = (holding, Answered::of_body(&body)) {
        holding.hold(&answered);
    }
    let json = HeaderValue::from_static("application/json");
    parts.headers.insert(header::CONTENT_TYPE, json);
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(body))
}

fn is_stream(response: &Response<Body>) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

fn broken(cause: &str) -> Response<Body> {
    error_response(&ErrorBody::new(ErrorCode::EngineStreamBroken, cause))
}
