//! The description of an endpoint, without its handler: for the guard, and for the OpenAPI document.

use axum::http::Method;
use std::collections::BTreeSet;
use treadle_auth::permissions::{Needs, Route};
use treadle_wire::ErrorCode;
use utoipa::ToSchema;
use utoipa::openapi::path::{Operation, Parameter};
use utoipa::openapi::request_body::RequestBody;
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{Content, Ref, RefOr, Response};

/// Largest body of a request that is not a generation request or an upload.
pub(crate) const CONTROL_BYTES_MAX: usize = 1 << 20;

/// Largest description of an action.
pub const ACTION_BYTES_MAX: usize = 8 << 20;

/// Largest sample of a program.
pub(crate) const SAMPLE_BYTES_MAX: usize = 64 << 20;

/// Largest call of a trainer to an engine: names, types and shapes of all tensors, or handles to
/// them. Weights don't come this way.
pub const WEIGHTS_CALL_BYTES_MAX: usize = 64 << 20;

/// The limit on a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// [`CONTROL_BYTES_MAX`].
    Control,
    /// [`ACTION_BYTES_MAX`].
    Action,
    /// Same body limit as `Action`; the response is sent when the command exits, with no timeout.
    Command,
    /// [`SAMPLE_BYTES_MAX`].
    Sample,
    /// [`WEIGHTS_CALL_BYTES_MAX`]; the response is sent when the engine has answered, with no
    /// timeout.
    Weights,
    /// The configured limit on uploaded policies.
    Upload,
    /// No limit here: the gateway reads the body and has its own limits.
    Relayed,
}

/// The description of an endpoint, without its handler.
pub struct EndpointDescription {
    /// The method; `None` for all methods.
    method: Option<Method>,
    path: String,
    needs: Needs,
    pub(crate) operation: Operation,
    pub(crate) errors: BTreeSet<ErrorCode>,
    /// Schemas that the operation refers to.
    schemas: Vec<(String, RefOr<Schema>)>,
    pub(crate) length: Length,
}

impl EndpointDescription {
    /// Of an endpoint without parameters, other than those of its path, and without responses.
    pub(crate) fn new(
        method: Option<Method>,
        path: &str,
        needs: Needs,
        operation: Operation,
    ) -> Self {
        Self {
            method,
            path: path.to_owned(),
            needs,
            operation,
            errors: BTreeSet::new(),
            schemas: Vec::new(),
            length: Length::Control,
        }
    }

    /// The method; `None` for all methods.
    pub fn method(&self) -> Option<&Method> {
        self.method.as_ref()
    }

    /// The path, with its parameters in braces.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The permission that it needs.
    pub fn needs(&self) -> Needs {
        self.needs
    }

    /// Its parameters, body and responses.
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// Errors beside those of the guard.
    pub fn errors(&self) -> &BTreeSet<ErrorCode> {
        &self.errors
    }

    /// Schemas that the operation refers to, by name.
    pub fn schemas(&self) -> &[(String, RefOr<Schema>)] {
        &self.schemas
    }

    /// The route for the guard's table.
    pub fn route(&self) -> Route {
        Route {
            method: self.method.clone(),
            path: self.path.clone(),
            needs: self.needs,
            relayed: matches!(
                self.length,
                Length::Relayed | Length::Command | Length::Weights
            ),
            bytes_max: match self.length {
                Length::Control => Some(CONTROL_BYTES_MAX),
                Length::Action | Length::Command => Some(ACTION_BYTES_MAX),
                Length::Sample => Some(SAMPLE_BYTES_MAX),
                Length::Weights => Some(WEIGHTS_CALL_BYTES_MAX),
                Length::Upload | Length::Relayed => None,
            },
        }
    }

    /// Adds a JSON response. A status may have one of another kind, too.
    pub fn answers<T: ToSchema>(&mut self, status: u16, what: &str) {
        let schema = self.refer::<T>();
        self.add_answer(&status.to_string(), "application/json", what, Some(schema));
    }

    /// Adds a response without a body.
    pub fn answers_nothing(&mut self, status: u16, what: &str) {
        let responses = &mut self.operation.responses.responses;
        responses.insert(status.to_string(), RefOr::T(Response::new(what)));
    }

    pub(crate) fn add_answer(
        &mut self,
        status: &str,
        kind: &str,
        what: &str,
        schema: Option<RefOr<Schema>>,
    ) {
        let content = Content::new(schema);
        let responses = &mut self.operation.responses.responses;
        if let Some(RefOr::T(known)) = responses.get_mut(status)
            && !known.content.contains_key(kind)
        {
            known.content.insert(kind.to_owned(), content);
            return;
        }
        let mut response = Response::new(what);
        response.content.insert(kind.to_owned(), content);
        responses.insert(status.to_owned(), RefOr::T(response));
    }

    /// Sets a JSON body.
    pub fn takes<T: ToSchema>(&mut self) {
        let schema = self.refer::<T>();
        let mut body = RequestBody::new();
        let content = Content::new(Some(schema));
        body.content.insert("application/json".to_owned(), content);
        self.operation.request_body = Some(body);
    }

    /// Adds parameters of the query or the head.
    pub(crate) fn parameters(&mut self, parameters: Vec<Parameter>) {
        let all = self.operation.parameters.get_or_insert_default();
        all.extend(parameters);
    }

    /// A reference to a schema, which becomes part of the document; lists and maps have no name of
    /// their own.
    fn refer<T: ToSchema>(&mut self) -> RefOr<Schema> {
        let name = T::name().into_owned();
        T::schemas(&mut self.schemas);
        if matches!(&*name, "Vec" | "BTreeMap" | "Value") {
            return T::schema();
        }
        self.schemas.push((name.clone(), T::schema()));
        Ref::from_schema_name(name).into()
    }
}
