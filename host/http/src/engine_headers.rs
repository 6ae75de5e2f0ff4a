//! Filters the response headers of engines. Engines are not trusted like the daemon, but their
//! responses have the console's origin: they may not set cookies, allow other origins, redirect,
//! ask for passwords, or be rendered as pages.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

/// Headers about the response, its request or the engine's limits that have no effect in browsers.
const PASSED: [HeaderName; 10] = [
    header::CACHE_CONTROL,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::RETRY_AFTER,
    HeaderName::from_static("openai-model"),
    HeaderName::from_static("openai-processing-ms"),
    HeaderName::from_static("openai-version"),
    HeaderName::from_static("request-id"),
    HeaderName::from_static("retry-after-ms"),
    HeaderName::from_static("x-request-id"),
];
/// Prefixes of OpenAI's and Anthropic's headers for rate limits.
const PASSED_STARTS: [&str; 2] = ["x-ratelimit-", "anthropic-ratelimit-"];

/// Content types that browsers don't render as a page.
const DATA: [&str; 5] = [
    "application/json",
    "application/problem+json",
    "application/x-ndjson",
    "text/event-stream",
    "text/plain",
];
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// The headers of an engine's response that are sent to the client.
pub fn of_engine(headers: &HeaderMap) -> HeaderMap {
    let mut passed = HeaderMap::new();
    for (name, value) in headers {
        let begins = |start: &&str| name.as_str().starts_with(*start);
        if PASSED.contains(name) || PASSED_STARTS.iter().any(begins) {
            passed.append(name.clone(), value.clone());
        }
    }
    if let Some(kind) = headers.get(header::CONTENT_TYPE) {
        passed.insert(header::CONTENT_TYPE, kind_of(kind));
    }
    passed
}

/// The content type of a response: the engine's own if that is data, else text or bytes.
fn kind_of(said: &HeaderValue) -> HeaderValue {
    let text = said.to_str().unwrap_or_default().to_ascii_lowercase();
    let essence = text.split([';', ',']).next().unwrap_or_default().trim();
    if DATA.contains(&essence) && !text.contains(',') {
        said.clone()
    } else if essence.starts_with("text/") {
        TEXT
    } else {
        BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(pairs: &[(&'static str, &'static str)]) -> Vec<(String, String)> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        let passed = of_engine(&headers);
        let pair = |(name, value): (&HeaderName, &HeaderValue)| {
            (name.to_string(), value.to_str().unwrap().to_owned())
        };
        passed.iter().map(pair).collect()
    }

    #[test]
    fn what_says_something_of_the_answer_passes() {
        for good in [
            ("content-type", "application/json"),
            ("content-type", "text/event-stream; charset=utf-8"),
            ("retry-after", "7"),
            ("x-request-id", "r1"),
            ("x-ratelimit-remaining-tokens", "5"),
        ] {
            assert_eq!(passed(&[good]), [(good.0.to_owned(), good.1.to_owned())]);
        }
    }

    #[test]
    fn what_acts_in_a_browser_or_is_the_daemon_s_own_does_not() {
        for bad in [
            ("set-cookie", "treadle_session=x"),
            ("set-cookie2", "a=b"),
            ("clear-site-data", "\"*\""),
            ("refresh", "0; url=https://evil.example"),
            ("location", "https://evil.example"),
            ("content-location", "https://evil.example"),
            ("link", "<https://evil.example/x.js>; rel=preload"),
            ("www-authenticate", "Basic realm=\"treadle\""),
            ("access-control-allow-origin", "*"),
            ("access-control-allow-credentials", "true"),
            ("content-security-policy", "script-src *"),
            ("content-security-policy-report-only", "report-uri /x"),
            ("report-to", "{}"),
            ("reporting-endpoints", "a=\"/x\""),
            ("nel", "{}"),
            ("strict-transport-security", "max-age=1"),
            ("alt-svc", "h3=\":1\""),
            ("service-worker-allowed", "/"),
            ("sourcemap", "/x"),
            ("x-frame-options", "ALLOWALL"),
            ("x-content-type-options", "sniff"),
            ("permissions-policy", "camera=*"),
            ("cross-origin-opener-policy", "unsafe-none"),
            ("content-disposition", "inline"),
            ("server", "evil"),
            ("x-treadle-program", "another"),
            ("connection", "close"),
            ("trailer", "set-cookie"),
            ("keep-alive", "timeout=5"),
        ] {
            assert!(passed(&[bad]).is_empty(), "{bad:?}");
        }
    }

    #[test]
    fn no_answer_is_a_page() {
        for (said, kind) in [
            ("text/html", "text/plain; charset=utf-8"),
            ("TEXT/HTML; charset=utf-16", "text/plain; charset=utf-8"),
            ("text/javascript", "text/plain; charset=utf-8"),
            ("text/plain, text/html", "text/plain; charset=utf-8"),
            ("application/xhtml+xml", "application/octet-stream"),
            ("image/svg+xml", "application/octet-stream"),
            ("application/json, text/html", "application/octet-stream"),
            ("", "application/octet-stream"),
        ] {
            let expected = [("content-type".to_owned(), kind.to_owned())];
            assert_eq!(passed(&[("content-type", said)]), expected, "{said}");
        }
        let two = [
            ("content-type", "application/json"),
            ("content-type", "text/html"),
        ];
        assert_eq!(passed(&two).len(), 1);
    }
}
