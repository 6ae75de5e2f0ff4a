//! Clients of other routers, with only the URL changed.

mod encodings;
mod identity;
mod models;
mod passthrough;
mod responses;
mod routers;
