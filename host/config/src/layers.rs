//! Merges the sources of values, and checks each value.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::engines::{Endpoint, EngineChoice};
use super::error::{ConfigError, Origin};
use super::nearest::nearest;
use super::section::{Form, Key};
use super::{Config, SECTIONS};
use treadle_model::TOKENS_MAX;

/// Largest configuration file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Suffix of a secret's key: the key of a file that holds the secret.
const FILE_SUFFIX: &str = "_file";
/// Longest secret in a file, in bytes.
const SECRET_BYTES_MAX: usize = 64 << 10;

/// The values merged so far.
#[derive(Debug, Default)]
pub(super) struct Layers {
    values: Table,
    /// Files that were read.
    files: Vec<PathBuf>,
}

impl Layers {
    /// Merges the values of a file.
    pub(super) fn add_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let unreadable = |source| ConfigError::Read {
            path: path.to_owned(),
            source,
        };
        let size_bytes = std::fs::metadata(path).map_err(unreadable)?.len();
        if size_bytes > FILE_BYTES_MAX {
            let text = format!("it has {size_bytes} bytes, the limit is {FILE_BYTES_MAX}");
            return Err(unreadable(std::io::Error::other(text)));
        }
        self.files.push(path.to_owned());
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        let table: Table = toml::from_str(&text).map_err(|source| ConfigError::Syntax {
            path: path.to_owned(),
            source: Box::new(source),
        })?;
        let origin = Origin::File(path.to_owned());
        for (section, values) in table {
            let Value::Table(values) = values else {
                return Err(unknown(&section, origin));
            };
            if !SECTIONS.iter().any(|known| known.name == section) && values.is_empty() {
                return Err(unknown(&section, origin));
            }
            for (name, value) in values {
                self.set(&format!("{section}.{name}"), |_| value, &origin)?;
            }
        }
        Ok(())
    }

    /// Merges the environment variables named `TREADLE_SECTION__KEY`.
    pub(super) fn add_environment(
        &mut self,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(), ConfigError> {
        for (variable, text) in environment {
            let Some((section, name)) = variable
                .strip_prefix("TREADLE_")
                .and_then(|rest| rest.split_once("__"))
            else {
                continue;
            };
            let path = format!("{section}.{name}").to_ascii_lowercase();
            let origin = Origin::Environment(variable);
            self.set(&path, |form| from_text(form, &text), &origin)?;
        }
        Ok(())
    }

    /// Merges one `section.key=value`.
    pub(super) fn add_assignment(&mut self, assignment: &str) -> Result<(), ConfigError> {
        let (path, text) =
            assignment
                .split_once('=')
                .ok_or_else(|| ConfigError::NotAnAssignment {
                    text: assignment.to_owned(),
                })?;
        let value = |form| from_text(form, text.trim());
        self.set(path.trim(), value, &Origin::Set)
    }

    /// The configuration, with defaults for all other values.
    pub(super) fn done(self) -> Result<Config, ConfigError> {
        let kv = self.values.get("kv").and_then(Value::as_table);
        let retention_is_given = kv.is_some_and(|kv| kv.contains_key("retention"));
        let done = self.values.try_into().map_err(|source: toml::de::Error| {
            // Each value was checked on its own, so the checks don't cover this error.
            super::conflict(
                "configuration",
                format!("is invalid: {source}"),
                "docs/configuration.md lists all keys",
            )
        });
        let mut config: Config = done?;
        config.kv.settle(config.scheduler.mode, retention_is_given);
        config.files = self.files;
        Ok(config)
    }

    /// Merges one value, or the contents of a file if the key is that of a secret's file.
    fn set(
        &mut self,
        path: &str,
        value: impl FnOnce(Form) -> Value,
        origin: &Origin,
    ) -> Result<(), ConfigError> {
        if let Some(key) = path.strip_suffix(FILE_SUFFIX).and_then(secret) {
            let file = value(Form::Text);
            self.files.extend(file.as_str().map(PathBuf::from));
            let text = read_secret(path, &file)?;
            return self.put(key, Value::String(text), origin);
        }
        let key = find(path, origin)?;
        self.put(key, value(key.form), origin)
    }

    fn put(&mut self, key: &Key, value: Value, origin: &Origin) -> Result<(), ConfigError> {
        let value = checked(key, value, origin)?;
        let section = self
            .values
            .entry(key.section)
            .or_insert_with(|| Value::Table(Table::new()));
        if let Value::Table(section) = section {
            section.insert(key.name.to_owned(), value);
        }
        Ok(())
    }
}

fn find(path: &str, origin: &Origin) -> Result<&'static Key, ConfigError> {
    named(path).ok_or_else(|| unknown(path, origin.clone()))
}

fn named(path: &str) -> Option<&'static Key> {
    let (section, name) = path.split_once('.')?;
    let mut keys = SECTIONS.iter().flat_map(|section| section.keys);
    keys.find(|key| key.section == section && key.name == name)
}

/// The key, if it is that of a secret.
fn secret(path: &str) -> Option<&'static Key> {
    named(path).filter(|key| key.form == Form::Secret)
}

/// Reads a secret from a file, without the trailing newline.
fn read_secret(path: &str, file: &Value) -> Result<String, ConfigError> {
    let unreadable = |why: String| {
        let remedy = "name a file that holds the secret and that the daemon's user can read";
        Err(super::conflict(path, why, remedy))
    };
    let Some(file) = file.as_str() else {
        return unreadable("is not a string".to_owned());
    };
    match std::fs::read_to_string(file) {
        Ok(text) if text.len() <= SECRET_BYTES_MAX => {
            Ok(text.trim_end_matches(['\r', '\n']).to_owned())
        }
        Ok(text) => unreadable(format!(
            "names {file}, which is too large ({} bytes)",
            text.len()
        )),
        Err(error) => unreadable(format!("names {file}: {error}")),
    }
}

