//! The broker's address and credentials.

use std::fmt;
use std::path::Path;

use lapin::tcp::{OwnedIdentity, OwnedTLSConfig};
use lapin::uri::{AMQPScheme, AMQPUri};

use crate::BrokerError;

/// Default heartbeat in seconds: a silent connection is closed after two.
const HEARTBEAT_S: u16 = 10;
/// Largest certificate or key file, in bytes.
const CERTIFICATE_BYTES_MAX: u64 = 1 << 20;

/// The parsed URL of a broker. It is displayed without its password.
///
/// `amqp://user:password@host:5672/vhost`, or `amqps://` for TLS. The query may have `heartbeat`
/// (seconds), `cacertfile` (authorities that are trusted in addition to the system's), `certfile`
/// and `keyfile` (this client's certificate), each a PEM file.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    uri: AMQPUri,
    authority: Option<String>,
    certificate: Option<(String, String)>,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = &self.uri.authority;
        let host = &authority.host;
        let host = if host.contains(':') {
            format!("[{host}]")
        } else {
            host.clone()
        };
        write!(
            f,
            "{}://{}@{host}:{}/{}",
            self.uri.scheme,
            authority.userinfo.username,
            authority.port,
            self.uri.vhost.replace('/', "%2F"),
        )
    }
}

impl Address {
    /// Parses a URL. Certificate files are read when connecting.
    ///
    /// # Errors
    /// [`BrokerError::Url`], without the password.
    pub fn parse(url: &str) -> Result<Self, BrokerError> {
        let fails = |cause: String| Err(BrokerError::Url { cause });
        let Some(rest) = url
            .strip_prefix("amqp://")
            .or_else(|| url.strip_prefix("amqps://"))
        else {
            return fails("it does not begin with amqp:// or amqps://".into());
        };
        let mut uri: AMQPUri = match url.parse() {
            Ok(uri) => uri,
            // A parser's message may contain the URL with the password.
            Err(cause) if cause.contains(rest) => return fails("it is not a URL".into()),
            Err(cause) => return fails(cause),
        };
        // The parser does not support IPv6 addresses.
        let place = rest.split(['/', '?']).next().unwrap_or_default();
        let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
        if let Some(inner) = place.strip_prefix('[') {
            let Some((host, _)) = inner.split_once(']') else {
                return fails("the IPv6 address has no closing bracket".into());
            };
            host.clone_into(&mut uri.authority.host);
        }
        if uri.vhost.is_empty() {
            "/".clone_into(&mut uri.vhost);
        }
        uri.query.heartbeat.get_or_insert(HEARTBEAT_S);
        let (authority, certificate) = certificates(url, &uri.scheme)?;
        Ok(Self {
            uri,
            authority,
            certificate,
        })
    }

    /// Whether connections use TLS.
    pub fn is_tls(&self) -> bool {
        self.uri.scheme == AMQPScheme::AMQPS
    }

    /// Host and port.
    pub(crate) fn place(&self) -> (String, u16) {
        (self.uri.authority.host.clone(), self.uri.authority.port)
    }

    pub(crate) fn uri(&self) -> AMQPUri {
        self.uri.clone()
    }

    /// The TLS configuration, from the files in the URL.
    pub(crate) fn tls(&self) -> Result<OwnedTLSConfig, BrokerError> {
        let identity = match &self.certificate {
            Some((certificate, key)) => Some(OwnedIdentity::PKCS8 {
                pem: read(certificate, "certfile")?.into_bytes(),
                key: read(key, "keyfile")?.into_bytes(),
            }),
            None => None,
        };
        let cert_chain = match &self.authority {
            Some(authority) => Some(read(authority, "cacertfile")?),
            None => None,
        };
        Ok(OwnedTLSConfig {
            identity,
            cert_chain,
        })
    }
}

type Certificates = (Option<String>, Option<(String, String)>);

