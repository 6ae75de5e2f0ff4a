//! Callers without a token.
//!
//! A daemon on loopback is also reachable by browsers on the same machine, for any page, and by
//! reverse proxies, for any client. So if callers are only trusted because of their address,
//! requests of other sites' pages and of proxies are recognised by their headers and refused.

use super::scope::Scope;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use std::net::IpAddr;
use treadle_config::{AnonymousScope, Config};
use treadle_trust::port_of;
use treadle_wire::{ErrorBody, ErrorCode};

/// Headers that proxies add, beside those that begin with [`FORWARDED_START`].
const PROXY_HEADERS: [HeaderName; 3] = [
    header::FORWARDED,
    header::VIA,
    HeaderName::from_static("x-real-ip"),
];
/// Prefix of `X-Forwarded-For` and similar headers.
const FORWARDED_START: &str = "x-forwarded";

/// Why a request without a token is not treated as local.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Objection {
    /// A proxy forwarded it, so its sender may be anywhere.
    #[error(
        "its header `{0}` shows that a proxy forwarded it; send a token, or let \
         `auth.anonymous_scope` set what all callers behind the proxy may do"
    )]
    Proxy(HeaderName),
    /// Its Host is a name that others can point at this machine.
    #[error(
        "its Host is neither a loopback address nor `localhost`; send a token, or call the daemon \
         by one of these"
    )]
    Host,
    /// A browser sent it for a page of another site.
    #[error("a page of another site sent it; send a token")]
    Page,
}

impl Objection {
    /// The refusal, on a path that local callers may use without a token.
    pub fn refusal(&self, path: &str) -> ErrorBody {
        let message = format!(
            "{path} is open only to local callers, and this request is not treated as local: {self}"
        );
        ErrorBody::new(ErrorCode::TokenMissing, message)
    }
}

/// What callers without a token may do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Anonymous {
    /// Their scope; `None` if they have none.
    pub scope: Option<Scope>,
    /// Whether they are trusted only because they are on the same machine.
    pub for_being_local: bool,
}

impl Anonymous {
    /// The configured setting.
    pub fn of(config: &Config) -> Self {
        let stated = |scope| Self {
            scope,
            for_being_local: false,
        };
        match config.auth.anonymous_scope {
            AnonymousScope::Auto if config.server.listen.ip().is_loopback() => Self {
                scope: Some(Scope::Operator),
                for_being_local: true,
            },
            AnonymousScope::Auto | AnonymousScope::None => stated(None),
            AnonymousScope::Viewer => stated(Some(Scope::Viewer)),
            AnonymousScope::Job => stated(Some(Scope::Job)),
            AnonymousScope::Operator => stated(Some(Scope::Operator)),
            AnonymousScope::Admin => stated(Some(Scope::Admin)),
        }
    }

    /// Why this request is not treated as local, if so.
    pub fn objection(&self, headers: &HeaderMap) -> Option<Objection> {
        if !self.for_being_local {
            return None;
        }
        let is_of_proxy = |name: &&HeaderName| {
            PROXY_HEADERS.contains(name) || name.as_str().starts_with(FORWARDED_START)
        };
        if let Some(name) = headers.keys().find(is_of_proxy) {
            return Some(Objection::Proxy(name.clone()));
        }
        let all = |name: HeaderName, fits: fn(&str) -> bool| {
            let is_good = |value: &HeaderValue| value.to_str().is_ok_and(fits);
            headers.get_all(name).iter().all(is_good)
        };
        if !all(header::HOST, |host| is_loopback(host_of(host))) {
            return Some(Objection::Host);
        }
        let is_local_page = |origin: &str| {
            let origin = origin.parse::<Uri>();
            let is_local = |at: &Authority| is_loopback(bare(at.host())) && port_of(at).is_ok();
            origin.is_ok_and(|origin| origin.authority().is_some_and(is_local))
        };
        let site = HeaderName::from_static("sec-fetch-site");
        let is_local = all(header::ORIGIN, is_local_page) && all(site, |site| site != "cross-site");
        (!is_local).then_some(Objection::Page)
    }
}

/// A Host header without its port.
fn host_of(value: &str) -> &str {
    let end = value.rfind(':').filter(|at| !value[*at..].contains(']'));
    bare(end.map_or(value, |at| &value[..at]))
}

fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Loopback addresses, and names that always mean them (RFC 6761 §6.3). Other names without a dot
/// do not count: they depend on search domains and resolvers.
fn is_loopback(host: &str) -> bool {
    let host = host.to_ascii_lowercase();
    host == "localhost"
        || host.ends_with(".localhost")
        || host
            .parse::<IpAddr>()
            .is_ok_and(|ip| ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_alone_makes_callers_trusted() {
        let of = |listen: &str, stated: &str| {
            let sets = [
                format!("server.listen={listen}"),
                format!("auth.anonymous_scope={stated}"),
                "server.plaintext=true".to_owned(),
            ];
            Anonymous::of(&Config::load(None, [], &sets).unwrap()).scope
        };
        for listen in ["127.0.0.1:1", "[::1]:1"] {
            assert_eq!(of(listen, "auto"), Some(Scope::Operator));
            assert_eq!(of(listen, "none"), None);
        }
        for listen in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1"] {
            assert_eq!(of(listen, "auto"), None);
            assert_eq!(of(listen, "job"), Some(Scope::Job));
        }
    }

    /// Why a request with these headers is not taken as local.
    fn objected(pairs: &[(&'static str, &str)]) -> Option<Objection> {
        let anonymous = Anonymous {
            scope: Some(Scope::Operator),
            for_being_local: true,
        };
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        anonymous.objection(&headers)
    }

    #[test]
    fn local_callers_are_recognised() {
        for good in [
            &[][..],
            &[("host", "127.0.0.1:8300")],
            &[("host", "127.8.0.1")],
            &[("host", "[::1]:8300"), ("origin", "http://[::1]:8300")],
            &[("host", "[::ffff:127.0.0.1]:8300")],
            &[
                ("host", "localhost:8300"),
                ("origin", "http://localhost:3000"),
            ],
            &[("host", "LocalHost:8300")],
            &[("host", "app.localhost"), ("sec-fetch-site", "same-origin")],
        ] {
            assert_eq!(objected(good), None, "{good:?}");
        }
    }

    #[test]
    fn hosts_that_others_may_point_here_are_not_local() {
        for host in [
            "rebound.example.com:8300",
            "gpu-box:8300",
            "x",
            "",
            "10.0.0.1:8300",
            "0.0.0.0:8300",
            "[fe80::1]:8300",
            "localhost.example.com",
            "notlocalhost",
            "127.0.0.1.example.com",
            "ü",
        ] {
            assert_eq!(objected(&[("host", host)]), Some(Objection::Host), "{host}");
        }
        let two = [("host", "localhost"), ("host", "example.com")];
        assert_eq!(objected(&two), Some(Objection::Host));
    }

    #[test]
    fn what_a_proxy_passes_on_is_not_local() {
        for name in [
            "forwarded",
            "via",
            "x-real-ip",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-proto",
            "x-forwarded-prefix",
        ] {
            let why = objected(&[("host", "127.0.0.1:8300"), (name, "127.0.0.1")]);
            assert_eq!(why, Some(Objection::Proxy(HeaderName::from_static(name))));
        }
    }

    #[test]
    fn pages_of_other_sites_are_not_local() {
        for bad in [
            ("origin", "https://example.com"),
            ("origin", "http://gpu-box:8300"),
            ("origin", "null"),
            ("origin", "http://ü"),
            ("origin", "http://127.0.0.1:8300.evil"),
            ("origin", "http://[::1].evil.com"),
            ("origin", "http://localhost:99999"),
            ("sec-fetch-site", "cross-site"),
        ] {
            let why = objected(&[("host", "127.0.0.1:8300"), bad]);
            assert_eq!(why, Some(Objection::Page), "{bad:?}");
        }
    }

    #[test]
    fn callers_trusted_by_the_configuration_may_come_through_a_proxy() {
        let config = ["auth.anonymous_scope=job".to_owned()];
        let anonymous = Anonymous::of(&Config::load(None, [], &config).unwrap());
        let mut headers = HeaderMap::new();
        headers.insert(header::VIA, HeaderValue::from_static("1.1 proxy"));
        assert_eq!(anonymous.objection(&headers), None);
    }
}
