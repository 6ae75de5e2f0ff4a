//! Several daemons on one store: each takes requests in, one per shard
//! schedules.
//!
//! A member's gateway talks to every scheduler over a link, to the one in its
//! own process too, so that a change of schedulers is the same for all of its
//! steps. Whatever is not a generation request goes to the scheduler of the
//! shard that it is about.

mod about;
mod candidate;
pub(crate) mod link;
mod member;
mod proxy;
mod routes;

pub use member::Member;
