//! Requests to `/v1/messages` whose tokens are captured: no engine gives tokens there, so they are
//! translated to chat completions and back.

use super::generate::Call;
use super::responses::translated;
use axum::body::Body;
use axum::http::Response;
use std::sync::Arc;
use treadle_translate::{MessageBuilder, MessagesRequest};
use treadle_wire::Endpoint;

/// A request in the form of a chat completion.
pub(super) struct ChatMessages {
    /// The same step as a chat completion.
    pub(super) call: Arc<Call>,
    request: MessagesRequest,
}

impl ChatMessages {
    /// `None` for one that is not captured, or has no such form: it is sent as it came, and marked
    /// as not captured.
    pub(super) fn of(call: &Call) -> Option<Self> {
        if call.endpoint != Endpoint::Messages || !call.is_captured {
            return None;
        }
        let request = MessagesRequest::parse(&call.body).ok()?;
        let body = request.to_chat().ok()?;
        let call = Arc::new(call.as_chat(body.into()));
        Some(Self { call, request })
    }

    /// The client's response.
    pub(super) async fn translated(self, response: Response<Body>) -> Response<Body> {
        let name = self.call.app.responses.name_of(self.call.step);
        let builder = Box::new(MessageBuilder::new(&self.request, name));
        translated(&self.call, builder, None, response).await
    }
}
