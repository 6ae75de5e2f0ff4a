//! Base URLs: scheme, host and port, and nothing else.

use http::Uri;

/// What is wrong with a base URL.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum UrlError {
    /// It has no scheme of HTTP, or no host.
    #[error("it is no address such as http://host:port or https://host:port")]
    Form,
    /// It has a user or a password.
    #[error("it holds a user or a password; leave out what stands before the @")]
    User,
    /// It has a path, a query or a fragment.
    #[error("it has more than scheme, host and port; leave out what follows")]
    Path,
}

/// Reads a base URL; gives it without a slash at its end.
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
    // A colon without a number behind it is one more thing that readers understand differently.
    if authority.as_str().ends_with(':') || authority.port_u16() == Some(0) {
        return Err(UrlError::Form);
    }
    // The parser drops fragments.
    if text.contains('#') || uri.query().is_some() || !matches!(uri.path(), "" | "/") {
        return Err(UrlError::Path);
    }
    Ok(text.strip_suffix('/').unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("http://engine:0", UrlError::Form),
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