/// The certificate files in the query; unknown keys are refused.
fn certificates(url: &str, scheme: &AMQPScheme) -> Result<Certificates, BrokerError> {
    let (mut authority, mut certificate, mut key) = (None, None, None);
    let query = url.split_once('?').map_or("", |(_, query)| query);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decoded(value);
        match name {
            "cacertfile" => authority = Some(value),
            "certfile" => certificate = Some(value),
            "keyfile" => key = Some(value),
            "heartbeat" | "channel_max" | "frame_max" | "auth_mechanism" => {}
            _ => {
                return Err(BrokerError::Url {
                    cause: format!(
                        "the query has {name}; it may have heartbeat, channel_max, frame_max, \
                         auth_mechanism, cacertfile, certfile, keyfile"
                    ),
                });
            }
        }
    }
    let named = authority.is_some() || certificate.is_some() || key.is_some();
    if named && *scheme == AMQPScheme::AMQP {
        return Err(BrokerError::Url {
            cause: "certificates require amqps://; amqp:// is not encrypted".into(),
        });
    }
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok((authority, Some((certificate, key)))),
        (None, None) => Ok((authority, None)),
        _ => Err(BrokerError::Url {
            cause: "certfile and keyfile must be given together".into(),
        }),
    }
}

/// Decodes the percent-encoding of a value in the query.
fn decoded(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let digits = (first == b'%').then(|| tail.get(..2)).flatten();
        let read = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(read.unwrap_or(first));
        rest = if read.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn read(path: &str, name: &str) -> Result<String, BrokerError> {
    let fails = |cause: String| BrokerError::Url {
        cause: format!("{name} {path}: {cause}"),
    };
    let size = std::fs::metadata(Path::new(path)).map_err(|error| fails(error.to_string()))?;
    if size.len() > CERTIFICATE_BYTES_MAX {
        return Err(fails("larger than 1 MiB".into()));
    }
    std::fs::read_to_string(path).map_err(|error| fails(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_password() {
        let address = Address::parse("amqp://jo:s3cret@mq.example:5673/prod").unwrap();
        assert_eq!(address.to_string(), "amqp://jo@mq.example:5673/prod");
        assert!(!format!("{address:?}").contains("s3cret"));
        assert!(!address.is_tls());
    }

    #[test]
    fn what_a_url_leaves_out_has_a_default() {
        for url in [
            "amqp://localhost",
            "amqp://localhost/",
            "amqp://localhost/%2f",
        ] {
            let address = Address::parse(url).unwrap();
            assert_eq!(address.to_string(), "amqp://guest@localhost:5672/%2F");
            assert_eq!(address.uri().query.heartbeat, Some(HEARTBEAT_S));
        }
        let address = Address::parse("amqps://mq.example").unwrap();
        assert_eq!(address.place(), ("mq.example".into(), 5671));
    }

    #[test]
    fn an_ipv6_address_is_kept() {
        let address = Address::parse("amqp://u:p@[2001:db8::1]:5000/v").unwrap();
        assert_eq!(address.place(), ("2001:db8::1".into(), 5000));
        assert_eq!(address.to_string(), "amqp://u@[2001:db8::1]:5000/v");
    }

    #[test]
    fn certificates_are_named_in_the_query() {
        let address =
            Address::parse("amqps://h/v?cacertfile=%2Fetc%2Fca.pem&certfile=c&keyfile=k").unwrap();
        assert_eq!(address.authority.as_deref(), Some("/etc/ca.pem"));
        let error = address.tls().unwrap_err().to_string();
        assert!(error.contains("certfile c"), "{error}");
    }

    #[test]
    fn errors_do_not_reveal_the_password() {
        for (url, word) in [
            ("http://u:s3cret@h", "begin with amqp"),
            ("amqp:u:s3cret@h", "begin with amqp"),
            ("amqp://u:s3cret@h:port", "port"),
            ("amqp://u:s3cret@h/v?heartbeat=often", "invalid"),
            ("amqp://u:s3cret@h/v?verify=none", "verify"),
            ("amqp://u:s3cret@h/v?cacertfile=x", "not encrypted"),
            ("amqps://u:s3cret@h/v?certfile=x", "given together"),
            ("amqp://u:s3cret@[::1/v", ""),
        ] {
            let error = Address::parse(url).unwrap_err().to_string();
            assert!(error.contains(word), "{url}: {error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
