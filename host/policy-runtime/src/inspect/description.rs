//! Checks of what a policy says about itself: it names files, metrics and log lines.

use super::Refused;
use crate::error::UploadRefusal;
use crate::instance::Description;

pub(crate) fn check_description(said: &Description) -> Refused<()> {
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
    Ok(())
}

/// A semantic version that a file name can hold.
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
