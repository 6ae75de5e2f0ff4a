//! Trust of a daemon: allowed addresses, accepted certificates, secrets that are never shown, and
//! files that only its user can read. Also rate-limited log messages about connection limits.
//!
//! Every connection that a daemon opens over HTTP is made by a [`Connector`], so that addresses and
//! certificates are checked in one place.

mod connector;
mod private;
mod secret;
mod shortage;
mod stream;
mod targets;
mod tls;
mod url;

pub use connector::{ConnectError, Connector};
pub use private::{make_private, private_file, private_folder};
pub use secret::Secret;
pub use shortage::{Rarely, note_shortage};
pub use stream::Stream;
pub use targets::{Refused, Targets, public_host};
pub use tls::{Acceptor, TlsError, Trust};
pub use url::{UrlError, base_url, port_of, url_remedy, written};
