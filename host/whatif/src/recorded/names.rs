//! Unique names of a workload's runs.

use std::collections::{BTreeMap, BTreeSet};

/// Generates unique names: a key that is used again belongs to another program.
#[derive(Default)]
pub(super) struct RunNames<'a> {
    taken: BTreeSet<String>,
    /// Number of uses of each key so far.
    uses: BTreeMap<&'a str, u64>,
}

impl<'a> RunNames<'a> {
    /// Returns the key the first time, then the key with a number.
    pub(super) fn next(&mut self, key: &'a str) -> String {
        let uses = self.uses.entry(key).or_default();
        loop {
            *uses += 1;
            let name = match *uses {
                1 => key.to_owned(),
                use_number => format!("{key}+{use_number}"),
            };
            // Another program may have this name.
            if self.taken.insert(name.clone()) {
                return name;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reused_keys_get_unique_numbers() {
        let mut names = RunNames::default();
        let given: Vec<String> = ["a", "a+2", "a", "b", "a", "a+2"]
            .map(|key| names.next(key))
            .into();
        assert_eq!(given, ["a", "a+2", "a+3", "b", "a+4", "a+2+2"]);
    }

    #[test]
    fn a_key_that_every_program_has_is_named_in_one_go_each() {
        // Trying numbers from 1 for each use would take hours.
        let mut names = RunNames::default();
        let last = (0..100_000).map(|_| names.next("agent")).last();
        assert_eq!(last.as_deref(), Some("agent+100000"));
    }
}
