//! Recognises the program that an unnamed request continues.
//!
//! A client without an id still sends its whole history. Each link of a request's chain is a hash
//! of everything before it, so if a longer request contains a program's newest prompt, its chain
//! contains the last link of the program's chain.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The last link of each program's newest chain; the least recently inserted is dropped first.
///
/// Rollouts of one group begin with equal prompts. Programs with equal chains cannot be
/// distinguished, so a longer request goes to the one that was inserted first.
#[derive(Debug)]
pub struct PrefixIndex {
    capacity: usize,
    /// Grows with every insertion; an insertion's number is its age.
    inserted: u64,
    programs: HashMap<Arc<str>, Entry>,
    /// Programs by their last link, then by age.
    by_link: HashMap<u64, BTreeMap<u64, Arc<str>>>,
    by_age: BTreeMap<u64, Arc<str>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    link: u64,
    age: u64,
}

impl PrefixIndex {
    /// An empty index for at most this many programs; 0 keeps none.
    pub fn new(capacity: usize) -> Self {
        PrefixIndex {
            capacity,
            inserted: 0,
            programs: HashMap::new(),
            by_link: HashMap::new(),
            by_age: BTreeMap::new(),
        }
    }

    /// The program whose entire newest chain is a proper prefix of this one, the longest such.
    ///
    /// Sharing a prefix is not enough: a program that has diverged does not match. Takes one
    /// look-up per link.
    pub fn longest_match(&self, chain: &[u64]) -> Option<Arc<str>> {
        let (_, proper) = chain.split_last()?;
        proper
            .iter()
            .rev()
            .find_map(|link| self.by_link.get(link)?.values().next())
            .cloned()
    }

    /// Makes this the program's newest chain. An empty chain identifies no program, so the program
    /// is then only removed.
    pub fn insert(&mut self, chain: &[u64], program: Arc<str>) {
        self.remove(&program);
        let Some(link) = chain.last().copied() else {
            return;
        };
        if self.capacity == 0 {
            return;
        }
        if self.programs.len() == self.capacity {
            self.remove_oldest();
        }
        let age = self.inserted;
        self.inserted += 1;
        self.by_link
            .entry(link)
            .or_default()
            .insert(age, program.clone());
        self.by_age.insert(age, program.clone());
        self.programs.insert(program, Entry { link, age });
    }

    /// Removes the least recently inserted program; false without any.
    pub fn remove_oldest(&mut self) -> bool {
        let oldest = self.by_age.first_key_value();
        let Some(oldest) = oldest.map(|(_, oldest)| oldest.clone()) else {
            return false;
        };
        self.remove(&oldest);
        true
    }

    /// Removes a program, if present.
    pub fn remove(&mut self, program: &str) {
        let Some(entry) = self.programs.remove(program) else {
            return;
        };
        self.by_age.remove(&entry.age);
        if let Some(equals) = self.by_link.get_mut(&entry.link) {
            equals.remove(&entry.age);
            if equals.is_empty() {
                self.by_link.remove(&entry.link);
            }
        }
    }

    /// Number of programs in the index.
    pub fn len(&self) -> usize {
        self.programs.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Chained hashes of a list of small words.
    fn chain(words: &[u8]) -> Vec<u64> {
        let mut hash = 17_u64;
        let link = |word: &u8| {
            hash = (hash ^ u64::from(*word))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(23)
                + 1;
            hash
        };
        words.iter().map(link).collect()
    }

    fn index(programs: &[(&str, &[u8])]) -> PrefixIndex {
        let mut index = PrefixIndex::new(8);
        for (program, words) in programs {
            index.insert(&chain(words), Arc::from(*program));
        }
        index
    }

    #[test]
    fn a_shared_system_prompt_is_no_match() {
        let index = index(&[("a", &[1, 2, 3])]);
        assert_eq!(index.longest_match(&chain(&[1, 2, 4, 5])), None);
        assert_eq!(index.longest_match(&chain(&[1, 2])), None);
        assert_eq!(index.longest_match(&chain(&[1, 2, 3])), None);
        assert_eq!(index.longest_match(&[]), None);
        assert_eq!(
            index.longest_match(&chain(&[1, 2, 3, 4])).as_deref(),
            Some("a")
        );
    }

    #[test]
    fn only_the_newest_chain_of_a_program_counts() {
        let index = index(&[("a", &[1]), ("b", &[1, 2]), ("b", &[1, 3])]);
        assert_eq!(
            index.longest_match(&chain(&[1, 2, 9])).as_deref(),
            Some("a")
        );
        assert_eq!(
            index.longest_match(&chain(&[1, 3, 9])).as_deref(),
            Some("b")
        );
        assert_eq!(index.len(), 2);
    }

    #[test]
    fn a_group_of_equal_prompts_is_shared_out_one_by_one() {
        let mut index = index(&[("a", &[1]), ("b", &[1]), ("c", &[1])]);
        for (next, expected) in [(5, "a"), (6, "b"), (7, "c")] {
            let longer = chain(&[1, next]);
            let program = index.longest_match(&longer).unwrap();
            assert_eq!(&*program, expected);
            index.insert(&longer, program);
        }
        assert_eq!(index.longest_match(&chain(&[1, 8])), None);
    }

    /// The same by comparing whole histories; the oldest insertion first.
    #[derive(Default)]
    struct Model(Vec<(String, Vec<u8>)>);

    impl Model {
        fn insert(&mut self, program: &str, words: &[u8], capacity: usize) {
            self.0.retain(|(other, _)| other != program);
            if words.is_empty() {
                return;
            }
            self.0.push((program.to_owned(), words.to_vec()));
            if self.0.len() > capacity {
                self.0.remove(0);
            }
        }

        fn longest_match(&self, words: &[u8]) -> Option<&str> {
            let mut best: Option<&(String, Vec<u8>)> = None;
            for candidate in &self.0 {
                let is_proper = candidate.1.len() < words.len() && words.starts_with(&candidate.1);
                if is_proper && best.is_none_or(|best| candidate.1.len() > best.1.len()) {
                    best = Some(candidate);
                }
            }
            best.map(|(program, _)| program.as_str())
        }
    }

    proptest! {
        #[test]
        fn it_agrees_with_comparing_whole_histories(
            capacity in 0_usize..6,
            deeds in proptest::collection::vec(
                (0_u8..4, 0_u8..8, proptest::collection::vec(0_u8..3, 0..6)), 0..60),
        ) {
            let mut index = PrefixIndex::new(capacity);
            let mut model = Model::default();
            for (deed, number, words) in deeds {
                let program = format!("p{number}");
                match deed {
                    0 => {
                        index.remove(&program);
                        model.0.retain(|(other, _)| *other != program);
                    }
                    1 => {
                        index.insert(&chain(&words), Arc::from(program.as_str()));
                        model.insert(&program, &words, capacity);
                    }
                    _ => {
                        let found = index.longest_match(&chain(&words));
                        prop_assert_eq!(found.as_deref(), model.longest_match(&words));
                    }
                }
                prop_assert_eq!(index.len(), model.0.len());
                prop_assert!(index.len() <= capacity);
                prop_assert_eq!(index.by_age.len(), index.len());
                prop_assert_eq!(index.by_link.values().map(BTreeMap::len).sum::<usize>(), index.len());
            }
        }
    }
}
