//! Checks of a policy's description, from which files, metrics and log lines are named.

use treadle_model::World;

use super::Refused;
use super::contract::CONTRACT;
use crate::columns::columns_of;
use crate::error::UploadRefusal;
use crate::instance::Description;
use crate::limits::Limits;
use crate::schema;

pub(crate) fn check_description(world: &str, limits: &Limits, said: &Description) -> Refused<()> {
    let bad = |what: String, remedy: &str| {
        Err(UploadRefusal::new(
            "bad-description",
            what,
            "answer of describe",
            remedy,
        ))
    };
    let is_kebab = said.name.split('-').all(|word| {
        !word.is_empty()
            && word
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    });
    if !is_kebab || said.name.len() > 64 {
        return bad(
            format!("name {:?}", said.name.chars().take(64).collect::<String>()),
            "name it by lower-case words joined by hyphens, at most 64 characters",
        );
    }
    if !is_version(&said.version) {
        return bad(
            format!(
                "version {:?}",
                said.version.chars().take(64).collect::<String>()
            ),
            "give a semantic version such as 1.2.0, at most 64 characters",
        );
    }
    if said.summary.chars().count() > 500 {
        return bad(
            "the summary is too long".to_owned(),
            "shorten it to at most 500 characters",
        );
    }
    if said.summary.contains(char::is_control) {
        return bad(
            "the summary has a control character".to_owned(),
            "write it as one line of text",
        );
    }
    let known = CONTRACT.functions(world);
    let mut functions = said.functions.iter();
    if let Some(name) = functions.find(|name| !known.contains(&name.as_str())) {
        let name: String = name.chars().take(64).collect();
        let remedy = format!("name functions of the world {world}: {}", known.join(", "));
        return bad(format!("functions name {name:?}"), &remedy);
    }
    let (found, max) = (said.config_schema.len(), limits.config_bytes_max);
    if found > max {
        return bad(
            format!("the schema has {found} bytes"),
            &format!("give at most {max}"),
        );
    }
    if let Err(wrong) = schema::check_schema(&said.config_schema) {
        return bad(
            format!("the schema of the configuration: {wrong}"),
            "give a JSON Schema of an object; each property has a default that fits it",
        );
    }
    let (found, max) = (said.columns.len(), limits.extra_columns_max);
    if found > max {
        return bad(
            format!("asks for {found} columns"),
            &format!("ask for at most {max}"),
        );
    }
    check_columns(world, &said.columns)
}

/// Checks that the host knows each requested column, and that each is requested once.
fn check_columns(world: &str, asked: &[String]) -> Refused<()> {
    let known = World::from_name(world).and_then(columns_of);
    let is_unknown = |name: &&String| known.is_some_and(|known| !known.contains(&name.as_str()));
    let mut columns = asked.iter().enumerate();
    let again = |(at, name): &(usize, &String)| asked[..*at].contains(name);
    let (what, name) = if let Some(name) = asked.iter().find(is_unknown) {
        ("which does not exist", name)
    } else if let Some((_, name)) = columns.find(again) {
        ("twice", name)
    } else {
        return Ok(());
    };
    let name: String = name.chars().take(64).collect();
    let remedy = match known {
        Some([]) => format!("policies of the world {world} get no extra columns; list none"),
        Some(known) => format!("list each at most once, out of {}", known.join(", ")),
        None => "list each column once".to_owned(),
    };
    Err(UploadRefusal::new(
        "unknown-column",
        format!("asks for the column {name:?}, {what}"),
        "answer of describe",
        remedy,
    ))
}

/// A semantic version that is valid in a file name.
fn is_version(version: &str) -> bool {
    version.len() <= 64 && semver::Version::parse(version).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_three_numbers_and_a_mark() {
        for good in ["1.2.3", "0.1.0-alpha.1", "1.0.0+build-7"] {
            assert!(is_version(good), "{good}");
        }
        let long = format!("1.2.3-{}", "a".repeat(64));
        for bad in [
            long.as_str(),
            "",
            "1",
            "1.2",
            "1.2.x",
            "1.2.3-",
            "1..3",
            "1.2.3\n",
            "01.2.3",
            "v1.2.3",
        ] {
            assert!(!is_version(bad), "{bad}");
        }
    }
}
