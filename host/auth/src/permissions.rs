//! What each path requires of its caller: the one table.
//!
//! A path that is not in it is never served.

use super::scope::Scope;
use axum::http::Method;
use std::collections::HashMap;
use std::sync::LazyLock;
use treadle_wire::Endpoint;

/// What a path asks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// At least this scope; anonymous callers may have it too, where the configuration allows it.
    Scope(Scope),
    /// At least this scope, and a token even where anonymous callers have it.
    Token(Scope),
    /// An admin of the whole daemon.
    Root,
}

/// One method of one path.
#[derive(Clone, Debug)]
pub struct Route {
    /// The method; `None` for all of them.
    pub method: Option<Method>,
    /// The path as the router knows it, with its parameters in braces.
    pub path: String,
    /// What it asks.
    pub needs: Needs,
    /// Its body is read by the gateway, which has bounds of its own.
    pub relayed: bool,
}

const VIEW: Needs = Needs::Scope(Scope::Viewer);
const RUN: Needs = Needs::Scope(Scope::Job);
const ENGINES: Needs = Needs::Scope(Scope::Operator);
const PLUGINS: Needs = Needs::Token(Scope::Operator);
const ADMIN: Needs = Needs::Token(Scope::Admin);

const TABLE: &[(Method, &str, Needs)] = &[
    (Method::GET, "/health", Needs::Nothing),
    (Method::GET, "/metrics", VIEW),
    (Method::GET, "/programs", VIEW),
    (Method::POST, "/programs/release", RUN),
    (Method::POST, "/finish_session", RUN),
    (Method::GET, "/profiles", VIEW),
    (Method::GET, "/profiles/{program}", VIEW),
    (Method::GET, "/workers", VIEW),
    (Method::POST, "/workers", ENGINES),
    (Method::DELETE, "/workers/{worker}", ENGINES),
    (Method::GET, "/list_workers", VIEW),
    (Method::POST, "/add_worker", ENGINES),
    (Method::POST, "/remove_worker", ENGINES),
    (Method::GET, "/v1/memory", VIEW),
    (Method::GET, "/v1/loads", VIEW),
    (Method::GET, "/get_load", VIEW),
    (Method::POST, "/abort_request", RUN),
    (Method::GET, "/v1/programs", VIEW),
    (Method::GET, "/v1/programs/{program}", VIEW),
    (Method::DELETE, "/v1/programs/{program}", RUN),
    (Method::GET, "/v1/programs/{program}/steps", VIEW),
    (
        Method::GET,
        "/v1/programs/{program}/steps/{step}/bodies",
        VIEW,
    ),
    (Method::GET, "/v1/programs/{program}/decisions", VIEW),
    (Method::DELETE, "/v1/jobs/{job}", RUN),
    (Method::GET, "/v1/events", VIEW),
    (Method::GET, "/v1/bindings", VIEW),
    (Method::PUT, "/v1/bindings", PLUGINS),
    (Method::DELETE, "/v1/bindings", PLUGINS),
    (Method::POST, "/v1/actions", RUN),
    (Method::POST, "/v1/ask", RUN),
    (Method::POST, "/v1/bindings/rollback", PLUGINS),
    (Method::GET, "/v1/lab/runs", VIEW),
    (Method::POST, "/v1/lab/runs", RUN),
    (Method::GET, "/v1/lab/runs/{run}", VIEW),
    (Method::DELETE, "/v1/lab/runs/{run}", RUN),
    (Method::GET, "/v1/plugins", VIEW),
    (Method::GET, "/v1/plugins/{plugin}", VIEW),
    (Method::GET, "/v1/plugins/{plugin}/logs", VIEW),
    (Method::POST, "/v1/plugins", PLUGINS),
    (Method::POST, "/v1/plugins/check", PLUGINS),
    (Method::GET, "/v1/cluster", VIEW),
    (Method::GET, "/v1/identity", Needs::Nothing),
    (Method::GET, "/v1/whoami", VIEW),
    (Method::GET, "/v1/tenants", ADMIN),
    (Method::POST, "/v1/tenants", Needs::Root),
    (Method::GET, "/v1/tenants/{tenant}", ADMIN),
    (Method::PUT, "/v1/tenants/{tenant}", ADMIN),
    (Method::GET, "/v1/tokens", ADMIN),
    (Method::POST, "/v1/tokens", ADMIN),
    (Method::DELETE, "/v1/tokens/{token}", ADMIN),
    (Method::POST, "/v1/tokens/{token}/rotate", ADMIN),
    (Method::GET, "/v1/audit", ADMIN),
];