fn unknown(path: &str, origin: Origin) -> ConfigError {
    let mut fixed = SECTIONS.iter().flat_map(|section| section.fixed);
    if fixed.any(|key| key.path() == path) {
        let key = path.to_owned();
        return ConfigError::Fixed { origin, key };
    }
    let mut candidates: Vec<String> = SECTIONS
        .iter()
        .flat_map(|section| section.keys)
        .map(Key::path)
        .collect();
    if !path.contains('.') {
        // A single word was meant as a section, or as a key without its section.
        candidates.extend(SECTIONS.iter().map(|section| section.name.to_owned()));
    }
    ConfigError::UnknownKey {
        origin,
        key: path.to_owned(),
        nearest: nearest(path, candidates.iter().map(String::as_str)).map(str::to_owned),
    }
}

/// Parses the value of a variable or an argument. A value that can't be parsed stays text, which
/// the check of the form then refuses.
fn from_text(form: Form, text: &str) -> Value {
    let as_text = || Value::String(text.to_owned());
    match form {
        Form::Text | Form::Secret | Form::Address | Form::Choice(_) => as_text(),
        Form::Texts | Form::Endpoints if !text.trim_start().starts_with('[') => Value::Array(
            text.split(',')
                .map(str::trim)
                .filter(|entry| !entry.is_empty())
                .map(|entry| Value::String(entry.to_owned()))
                .collect(),
        ),
        Form::Whole | Form::Fraction | Form::Flag | Form::Texts | Form::Endpoints => {
            toml::from_str::<Table>(&format!("value = {text}"))
                .ok()
                .filter(|table| table.len() == 1)
                .and_then(|mut table| table.remove("value"))
                .unwrap_or_else(as_text)
        }
    }
}

fn checked(key: &Key, value: Value, origin: &Origin) -> Result<Value, ConfigError> {
    let wrong = |value: &Value| ConfigError::WrongForm {
        origin: origin.clone(),
        key: key.path(),
        value: match key.form {
            Form::Secret => "something else".to_owned(),
            _ => value.to_string(),
        },
        expected: key.form.expected(),
    };
    match (key.form, value) {
        (Form::Text | Form::Secret, value @ Value::String(_))
        | (Form::Flag, value @ Value::Boolean(_)) => Ok(value),
        (Form::Address, Value::String(text)) if text.parse::<SocketAddr>().is_ok() => {
            Ok(Value::String(text))
        }
        (Form::Choice(words), Value::String(word)) if words.contains(&word.as_str()) => {
            Ok(Value::String(word))
        }
        (Form::Whole, Value::Integer(number)) => {
            within(key, number as f64, &number.to_string(), origin)?;
            Ok(Value::Integer(number))
        }
        (Form::Fraction, Value::Integer(number)) => {
            within(key, number as f64, &number.to_string(), origin)?;
            Ok(Value::Float(number as f64))
        }
        (Form::Fraction, Value::Float(number)) => {
            within(key, number, &number.to_string(), origin)?;
            Ok(Value::Float(number))
        }
        (Form::Texts, Value::Array(list)) if list.iter().all(Value::is_str) => {
            Ok(Value::Array(list))
        }
        (Form::Endpoints, Value::Array(list)) => {
            for entry in &list {
                if let Value::Table(table) = entry {
                    known_fields(key, table, origin)?;
                }
                if !is_endpoint(entry) {
                    return Err(wrong(entry));
                }
            }
            Ok(Value::Array(list))
        }
        (_, value) => Err(wrong(&value)),
    }
}

fn known_fields(key: &Key, table: &Table, origin: &Origin) -> Result<(), ConfigError> {
    for field in table.keys() {
        if !Endpoint::FIELDS.contains(&field.as_str()) {
            return Err(ConfigError::UnknownKey {
                origin: origin.clone(),
                key: format!("{}.{field}", key.path()),
                nearest: nearest(field, Endpoint::FIELDS.iter().copied())
                    .map(|field| format!("{}.{field}", key.path())),
            });
        }
    }
    Ok(())
}

fn is_endpoint(entry: &Value) -> bool {
    match entry {
        Value::String(_) => true,
        Value::Table(table) => {
            table.get("url").is_some_and(Value::is_str)
                && table.get("kind").is_none_or(|kind| {
                    kind.as_str()
                        .is_some_and(|word| EngineChoice::CHOICES.contains(&word))
                })
                && ["class", "profile"]
                    .iter()
                    .all(|field| table.get(*field).is_none_or(Value::is_str))
                && table
                    .get("capacity_tokens")
                    .is_none_or(|tokens| tokens.as_integer().is_some_and(is_capacity))
        }
        _ => false,
    }
}

fn is_capacity(tokens: i64) -> bool {
    u64::try_from(tokens).is_ok_and(|tokens| (1..=TOKENS_MAX).contains(&tokens))
}

/// Rejects a number out of bounds, including NaN.
fn within(key: &Key, number: f64, written: &str, origin: &Origin) -> Result<(), ConfigError> {
    let (least, greatest) = key.bounds.unwrap_or((f64::MIN, f64::MAX));
    if number >= least && number <= greatest {
        return Ok(());
    }
    Err(ConfigError::OutOfBounds {
        origin: origin.clone(),
        key: key.path(),
        value: written.to_owned(),
        least,
        greatest,
        unit: key.unit,
    })
}
