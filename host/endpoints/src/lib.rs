//! Endpoints of the HTTP API. An [`Endpoint`] has a path, the permission that it needs, a handler,
//! errors and documentation; router, guard and the OpenAPI document are made of endpoints.
//!
//! Parameters and results of a handler describe themselves ([`signature`]), and the extractors of
//! [`arguments`] name the field at fault.

#![allow(
    clippy::result_large_err,
    reason = "an early answer is a whole response; it is returned once, not propagated"
)]

pub mod arguments;
mod description;
mod endpoint;
pub mod signature;

pub use description::{ACTION_BYTES_MAX, EndpointDescription, WEIGHTS_CALL_BYTES_MAX};
pub use endpoint::{Endpoint, delete, get, patch, post, put, relayed, router};