/// Paths that go to an engine as they are, whatever the method; the first line that fits holds.
const FORWARDED: [(Option<Method>, &str, Needs); 7] = [
    (Some(Method::GET), "/v1/models", VIEW),
    (None, "/v1/models", RUN),
    (None, "/tokenize", RUN),
    (None, "/detokenize", RUN),
    (Some(Method::GET), "/server_info", VIEW),
    (None, "/server_info", RUN),
    (None, "/health_generate", RUN),
];

/// Every route of the daemon.
pub fn routes() -> Vec<Route> {
    let plain = TABLE.iter().map(|(method, path, needs)| Route {
        method: Some(method.clone()),
        path: (*path).to_owned(),
        needs: *needs,
        relayed: false,
    });
    let forwarded = FORWARDED.iter().map(|(method, path, needs)| Route {
        method: method.clone(),
        path: (*path).to_owned(),
        needs: *needs,
        relayed: true,
    });
    let generation = Endpoint::ALL.into_iter().flat_map(|endpoint| {
        [String::new(), "/sessions/{session}".to_owned()].map(|start| Route {
            method: Some(Method::POST),
            path: start + endpoint.path(),
            needs: RUN,
            relayed: true,
        })
    });
    plain.chain(forwarded).chain(generation).collect()
}

static BY_PATH: LazyLock<HashMap<String, Vec<Route>>> = LazyLock::new(|| {
    let mut by_path = HashMap::<String, Vec<Route>>::new();
    for route in routes() {
        by_path.entry(route.path.clone()).or_default().push(route);
    }
    by_path
});

/// The table's entry for a request.
#[derive(Clone, Copy, Debug)]
pub enum Found {
    /// This.
    Route(&'static Route),
    /// The path has other methods.
    OtherMethods,
    /// The path is not in it.
    Nothing,
}

/// Looks a request up; `path` is the one that the router matched.
pub fn find(method: &Method, path: &str) -> Found {
    let Some(routes) = BY_PATH.get(path) else {
        return Found::Nothing;
    };
    // The router answers HEAD as GET.
    let method = if method == Method::HEAD {
        &Method::GET
    } else {
        method
    };
    let fits = |route: &&Route| route.method.as_ref().is_none_or(|own| own == method);
    routes
        .iter()
        .find(fits)
        .map_or(Found::OtherMethods, Found::Route)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_takes_a_viewer_and_changing_takes_more() {
        for route in routes() {
            let is_reading = route.method == Some(Method::GET);
            if !is_reading && !route.relayed {
                let weak = [Needs::Nothing, VIEW];
                assert!(!weak.contains(&route.needs), "{route:?}");
            }
        }
    }

    #[test]
    fn an_unknown_method_is_distinguished_from_an_unknown_path() {
        assert!(matches!(
            find(&Method::HEAD, "/health"),
            Found::Route(route) if route.needs == Needs::Nothing
        ));
        assert!(matches!(
            find(&Method::PATCH, "/health"),
            Found::OtherMethods
        ));
        assert!(matches!(
            find(&Method::PATCH, "/v1/models"),
            Found::Route(_)
        ));
        assert!(matches!(find(&Method::GET, "/nowhere"), Found::Nothing));
    }
}
