//! `[tls]`: the daemon's certificate, and the authorities that it trusts.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use treadle_trust::{Acceptor, Connector, Targets, TlsError, Trust};

use super::section::section;
use super::{Config, ConfigError, conflict};

section! {
    /// TLS on the daemon's ports and on the connections that it opens; `docs/security.md` has an example.
    TlsConfig in "tls" {
        /// Certificate chain (PEM) of this daemon: with it, `server.listen` and `kv.tier_listen` accept only TLS. The file is reloaded when it changes.
        cert: String = String::new(), "";
        /// The certificate's key (PEM).
        key: String = String::new(), "";
        /// Certificate authorities (PEM) that are trusted in addition to the system's, for engines, other daemons, an identity provider and a prediction service with `https://`.
        ca: String = String::new(), "";
    }
}

impl TlsConfig {
    /// Whether the daemon's ports speak TLS.
    pub fn is_on(&self) -> bool {
        !self.cert.is_empty()
    }

    /// The TLS acceptor of the daemon's ports; `None` without TLS.
    ///
    /// # Errors
    /// A file can't be read, or certificate and key do not match.
    pub fn acceptor(&self) -> Result<Option<Acceptor>, TlsError> {
        let load = || Acceptor::load(Path::new(&self.cert), Path::new(&self.key));
        self.is_on().then(load).transpose()
    }

    /// The certificate authorities that are trusted.
    pub fn trust(&self) -> Trust {
        let file = Some(Path::new(&self.ca)).filter(|_| !self.ca.is_empty());
        Trust::new(file)
    }
}

impl Config {
    /// The scheme of this daemon's URL.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_on() { "https" } else { "http" }
    }

    /// The connector for connections to engines. It allows the addresses that `engines.allowed`
    /// permits, which may exclude the daemon's own, so that must be known by now, and the engines
    /// of the configuration.
    ///
    /// # Errors
    /// An invalid entry of `engines.allowed`.
    pub fn engine_connector(&self) -> Result<Connector, ConfigError> {
        let engines = &self.engines;
        let own: Vec<_> = engines
            .endpoints
            .iter()
            .filter_map(|endpoint| {
                endpoint
                    .url
                    .parse::<http::Uri>()
                    .ok()?
                    .into_parts()
                    .authority
            })
            .collect();
        let mut allowed: Vec<&str> = engines.allowed.iter().map(String::as_str).collect();
        if !allowed.is_empty() {
            allowed.extend(own.iter().map(http::uri::Authority::as_str));
        }
        let targets = Targets::engines(self.server.listen, allowed).map_err(|refused| {
            let remedy = "write hosts, host:port, addresses, or networks such as 10.0.0.0/8";
            conflict(
                "engines.allowed",
                format!("can't be read: {refused}"),
                remedy,
            )
        })?;
        let timeout = Duration::from_millis(engines.connect_timeout_ms);
        Ok(Connector::new(targets, self.tls.trust(), timeout))
    }

    /// Checks that network connections are encrypted, or plaintext is allowed.
    pub(super) fn check_network(&self) -> Result<(), ConfigError> {
        let tls = &self.tls;
        if tls.cert.is_empty() != tls.key.is_empty() {
            let (given, lacking) = if tls.is_on() {
                ("tls.cert", "tls.key")
            } else {
                ("tls.key", "tls.cert")
            };
            let problem = format!("is empty, but {given} is set");
            return Err(conflict(lacking, problem, "set both or neither"));
        }
        let tier: Option<SocketAddr> = self.kv.tier_listen.parse().ok();
        let relay = self.engines.relay_ports().into_iter().next();
        let ports = [
            ("server.listen", Some(self.server.listen)),
            ("kv.tier_listen", tier),
            ("engines.relay", relay.map(|port| port.listen)),
        ];
        for (key, address) in ports {
            if let Some(address) = address.filter(|address| !is_loopback(address.ip())) {
                self.need_tls(key, &address.to_string(), tls.is_on())?;
            }
        }
        let oidc = &self.oidc;
        // Without a client, the issuer is only compared with tokens and never connected to.
        let issuer = Some(&oidc.issuer).filter(|_| !oidc.client_id.is_empty());
        let places = [("oidc.jwks", Some(&oidc.jwks)), ("oidc.issuer", issuer)];
        for (key, place) in places {
            if let Some(place) = place
                && let Ok(uri) = place.parse::<http::Uri>()
                && uri.scheme_str() == Some("http")
                && !uri.host().is_some_and(is_loopback_host)
            {
                self.need_tls(key, place, false)?;
            }
        }
        Ok(())
    }

    fn need_tls(&self, key: &str, place: &str, has_tls: bool) -> Result<(), ConfigError> {
        if has_tls || self.server.plaintext {
            return Ok(());
        }
        let remedy = if key.starts_with("oidc.") {
            "use https://, or set server.plaintext = true if the network is trusted"
        } else {
            "set tls.cert and tls.key, or server.plaintext = true if the network is trusted or a \
             proxy before the daemon does TLS"
        };
        let problem = format!("is {place}, so tokens and prompts would be sent unencrypted");
        Err(conflict(key, problem, remedy))
    }
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

pub(super) fn is_loopback_host(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse().is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(sets: &[&str]) -> String {
        let sets: Vec<_> = sets.iter().map(ToString::to_string).collect();
        Config::load(None, [], &sets).map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn beyond_loopback_there_is_tls_or_a_decision() {
        for open in ["0.0.0.0:8300", "[::]:8300", "10.0.0.5:8300"] {
            let listen = format!("server.listen={open}");
            let said = complaint(&[&listen]);
            assert!(said.starts_with("`server.listen`"), "{said}");
            assert!(
                said.contains("tls.cert") && said.contains("server.plaintext"),
                "{said}"
            );
            assert_eq!(complaint(&[&listen, "server.plaintext=true"]), "");
            assert_eq!(complaint(&[&listen, "tls.cert=c", "tls.key=k"]), "");
        }
        for closed in ["127.0.0.1:8300", "127.8.0.1:1", "[::1]:8300"] {
            assert_eq!(complaint(&[&format!("server.listen={closed}")]), "");
        }
        assert!(complaint(&["tls.cert=c"]).starts_with("`tls.key`"));
        assert!(complaint(&["tls.key=k"]).starts_with("`tls.cert`"));
    }

    #[test]
    fn keys_of_an_identity_provider_come_from_a_file_by_tls_or_from_here() {
        let with = |jwks: &str| complaint(&["oidc.issuer=i", &format!("oidc.jwks={jwks}")]);
        assert!(with("http://idp.example/keys").starts_with("`oidc.jwks`"));
        for good in [
            "https://idp.example/keys",
            "http://127.0.0.1:1/keys",
            "/keys.json",
        ] {
            assert_eq!(with(good), "", "{good}");
        }
    }

    #[test]
    fn engines_of_the_configuration_are_on_every_list() {
        let connector = |sets: &[&str]| {
            let sets: Vec<_> = sets.iter().map(ToString::to_string).collect();
            Config::load(None, [], &sets).unwrap().engine_connector()
        };
        let listed = [
            "engines.allowed=10.0.0.0/8",
            "engines.endpoints=http://127.0.0.1:9",
        ];
        let connector = connector(&listed).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        let admits = |url: &str| runtime.block_on(connector.admit(url)).is_ok();
        assert!(admits("http://127.0.0.1:9") && admits("http://10.1.1.1:5"));
        assert!(!admits("http://127.0.0.1:10") && !admits("http://11.1.1.1:5"));
        assert!(complaint(&["engines.allowed=*"]).starts_with("`engines.allowed`"));
    }
}
