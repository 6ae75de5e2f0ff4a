//! HTTP building blocks for clients and servers: pooled connections to engines, accepting
//! connections with limits, reading bodies, open event streams, pages of other
//! origins, errors as responses, Prometheus' text format.

mod address;
pub mod body;
mod coding;
mod cors;
mod engine_headers;
mod error;
mod exposition;
mod guarded;
mod histogram;
mod open_streams;
mod peers;
mod reached_limits;
mod retry_after;
mod serve;
mod steady;
mod tally;
mod unread;
mod upstream;

pub use address::{ClientAddress, Encrypted, ServedAddress};
pub use coding::refuse_coded;
pub use cors::open_to;
pub use engine_headers::of_engine;
pub use error::{error_response, refuse, wrong_method};
pub use exposition::{Exposition, counter, escape, gauge};
pub use histogram::Histogram;
pub use open_streams::{OpenStream, OpenStreams};
pub use retry_after::retry_after;
pub use serve::{Listener, ServeLimits, serve};
pub use tally::{Bounded, InUse, Tally};
pub use upstream::{Upstream, UpstreamError, end_to_end};
