//! Addresses that a daemon may connect to on others' behalf (protection against SSRF): clients
//! register engines and send requests of actions, and must not reach networks that only the daemon
//! can.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use embedded::with_embedded;
use private_range::is_private;
pub use public_host::public_host;

mod embedded;
mod metadata;
mod private_range;
mod public_host;

/// The configuration key for addresses of engines.
const ENGINES: &str = "engines.allowed";
/// The configuration key for addresses that requests of actions may reach.
const EGRESS: &str = "actions.egress";

/// Why an address is refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refused {
    /// It is never allowed.
    #[error("{0} is never connected to: {1}")]
    Never(IpAddr, &'static str),
    /// It is a name of a cloud's metadata service.
    #[error("{0} is never connected to: it is a name of a cloud's metadata service")]
    NeverNamed(String),
    /// It is the daemon's own.
    #[error("{0} is the daemon itself")]
    Own(SocketAddr),
    /// It is not on the list.
    #[error("{0} at {1} is not in `{2}`; have it added there")]
    NotAllowed(String, SocketAddr, &'static str),
    /// It is in a private network, and only its name is on the list.
    #[error(
        "{0} at {1} is in a private network; have the address or its network added to `{2}`; a \
         name is not enough"
    )]
    Private(String, SocketAddr, &'static str),
    /// An entry of the list can't be read.
    #[error("`{0}` is not a host, host:port, address or network such as 10.0.0.0/8")]
    Pattern(String),
}

/// The allowed addresses.
#[derive(Clone, Debug, Default)]
pub struct Targets {
    rules: Option<Rules>,
}

#[derive(Clone, Debug)]
struct Rules {
    /// The daemon's listening address.
    own: SocketAddr,
    /// For engines, an empty list allows all.
    allowed: Vec<Pattern>,
    /// The configuration key of the list.
    list: &'static str,
}

#[derive(Clone, Debug)]
struct Pattern {
    host: Host,
    port: Option<u16>,
}

#[derive(Clone, Debug)]
enum Host {
    /// A name, in lower case.
    Name(String),
    /// Names with this suffix, which begins with a dot.
    Below(String),
    /// The addresses that share the first bits.
    Network(IpAddr, u32),
}

impl Targets {
    /// All addresses, for URLs that an operator has configured.
    pub fn all() -> Self {
        Self::default()
    }

    /// Addresses of engines for a daemon that listens at `own`: those in `allowed`, or all possible
    /// ones if it is empty.
    ///
    /// # Errors
    /// The first entry that can't be read.
    pub fn engines<'a>(
        own: SocketAddr,
        allowed: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, Refused> {
        Self::listed(own, allowed, ENGINES)
    }

    /// Addresses for requests of actions, for a daemon that listens at `own`: only those in
    /// `allowed`. Private addresses and those of this machine must be listed as addresses: the
    /// owner of a name could point it there.
    ///
    /// # Errors
    /// The first entry that can't be read.
    pub fn egress<'a>(
        own: SocketAddr,
        allowed: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, Refused> {
        Self::listed(own, allowed, EGRESS)
    }

    fn listed<'a>(
        own: SocketAddr,
        allowed: impl IntoIterator<Item = &'a str>,
        list: &'static str,
    ) -> Result<Self, Refused> {
        let allowed = allowed.into_iter().map(Pattern::read);
        let allowed = allowed.collect::<Result<_, _>>()?;
        let rules = Some(Rules { own, allowed, list });
        Ok(Self { rules })
    }

    /// Checks a host before it is resolved.
    ///
    /// # Errors
    /// The name is never allowed.
    pub fn check_host(&self, host: &str) -> Result<(), Refused> {
        if self.rules.is_some() && metadata::is_name(host) {
            return Err(Refused::NeverNamed(host.to_owned()));
        }
        Ok(())
    }

    /// Checks a resolved address of a host.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn check(&self, host: &str, address: SocketAddr) -> Result<(), Refused> {
        let Some(rules) = &self.rules else {
            return Ok(());
        };
        self.check_host(host)?;
        let ip = address.ip().to_canonical();
        for end in with_embedded(ip) {
            if let Some(why) = never(end) {
                return Err(Refused::Never(ip, why));
            }
            if is_own(rules.own, end, address.port()) {
                return Err(Refused::Own(address));
            }
        }
        let host = host.to_ascii_lowercase();
        let fits = |pattern: &Pattern| pattern.fits(&host, ip, address.port());
        let is_egress = rules.list == EGRESS;
        let is_all = rules.allowed.is_empty() && !is_egress;
        if !is_all && !rules.allowed.iter().any(fits) {
            return Err(Refused::NotAllowed(host, address, rules.list));
        }
        let by_address = |pattern: &Pattern| matches!(pattern.host, Host::Network(..));
        let mut fitting = rules.allowed.iter().filter(|pattern| fits(pattern));
        let is_within = with_embedded(ip).into_iter().any(is_private);
        if is_egress && is_within && !fitting.any(by_address) {
            return Err(Refused::Private(host, address, rules.list));
        }
        Ok(())
    }
}

