//! What each path requires of its caller: the guard's table.
//!
//! The table is made of the endpoints that a daemon serves. A path that is not in it is never
//! served.

use super::scope::Scope;
use axum::http::Method;
use std::collections::HashMap;

/// What a path asks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// At least this scope; anonymous callers may have it too, where the configuration allows it.
    Scope(Scope),
    /// At least this scope, and a token even where anonymous callers have it.
    Token(Scope),
    /// An operator; once there are several tenants, one of the whole daemon: machines are shared.
    Machines,
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
    /// Largest body that the guard reads before the handler is asked; `None` where the gateway or
    /// the handler reads it.
    pub bytes_max: Option<usize>,
}

/// Looking at what there is.
pub const VIEW: Needs = Needs::Scope(Scope::Viewer);
/// Running programs.
pub const RUN: Needs = Needs::Scope(Scope::Job);
/// Adding and removing engines.
pub const ENGINES: Needs = Needs::Machines;
/// Making images of files of a machine, and removing them: beside other tenants of the whole daemon.
pub const IMAGES: Needs = Needs::Token(Scope::Operator);
/// Changing policies.
pub const PLUGINS: Needs = Needs::Token(Scope::Operator);
/// Changing who may do what.
pub const ADMIN: Needs = Needs::Token(Scope::Admin);

/// Every route of a daemon, by its path.
#[derive(Clone, Debug)]
pub struct Permissions {
    by_path: HashMap<String, Vec<Route>>,
}

/// The table's entry for a request.
#[derive(Clone, Copy, Debug)]
pub enum Found<'t> {
    /// This.
    Route(&'t Route),
    /// The path has other methods.
    OtherMethods,
    /// The path is not in it.
    Nothing,
}

impl Permissions {
    /// A table of these routes; of two that fit a request the first holds.
    pub fn new(routes: impl IntoIterator<Item = Route>) -> Self {
        let mut by_path = HashMap::<String, Vec<Route>>::new();
        for route in routes {
            by_path.entry(route.path.clone()).or_default().push(route);
        }
        Self { by_path }
    }

    /// Looks a request up; `path` is the one that the router matched.
    pub fn find(&self, method: &Method, path: &str) -> Found<'_> {
        let Some(routes) = self.by_path.get(path) else {
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
            Found::Route(route) => Some(route.needs),
            Found::OtherMethods | Found::Nothing => None,
        };
        assert_eq!(needs(Method::HEAD, "/health"), Some(Needs::Nothing));
        assert_eq!(needs(Method::GET, "/v1/models"), Some(VIEW));
        assert_eq!(needs(Method::PATCH, "/v1/models"), Some(RUN));
        let found = table.find(&Method::PATCH, "/health");
        assert!(matches!(found, Found::OtherMethods));
        let found = table.find(&Method::GET, "/nowhere");
        assert!(matches!(found, Found::Nothing));
    }
}
