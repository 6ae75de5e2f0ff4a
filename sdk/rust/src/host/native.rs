//! Native equivalents of the host's functions. They are local to the thread, so that concurrent
//! tests are independent.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use super::Level;
use crate::PolicyError;
use crate::random::SplitMix64;

/// Limit on the bytes that [`state_set`] stores in a native build, keys and values together.
pub const STATE_BYTES_MAX: usize = 1 << 20;
/// Limit on the keys that [`state_set`] stores in a native build.
pub const STATE_KEYS_MAX: usize = 1024;

thread_local! {
    static NOW_MS: Cell<u64> = const { Cell::new(0) };
    static RANDOM: Cell<SplitMix64> = const { Cell::new(SplitMix64::new(0)) };
    static CONFIG: RefCell<String> = RefCell::new("{}".to_owned());
    static STATE: RefCell<BTreeMap<String, Vec<u8>>> = const { RefCell::new(BTreeMap::new()) };
}

/// Writes a line to the policy's log; in a native build to standard error.
pub fn log(level: Level, message: &str) {
    eprintln!("policy {level:?}: {message}");
}

/// The time of the decision in milliseconds since the job's clock began.
pub fn now_ms() -> u64 {
    NOW_MS.get()
}

/// The next number of the random stream.
pub fn random_u64() -> u64 {
    let mut random = RANDOM.get();
    let number = random.next_u64();
    RANDOM.set(random);
    number
}

/// The configuration of the binding, a JSON object.
pub fn config() -> String {
    CONFIG.with_borrow(Clone::clone)
}

/// A stored value, if there is one.
pub fn state_get(key: &str) -> Option<Vec<u8>> {
    STATE.with_borrow(|state| state.get(key).cloned())
}

/// Stores a value.
///
/// # Errors
/// `state-full` if the limit on bytes or keys would be exceeded; nothing changes then.
pub fn state_set(key: &str, value: &[u8]) -> Result<(), PolicyError> {
    STATE.with_borrow_mut(|state| {
        let others = || state.iter().filter(|(other, _)| *other != key);
        let bytes: usize = others().map(|(key, value)| key.len() + value.len()).sum();
        let fits =
            bytes + key.len() + value.len() <= STATE_BYTES_MAX && others().count() < STATE_KEYS_MAX;
        if !fits {
            return Err(PolicyError::new(
                "state-full",
                format!("no room for key \"{key}\"; delete what is not needed"),
            ));
        }
        state.insert(key.to_owned(), value.to_vec());
        Ok(())
    })
}

/// Removes a value; true if there was one.
pub fn state_delete(key: &str) -> bool {
    STATE.with_borrow_mut(|state| state.remove(key).is_some())
}

/// Sets the result of [`now_ms`] in this thread. Native builds only.
pub fn set_now_ms(now_ms: u64) {
    NOW_MS.set(now_ms);
}

/// Restarts the random stream of this thread, as the host does before each call. Native builds
/// only.
pub fn set_seed(seed: u64) {
    RANDOM.set(SplitMix64::new(seed));
}

/// Sets the result of [`config`] in this thread. Native builds only.
pub fn set_config(json: &str) {
    CONFIG.with_borrow_mut(|config| json.clone_into(config));
}

/// Removes all stored values of this thread. Native builds only.
pub fn clear_state() {
    STATE.with_borrow_mut(BTreeMap::clear);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_begins_the_stream_anew() {
        set_seed(7);
        let first = [random_u64(), random_u64()];
        set_seed(7);
        assert_eq!([random_u64(), random_u64()], first);
        assert_ne!(first[0], first[1]);
    }

    #[test]
    fn values_are_kept_replaced_and_removed() {
        clear_state();
        assert_eq!(state_get("a"), None);
        state_set("a", b"1").unwrap();
        state_set("a", b"2").unwrap();
        assert_eq!(state_get("a").as_deref(), Some(&b"2"[..]));
        assert!(state_delete("a") && !state_delete("a"));
    }

    #[test]
    fn a_value_beyond_the_bound_changes_nothing() {
        clear_state();
        state_set("a", b"1").unwrap();
        let error = state_set("a", &vec![0; STATE_BYTES_MAX]).unwrap_err();
        assert_eq!(error.code, "state-full");
        assert_eq!(state_get("a").as_deref(), Some(&b"1"[..]));
        for key in 1..STATE_KEYS_MAX {
            state_set(&key.to_string(), b"").unwrap();
        }
        assert!(state_set("one too many", b"").is_err());
        state_set("a", b"3").unwrap();
    }
}
