//! Stored responses that may be continued by their ids, as long as there is memory for them.
//!
//! Each tenant has its own, and its share of the bytes. Common parts of two responses are stored
//! once. Without room, a tenant's oldest responses are dropped first.

use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::mem::size_of;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use treadle_http::{InUse, Tally};

/// Overhead of an entry in bytes.
const ENTRY_BYTES: usize = 256;

/// A stored conversation, to which a continuing request is appended.
#[derive(Clone, Debug)]
pub(crate) struct StoredResponse {
    /// The response's program, by its tenant's name.
    pub(crate) program: Arc<str>,
    /// Items, as returned by [`treadle_translate::ResponsesRequest::items`].
    pub(crate) pieces: Arc<[Bytes]>,
    /// Counted bytes of the tenant.
    counted: u64,
}

impl StoredResponse {
    /// Bytes of its items.
    pub(crate) fn bytes(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }
}

/// All stored responses.
pub(crate) struct StoredResponses {
    by_tenant: Mutex<HashMap<Box<str>, OfTenant>>,
    tally: Arc<Tally>,
    bytes_max: u64,
}

#[derive(Default)]
struct OfTenant {
    tally: Arc<Tally>,
    by_id: HashMap<Arc<str>, StoredResponse>,
    /// The oldest first.
    order: VecDeque<Arc<str>>,
}

impl OfTenant {
    /// Drops the oldest response; false without any.
    fn forget_oldest(&mut self) -> bool {
        let oldest = self.order.pop_front();
        oldest.is_some_and(|id| self.by_id.remove(&id).is_some())
    }
}

impl StoredResponses {
    /// A store with this limit in bytes.
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            by_tenant: Mutex::default(),
            tally: Arc::default(),
            bytes_max,
        }
    }

    /// The limit in bytes for all tenants together.
    pub(crate) const fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// The stored response with this id.
    pub(crate) fn get(&self, tenant: &str, id: &str) -> Option<StoredResponse> {
        self.locked().get(tenant)?.by_id.get(id).cloned()
    }

    /// Stores a response: the conversation that it continues, and the new items. `share` is its
    /// tenant's limit in bytes. Without room it is not stored.
    pub(crate) fn put(
        &self,
        tenant: &str,
        share: u64,
        id: &str,
        program: &Arc<str>,
        before: Option<&StoredResponse>,
        since: Bytes,
    ) {
        let counted_before = before.map_or(0, |held| held.counted);
        let before: &[Bytes] = before.map_or(&[], |held| &held.pieces);
        let own = id.len() + program.len() + ENTRY_BYTES;
        let bytes = since.len() + own + (before.len() + 1) * size_of::<Bytes>();
        let counted = counted_before + bytes as u64;
        // Dropping all others would not make enough room.
        if counted > share.min(self.bytes_max) {
            return;
        }
        let mut by_tenant = self.locked();
        let of_tenant = by_tenant.entry(tenant.into()).or_default();
        let tally = of_tenant.tally.clone();
        let room = loop {
            let all = (self.tally.clone(), self.bytes_max);
            let mut room = InUse::new([all, (tally.clone(), share)]);
            let was_freed = match room.grow(bytes as u64) {
                Ok(()) => break room,
                Err(0) => forget_of_largest(&mut by_tenant),
                Err(_) => by_tenant
                    .get_mut(tenant)
                    .is_some_and(OfTenant::forget_oldest),
            };
            if !was_freed {
                return;
            }
        };
        let pieces = before.iter().cloned().chain([room.hold(since)]);
        let held = StoredResponse {
            program: program.clone(),
            pieces: pieces.collect(),
            counted,
        };
        if let Some(of_tenant) = by_tenant.get_mut(tenant) {
            let id: Arc<str> = id.into();
            if of_tenant.by_id.insert(id.clone(), held).is_none() {
                of_tenant.order.push_back(id);
            }
        }
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<Box<str>, OfTenant>> {
        self.by_tenant
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes room at the cost of the largest tenant, so that no tenant can displace others' responses.
fn forget_of_largest(by_tenant: &mut HashMap<Box<str>, OfTenant>) -> bool {
    let with_any = by_tenant.values_mut().filter(|of| !of.order.is_empty());
    let largest = with_any.max_by_key(|of| of.tally.used());
    largest.is_some_and(OfTenant::forget_oldest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(held: &StoredResponses, tenant: &str, id: &str, before: Option<&str>, text: &str) {
        let before = before.and_then(|id| held.get(tenant, id));
        let since = Bytes::from(text.to_owned());
        held.put(tenant, 10_000, id, &"p".into(), before.as_ref(), since);
    }

    fn text(held: &StoredResponses, tenant: &str, id: &str) -> Option<String> {
        let pieces = held.get(tenant, id)?.pieces;
        let texts = pieces.iter().map(|piece| String::from_utf8_lossy(piece));
        Some(texts.collect::<Vec<_>>().join("|"))
    }

    #[test]
    fn an_answer_is_found_by_its_tenant_with_what_it_continues() {
        let held = StoredResponses::new(100_000);
        put(&held, "a", "r1", None, "one");
        put(&held, "a", "r2", Some("r1"), "two");
        put(&held, "a", "r3", Some("r1"), "other");
        assert_eq!(text(&held, "a", "r2").as_deref(), Some("one|two"));
        assert_eq!(text(&held, "a", "r3").as_deref(), Some("one|other"));
        assert_eq!(text(&held, "b", "r1"), None);
        assert_eq!(text(&held, "a", "r4"), None);
    }

    #[test]
    fn the_oldest_of_a_tenant_go_first_and_those_of_others_stay() {
        let held = StoredResponses::new(100_000);
        put(&held, "b", "r", None, "theirs");
        let kib = "x".repeat(1_000);
        for number in 0..100 {
            put(&held, "a", &format!("r{number}"), None, &kib);
        }
        assert_eq!(text(&held, "a", "r0"), None);
        assert_eq!(text(&held, "a", "r99").as_deref(), Some(kib.as_str()));
        assert_eq!(text(&held, "b", "r").as_deref(), Some("theirs"));
        assert!(held.tally.used() < 12_000, "{}", held.tally.used());
    }

    #[test]
    fn all_together_have_a_bound_and_the_largest_tenant_makes_room() {
        let held = StoredResponses::new(9_000);
        put(&held, "b", "r", None, "theirs");
        for number in 0..20 {
            put(&held, "a", &format!("r{number}"), None, &"x".repeat(1_000));
        }
        assert!(text(&held, "b", "r").is_some());
        assert!(text(&held, "a", "r19").is_some() && text(&held, "a", "r0").is_none());
        assert!(held.tally.used() <= 9_000);
    }

    #[test]
    fn a_chain_that_is_too_long_is_not_held_and_costs_no_other() {
        let held = StoredResponses::new(100_000);
        put(&held, "a", "first", None, "one");
        let mut last = None;
        for number in 0..6 {
            let id = format!("r{number}");
            put(&held, "a", &id, last.as_deref(), &"x".repeat(1_000));
            last = Some(id);
        }
        let before = held.tally.used();
        put(&held, "a", "r6", Some("r5"), &"x".repeat(2_000));
        put(&held, "a", "large", None, &"x".repeat(20_000));
        assert_eq!(text(&held, "a", "r6"), None);
        assert_eq!(text(&held, "a", "large"), None);
        assert_eq!(held.tally.used(), before);
        assert!(text(&held, "a", "r5").is_some() && text(&held, "a", "first").is_some());
    }
}
