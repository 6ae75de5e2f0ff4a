//! The list of other routers that `scripts/peers.sh` writes: how each is started, and told which
//! program a request is of.

use super::command::CommandLine;
use crate::bench::BenchError;
use http::HeaderName;
use serde_json::{Map, Value};
use std::path::Path;
use treadle_demo::naming::{FieldPath, Naming};

/// Largest list, in bytes.
const LIST_BYTES_MAX: usize = 1 << 20;

/// A router of others.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::bench) struct Peer {
    /// By which it is chosen and reported.
    pub(super) name: String,
    /// Its version.
    pub(super) version: String,
    /// What starts it.
    pub(super) command: CommandLine,
    /// Path that answers 200 once it is up.
    pub(super) ready: String,
    /// How it is told which program a request is of.
    pub(super) naming: Naming,
}

/// The routers of a list; `None` if there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<Vec<Peer>>, BenchError> {
    let wrong = |cause: String| BenchError::Peers {
        path: path.display().to_string(),
        cause,
    };
    match std::fs::read(path) {
        Ok(bytes) if bytes.len() > LIST_BYTES_MAX => {
            Err(wrong(format!("it has more than {LIST_BYTES_MAX} bytes")))
        }
        Ok(bytes) => parse(&bytes).map(Some).map_err(wrong),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(wrong(error.to_string())),
    }
}

fn parse(bytes: &[u8]) -> Result<Vec<Peer>, String> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let entries = value.as_array().ok_or("it is no list; it should be one")?;
    let mut peers: Vec<Peer> = Vec::with_capacity(entries.len());
    for (place, entry) in entries.iter().enumerate() {
        let named = entry["name"].as_str().unwrap_or("without a name");
        let wrong = |cause: String| format!("entry {place} ({named}): {cause}");
        let fields = entry.as_object();
        let fields = fields.ok_or_else(|| wrong("it should be an object".to_owned()))?;
        let peer = Entry(fields).peer().map_err(wrong)?;
        if peers.iter().any(|other| other.name == peer.name) {
            return Err(wrong("another has the same `name`".to_owned()));
        }
        peers.push(peer);
    }
    Ok(peers)
}

/// The fields of one router. All must be there: one that is misspelt would be left out silently.
struct Entry<'a>(&'a Map<String, Value>);

