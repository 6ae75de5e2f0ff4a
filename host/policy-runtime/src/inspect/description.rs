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

/// Three numbers, perhaps with a pre-release or build mark.
fn is_version(version: &str) -> bool {
    let (core, mark) = match version.find(['-', '+']) {
        Some(at) => (&version[..at], Some(&version[at + 1..])),
        None => (version, None),
    };
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_mark = |mark: &str| {
        !mark.is_empty()
            && mark
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b".-+".contains(&byte))
    };
    version.len() <= 64
        && core.split('.').count() == 3
        && core.split('.').all(is_number)
        && mark.is_none_or(is_mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_three_numbers_and_a_mark() {
        for good in ["1.2.3", "0.1.0-alpha.1", "1.0.0+build-7"] {
            assert!(is_version(good), "{good}");
        }
        for bad in ["", "1", "1.2", "1.2.x", "1.2.3-", "1..3", "1.2.3\n"] {
            assert!(!is_version(bad), "{bad}");
        }
    }
}
