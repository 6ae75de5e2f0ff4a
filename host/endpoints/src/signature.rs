//! Derives an endpoint's OpenAPI description from its handler's parameters and result, so that the
//! document can't differ from the code.

use crate::arguments::{Body, InPath, LastInPath, Query, Raw, Verbatim};
use crate::description::EndpointDescription;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse, Json, Redirect, Response};
use serde::Serialize;
use treadle_auth::Caller;
use treadle_wire::ErrorCode;
use utoipa::openapi::Required;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::{IntoParams, ToSchema};

/// A JSON response, or a refusal.
pub type Answer<T> = Result<Json<T>, Response>;

/// Status 201 with the created object.
pub struct Created<T>(pub T);

/// Status 202 with the accepted job.
pub struct Accepted<T>(pub T);

/// A response that sets a cookie.
pub struct WithCookie<T>(pub T, pub String);

impl<T: Serialize> IntoResponse for WithCookie<T> {
    fn into_response(self) -> Response {
        ([(header::SET_COOKIE, self.1)], Json(self.0)).into_response()
    }
}

/// A redirect that sets cookies.
pub struct SeeOther {
    /// Where it leads.
    pub to: String,
    /// The cookies, each as the value of `Set-Cookie`.
    pub cookies: Vec<String>,
}

impl IntoResponse for SeeOther {
    fn into_response(self) -> Response {
        let cookies = self
            .cookies
            .into_iter()
            .map(|cookie| (header::SET_COOKIE, cookie));
        let cookies = AppendHeaders(cookies);
        (cookies, Redirect::to(&self.to)).into_response()
    }
}

impl<T: Serialize> IntoResponse for Created<T> {
    fn into_response(self) -> Response {
        (StatusCode::CREATED, Json(self.0)).into_response()
    }
}

impl<T: Serialize> IntoResponse for Accepted<T> {
    fn into_response(self) -> Response {
        (StatusCode::ACCEPTED, Json(self.0)).into_response()
    }
}

/// A parameter of a handler.
pub trait Takes {
    /// Adds the parameter to the description.
    fn describe(_: &mut EndpointDescription) {}
}

impl<S> Takes for State<S> {}
impl Takes for Caller {}
impl Takes for HeaderMap {}
/// The endpoint describes its parameters itself.
impl Takes for Request {}
impl<T> Takes for Option<axum::Extension<T>> {}

/// Path parameters are derived from the path.
impl<T> Takes for InPath<T> {
    fn describe(description: &mut EndpointDescription) {
        description.errors.insert(ErrorCode::InvalidField);
    }
}

impl<T> Takes for LastInPath<T> {
    fn describe(description: &mut EndpointDescription) {
        description.errors.insert(ErrorCode::InvalidField);
    }
}

/// The endpoint describes its body itself.
impl Takes for Raw {
    fn describe(description: &mut EndpointDescription) {
        description
            .errors
            .extend([ErrorCode::InvalidJson, ErrorCode::BodyTooLarge]);
    }
}

impl<T: IntoParams> Takes for Query<T> {
    fn describe(description: &mut EndpointDescription) {
        description.parameters(T::into_params(|| Some(ParameterIn::Query)));
        description.errors.insert(ErrorCode::InvalidField);
    }
}

impl<T: ToSchema> Takes for Verbatim<T> {
    fn describe(description: &mut EndpointDescription) {
        Body::<T>::describe(description);
    }
}

impl<T: ToSchema> Takes for Body<T> {
    fn describe(description: &mut EndpointDescription) {
        description.takes::<T>();
        description.errors.extend([
            ErrorCode::InvalidJson,
            ErrorCode::BodyNotObject,
            ErrorCode::InvalidField,
            ErrorCode::MissingField,
            ErrorCode::BodyTooLarge,
        ]);
    }
}

/// A result of a handler.
pub trait Gives {
    /// Adds the response to the description.
    fn describe(_: &mut EndpointDescription) {}
}

/// The endpoint describes its responses itself.
impl Gives for Response {}

impl<T: ToSchema> Gives for Json<T> {
    fn describe(description: &mut EndpointDescription) {
        description.answers::<T>(200, "The answer.");
    }
}

impl<T: ToSchema> Gives for WithCookie<T> {
    fn describe(description: &mut EndpointDescription) {
        Json::<T>::describe(description);
    }
}

impl Gives for SeeOther {
    fn describe(description: &mut EndpointDescription) {
        description.answers_nothing(303, "The browser is redirected.");
    }
}

impl<T: ToSchema> Gives for Created<T> {
    fn describe(description: &mut EndpointDescription) {
        description.answers::<T>(201, "Created.");
    }
}

impl<T: ToSchema> Gives for Accepted<T> {
    fn describe(description: &mut EndpointDescription) {
        description.answers::<T>(202, "Accepted.");
    }
}

impl<G: Gives> Gives for Result<G, Response> {
    fn describe(description: &mut EndpointDescription) {
        G::describe(description);
    }
}

/// A handler with the parameters `A`.
pub trait Signature<A> {
    /// Adds its parameters and its result to the description.
    fn describe(description: &mut EndpointDescription);
}

macro_rules! signatures {
    ($(($($parameter:ident)*))*) => {$(
        impl<F, R, $($parameter),*> Signature<($($parameter,)*)> for F
        where
            F: Fn($($parameter),*) -> R,
            R: Future,
            R::Output: Gives,
            $($parameter: Takes),*
        {
            fn describe(description: &mut EndpointDescription) {
                $($parameter::describe(description);)*
                R::Output::describe(description);
                description.operation.operation_id = Some(name_of::<F>());
            }
        }
    )*};
}

signatures! { () (A) (A B) (A B C) (A B C D) (A B C D E) }

/// The operation's id, such as `programs_show` for the handler `show` in `programs.rs`.
fn name_of<F>() -> String {
    let parts: Vec<&str> = std::any::type_name::<F>().rsplit("::").take(2).collect();
    parts.into_iter().rev().collect::<Vec<_>>().join("_")
}

/// The parameters of a path: strings, except for the number of a step.
pub(crate) fn in_path(path: &str) -> Vec<Parameter> {
    let names = path
        .split('{')
        .skip(1)
        .filter_map(|rest| rest.split('}').next())
        // A wildcard parameter has a leading asterisk.
        .map(|name| name.trim_start_matches('*'));
    let parameter = |name: &str| {
        let kind = if name == "step" {
            Type::Integer
        } else {
            Type::String
        };
        ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .schema(Some(ObjectBuilder::new().schema_type(kind).build()))
            .build()
    };
    names.map(parameter).collect()
}
