//! Clients of other routers, with nothing changed but the URL.

mod encodings;
mod identity;
mod models;
mod passthrough;
mod responses;
mod routers;
