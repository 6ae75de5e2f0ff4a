//! Headers of every response that keep browsers from rendering data as a page: the data comes from
//! clients, engines and programs, and the console has the same origin.

use axum::http::{HeaderMap, HeaderValue, header};

/// The default policy: a response loads and runs nothing, has no origin, and can't be framed.
const POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'; sandbox";

/// Completes the head of an answer.
pub(crate) fn guard(headers: &mut HeaderMap) {
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    let policy = headers.entry(header::CONTENT_SECURITY_POLICY);
    policy.or_insert(HeaderValue::from_static(POLICY));
    let referrer = headers.entry(header::REFERRER_POLICY);
    referrer.or_insert(HeaderValue::from_static("no-referrer"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_is_guarded_and_a_page_keeps_its_own_policy() {
        let mut headers = HeaderMap::new();
        guard(&mut headers);
        assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        let policy = headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'") && policy.ends_with("sandbox"));
        let own = HeaderValue::from_static("script-src 'self'");
        headers.insert(header::CONTENT_SECURITY_POLICY, own.clone());
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, own.clone());
        guard(&mut headers);
        assert_eq!(headers[header::CONTENT_SECURITY_POLICY], own);
        assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    }
}
