//! Several daemons on one store: each accepts requests, one per shard schedules.
//!
//! A member's gateway talks to every scheduler over a link, even in its own process, so that a
//! change of schedulers is the same for all of its steps. Other requests than generation go to the
//! scheduler of their shard.

mod candidate;
pub(crate) mod link;
mod member;
mod proxy;
mod routes;
mod subject;

pub use member::Member;