/// Why this address is never allowed, if so.
fn never(ip: IpAddr) -> Option<&'static str> {
    let (is_unspecified, is_link_local) = match ip {
        // All of the network 0 means this machine to some systems (RFC 1122 §3.2.1.3).
        IpAddr::V4(ip) => (ip.octets()[0] == 0, ip.is_link_local() || ip.is_broadcast()),
        IpAddr::V6(ip) => (ip.is_unspecified(), ip.is_unicast_link_local()),
    };
    if is_unspecified {
        Some("it is unspecified; use the engine's own address")
    } else if is_link_local || metadata::is_address(ip) {
        Some("it is link-local or a cloud's metadata service")
    } else if ip.is_multicast() {
        Some("it is a multicast address")
    } else {
        None
    }
}

/// Whether a connection would reach the daemon that listens at `own`.
fn is_own(own: SocketAddr, ip: IpAddr, port: u16) -> bool {
    if own.port() != port {
        return false;
    }
    let listens_at = own.ip().to_canonical();
    // Only an address of this machine can be bound.
    ip == listens_at || (listens_at.is_unspecified() && UdpSocket::bind((ip, 0)).is_ok())
}

impl Pattern {
    fn read(text: &str) -> Result<Self, Refused> {
        let wrong = || Refused::Pattern(text.to_owned());
        let text = text.trim();
        let (host, port) = match text.rsplit_once(':') {
            // More colons are an IPv6 address, which stands in brackets before a port.
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                (host, Some(port.parse::<u16>().map_err(|_| wrong())?))
            }
            _ => (text, None),
        };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let (address, bits) = match bare.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u32>().map_err(|_| wrong())?)),
            None => (bare, None),
        };
        let host = match (address.parse::<IpAddr>(), bits) {
            (Ok(ip), bits) => {
                let most = if ip.is_ipv4() { 32 } else { 128 };
                let bits = bits.unwrap_or(most);
                (bits <= most).then_some(Host::Network(ip, bits))
            }
            (Err(_), None) => name(bare),
            (Err(_), Some(_)) => None,
        };
        let host = host.ok_or_else(wrong)?;
        Ok(Self { host, port })
    }

    fn fits(&self, host: &str, ip: IpAddr, port: u16) -> bool {
        let is_port = self.port.is_none_or(|own| own == port);
        is_port
            && match &self.host {
                Host::Name(name) => name == host,
                Host::Below(end) => host.ends_with(end.as_str()),
                Host::Network(network, bits) => is_in(ip, *network, *bits),
            }
    }
}

fn name(text: &str) -> Option<Host> {
    let text = text.to_ascii_lowercase();
    let (below, name) = match text.strip_prefix('*') {
        Some(rest) => (true, rest.strip_prefix('.')?),
        None => (false, text.as_str()),
    };
    let is_char = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_');
    if name.is_empty() || !name.bytes().all(is_char) {
        return None;
    }
    Some(if below {
        Host::Below(format!(".{name}"))
    } else {
        Host::Name(name.to_owned())
    })
}

