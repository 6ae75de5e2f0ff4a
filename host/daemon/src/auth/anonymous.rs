//! Callers without a token: who they may be.
//!
//! A browser on the same machine reaches a daemon on loopback too, for whatever page it shows. So
//! where nothing but the address makes a caller trusted, requests of pages from elsewhere are told
//! by their headers and refused.

use super::scope::Scope;
use crate::config::{AnonymousScope, Config};
use axum::http::{HeaderMap, Uri, header};
use std::net::IpAddr;

/// What callers without a token may do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Anonymous {
    /// Their scope; none where absent.
    pub scope: Option<Scope>,
    /// They are trusted for being on the same machine.
    pub for_being_local: bool,
}

impl Anonymous {
    /// What the configuration says.
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

    /// Why this request is not taken as one of somebody local, if it is not.
    pub fn objection(&self, headers: &HeaderMap) -> Option<&'static str> {
        if !self.for_being_local {
            return None;
        }
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let host = text(header::HOST).map(host_of);
        if host.is_some_and(|host| !is_local(host)) {
            return Some("its Host is a public name");
        }
        let origin = text(header::ORIGIN).map(str::parse::<Uri>);
        let is_foreign = origin.is_some_and(|origin| {
            !origin.is_ok_and(|origin| origin.host().is_some_and(|host| is_loopback(bare(host))))
        });
        let crosses = text(header::HeaderName::from_static("sec-fetch-site")) == Some("cross-site");
        (is_foreign || crosses).then_some("a page from another site sent it")
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

/// Names that no stranger can point at this machine: addresses, and names without a domain.
fn is_local(host: &str) -> bool {
    is_loopback(host) || host.parse::<IpAddr>().is_ok() || !host.contains('.')
}

fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host.ends_with(".localhost")
        || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
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

    #[test]
    fn pages_from_elsewhere_are_told_apart() {
        let anonymous = Anonymous {
            scope: Some(Scope::Operator),
            for_being_local: true,
        };
        let objected = |pairs: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, value.parse().unwrap());
            }
            anonymous.objection(&headers).is_some()
        };
        for good in [
            &[][..],
            &[("host", "127.0.0.1:8300")],
            &[("host", "[::1]:8300"), ("origin", "http://[::1]:8300")],
            &[
                ("host", "localhost:8300"),
                ("origin", "http://localhost:3000"),
            ],
            &[("host", "gpu-box:8300")],
            &[("host", "x"), ("sec-fetch-site", "same-origin")],
        ] {
            assert!(!objected(good), "{good:?}");
        }
        for bad in [
            &[("host", "rebound.example.com:8300")][..],
            &[
                ("host", "127.0.0.1:8300"),
                ("origin", "https://example.com"),
            ],
            &[("host", "127.0.0.1:8300"), ("origin", "null")],
            &[("host", "127.0.0.1:8300"), ("sec-fetch-site", "cross-site")],
        ] {
            assert!(objected(bad), "{bad:?}");
        }
    }
}
