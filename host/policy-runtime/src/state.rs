//! The state of a binding's policy between calls, restarts and versions: the values of the host
//! functions `state-get`, `state-set` and `state-delete`.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::limits::Limits;

/// First bytes of the saved form: name and version of the format.
const MARK: &[u8; 8] = b"tdlstat1";

/// Values by key. The state outlives the instance: take it with
/// [`PolicyInstance::into_state`](crate::PolicyInstance::into_state) and pass it to the successor
/// in [`InstanceOptions`](crate::InstanceOptions).
///
/// Limited by `Limits::state_bytes_max`, `state_keys_max` and `state_key_bytes_max`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BindingState {
    entries: BTreeMap<String, Vec<u8>>,
    /// Size of keys and values together.
    bytes: usize,
    revision: u64,
}

/// A value that was not stored, or a saved state that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StateError {
    /// A key is too long.
    #[error("a key has {found} bytes; give at most {max}")]
    Key {
        /// Length found.
        found: usize,
        /// `Limits::state_key_bytes_max`.
        max: usize,
    },
    /// There would be too many keys.
    #[error("more than {max} keys; delete one first")]
    Keys {
        /// `Limits::state_keys_max`.
        max: usize,
    },
    /// Keys and values would be too large together.
    #[error("keys and values would have {found} bytes; keep them within {max}")]
    Bytes {
        /// Size found.
        found: usize,
        /// `Limits::state_bytes_max`.
        max: usize,
    },
    /// The bytes are not a saved state.
    #[error("byte {at} of the saved state cannot be read; begin with an empty one")]
    Damaged {
        /// Offset at which reading failed.
        at: usize,
    },
}

impl BindingState {
    pub(crate) const EMPTY: Self = Self {
        entries: BTreeMap::new(),
        bytes: 0,
        revision: 0,
    };

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.entries.get(key).map(Vec::as_slice)
    }

    /// Keys and values, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.entries
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_slice()))
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Size of keys and values together.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Grows by one with every change, to show when to save.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Stores a value. Nothing changes on an error.
    ///
    /// # Errors
    /// A limit would be exceeded.
    pub fn set(&mut self, key: &str, value: Vec<u8>, limits: &Limits) -> Result<(), StateError> {
        if key.len() > limits.state_key_bytes_max {
            return Err(StateError::Key {
                found: key.len(),
                max: limits.state_key_bytes_max,
            });
        }
        let before = self
            .entries
            .get(key)
            .map_or(0, |value| key.len() + value.len());
        if before == 0 && !self.entries.contains_key(key) && self.len() >= limits.state_keys_max {
            return Err(StateError::Keys {
                max: limits.state_keys_max,
            });
        }
        let bytes = self.bytes - before + key.len() + value.len();
        if bytes > limits.state_bytes_max {
            return Err(StateError::Bytes {
                found: bytes,
                max: limits.state_bytes_max,
            });
        }
        self.entries.insert(key.to_owned(), value);
        self.bytes = bytes;
        self.revision += 1;
        Ok(())
    }

    /// Removes a value; true if there was one.
    pub fn delete(&mut self, key: &str) -> bool {
        let Some(value) = self.entries.remove(key) else {
            return false;
        };
        self.bytes -= key.len() + value.len();
        self.revision += 1;
        true
    }

    /// The saved form: a mark, then for each key its length, the key, the value's
    /// length, the value; lengths are 32 bits, little-endian. Equal contents give
    /// equal bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut saved = Vec::with_capacity(MARK.len() + self.bytes + 8 * self.len());
        saved.extend_from_slice(MARK);
        for (key, value) in self.iter() {
            for part in [key.as_bytes(), value] {
                // The limits keep it far below 32 bits.
                saved.extend_from_slice(&(part.len() as u32).to_le_bytes());
                saved.extend_from_slice(part);
            }
        }
        saved
    }

    /// Reads the saved form.
    ///
    /// # Errors
    /// Damaged data, or more than `limits` allow.
    pub fn from_bytes(saved: &[u8], limits: &Limits) -> Result<Self, StateError> {
        let mut rest = saved
            .strip_prefix(MARK)
            .ok_or(StateError::Damaged { at: 0 })?;
        let mut state = Self::default();
        while !rest.is_empty() {
            let damaged = StateError::Damaged {
                at: saved.len() - rest.len(),
            };
            let key = take(&mut rest).and_then(|key| std::str::from_utf8(key).ok());
            let (Some(key), Some(value)) = (key, take(&mut rest)) else {
                return Err(damaged);
            };
            state.set(key, value.to_vec(), limits)?;
        }
        state.revision = 0;
        Ok(state)
    }
}

/// The next length-prefixed part.
fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk()?;
    let (part, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *rest = after;
    Some(part)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limits() -> Limits {
        Limits {
            state_bytes_max: 10,
            state_keys_max: 2,
            state_key_bytes_max: 4,
            ..Limits::default()
        }
    }

    #[test]
    fn each_bound_holds_and_a_refused_value_changes_nothing() {
        let mut state = BindingState::default();
        state.set("a", vec![1; 4], &limits()).unwrap();
        state.set("b", vec![2; 4], &limits()).unwrap();
        let before = state.clone();
        for (key, length, found) in [
            ("c", 0, StateError::Keys { max: 2 }),
            ("b", 5, StateError::Bytes { found: 11, max: 10 }),
            ("lengthy", 0, StateError::Key { found: 7, max: 4 }),
        ] {
            assert_eq!(state.set(key, vec![0; length], &limits()), Err(found));
            assert_eq!(state, before);
        }
        assert!(state.delete("a"));
        assert!(!state.delete("a"));
        state.set("c", vec![3; 4], &limits()).unwrap();
        assert_eq!((state.bytes(), state.revision()), (10, 4));
    }

    #[test]
    fn a_cut_file_is_damaged() {
        let mut state = BindingState::default();
        state.set("key", vec![1, 2, 3], &Limits::default()).unwrap();
        let saved = state.to_bytes();
        for end in 0..saved.len() {
            let read = BindingState::from_bytes(&saved[..end], &Limits::default());
            assert_eq!(read.is_ok(), end == MARK.len(), "cut at {end}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn the_saved_form_is_read_back_and_sizes_add_up(
            steps in prop::collection::vec(
                ("[a-d]{0,3}", prop::option::of(prop::collection::vec(any::<u8>(), 0..9))), 0..40)
        ) {
            let mut state = BindingState::default();
            let mut model = BTreeMap::new();
            for (key, value) in steps {
                if let Some(value) = value {
                    state.set(&key, value.clone(), &Limits::default()).unwrap();
                    model.insert(key, value);
                } else {
                    prop_assert_eq!(state.delete(&key), model.remove(&key).is_some());
                }
            }
            let bytes: usize = model.iter().map(|(key, value)| key.len() + value.len()).sum();
            prop_assert_eq!(state.bytes(), bytes);
            let read = BindingState::from_bytes(&state.to_bytes(), &Limits::default()).unwrap();
            prop_assert!(read.iter().eq(model.iter().map(|(k, v)| (k.as_str(), v.as_slice()))));
            prop_assert_eq!(read.bytes(), bytes);
        }
    }
}
