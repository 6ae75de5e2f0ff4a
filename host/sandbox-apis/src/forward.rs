//! Forwards requests about sandboxes of nodes to the node.

use crate::e2b::{FileQuery, called};
use crate::sandboxes::check_images;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, Response, StatusCode, Uri};
use axum::middleware::Next;
use futures_util::future::join_all;
use serde_json::Value;
use std::sync::Arc;
use treadle_auth::Principal;
use treadle_http::refuse;
use treadle_runs::nodes::{Nodes, Own, Place, SIGNED_PATH, mark_of_sandbox};
use treadle_runs::sandboxes::{Host, SandboxApp};
use treadle_wire::ErrorCode;

/// Largest body that is inspected; the guard admits no larger ones.
const BODY_BYTES_MAX: usize = 8 << 20;
/// Paths that create a sandbox.
const MAKING: [&str; 4] = [
    "/api/v1/sandboxes",
    "/sandboxes",
    "/v2/sandboxes",
    "/run_code",
];
/// Files of a sandbox; old clients identify the sandbox only by a signature.
const FILES: &str = "/files";
const IMAGES: &str = "/api/v1/images/";
const SANDBOX: HeaderName = HeaderName::from_static("e2b-sandbox-id");

/// Forwards requests about sandboxes of other machines.
pub async fn forward(
    State(app): State<SandboxApp>,
    request: Request,
    next: Next,
) -> Response<Body> {
    let Some(nodes) = &app.nodes else {
        return next.run(request).await;
    };
    let (path, is_post) = (request.uri().path(), request.method() == Method::POST);
    if is_post && MAKING.contains(&path) {
        return make(nodes, &app, request, next).await;
    }
    if path.starts_with(IMAGES) {
        let principal = request.extensions().get::<Arc<Principal>>();
        if let Some(Err(refusal)) = principal.map(|principal| check_images(principal)) {
            return refusal;
        }
        return everywhere(nodes, &app, request, next).await;
    }
    let found = match aim(nodes, &app, &request) {
        None if path == FILES => signed(nodes, &app, request.uri(), is_post).await,
        found => found,
    };
    match found {
        None if app.host.is_some() => next.run(request).await,
        None => match in_path(path) {
            Some(named) => {
                let message = format!("no node has {named}; use its id");
                refuse(ErrorCode::SandboxUnknown, message)
            }
            None => next.run(request).await,
        },
        Some(found) => pass_on(nodes, &found, request).await,
    }
}

/// Forwards a call whose headers name a sandbox of another machine; returns other requests
/// unchanged.
pub(crate) async fn forward_call(
    app: &SandboxApp,
    request: Request,
) -> Result<Response<Body>, Request> {
    let node = app.nodes.as_ref().and_then(|nodes| {
        let found = aim(nodes, app, &request)?;
        Some((nodes, found))
    });
    match node {
        Some((nodes, found)) => Ok(pass_on(nodes, &found, request).await),
        None => Err(request),
    }
}

/// The target node of a request.
struct Aim {
    mark: String,
    /// `None` while it is disconnected.
    url: Option<String>,
    /// The sandbox's name, if only the headers have it.
    called: Option<String>,
}

/// The sandbox in a path such as `/sandboxes/{sandbox}/pause`.
fn in_path(path: &str) -> Option<&str> {
    let mut parts = path.split('/');
    parts.find(|part| ["sandboxes", "swerex", "snapshots", "templates"].contains(part))?;
    parts.next()
}

/// The sandbox that a request names, in its path or, for E2B's clients, in its headers.
pub fn sandbox_named(request: &Request) -> Option<&str> {
    let in_path = in_path(request.uri().path()).filter(|named| !named.is_empty());
    in_path.or_else(|| called(request.headers()).map(|(named, _)| named))
}

