//! The document and the page of paths, as they are kept in `docs/reference`.

use super::*;
use crate::rest::routes;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use treadle_auth::permissions::VIEW;
use utoipa::openapi::schema::Schema;

const HEAD: &str = include_str!("head.md");

fn json() -> Value {
    serde_json::to_value(document()).expect("it has a JSON form")
}

fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().expect("paths");
    let of_path = |(path, item): (&String, &Value)| {
        let methods = item.as_object().expect("operations").clone();
        let path = path.clone();
        methods
            .into_iter()
            .map(move |(method, operation)| (method, path.clone(), operation))
            .collect::<Vec<_>>()
    };
    paths.iter().flat_map(of_path).collect()
}

/// The page of all paths, group by group.
fn page() -> String {
    let mut page = HEAD.to_owned();
    for (group, abouts) in groups() {
        let _ = write!(
            page,
            "\n## {group}\n\n| path | scope | what |\n|---|---|---|\n"
        );
        for about in abouts {
            let method = about
                .method()
                .map_or(String::new(), |method| format!("{method} "));
            let parameters = about.operation().parameters.as_deref().unwrap_or_default();
            let query: Vec<String> = parameters
                .iter()
                .filter(|parameter| {
                    parameter.parameter_in == utoipa::openapi::path::ParameterIn::Query
                })
                .map(|parameter| format!("{}=", parameter.name))
                .collect();
            let query = if query.is_empty() {
                String::new()
            } else {
                format!("?{}", query.join("&"))
            };
            let scope = match about.needs() {
                Needs::Nothing => "none".to_owned(),
                Needs::Scope(scope) => format!("`{}`", scope.as_str()),
                Needs::Token(scope) => format!("`{}`, token", scope.as_str()),
                Needs::Machines => {
                    "`operator`; of the whole daemon beside other tenants".to_owned()
                }
                Needs::Root => "`admin` of the whole daemon".to_owned(),
            };
            let summary = about.operation().summary.as_deref().unwrap_or_default();
            let _ = writeln!(
                page,
                "| `{method}{}{query}` | {scope} | {summary} |",
                about.path()
            );
        }
    }
    page
}

/// Compares a page of the documentation with what the code says; `UPDATE_DOCS=1` writes it instead.
fn is_current(name: &str, text: &str) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    let path = folder.join(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, text).expect("it can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == text,
        "docs/reference/{name} is stale; run this test with UPDATE_DOCS=1"
    );
}

#[test]
fn the_document_is_the_one_that_is_kept() {
    is_current("openapi.json", &text());
}

#[test]
fn the_page_of_paths_is_the_one_that_is_kept() {
    is_current("http.md", &page());
}

#[test]
fn every_route_is_in_the_document_once_and_no_other() {
    let document = json();
    let shown: BTreeSet<_> = operations(&document)
        .into_iter()
        .map(|(method, path, _)| (method, path))
        .collect();
    let mut served = BTreeSet::new();
    for route in routes() {
        let methods = match &route.method {
            Some(method) => vec![method.as_str().to_lowercase()],
            None => vec!["get".to_owned(), "post".to_owned()],
        };
        for method in methods {
            let path = route.path.replace("{*", "{");
            let is_new = served.insert((method, path));
            // Of a path that takes all methods, one may need less.
            assert!(
                is_new || route.method.is_none(),
                "{} is there twice",
                route.path
            );
        }
    }
    assert!(served.len() > 40, "{}", served.len());
    assert_eq!(shown, served);
}

#[test]
fn operations_have_summaries_answers_and_names_of_their_own() {
    let mut ids = BTreeSet::new();
    for (method, path, operation) in operations(&json()) {
        let place = format!("{method} {path}");
        assert!(
            operation["summary"]
                .as_str()
                .is_some_and(|text| text.len() > 5),
            "{place}"
        );
        let id = operation["operationId"].as_str().unwrap_or_default();
        assert!(!id.is_empty() && ids.insert(id.to_owned()), "{place}: {id}");
        let answers = operation["responses"].as_object().expect("responses");
        assert!(
            answers.keys().any(|status| status.starts_with(['2', '3'])),
            "{place}"
        );
    }
}

#[test]
fn schemas_that_are_referred_to_are_there_and_mean_one_thing() {
    let document = json();
    let schemas = document["components"]["schemas"]
        .as_object()
        .expect("schemas");
    let text = document.to_string();
    for reference in text.split("#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap_or_default();
        assert!(schemas.contains_key(name), "{name} is not there");
    }
    let mut by_name = BTreeMap::<String, RefOr<Schema>>::new();
    for about in groups().into_iter().flat_map(|(_, abouts)| abouts) {
        for (name, schema) in about.schemas() {
            let before = by_name.insert(name.clone(), schema.clone());
            assert!(
                before.is_none_or(|before| before == *schema),
                "two are called {name}"
            );
        }
    }
}

#[test]
fn reading_takes_a_viewer_and_changing_takes_more() {
    for route in routes() {
        let is_reading = route.method == Some(Method::GET);
        // It changes nothing but the browser's cookie.
        let is_session = route.path == "/api/v1/session";
        if !is_reading && !route.relayed && !is_session {
            assert!(![Needs::Nothing, VIEW].contains(&route.needs), "{route:?}");
        }
    }
}
