//! `[server]`: the port for clients.

use std::net::{Ipv4Addr, SocketAddr};

use super::section::section;
use super::{ConfigError, conflict};
use treadle_trust::base_url;

section! {
    /// The port for clients.
    ServerConfig in "server" {
        /// Address and port to listen on; port 0 takes any that is free.
        listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 8300)), "";
        /// Whether `server.listen` and `kv.tier_listen` may be reachable from other machines without TLS (`tls.cert`): set it if the network is trusted or a reverse proxy terminates TLS.
        plaintext: bool = false, "";
        /// Origins of web pages, such as `https://app.example:8443`, whose scripts may call the daemon (CORS). They send a token in a header; cookies from other origins are not accepted. `*` is any page.
        cors_origins: Vec<String> = Vec::new(), "";
        /// Largest body of a request; a larger one is refused with 413.
        body_bytes_max: u64 = 64 << 20, "bytes", 1024 ..= 4_294_967_296_u64;
        /// Total size of the request bodies that the daemon holds, including those of waiting steps; a further request is refused with 503 `overloaded`. A body is held until its answer begins, or ends if it is not a stream.
        bodies_bytes_max: u64 = 4 << 30, "bytes", 1_048_576 ..= 1_099_511_627_776_u64;
        /// How long running requests may continue after a signal to stop.
        shutdown_grace_s: u64 = 30, "seconds", 0 ..= 86_400;
        /// Interval at which an event stream without data gets a comment, so that no proxy closes the connection: while its step waits in the queue, at its engine, or to continue. The first comment is sent with the response head, status 200; a later failure of the step is reported within the stream. 0 for never.
        keep_alive_s: u64 = 10, "seconds", 0 ..= 3600;
        fixed {
            /// How long a client may take to send the head of its first request on a connection.
            first_head_timeout_s: u64 = 10, "seconds", 1 ..= 3600;
            /// How long a client may read nothing of its response before its connection is closed and its step aborted.
            write_pause_s_max: u64 = 300, "seconds", 1 ..= 86_400;
            /// How long a client may take to send the head of a request, and how long a connection may be idle, before it is closed.
            header_read_timeout_s: u64 = 120, "seconds", 1 ..= 3600;
            /// How long a client may pause while it sends a request's body before it is refused with 408.
            body_read_timeout_s: u64 = 60, "seconds", 1 ..= 3600;
            /// Maximum number of open connections, including those of waiting steps; more are accepted when some close.
            connections_max: usize = 65_536, "connections", 1 ..= 1_000_000;
        }
    }
}

impl ServerConfig {
    /// Origins as browsers send them: scheme, host and port.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let is_wrong = |origin: &&String| *origin != "*" && base_url(origin).is_err();
        match self.cors_origins.iter().find(is_wrong) {
            None => Ok(()),
            Some(origin) => Err(conflict(
                "server.cors_origins",
                format!("has `{origin}`, which is not an origin"),
                "write it as https://host or https://host:port, or `*` for any",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Config;

    #[test]
    fn origins_have_no_path() {
        let load = |origins: &str| {
            let set = format!("server.cors_origins={origins}");
            Config::load(None, [], &[set])
        };
        for good in ["[]", "https://app.example,http://localhost:3000", "*"] {
            assert!(load(good).is_ok(), "{good}");
        }
        for bad in [
            "app.example",
            "https://app.example/x",
            "null",
            "https://*.example,x",
        ] {
            let error = load(bad).unwrap_err().to_string();
            assert!(error.contains("server.cors_origins"), "{error}");
        }
    }
}
