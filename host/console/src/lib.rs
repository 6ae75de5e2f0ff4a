//! The web console: the files built from `web/`, embedded in the binary. They are the same for
//! everyone; their data comes from the API, which authorises each request.

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use rust_embed::{EmbeddedFile, RustEmbed};
use std::borrow::Cow;

/// A file with its headers.
pub type Response = http::Response<Cow<'static, [u8]>>;

/// Content security policy: only the console's own files, no inline scripts or styles, no framing.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; \
                      frame-ancestors 'none'";
const PAGE: &str = "index.html";
/// Suffix of compressed files.
const SMALL: &str = ".br";

#[derive(RustEmbed)]
#[folder = "../../web/dist"]
#[allow_missing = true]
struct Files;

/// Whether the console is embedded in the binary.
pub fn is_built() -> bool {
    Files::get(PAGE).is_some()
}

/// A file, or the console's single page for any of its views; `None` if the path is not the
/// console's.
pub fn answer(method: &Method, path: &str, headers: &HeaderMap) -> Option<Response> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return None;
    }
    let name = if is_view(path) {
        PAGE
    } else {
        path.trim_start_matches('/')
    };
    // Compressed variants and hidden files are not served under their own names.
    let is_shown = !name.ends_with(SMALL) && !name.starts_with('.');
    let file = Files::get(name).filter(|_| is_shown)?;
    Some(of_file(name, &file, method, headers))
}

/// Other paths with these names belong to the API.
fn is_view(path: &str) -> bool {
    path == "/" || path == "/console" || path.starts_with("/console/")
}

fn of_file(name: &str, file: &EmbeddedFile, method: &Method, headers: &HeaderMap) -> Response {
    let hash = file.metadata.sha256_hash();
    let tag = hash
        .first_chunk()
        .map_or(0, |start| u128::from_be_bytes(*start));
    let tag = format!("\"{tag:032x}\"");
    let known = headers.get(header::IF_NONE_MATCH);
    let is_known = known.is_some_and(|known| known.as_bytes() == tag.as_bytes());
    // The file was compressed at build time.
    let small = Some(format!("{name}{SMALL}"))
        .filter(|_| takes_brotli(headers))
        .and_then(|name| Files::get(&name));
    let is_small = small.is_some();
    let data = small.map_or_else(|| file.data.clone(), |small| small.data);
    let is_empty = is_known || *method == Method::HEAD;
    let mut response = Response::new(if is_empty { Cow::default() } else { data });
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let cached = if has_digest(name) {
        "public, max-age=31536000, immutable"
    } else {
        "no-cache"
    };
    let mut set = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(name, value);
        }
    };
    set(header::CONTENT_TYPE, kind(name));
    set(header::CACHE_CONTROL, cached);
    set(header::ETAG, &tag);
    set(header::VARY, "accept-encoding");
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::REFERRER_POLICY, "same-origin");
    if is_small && !is_known {
        set(header::CONTENT_ENCODING, "br");
    }
    response
}

/// Whether a name contains a digest of the content, as Vite's `assets/NAME-DIGEST.js` does.
fn has_digest(name: &str) -> bool {
    const DIGEST_BYTES: usize = 8;
    let stem = name.rsplit_once('.').map(|(stem, _)| stem.as_bytes());
    let dash = stem.and_then(|stem| stem.iter().nth_back(DIGEST_BYTES));
    name.starts_with("assets/") && dash == Some(&b'-')
}

fn takes_brotli(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT_ENCODING);
    let accepted = accepted.and_then(|value| value.to_str().ok());
    let names = accepted.unwrap_or_default().split(',');
    names
        .map(|name| name.split(';').next().unwrap_or_default().trim())
        .any(|name| name == "br")
}

/// The media type of a file.
fn kind(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, end)| end) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("woff2") => "font/woff2",
        Some("json" | "webmanifest") => "application/json",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_one_page_and_all_else_is_the_apis() {
        for path in ["/", "/console", "/console/programs/a%2Fb"] {
            assert!(is_view(path), "{path}");
        }
        for path in ["/programs", "/workers", "/consoles", "/api/v1/console/"] {
            assert!(!is_view(path), "{path}");
            assert!(answer(&Method::GET, path, &HeaderMap::new()).is_none());
        }
        assert!(answer(&Method::POST, "/", &HeaderMap::new()).is_none());
    }

    #[test]
    fn files_are_kept_for_good_by_the_digest_in_their_names() {
        assert!(has_digest("assets/index-CgKJc4wB.js"));
        assert!(has_digest("assets/x-ab_c-4wB.css"));
        for name in ["assets/treadle.svg", "index.html", "x-CgKJc4wB.js"] {
            assert!(!has_digest(name), "{name}");
        }
    }

    #[test]
    fn each_file_says_how_it_is_to_be_taken() {
        let Some(page) = answer(&Method::GET, "/console/workers", &HeaderMap::new()) else {
            assert!(!is_built(), "a page where the console was built");
            return;
        };
        let header = |response: &Response, name: HeaderName| {
            let value = response.headers().get(name).expect("it is set");
            value.to_str().expect("text").to_owned()
        };
        assert_eq!(header(&page, header::CACHE_CONTROL), "no-cache");
        assert!(header(&page, header::CONTENT_SECURITY_POLICY).contains("script-src 'self';"));
        let mut again = HeaderMap::new();
        again.insert(header::IF_NONE_MATCH, page.headers()[header::ETAG].clone());
        let again = answer(&Method::GET, "/", &again).expect("the page");
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        let script = Files::iter()
            .find(|name| name.ends_with(".js"))
            .expect("a script");
        let script = answer(&Method::GET, &format!("/{script}"), &HeaderMap::new());
        let script = script.expect("it is there");
        assert!(header(&script, header::CACHE_CONTROL).contains("immutable"));
        assert!(header(&script, header::CONTENT_TYPE).starts_with("text/javascript"));
    }
}
