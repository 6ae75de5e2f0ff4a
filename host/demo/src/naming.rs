//! How requests name the program that they belong to.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde_json::{Map, Value};

/// Names of nested fields in a request's body, the outermost first.
pub type FieldPath = Vec<String>;

/// A program, and its parent that waits for it.
#[derive(Clone, Copy, Debug)]
pub struct Sender<'a> {
    /// The program's id.
    pub program: &'a str,
    /// The parent's id, if it has one.
    pub parent: Option<&'a str>,
}

impl<'a> From<&'a str> for Sender<'a> {
    fn from(program: &'a str) -> Self {
        Self {
            program,
            parent: None,
        }
    }
}

/// Where requests name their program. A part that is `None` is not sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Naming {
    /// Header with the program's id.
    pub header: Option<HeaderName>,
    /// Header with the parent's id.
    pub parent_header: Option<HeaderName>,
    /// Field of the body with the program's id.
    pub body_field: Option<FieldPath>,
    /// Field of the body with the parent's id.
    pub parent_field: Option<FieldPath>,
    /// Field of the body for a parent that waits, with its value.
    pub waits_field: Option<(FieldPath, Value)>,
    /// Field of the body for a program's last request, with its value.
    pub last_field: Option<(FieldPath, Value)>,
    /// Path to POST the end of a program to.
    pub release: Option<String>,
}

impl Default for Naming {
    /// treadle's own headers and fields.
    fn default() -> Self {
        Self {
            header: Some(HeaderName::from_static("x-session-id")),
            parent_header: Some(HeaderName::from_static("x-parent-session-id")),
            body_field: None,
            parent_field: None,
            waits_field: None,
            last_field: None,
            release: Some("/programs/release".to_owned()),
        }
    }
}

impl Naming {
    /// The headers of a program's requests.
    pub fn headers(&self, sender: Sender<'_>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        let ids = [
            (&self.header, Some(sender.program)),
            (&self.parent_header, sender.parent),
        ];
        for (name, id) in ids {
            let value = id.and_then(|id| HeaderValue::from_str(id).ok());
            if let (Some(name), Some(value)) = (name, value) {
                headers.insert(name.clone(), value);
            }
        }
        headers
    }

    /// Appends the fields that name the program to a body, which is a JSON object with fields. The
    /// body is not parsed: contexts are long and agents many.
    pub fn body(&self, mut body: String, sender: Sender<'_>, is_last: bool) -> String {
        let mut added = Map::new();
        if let Some(path) = &self.body_field {
            insert(&mut added, path, Value::from(sender.program));
        }
        if let Some(parent) = sender.parent {
            if let Some(path) = &self.parent_field {
                insert(&mut added, path, Value::from(parent));
            }
            if let Some((path, value)) = &self.waits_field {
                insert(&mut added, path, value.clone());
            }
        }
        if let Some((path, value)) = self.last_field.as_ref().filter(|_| is_last) {
            insert(&mut added, path, value.clone());
        }
        if added.is_empty() || !body.ends_with('}') {
            return body;
        }
        body.pop();
        body.push(',');
        body.push_str(&Value::Object(added).to_string()[1..]);
        body
    }
}

/// Sets a field, creating the objects around it.
fn insert(fields: &mut Map<String, Value>, path: &[String], value: Value) {
    match path {
        [] => {}
        [name] => {
            fields.insert(name.clone(), value);
        }
        [outer, inner @ ..] => {
            let entry = fields.entry(outer).or_insert_with(|| Map::new().into());
            if let Value::Object(within) = entry {
                insert(within, inner, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn path(text: &str) -> FieldPath {
        text.split('.').map(str::to_owned).collect()
    }

    #[test]
    fn the_body_names_the_program_and_the_last_one_says_so() {
        let naming = Naming {
            body_field: Some(path("a.b.id")),
            last_field: Some((path("a.b.more"), json!(false))),
            ..Naming::default()
        };
        let body = |is_last| {
            let body = naming.body(r#"{"model":"m"}"#.to_owned(), "p\"1".into(), is_last);
            serde_json::from_str::<Value>(&body).unwrap()
        };
        let inner = json!({"id": "p\"1"});
        assert_eq!(body(false), json!({"model": "m", "a": {"b": inner}}));
        let inner = json!({"id": "p\"1", "more": false});
        assert_eq!(body(true), json!({"model": "m", "a": {"b": inner}}));
    }

    #[test]
    fn treadle_is_told_by_headers_alone() {
        let naming = Naming::default();
        let child = Sender {
            program: "c",
            parent: Some("p"),
        };
        let headers = naming.headers(child);
        assert_eq!(headers["x-session-id"], "c");
        assert_eq!(headers["x-parent-session-id"], "p");
        assert!(
            !naming
                .headers("p".into())
                .contains_key("x-parent-session-id")
        );
        assert_eq!(naming.body("{}".to_owned(), child, true), "{}");
    }

    #[test]
    fn the_body_of_a_child_names_its_parent() {
        let naming = Naming {
            parent_field: Some(path("a.parent")),
            waits_field: Some((path("a.waits"), json!(true))),
            ..Naming::default()
        };
        let child = Sender {
            program: "c",
            parent: Some("p"),
        };
        let body = naming.body("{\"n\":1}".to_owned(), child, false);
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body, json!({"n": 1, "a": {"parent": "p", "waits": true}}));
        let alone = naming.body("{\"n\":1}".to_owned(), "p".into(), false);
        assert_eq!(alone, "{\"n\":1}");
    }
}
