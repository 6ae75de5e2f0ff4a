//! What each path requires of its caller: the guard's table.
//!
//! The table is built from the daemon's endpoints. A path that is not in it is never served.

use super::scope::Scope;
use axum::http::Method;
use std::collections::HashMap;

/// What a path requires.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Needs {
    /// No permission.
    Nothing,
    /// At least this scope, which anonymous callers may also have, if configured.
    Scope(Scope),
    /// At least this scope, and a token even if anonymous callers have it.
    Token(Scope),
    /// An operator; with several tenants, one of the whole daemon, because machines are shared.
    Machines,
    /// An admin of the whole daemon.
    Root,
}

/// One method of one path.
#[derive(Clone, Debug)]
pub struct Route {
    /// The method; `None` for all methods.
    pub method: Option<Method>,
    /// The path in the router's syntax, with parameters in braces.
    pub path: String,
    /// What it requires.
    pub needs: Needs,
    /// Whether the gateway reads its body, with its own limits.
    pub relayed: bool,
    /// Largest body that the guard reads before calling the handler; `None` if the gateway or the
    /// handler reads it.
    pub bytes_max: Option<usize>,
}

/// Reading.
pub const VIEW: Needs = Needs::Scope(Scope::Viewer);
/// Running programs.
pub const RUN: Needs = Needs::Scope(Scope::Job);
/// Adding and removing engines.
pub const ENGINES: Needs = Needs::Machines;
/// Importing images from a machine's files, and removing images; with several tenants this needs a
/// token of the whole daemon.
pub const IMAGES: Needs = Needs::Token(Scope::Operator);
/// Changing policies.
pub const PLUGINS: Needs = Needs::Token(Scope::Operator);
/// Changing tenants and tokens.
pub const ADMIN: Needs = Needs::Token(Scope::Admin);

/// Every route of a daemon, by its path.
#[derive(Clone, Debug)]
pub struct Permissions {
    by_path: HashMap<String, Vec<Route>>,
}

/// The table's entry for a request.
#[derive(Clone, Copy, Debug)]
pub enum RouteMatch<'t> {
    /// The route.
    Route(&'t Route),
    /// The path has other methods.
    OtherMethods,
    /// The path is not in the table.
    Nothing,
}

impl Permissions {
    /// A table of these routes; if two match a request, the first one counts.
    pub fn new(routes: impl IntoIterator<Item = Route>) -> Self {
        let mut by_path = HashMap::<String, Vec<Route>>::new();
        for route in routes {
            by_path.entry(route.path.clone()).or_default().push(route);
        }
        Self { by_path }
    }

    /// Looks up a request; `path` is the one that the router matched.
    pub fn find(&self, method: &Method, path: &str) -> RouteMatch<'_> {
        let Some(routes) = self.by_path.get(path) else {
            return RouteMatch::Nothing;
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
            .map_or(RouteMatch::OtherMethods, RouteMatch::Route)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(method: Option<Method>, path: &str, needs: Needs) -> Route {
        Route {
            method,
            path: path.to_owned(),
            needs,
            relayed: false,
            bytes_max: None,
        }
    }

    #[test]
    fn an_unknown_method_is_distinguished_from_an_unknown_path() {
        let table = Permissions::new([
            route(Some(Method::GET), "/health", Needs::Nothing),
            route(Some(Method::GET), "/v1/models", VIEW),
            route(None, "/v1/models", RUN),
        ]);
        let needs = |method, path| match table.find(&method, path) {
            RouteMatch::Route(route) => Some(route.needs),
            RouteMatch::OtherMethods | RouteMatch::Nothing => None,
        };
        assert_eq!(needs(Method::HEAD, "/health"), Some(Needs::Nothing));
        assert_eq!(needs(Method::GET, "/v1/models"), Some(VIEW));
        assert_eq!(needs(Method::PATCH, "/v1/models"), Some(RUN));
        let found = table.find(&Method::PATCH, "/health");
        assert!(matches!(found, RouteMatch::OtherMethods));
        let found = table.find(&Method::GET, "/nowhere");
        assert!(matches!(found, RouteMatch::Nothing));
    }
}
