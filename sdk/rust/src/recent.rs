//! A map with a bounded number of entries, which forgets the least recent one.

use std::collections::BTreeMap;

/// Values by key, at most a fixed number of them. A policy that learns something about each group,
/// job or tool keeps it here, so that its memory and its snapshot stay bounded.
///
/// ```
/// use treadle_plugin::recent::Recent;
///
/// let mut lengths: Recent<u64, f64> = Recent::new(2);
/// *lengths.touch(7) += 100.0;
/// *lengths.touch(8) += 30.0;
/// *lengths.touch(7) += 50.0;
/// lengths.insert(9, 1.0);
/// assert_eq!(lengths.get(&7), Some(&150.0));
/// assert_eq!(lengths.get(&8), None, "it was touched before 7");
/// ```
#[derive(Debug, Clone)]
pub struct Recent<K, V> {
    entries: BTreeMap<K, Entry<V>>,
    by_age: BTreeMap<u64, K>,
    clock: u64,
    entries_max: usize,
}

#[derive(Debug, Clone)]
struct Entry<V> {
    /// The clock at the last touch; 0 if there was none, which no key in `by_age` has.
    touched: u64,
    value: V,
}

impl<K: Ord + Clone, V> Recent<K, V> {
    /// An empty map for at most `entries_max` entries, and at least one.
    pub fn new(entries_max: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            by_age: BTreeMap::new(),
            clock: 0,
            entries_max: entries_max.max(1),
        }
    }

    /// The value of a key; its age stays the same.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|entry| &entry.value)
    }

    /// The value of a key, which is the most recent from now on. An unknown key gets this value.
    pub fn touch_or(&mut self, key: K, value: V) -> &mut V {
        if !self.entries.contains_key(&key) {
            self.make_room();
        }
        self.clock += 1;
        let new = Entry { touched: 0, value };
        let entry = self.entries.entry(key.clone()).or_insert(new);
        self.by_age.remove(&entry.touched);
        entry.touched = self.clock;
        self.by_age.insert(self.clock, key);
        &mut entry.value
    }

    /// Sets the value of a key. A known key keeps its age, a new one is the most recent.
    pub fn insert(&mut self, key: K, value: V) {
        if let Some(known) = self.entries.get_mut(&key) {
            known.value = value;
        } else {
            self.touch_or(key, value);
        }
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        *self = Self::new(self.entries_max);
    }

    /// All entries, the least recent first. Inserted in this order, they give an equal map: that is
    /// how a snapshot is written and restored.
    pub fn oldest_first(&self) -> impl ExactSizeIterator<Item = (&K, &V)> {
        let keys = self.by_age.values();
        keys.map(|key| (key, &self.entries[key].value))
    }

    /// Removes the least recent entry if there is no room for another one.
    fn make_room(&mut self) {
        if self.entries.len() >= self.entries_max
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.entries.remove(&oldest);
        }
    }
}

impl<K: Ord + Clone, V: Default> Recent<K, V> {
    /// The value of a key, which is the most recent from now on. An unknown key gets the default
    /// value.
    pub fn touch(&mut self, key: K) -> &mut V {
        self.touch_or(key, V::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys<V>(map: &Recent<u64, V>) -> Vec<u64> {
        map.oldest_first().map(|(key, _)| *key).collect()
    }

    #[test]
    fn the_key_touched_longest_ago_is_forgotten() {
        let mut map = Recent::new(3);
        for key in [1, 2, 3, 1, 4] {
            *map.touch(key) += key;
        }
        assert_eq!(keys(&map), [3, 1, 4]);
        assert_eq!((map.get(&2), map.get(&1)), (None, Some(&2)));
    }

    #[test]
    fn setting_a_value_keeps_the_age_of_its_key() {
        let mut map = Recent::new(2);
        for (key, value) in [(1, 'a'), (2, 'b'), (1, 'c'), (3, 'd')] {
            map.insert(key, value);
        }
        assert_eq!(keys(&map), [2, 3]);
        map.insert(2, 'e');
        assert_eq!(map.get(&2), Some(&'e'));
        map.clear();
        assert_eq!((keys(&map).len(), map.get(&2)), (0, None));
        for key in [5, 6, 7] {
            map.insert(key, 'f');
        }
        assert_eq!(keys(&map), [6, 7]);
    }
}
