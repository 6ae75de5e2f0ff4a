//! Base URLs: scheme, host and port, and nothing else.

use crate::Secret;
use http::Uri;
use http::uri::Authority;

/// Why a base URL is invalid.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum UrlError {
    /// It has no HTTP scheme or no host.
    #[error("it is not an address such as http://host:port or https://host:port")]
    Form,
    /// It has a user or a password.
    #[error("it has a user or a password; remove the part before the @")]
    User,
    /// Its port does not exist.
    #[error("its port is not from 1 to 65535")]
    Port,
    /// It has a path, a query or a fragment.
    #[error("it has more than scheme, host and port; remove the rest")]
    Path,
}

/// Parses a base URL; returns it without a trailing slash.
///
/// # Errors
/// What is wrong with it, and the remedy.
pub fn base_url(text: &str) -> Result<&str, UrlError> {
    let uri: Uri = text.parse().map_err(|_| UrlError::Form)?;
    let authority = uri.authority().ok_or(UrlError::Form)?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) || authority.host().is_empty() {
        return Err(UrlError::Form);
    }
    if authority.as_str().contains('@') {
        return Err(UrlError::User);
    }
    port_of(authority)?;
    // The parser drops fragments.
    if text.contains('#') || uri.query().is_some() || !matches!(uri.path(), "" | "/") {
        return Err(UrlError::Path);
    }
    Ok(text.strip_suffix('/').unwrap_or(text))
}

/// The port that an authority names, if any. The parser takes whatever follows the host, and then
/// reports no port.
///
/// # Errors
/// What follows the host is no port.
pub fn port_of(authority: &Authority) -> Result<Option<u16>, UrlError> {
    let place = authority.as_str().rsplit('@').next().unwrap_or_default();
    let rest = place.strip_prefix(authority.host()).unwrap_or(place);
    if rest.is_empty() {
        return Ok(None);
    }
    let digits = rest.strip_prefix(':').ok_or(UrlError::Form)?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(UrlError::Form);
    }
    match digits.parse::<u16>() {
        Ok(0) | Err(_) => Err(UrlError::Port),
        Ok(port) => Ok(Some(port)),
    }
}

/// An invalid base URL for messages: unchanged, unless it may have a password.
pub fn written(text: &str) -> String {
    if text.contains(['@', '?']) {
        return Secret::new(text).to_string();
    }
    text.to_owned()
}

/// The remedy for an invalid base URL: the same with a scheme, if only that is missing.
pub fn url_remedy(text: &str) -> String {
    let form = "write it as http://host:port or https://host:port";
    let meant = format!("http://{text}");
    if text.contains("://") || base_url(&meant).is_err() {
        return form.to_owned();
    }
    format!("{form}, such as {meant}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_without_a_scheme_is_shown_with_what_was_meant() {
        for (text, shown, meant) in [
            ("gpu-1:8000", "gpu-1:8000", Some("http://gpu-1:8000")),
            ("10.0.0.1", "10.0.0.1", Some("http://10.0.0.1")),
            ("u:hunter2@gpu-1:8000", "[redacted]", None),
            ("http://u:hunter2@gpu-1", "http://u:[redacted]@gpu-1", None),
            ("gpu-1:8000/v1", "gpu-1:8000/v1", None),
            ("ftp://gpu-1:8000", "ftp://gpu-1:8000", None),
        ] {
            assert_eq!(written(text), shown);
            let form = "write it as http://host:port or https://host:port";
            let remedy = meant.map_or(form.to_owned(), |meant| format!("{form}, such as {meant}"));
            assert_eq!(url_remedy(text), remedy);
        }
    }

    #[test]
    fn scheme_host_and_port_are_all() {
        for (good, read) in [
            ("http://10.0.0.1:8000", "http://10.0.0.1:8000"),
            ("http://engine:8000/", "http://engine:8000"),
            ("https://engine", "https://engine"),
            ("http://[fd00::1]:8000", "http://[fd00::1]:8000"),
        ] {
            assert_eq!(base_url(good), Ok(read));
        }
        for (bad, why) in [
            ("engine:8000", UrlError::Form),
            ("ftp://engine:8000", UrlError::Form),
            ("file:///etc/passwd", UrlError::Form),
            ("http://", UrlError::Form),
            ("http://engine:", UrlError::Form),
            ("http://engine:0", UrlError::Port),
            ("http://engine:65536", UrlError::Port),
            ("http://[fd00::1]:99999", UrlError::Port),
            ("http://engine:8000.evil", UrlError::Form),
            ("http://[::1].evil.com", UrlError::Form),
            ("", UrlError::Form),
            ("http://user@engine:8000", UrlError::User),
            ("http://user:password@engine:8000", UrlError::User),
            ("http://engine:8000/v1", UrlError::Path),
            ("http://engine:8000//", UrlError::Path),
            ("http://engine:8000?a=b", UrlError::Path),
            ("http://engine:8000/#x", UrlError::Path),
            ("http://engine:8000#x", UrlError::Path),
        ] {
            assert_eq!(base_url(bad), Err(why), "{bad}");
        }
    }
}