impl Entry<'_> {
    fn peer(&self) -> Result<Peer, String> {
        let naming = Naming {
            header: self.header("header")?,
            parent_header: self.header("parent_header")?,
            body_field: self.optional("body_field", field_path)?,
            parent_field: self.optional("parent_field", field_path)?,
            waits_field: self.field_and_value("waits_field")?,
            last_field: self.field_and_value("last_field")?,
            release: self.optional("release", url_path)?,
        };
        let words = |value: &Value| {
            let words = value.as_array()?.iter().map(Value::as_str);
            words.map(|word| word.map(str::to_owned)).collect()
        };
        let command: Vec<String> = self.required("command", "a list of texts", words)?;
        let ready = self.required("ready", "a path such as /health", |value| {
            url_path(value.as_str()?)
        })?;
        Ok(Peer {
            name: self.required("name", "a name without spaces or commas", system_name)?,
            version: self.required("version", "a text", |value| {
                value.as_str().map(str::to_owned)
            })?,
            command: CommandLine::parse(&command).map_err(|cause| format!("`command`: {cause}"))?,
            ready,
            naming,
        })
    }

    fn required<T>(
        &self,
        field: &str,
        wanted: &str,
        take: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<T, String> {
        let value = self.0.get(field);
        let value = value.ok_or_else(|| format!("`{field}` is missing; it should be {wanted}"))?;
        take(value).ok_or_else(|| format!("`{field}` is {value}; it should be {wanted}"))
    }

    fn optional<T>(
        &self,
        field: &str,
        take: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, String> {
        self.required(field, "a text, or null for none", |value| match value {
            Value::Null => Some(None),
            value => take(value.as_str()?).map(Some),
        })
    }

    fn header(&self, field: &str) -> Result<Option<HeaderName>, String> {
        self.optional(field, |text| text.parse().ok())
    }

    fn field_and_value(&self, field: &str) -> Result<Option<(FieldPath, Value)>, String> {
        let wanted = "a field and its value, or null for none";
        self.required(field, wanted, |value| {
            if value.is_null() {
                return Some(None);
            }
            let [field, value] = value.as_array()?.as_slice() else {
                return None;
            };
            Some(Some((field_path(field.as_str()?)?, value.clone())))
        })
    }
}

fn system_name(value: &Value) -> Option<String> {
    let name = value.as_str()?;
    let part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (!name.is_empty() && name.chars().all(part)).then(|| name.to_owned())
}

fn field_path(text: &str) -> Option<FieldPath> {
    let names: FieldPath = text.split('.').map(str::to_owned).collect();
    names.iter().all(|name| !name.is_empty()).then_some(names)
}

fn url_path(text: &str) -> Option<String> {
    text.starts_with('/').then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry() -> Value {
        json!({
            "name": "other", "version": "1.2", "command": ["other", "{engines}"],
            "engines": "{engines}", "ready": "/health", "header": "X-Session-ID",
            "parent_header": null, "body_field": "a.b", "parent_field": "a.p",
            "waits_field": ["a.w", true], "last_field": ["a.c", false], "release": null,
        })
    }

    #[test]
    fn an_entry_says_how_programs_are_named() {
        let peers = parse(json!([entry()]).to_string().as_bytes()).unwrap();
        let [peer] = peers.as_slice() else {
            panic!("{peers:?}");
        };
        let names = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
        let naming = Naming {
            header: Some(HeaderName::from_static("x-session-id")),
            parent_header: None,
            body_field: Some(names("a.b")),
            parent_field: Some(names("a.p")),
            waits_field: Some((names("a.w"), json!(true))),
            last_field: Some((names("a.c"), json!(false))),
            release: None,
        };
        assert_eq!(
            (peer.name.as_str(), peer.version.as_str()),
            ("other", "1.2")
        );
        assert_eq!((peer.ready.as_str(), &peer.naming), ("/health", &naming));
    }

    #[test]
    fn what_is_wrong_names_entry_and_field() {
        for (field, value) in [
            ("name", json!("a b")),
            ("version", json!(1)),
            ("command", json!("other")),
            ("command", json!(["other", "{engine}"])),
            ("ready", json!("health")),
            ("header", json!("x y")),
            ("parent_header", json!("x y")),
            ("body_field", json!("a..b")),
            ("parent_field", json!("")),
            ("waits_field", json!("a")),
            ("last_field", json!(["a.c"])),
            ("release", json!(true)),
        ] {
            let mut wrong = entry();
            wrong[field] = value;
            let error = parse(json!([entry(), wrong]).to_string().as_bytes()).unwrap_err();
            assert!(error.starts_with("entry 1"), "{error}");
            assert!(error.contains(&format!("`{field}`")), "{field}: {error}");
        }
        let mut without = entry();
        without.as_object_mut().unwrap().remove("release");
        let error = parse(json!([without]).to_string().as_bytes()).unwrap_err();
        assert!(error.contains("`release` is missing"), "{error}");
        let twice = parse(json!([entry(), entry()]).to_string().as_bytes());
        assert!(twice.unwrap_err().contains("same `name`"));
    }

    #[test]
    fn the_file_is_named_with_the_remedy() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "{").unwrap();
        let error = read(file.path()).unwrap_err().to_string();
        assert!(error.contains(&*file.path().to_string_lossy()), "{error}");
        assert!(error.contains("scripts/peers.sh"), "{error}");
        assert!(read(Path::new("nowhere.json")).unwrap().is_none());
    }
}