fn is_in(ip: IpAddr, network: IpAddr, bits: u32) -> bool {
    match (ip, network) {
        (IpAddr::V4(ip), IpAddr::V4(network)) => {
            let differ = ip.to_bits() ^ network.to_bits();
            differ.checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(ip), IpAddr::V6(network)) => {
            let differ = ip.to_bits() ^ network.to_bits();
            differ.checked_shr(128 - bits).unwrap_or(0) == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> SocketAddr {
        address.parse().unwrap()
    }

    fn targets(own: &str, allowed: &[&str]) -> Targets {
        Targets::engines(at(own), allowed.iter().copied()).unwrap()
    }

    #[test]
    fn no_engine_is_link_local_unspecified_or_a_cloud_s_metadata() {
        let targets = targets("127.0.0.1:8300", &[]);
        for bad in [
            "169.254.169.254:80",
            "169.254.1.1:8000",
            "[fe80::1]:8000",
            "[::ffff:169.254.169.254]:80",
            "[::ffff:0:169.254.169.254]:80",
            "[::169.254.169.254]:80",
            "[64:ff9b::169.254.169.254]:80",
            "[64:ff9b::a83f:8110]:80",
            "[64:ff9b:1::169.254.169.254]:80",
            "[2002:a9fe:a9fe::]:80",
            "[2001:0:1:2:3:4:5601:5601]:80",
            "[fd00:ec2::254]:80",
            "[fd00:ec2::23]:80",
            "[fd20:ce::254]:80",
            "[fd00:c1::a9fe:a9fe]:80",
            "[fd00:42::42]:80",
            "[fd00:a9fe:a9fe::1]:80",
            "100.100.100.200:80",
            "100.96.0.96:80",
            "168.63.129.16:80",
            "168.63.129.16:32526",
            "169.254.0.23:80",
            "169.254.170.2:80",
            "192.0.0.192:80",
            "0.0.0.0:8000",
            "0.0.0.1:8000",
            "[::]:8000",
            "224.0.0.1:8000",
            "[ff02::1]:8000",
            "255.255.255.255:8000",
        ] {
            let refused = targets.check("h", at(bad)).unwrap_err();
            assert!(matches!(refused, Refused::Never(..)), "{bad}: {refused}");
        }
        for good in [
            "127.0.0.1:8000",
            "10.0.0.1:80",
            "[fd00::1]:8000",
            "[::1]:8000",
            "[64:ff9b::8.8.8.8]:80",
            "[64:ff9b:1::8.8.8.8]:80",
            "1.1.1.1:1",
        ] {
            assert_eq!(targets.check("h", at(good)), Ok(()), "{good}");
        }
        for name in [
            "metadata.google.internal",
            "Metadata.Google.Internal.",
            "metadata",
            "instance-data.ec2.internal",
            "metadata.tencentyun.com",
        ] {
            let named = Err(Refused::NeverNamed(name.to_owned()));
            assert_eq!(targets.check_host(name), named);
            assert_eq!(targets.check(name, at("10.0.0.1:80")), named);
            assert_eq!(Targets::all().check_host(name), Ok(()));
        }
        assert_eq!(targets.check_host("metadata.example"), Ok(()));
        assert_eq!(Targets::all().check("h", at("169.254.169.254:80")), Ok(()));
    }

    #[test]
    fn the_daemon_is_no_engine_of_its_own() {
        let local = targets("127.0.0.1:8300", &[]);
        let own = Err(Refused::Own(at("127.0.0.1:8300")));
        assert_eq!(local.check("localhost", at("127.0.0.1:8300")), own);
        assert!(local.check("h", at("[::ffff:127.0.0.1]:8300")).is_err());
        assert!(local.check("h", at("[64:ff9b::127.0.0.1]:8300")).is_err());
        assert_eq!(local.check("h", at("10.255.0.1:8300")), Ok(()));
        let everywhere = targets("0.0.0.0:8300", &[]);
        assert_eq!(everywhere.check("localhost", at("127.0.0.1:8300")), own);
        // An address of a documentation range is no machine's.
        assert_eq!(everywhere.check("h", at("192.0.2.1:8300")), Ok(()));
        assert_eq!(everywhere.check("h", at("127.0.0.1:8301")), Ok(()));
    }

    #[test]
    fn a_list_lets_its_own_in_and_no_others() {
        let list = [
            "10.1.0.0/16",
            "192.168.0.7:8000",
            "gpu1",
            "*.gpus.example:8000",
            "fd00::/8",
            "[fd01::1]:8000",
        ];
        let targets = targets("127.0.0.1:8300", &list);
        for (host, good) in [
            ("10.1.2.3", "10.1.2.3:1"),
            ("name", "10.1.255.255:8000"),
            ("192.168.0.7", "192.168.0.7:8000"),
            ("GPU1", "1.2.3.4:5"),
            ("a.gpus.example", "1.2.3.4:8000"),
            ("fd00::7", "[fd00::7]:9"),
        ] {
            assert_eq!(targets.check(host, at(good)), Ok(()), "{host} {good}");
        }
        for (host, bad) in [
            ("10.2.0.1", "10.2.0.1:1"),
            ("192.168.0.7", "192.168.0.7:8001"),
            ("gpu12", "1.2.3.4:5"),
            ("gpus.example", "1.2.3.4:8000"),
            ("a.gpus.example", "1.2.3.4:80"),
            ("127.0.0.1", "127.0.0.1:8000"),
        ] {
            let refused = targets.check(host, at(bad));
            assert!(matches!(refused, Err(Refused::NotAllowed(..))), "{host}");
        }
        // A list lets nothing in that is never an engine.
        let own = at("127.0.0.1:8300");
        let wide = Targets::engines(own, ["0.0.0.0/0", "::/0"]).unwrap();
        assert!(wide.check("h", at("169.254.169.254:80")).is_err());
        assert_eq!(wide.check("h", at("8.8.8.8:80")), Ok(()));
    }

    #[test]
    fn egress_is_what_is_listed_and_private_networks_by_address_alone() {
        let own = at("127.0.0.1:8300");
        let none = Targets::egress(own, []).unwrap();
        let refused = none.check("h", at("8.8.8.8:443"));
        assert!(matches!(refused, Err(Refused::NotAllowed(..))));
        let list = ["api.example:443", "*.internal", "10.1.0.0/16", "127.0.0.1"];
        let some = Targets::egress(own, list).unwrap();
        for (host, good) in [
            ("api.example", "8.8.8.8:443"),
            ("a.internal", "10.1.2.3:80"),
            ("127.0.0.1", "127.0.0.1:9"),
        ] {
            assert_eq!(some.check(host, at(good)), Ok(()), "{host} {good}");
        }
        for (host, bad) in [
            ("api.example", "10.2.0.1:443"),
            ("api.example", "127.0.0.2:443"),
            ("a.internal", "192.168.0.1:80"),
            ("a.internal", "100.64.0.1:80"),
            ("a.internal", "[fd00::1]:80"),
            ("a.internal", "[::1]:80"),
            ("a.internal", "[::ffff:10.2.0.1]:80"),
            ("a.internal", "[64:ff9b::a00:1]:80"),
            ("a.internal", "[::ffff:0:10.2.0.1]:80"),
            ("a.internal", "[2001:db8::5efe:10.2.0.1]:80"),
        ] {
            let refused = some.check(host, at(bad)).unwrap_err();
            assert!(
                matches!(refused, Refused::Private(..)),
                "{host} {bad}: {refused}"
            );
        }
        assert!(some.check("api.example", at("8.8.8.8:80")).is_err());
        let wide = Targets::egress(own, ["0.0.0.0/0"]).unwrap();
        let metadata = wide.check("h", at("169.254.169.254:80"));
        assert!(matches!(metadata, Err(Refused::Never(..))));
        assert!(matches!(wide.check("h", own), Err(Refused::Own(_))));
    }

    #[test]
    fn a_list_that_can_t_be_read_is_refused() {
        for bad in [
            "",
            "*",
            "*x",
            "a b",
            "10.0.0.0/33",
            "name/8",
            "host:port",
            "h:70000",
            "::/129",
        ] {
            let read = Targets::engines(at("127.0.0.1:1"), [bad]);
            assert_eq!(read.err(), Some(Refused::Pattern(bad.to_owned())), "{bad}");
        }
    }
}
