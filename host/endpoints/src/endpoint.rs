//! An endpoint: its path, required permission, handler, errors and documentation. The router, the
//! guard's table and the OpenAPI document are built from endpoints.

use crate::description::{
    ACTION_BYTES_MAX, CONTROL_BYTES_MAX, EndpointDescription, Length, SAMPLE_BYTES_MAX,
    WEIGHTS_CALL_BYTES_MAX,
};
use crate::signature::{Signature, in_path};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter, any, on};
use treadle_auth::permissions::Needs;
use treadle_wire::ErrorCode;
use utoipa::ToSchema;
use utoipa::openapi::path::OperationBuilder;
use utoipa::openapi::request_body::RequestBody;
use utoipa::openapi::{Content, RefOr, Response};

/// An endpoint whose handler has the state `S`.
pub struct Endpoint<S> {
    description: EndpointDescription,
    handler: MethodRouter<S>,
    around: Option<Around<S>>,
}

/// Wraps a handler.
type Around<S> = fn(&S, MethodRouter<S>) -> MethodRouter<S>;

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident = $method:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name<H, T, A, S>(path: &str, needs: Needs, handler: H) -> Endpoint<S>
        where
            H: Handler<T, S> + Signature<A>,
            T: 'static,
            S: Clone + Send + Sync + 'static,
        {
            let router = on(MethodFilter::$method, handler);
            let mut endpoint = bare(Some(Method::$method), path, needs, router);
            H::describe(&mut endpoint.description);
            endpoint
        }
    )*};
}

methods! {
    /// `GET`.
    get = GET;
    /// `POST`.
    post = POST;
    /// `PUT`.
    put = PUT;
    /// `PATCH`.
    patch = PATCH;
    /// `DELETE`.
    delete = DELETE;
}

/// An endpoint whose requests are relayed: the gateway reads the body. `method` is `None` for all
/// methods.
pub fn relayed<H, T, S>(method: Option<Method>, path: &str, needs: Needs, handler: H) -> Endpoint<S>
where
    H: Handler<T, S>,
    T: 'static,
    S: Clone + Send + Sync + 'static,
{
    let router = match &method {
        Some(method) => on(
            MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::POST),
            handler,
        ),
        None => any(handler),
    };
    let mut endpoint = bare(method, path, needs, router);
    endpoint.description.length = Length::Relayed;
    endpoint
}

fn bare<S>(
    method: Option<Method>,
    path: &str,
    needs: Needs,
    handler: MethodRouter<S>,
) -> Endpoint<S> {
    let operation = OperationBuilder::new()
        .parameters(Some(in_path(path)))
        .build();
    let description = EndpointDescription::new(method, path, needs, operation);
    Endpoint {
        description,
        handler,
        around: None,
    }
}

impl<S: Clone + Send + Sync + 'static> Endpoint<S> {
    /// Sets its summary, one sentence.
    pub fn summary(mut self, summary: &str) -> Self {
        self.description.operation.summary = Some(summary.to_owned());
        self
    }

    /// Sets its description, beyond the summary.
    pub fn details(mut self, details: &str) -> Self {
        self.description.operation.description = Some(details.to_owned());
        self
    }

    /// Adds errors beside those of the guard and of its parameters.
    pub fn fails(mut self, codes: &[ErrorCode]) -> Self {
        self.description.errors.extend(codes);
        self
    }

    /// Adds a JSON response that its signature does not imply.
    pub fn answers<T: ToSchema>(mut self, status: u16, what: &str) -> Self {
        self.description.answers::<T>(status, what);
        self
    }

    /// Adds a response that is not JSON.
    pub fn answers_as(mut self, kind: &str, what: &str) -> Self {
        self.description.add_answer("200", kind, what, None);
        self
    }

    /// Adds a response without a body.
    pub fn answers_nothing(mut self, status: u16, what: &str) -> Self {
        self.description.answers_nothing(status, what);
        self
    }

    /// The engine's response is relayed, with any status.
    pub fn answers_as_the_engine(mut self) -> Self {
        let what = "The engine's response.";
        self.description
            .add_answer("200", "application/json", what, None);
        // Of any kind, or empty.
        let refused = Response::new("The engine's error response.");
        let responses = &mut self.description.operation.responses.responses;
        responses.insert("default".to_owned(), RefOr::T(refused));
        self
    }

    /// Sets a JSON body that its signature does not imply.
    pub fn takes<T: ToSchema>(mut self) -> Self {
        self.description.takes::<T>();
        self
    }

    /// Its body is an uploaded policy.
    pub fn takes_upload(mut self) -> Self {
        self.description.length = Length::Upload;
        let mut body = RequestBody::new();
        for kind in ["application/wasm", "multipart/form-data"] {
            body.content.insert(kind.to_owned(), Content::default());
        }
        body.description =
            Some("The component, as the raw body or as a file of a form.".to_owned());
        self.description.operation.request_body = Some(body);
        self.fails(&[ErrorCode::BodyTooLarge])
    }

    /// Its body may be as large as that of an action.
    pub fn takes_action(mut self) -> Self {
        self.description.length = Length::Action;
        self
    }

    /// Its body may be as large as a sample.
    pub fn takes_sample(mut self) -> Self {
        self.description.length = Length::Sample;
        self
    }

    /// Its body is a call of a trainer to engines; the response is sent when they have answered.
    pub fn takes_weights(mut self) -> Self {
        self.description.length = Length::Weights;
        self
    }

    /// Its body is a command; the response is sent when the command exits.
    pub fn takes_command(mut self) -> Self {
        self.description.length = Length::Command;
        self
    }

    /// Wraps the handler.
    pub fn around(mut self, around: Around<S>) -> Self {
        self.around = Some(around);
        self
    }

    /// Its description, for the document and the guard.
    pub fn into_description(self) -> EndpointDescription {
        self.description
    }
}

/// The routes of some endpoints; `upload_bytes_max` bounds those that take an uploaded policy.
pub fn router<S>(endpoints: Vec<Endpoint<S>>, state: S, upload_bytes_max: usize) -> Router
where
    S: Clone + Send + Sync + 'static,
{
    let upload_bytes_max = upload_bytes_max.saturating_add(CONTROL_BYTES_MAX);
    let mut router = Router::new();
    for endpoint in endpoints {
        let (description, mut handler) = (endpoint.description, endpoint.handler);
        if let Some(around) = endpoint.around {
            handler = around(&state, handler);
        }
        handler = match description.length {
            Length::Control => handler.layer(DefaultBodyLimit::max(CONTROL_BYTES_MAX)),
            Length::Action | Length::Command => {
                handler.layer(DefaultBodyLimit::max(ACTION_BYTES_MAX))
            }
            Length::Sample => handler.layer(DefaultBodyLimit::max(SAMPLE_BYTES_MAX)),
            Length::Weights => handler.layer(DefaultBodyLimit::max(WEIGHTS_CALL_BYTES_MAX)),
            Length::Upload => handler.layer(DefaultBodyLimit::max(upload_bytes_max)),
            Length::Relayed => handler,
        };
        router = router.route(description.path(), handler);
    }
    router.with_state(state)
}
