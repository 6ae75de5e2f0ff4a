//! Finds the key that a mistyped one most resembles.

/// The candidate with the fewest edits to `key`, if they are few enough for a typo.
pub(super) fn nearest<'a>(
    key: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let name = last_part(key);
    let score = |candidate: &str| {
        // The right name in the wrong section is no typo of the name, but as obvious a mistake.
        if last_part(candidate) == name {
            1
        } else {
            edits(key, candidate)
        }
    };
    candidates
        .into_iter()
        .map(|candidate| (score(candidate), candidate))
        .min()
        .filter(|(score, _)| *score <= (key.chars().count() / 3).max(2))
        .map(|(_, candidate)| candidate)
}

fn last_part(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

/// Letters to insert, delete or replace to get from one text to the other.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (from, to, count) in [
            ("", "", 0),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("tick_ms", "tik_ms", 1),
            ("ab", "ba", 2),
        ] {
            assert_eq!(edits(from, to), count, "{from} {to}");
            assert_eq!(edits(to, from), count, "{to} {from}");
        }
    }

    #[test]
    fn a_slip_is_recognised_and_nonsense_is_not() {
        let keys = ["server.listen", "scheduler.tick_ms", "store.path"];
        assert_eq!(nearest("scheduler.tik_ms", keys), Some("scheduler.tick_ms"));
        assert_eq!(nearest("server.tick_ms", keys), Some("scheduler.tick_ms"));
        assert_eq!(nearest("sever.listen", keys), Some("server.listen"));
        assert_eq!(nearest("colour", keys), None);
    }
}
