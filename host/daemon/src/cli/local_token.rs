//! The token of a daemon on this machine, where it left it at its first start.

use std::net::IpAddr;

use http::Uri;

use super::environment;
use crate::auth::first_token;
use crate::config::{Config, StoreConfig};

/// Longest token that is read, in bytes.
const TOKEN_BYTES_MAX: u64 = 4_096;

/// The token beside the store that a daemon started here would use. It goes to this machine only.
pub(super) fn find(url: &str) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    if !is_loopback(uri.host()?) {
        return None;
    }
    let path = first_token::file_of(&store())?;
    if std::fs::metadata(&path).ok()?.len() > TOKEN_BYTES_MAX {
        return None;
    }
    let text = std::fs::read_to_string(path).ok()?;
    let token = text.trim();
    (!token.is_empty()).then(|| token.to_owned())
}

/// A configuration that is wrong is no matter of whoever asks a daemon.
fn store() -> StoreConfig {
    let file = std::env::var_os(environment::CONFIG).map(std::path::PathBuf::from);
    let config = Config::load(file.as_deref(), environment::all(), &[]);
    config.map_or_else(|_| StoreConfig::default(), |config| config.store)
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_found_here_stays_here() {
        for local in ["127.0.0.1", "[::1]", "localhost", "127.8.0.1"] {
            assert!(is_loopback(local), "{local}");
        }
        for elsewhere in [
            "10.0.0.1",
            "example.com",
            "localhost.example.com",
            "0.0.0.0",
        ] {
            assert!(!is_loopback(elsewhere), "{elsewhere}");
        }
        assert_eq!(find("http://10.0.0.1:8300"), None);
    }
}
