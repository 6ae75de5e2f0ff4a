//! Generates the reference of all keys from the sections.

use std::fmt::Write;

use toml::{Table, Value};

use super::section::{Form, Key, Section};
use super::{Config, SECTIONS};

const INTRODUCTION: &str = "\
# Configuration

A value comes from, in rising order:

1. its default,
2. the file that `--config` names, in TOML: `[section]`, then `key = value`,
3. an environment variable `TREADLE_SECTION__KEY`, for example `TREADLE_SERVER__LISTEN=0.0.0.0:8300`,
4. an argument `--set section.key=value`.

A secret, or a URL that may hold a password, belongs in an environment variable or a separate file
rather than on a command line, which every user of the machine can read: `url_file = \"/run/secrets/db\"`
replaces `url`. It is never printed or logged.

Unknown keys and invalid values are errors at startup. This page is generated from the code by
`make docs`.
";

/// `docs/configuration.md`: every key with its default, unit, bounds and meaning.
pub fn reference_markdown() -> String {
    let defaults = Table::try_from(Config::default()).unwrap_or_default();
    let mut page = INTRODUCTION.to_owned();
    for section in SECTIONS {
        write_section(&mut page, section, defaults.get(section.name));
    }
    page
}

fn write_section(page: &mut String, section: &Section, defaults: Option<&Value>) {
    page.push_str("\n## `[");
    page.push_str(section.name);
    page.push_str("]`\n\n");
    page.push_str(section.about.trim());
    page.push_str("\n\n| Key | Default | Unit | Values | Meaning |\n|---|---|---|---|---|\n");
    for key in section.keys {
        let default = defaults
            .and_then(|values| values.get(key.name))
            .map_or_else(String::new, |value| format!("`{value}`"));
        // Writing to a string can't fail.
        let _ = writeln!(
            page,
            "| `{}` | {default} | {} | {} | {} |",
            key.name,
            key.unit,
            values(key),
            key.meaning.trim(),
        );
    }
}

fn values(key: &Key) -> String {
    match (key.form, key.bounds) {
        (_, Some((least, greatest))) => format!("{least} to {greatest}"),
        (Form::Choice(words), None) => format!("`{}`", words.join("`, `")),
        (Form::Flag, None) => "`true`, `false`".to_owned(),
        (Form::Text, None) => "text".to_owned(),
        (Form::Secret, None) => format!("text; `{}_file` names a file with it", key.name),
        (Form::Address, None) => "address:port".to_owned(),
        (Form::Texts | Form::Endpoints, None) => "list".to_owned(),
        (Form::Whole | Form::Fraction, None) => "number".to_owned(),
    }
}
