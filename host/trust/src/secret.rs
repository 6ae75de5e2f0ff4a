//! Secrets that are never shown.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

/// Placeholder for a secret.
const REDACTED: &str = "[redacted]";
/// Prefix of treadle's tokens, which may stand in a URL without a user.
const TOKEN_START: &str = "tr_";

/// A secret, or a URL that may have a password. Printing or serialising it never shows the secret;
/// only [`Self::reveal`] does.
#[derive(Clone, Default, Deserialize, Eq, PartialEq)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, to be used and not to be shown.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The form for display: empty if the secret is, a URL without its secret parts, or else a
    /// placeholder.
    fn shown(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        without_password(&self.0).unwrap_or_else(|| REDACTED.to_owned())
    }
}

/// A URL without secrets in its user and query; `None` if it is not a URL.
fn without_password(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    // A password may hold what should have been encoded: all before the last @ may be one.
    let (user, place) = match rest.rsplit_once('@') {
        Some((user, place)) => (Some(user), place),
        None => (None, rest),
    };
    let place = place.split('#').next().unwrap_or_default();
    let (host, query) = place.split_once('?').unwrap_or((place, ""));
    let mut shown = format!("{scheme}://");
    if let Some(user) = user {
        match user.split_once(':') {
            _ if user.starts_with(TOKEN_START) => shown.extend([REDACTED, "@"]),
            Some((name, _)) => shown.extend([name, ":", REDACTED, "@"]),
            None => shown.extend([user, "@"]),
        }
    }
    shown.push_str(host);
    for (at, pair) in query.split('&').filter(|p| !p.is_empty()).enumerate() {
        let name = pair.split_once('=').map_or(pair, |(name, _)| name);
        shown.push(if at == 0 { '?' } else { '&' });
        let mut secrets = ["pass", "secret", "token"].iter();
        let is_secret = secrets.any(|part| name.to_ascii_lowercase().contains(part));
        if is_secret {
            shown.extend([name, "=", REDACTED]);
        } else {
            shown.push_str(pair);
        }
    }
    Some(shown)
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.shown(), f)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.shown())
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_form_of_a_secret_shows_it() {
        for (text, shown) in [
            ("", ""),
            ("hunter2", REDACTED),
            ("postgres://h/d", "postgres://h/d"),
            ("postgres://u@h:5432/d", "postgres://u@h:5432/d"),
            ("postgres://u:hunter2@h/d", "postgres://u:[redacted]@h/d"),
            ("http://tr_1@h", "http://[redacted]@h"),
            ("http://tr_1:@h", "http://[redacted]@h"),
            ("amqp://u:hunter2@p/@w@h/v", "amqp://u:[redacted]@h/v"),
            (
                "postgres://h/d?sslmode=verify-full&password=hunter2",
                "postgres://h/d?sslmode=verify-full&password=[redacted]",
            ),
            (
                "postgres://h/d?sslpassword=hunter2#hunter2",
                "postgres://h/d?sslpassword=[redacted]",
            ),
            ("amqp://u:hun#ter?2@h:1/v", "amqp://u:[redacted]@h:1/v"),
            (
                "amqps://h?cacertfile=/c&certfile=/d",
                "amqps://h?cacertfile=/c&certfile=/d",
            ),
        ] {
            let secret = Secret::new(text);
            assert_eq!(secret.to_string(), shown);
            assert_eq!(format!("{secret:?}"), format!("{shown:?}"));
            assert_eq!(secret.reveal(), text);
        }
    }
}