/// Finds the target node of a request.
fn aim(nodes: &Nodes, app: &SandboxApp, request: &Request) -> Option<Aim> {
    let in_path = in_path(request.uri().path()).filter(|named| !named.is_empty());
    let (named, is_secret) = match in_path {
        Some(named) => (named, false),
        None => called(request.headers())?,
    };
    let mark = mark_of_sandbox(named)?;
    let is_here = |host: &Arc<Host>| host.sandboxes.get(named).is_ok();
    if app.host.as_ref().is_some_and(is_here) {
        return None;
    }
    if !nodes.has(mark) {
        return None;
    }
    let url = nodes.url_of(mark);
    let called = (in_path.is_none() && !is_secret).then(|| named.to_owned());
    Some(Aim {
        mark: mark.to_owned(),
        url,
        called,
    })
}

/// Finds the node of the sandbox whose secret signed a URL, if it is not a sandbox of this machine.
async fn signed(nodes: &Nodes, app: &SandboxApp, uri: &Uri, writes: bool) -> Option<Aim> {
    let query = uri.query()?;
    let operation = if writes { "write" } else { "read" };
    let Query(own) = Query::<FileQuery>::try_from_uri(uri).ok()?;
    if !own.is_signed() {
        return None;
    }
    if let Some(host) = &app.host
        && own.signed_for(host, operation).is_some()
    {
        return None;
    }
    let path = format!("{SIGNED_PATH}/{operation}?{query}");
    let asked = nodes.linked().into_iter().map(|(mark, url)| {
        let path = path.clone();
        async move {
            let told = nodes.told(&url, &path, "").await?;
            let called = String::from_utf8(told.to_vec()).ok()?;
            (!called.is_empty()).then_some(Aim {
                mark,
                url: Some(url),
                called: Some(called),
            })
        }
    });
    join_all(asked).await.into_iter().flatten().next()
}

async fn pass_on(nodes: &Nodes, aim: &Aim, mut request: Request) -> Response<Body> {
    let Some(url) = &aim.url else {
        return away(&aim.mark);
    };
    if let Some(Ok(called)) = aim.called.as_deref().map(HeaderValue::from_str) {
        // The node does not see the host name of the request.
        request.headers_mut().insert(SANDBOX, called);
    }
    let passed = nodes.send(url, request).await;
    passed.unwrap_or_else(|_| away(&aim.mark))
}

/// Creates a sandbox on the machine with the most room, or on the next best if that one is full.
async fn make(nodes: &Nodes, app: &SandboxApp, request: Request, next: Next) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_BYTES_MAX).await else {
        return refuse(ErrorCode::BodyTooLarge, "the body can't be read; send less");
    };
    let image = image(&parts.uri, &body);
    let mut places = nodes.places(app.host.as_deref().map(own).as_ref(), &image);
    // A snapshot is on the machine of its sandbox.
    if app
        .host
        .as_deref()
        .is_some_and(|host| has_snapshot(host, &parts, &image))
    {
        places = vec![Place::Here];
    } else if let Some(mark) = mark_of_sandbox(&image).filter(|mark| nodes.has(mark)) {
        places.retain(|place| matches!(place, Place::Node(node, _) if node == mark));
        if places.is_empty() {
            return away(mark);
        }
    }
    if let Some(key) = parts.headers.get("idempotency-key") {
        // A repeated request goes to the same machine while the set of machines is unchanged.
        places.sort_by_cached_key(|place| place.for_key(key.as_bytes()));
        places.truncate(1);
    }
    let again = || Request::from_parts(parts.clone(), Body::from(body.clone()));
    let mut refusal = None;
    for place in places {
        let response = match place {
            Place::Here => Ok(next.clone().run(again()).await),
            Place::Node(mark, url) => {
                nodes.chose(&mark);
                nodes.send(&url, again()).await
            }
        };
        let response = match response {
            Ok(response) => response,
            Err(error) if error.was_never_asked() => continue,
            // The sandbox may have been created, so another node must not be tried.
            Err(error) => return refuse(ErrorCode::SandboxFailed, error.to_string()),
        };
        let is_full = [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::SERVICE_UNAVAILABLE,
        ];
        if !is_full.contains(&response.status()) {
            return response;
        }
        refusal.get_or_insert(response);
    }
    refusal.unwrap_or_else(|| {
        refuse(
            ErrorCode::Overloaded,
            "no node accepts sandboxes at present; `treadle nodes` shows the nodes",
        )
    })
}

