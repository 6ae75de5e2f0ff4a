//! Routing keys of events: `<tenant>.<job>.<entity>.<event>`.

use std::fmt::{self, Write as _};

use xxhash_rust::xxh3::xxh3_64;

/// Longest word of a key, in bytes. AMQP allows 255 bytes for four words and three dots.
const WORD_BYTES_MAX: usize = 62;
/// Length of the suffix of a shortened word: `~` and 16 digits of its hash.
const TAIL_BYTES: usize = 17;

/// A routing key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoutingKey(String);

impl RoutingKey {
    /// The key of an event.
    ///
    /// In each word, `.`, `*`, `#`, `%`, `~`, control characters and spaces are written as `%` and
    /// two digits, an empty word as `%`, and one longer than 62 bytes is truncated and ends in `~`
    /// and its hash. So a word can always be bound by name, and different words stay different.
    pub fn event(tenant: &str, job: &str, entity: &str, event: &str) -> Self {
        let words = [tenant, job, entity, event].map(word);
        Self(words.join("."))
    }

    /// The key as sent.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RoutingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Encodes a name as one word of a key.
fn word(name: &str) -> String {
    if name.is_empty() {
        return "%".to_owned();
    }
    let mut escaped = String::with_capacity(name.len());
    for c in name.chars() {
        if c.is_ascii_control() || " .*#%~".contains(c) {
            // Writing to a string does not fail.
            let _ = write!(escaped, "%{:02X}", c as u32);
        } else {
            escaped.push(c);
        }
    }
    if escaped.len() <= WORD_BYTES_MAX {
        return escaped;
    }
    let mut end = WORD_BYTES_MAX - TAIL_BYTES;
    while !escaped.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}~{:016x}", &escaped[..end], xxh3_64(name.as_bytes()))
}

/// Whether a key matches a pattern of a topic exchange.
pub(crate) fn matches(pattern: &str, key: &str) -> bool {
    let pattern: Vec<&str> = pattern.split('.').collect();
    let key: Vec<&str> = key.split('.').collect();
    // `fits[k]`: the pattern so far matches the first `k` words.
    let mut fits = vec![false; key.len() + 1];
    fits[0] = true;
    for part in pattern {
        if part == "#" {
            let first = fits.iter().position(|&fit| fit).unwrap_or(fits.len());
            fits.iter_mut().skip(first).for_each(|fit| *fit = true);
            continue;
        }
        for at in (1..fits.len()).rev() {
            fits[at] = fits[at - 1] && (part == "*" || part == key[at - 1]);
        }
        fits[0] = false;
    }
    fits[key.len()]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_key_parts_are_unchanged() {
        let key = RoutingKey::event("default", "math-7b", "step", "finished");
        assert_eq!(key.as_str(), "default.math-7b.step.finished");
    }

    #[test]
    fn what_means_something_to_the_broker_is_escaped() {
        let key = RoutingKey::event("", "a.b*c#d%e~f g", "step", "finished");
        assert_eq!(key.as_str(), "%.a%2Eb%2Ac%23d%25e%7Ef%20g.step.finished");
    }

    #[test]
    fn long_key_parts_are_cut_and_stay_distinct() {
        let long = "ü".repeat(200);
        let one = RoutingKey::event(&long, &format!("{long}1"), "step", "finished");
        let other = RoutingKey::event(&long, &format!("{long}2"), "step", "finished");
        assert_ne!(one, other);
        assert!(one.as_str().len() <= 255, "{}", one.as_str().len());
    }

    #[test]
    fn patterns_match_as_a_topic_exchange_does() {
        for (pattern, key, met) in [
            ("#", "a.b.c", true),
            ("a.#", "a", true),
            ("a.*", "a", false),
            ("*.*.step.*", "t.j.step.finished", true),
            ("*.*.step.*", "t.j.program.finished", false),
            ("#.finished", "t.j.step.finished", true),
            ("t.#.finished", "t.finished", true),
            ("t.#.x.#", "t.j.step.finished", false),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern, key), met, "{pattern} {key}");
        }
    }

    proptest! {
        #[test]
        fn keys_are_injective_and_short(
            one in proptest::array::uniform4(".{0,80}"),
            other in proptest::array::uniform4(".{0,80}"),
        ) {
            let key = |w: &[String; 4]| RoutingKey::event(&w[0], &w[1], &w[2], &w[3]);
            let (first, second) = (key(&one), key(&other));
            prop_assert!(first.as_str().len() <= 255);
            prop_assert_eq!(first.as_str().split('.').count(), 4);
            prop_assert_eq!(first == second, one == other);
            prop_assert!(matches(first.as_str(), first.as_str()));
        }
    }
}
