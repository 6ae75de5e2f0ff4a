//! Clients of other routers, with nothing changed but the URL.

mod identity;
mod passthrough;
mod responses;
mod routers;
