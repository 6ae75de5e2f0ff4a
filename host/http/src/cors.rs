//! Web pages of other origins that may call the daemon, by its configuration (CORS).
//!
//! They authenticate with a token in a header. Their cookies are never accepted: no response allows
//! credentials, so that a page can't act as the user who is signed in to the console.

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use std::sync::Arc;

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE");
/// Headers of answers that pages may read.
const SHOWN: HeaderValue = HeaderValue::from_static("x-treadle-program, x-request-id, retry-after");
/// How long browsers may cache a preflight response, in seconds.
const MAX_AGE_S: HeaderValue = HeaderValue::from_static("600");
const ANY: HeaderValue = HeaderValue::from_static("*");
/// The request headers that a response depends on.
const VARY: HeaderValue = HeaderValue::from_static(
    "origin, access-control-request-method, access-control-request-headers",
);

/// Adds CORS for these origins to a router; `*` is any origin. Without origins the router is
/// unchanged.
pub fn open_to(origins: &[String], router: Router) -> Router {
    if origins.is_empty() {
        return router;
    }
    let origins = origins.iter().map(|origin| origin.trim_end_matches('/'));
    let origins: Arc<[Box<str>]> = origins.map(Box::from).collect();
    router.layer(from_fn_with_state(origins, answer))
}

async fn answer(
    State(origins): State<Arc<[Box<str>]>>,
    mut request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let allowed = allowed(&origins, headers);
    let asks = headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    if request.method() == Method::OPTIONS && asks {
        let wanted = request
            .headers_mut()
            .remove(header::ACCESS_CONTROL_REQUEST_HEADERS);
        return preflight(allowed, wanted);
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.append(header::VARY, VARY);
    if let Some(origin) = allowed {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, SHOWN);
    }
    response
}

/// Answers a browser's preflight request.
fn preflight(allowed: Option<HeaderValue>, wanted: Option<HeaderValue>) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(header::VARY, VARY);
    if let Some(origin) = allowed {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE_S);
        if let Some(wanted) = wanted {
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted);
        }
    }
    response
}

/// The value of `Access-Control-Allow-Origin`, if the origin is allowed.
fn allowed(origins: &[Box<str>], headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    if origins.iter().any(|listed| **listed == *"*") {
        return Some(ANY);
    }
    let sent = origin.as_bytes();
    let mut listed = origins.iter().map(|listed| listed.as_bytes());
    let is_listed = listed.any(|listed| sent.eq_ignore_ascii_case(listed));
    is_listed.then(|| origin.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::post;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;

    async fn asked(origins: &[&str], method: Method, origin: &str) -> (StatusCode, HeaderMap) {
        let origins: Vec<String> = origins.iter().map(|&origin| origin.to_owned()).collect();
        let router = Router::new().route("/", post(|| async { StatusCode::IM_A_TEAPOT }));
        let request = Request::builder()
            .method(method)
            .uri("/")
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header(
                "access-control-request-headers",
                "authorization,content-type",
            )
            .body(Body::empty())
            .unwrap();
        let service = TowerToHyperService::new(open_to(&origins, router));
        let response = service.call(request).await.unwrap();
        let (parts, _) = response.into_parts();
        (parts.status, parts.headers)
    }

    #[tokio::test]
    async fn pages_of_listed_origins_are_answered() {
        let listed = ["https://app.example", "http://localhost:3000/"];
        for origin in ["https://app.example", "http://localhost:3000"] {
            let (status, headers) = asked(&listed, Method::OPTIONS, origin).await;
            assert_eq!(status, 204);
            assert_eq!(headers["access-control-allow-origin"], origin);
            let allowed = headers["access-control-allow-headers"].to_str().unwrap();
            assert!(allowed.contains("authorization"), "{allowed}");
            assert!(headers["vary"].to_str().unwrap().contains("origin"));
            let (status, headers) = asked(&listed, Method::POST, origin).await;
            assert_eq!(status, 418);
            assert_eq!(headers["access-control-allow-origin"], origin);
            assert!(!headers.contains_key("access-control-allow-credentials"));
        }
    }

    #[tokio::test]
    async fn pages_of_others_are_not() {
        let listed = ["https://app.example"];
        for origins in [&[][..], &listed] {
            for origin in ["https://other.example", "https://app.example.evil", "null"] {
                for method in [Method::OPTIONS, Method::POST] {
                    let (_, headers) = asked(origins, method, origin).await;
                    assert!(
                        !headers.contains_key("access-control-allow-origin"),
                        "{origin}"
                    );
                }
            }
        }
        let (status, _) = asked(&[], Method::OPTIONS, "https://app.example").await;
        assert_eq!(status, 405, "without a list nothing is changed");
    }

    #[tokio::test]
    async fn any_origin_is_never_any_caller() {
        let (_, headers) = asked(&["*"], Method::OPTIONS, "https://other.example").await;
        assert_eq!(headers["access-control-allow-origin"], "*");
        assert!(!headers.contains_key("access-control-allow-credentials"));
    }
}