/// Changes an image on all machines.
async fn everywhere(
    nodes: &Nodes,
    app: &SandboxApp,
    request: Request,
    next: Next,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_BYTES_MAX).await else {
        return refuse(ErrorCode::BodyTooLarge, "the body can't be read; send less");
    };
    let again = || Request::from_parts(parts.clone(), Body::from(body.clone()));
    // An existing image need not be imported, and a missing one not removed: a node that joined
    // later lacks what others have.
    let image = parts.uri.path().trim_start_matches(IMAGES);
    let is_removed = parts.method == Method::DELETE;
    let mut urls = nodes.urls_by_image(image, is_removed);
    let own = app.host.as_ref().map(|host| host.sandboxes.images());
    let mut is_here = own.is_some_and(|own| own.iter().any(|own| own == image) == is_removed);
    if urls.is_empty() && !is_here {
        // They say what is wrong.
        urls = nodes.linked().into_iter().map(|(_, url)| url).collect();
        is_here = app.host.is_some() || urls.is_empty();
    }
    let asked = urls.iter().map(async |url| {
        let response = nodes.send(url, again()).await;
        response
            .unwrap_or_else(|_| refuse(ErrorCode::SandboxFailed, format!("{url} does not respond")))
    });
    let mut answers = join_all(asked).await;
    if is_here {
        answers.push(next.run(again()).await);
    }
    let failed = answers
        .iter()
        .position(|answer| !answer.status().is_success());
    answers.swap_remove(failed.unwrap_or(0))
}

/// Whether the image that a caller names is its tenant's snapshot on this machine.
fn has_snapshot(host: &Host, parts: &Parts, image: &str) -> bool {
    let caller = parts.extensions.get::<Arc<Principal>>();
    caller.is_some_and(|caller| {
        let tenant = caller.tenant.tenant.name();
        let found = host.sandboxes.snapshot_called(tenant, image).is_some();
        let images = host.sandboxes.images_of(tenant);
        found && !images.iter().any(|own| own == image)
    })
}

/// The resources of this machine.
fn own(host: &Host) -> Own {
    Own {
        sandboxes: host.sandboxes.list().len() as u64,
        sandboxes_max: host.sandboxes.most() as u64,
        images: host.sandboxes.images(),
    }
}

/// The image that a request for a sandbox names, in any of its formats.
fn image(uri: &Uri, body: &Bytes) -> String {
    let query = uri.query().unwrap_or_default();
    let of_query = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("image="));
    if let Some(image) = of_query {
        return image.to_owned();
    }
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let named = body["image"]
        .as_str()
        .or_else(|| body["templateID"].as_str());
    match named {
        None | Some("base") => String::new(),
        Some(image) => image.to_owned(),
    }
}

fn away(mark: &str) -> Response<Body> {
    let message = format!(
        "it is on the node {mark}, which is disconnected or accepts no sandboxes; try again, or \
         see `treadle nodes`"
    );
    refuse(ErrorCode::SandboxFailed, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sandboxes_are_found_in_paths() {
        for (path, sandbox) in [
            ("/api/v1/sandboxes/s1/pause", Some("s1")),
            ("/v2/sandboxes/s1", Some("s1")),
            ("/swerex/s1/execute", Some("s1")),
            ("/api/v1/snapshots/c1", Some("c1")),
            ("/sandboxes/s1/snapshots", Some("s1")),
            ("/templates/c1", Some("c1")),
            ("/snapshots", None),
            ("/sandboxes", None),
            ("/files", None),
        ] {
            assert_eq!(in_path(path), sandbox, "{path}");
        }
    }

    #[test]
    fn images_are_found_in_bodies_and_queries() {
        let of = |uri: &'static str, body: &'static str| {
            image(&Uri::from_static(uri), &Bytes::from_static(body.as_bytes()))
        };
        assert_eq!(of("/run_code?image=py&job=a", "{}"), "py");
        assert_eq!(of("/sandboxes", r#"{"templateID":"base"}"#), "");
        assert_eq!(of("/sandboxes", r#"{"templateID":"swe"}"#), "swe");
        assert_eq!(of("/api/v1/sandboxes", r#"{"image":"swe"}"#), "swe");
        assert_eq!(of("/api/v1/sandboxes", "{"), "");
    }
}
