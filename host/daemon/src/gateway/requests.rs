//! Requests by the ids that clients gave them, so that they can be withdrawn.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// Requests in flight that carry an id of their client's.
#[derive(Default)]
pub struct RequestIds {
    in_flight: Mutex<HashMap<Box<str>, Vec<Arc<Notify>>>>,
}

/// Keeps a request withdrawable while it lives.
pub(super) struct Registration {
    requests: Arc<RequestIds>,
    id: Box<str>,
    withdrawn: Arc<Notify>,
}

impl RequestIds {
    pub(super) fn register(self: &Arc<Self>, id: &str) -> Registration {
        let withdrawn = Arc::new(Notify::new());
        if let Ok(mut in_flight) = self.in_flight.lock() {
            in_flight
                .entry(id.into())
                .or_default()
                .push(withdrawn.clone());
        }
        Registration {
            requests: self.clone(),
            id: id.into(),
            withdrawn,
        }
    }

    /// Withdraws the requests with this id, or all; says how many there were.
    pub fn withdraw(&self, id: Option<&str>) -> usize {
        let Ok(in_flight) = self.in_flight.lock() else {
            return 0;
        };
        let chosen =
            |key: &str| id.is_none_or(|id| key == id || key.starts_with(&format!("{id}_")));
        let notified = in_flight
            .iter()
            .filter(|(key, _)| chosen(key))
            .flat_map(|(_, all)| all);
        notified.map(|withdrawn| withdrawn.notify_one()).count()
    }
}

impl Registration {
    /// Completes once the request is withdrawn.
    pub(super) async fn withdrawn(&self) {
        self.withdrawn.notified().await;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let Ok(mut in_flight) = self.requests.in_flight.lock() else {
            return;
        };
        if let Some(all) = in_flight.get_mut(&self.id) {
            all.retain(|other| !Arc::ptr_eq(other, &self.withdrawn));
            if all.is_empty() {
                in_flight.remove(&self.id);
            }
        }
    }
}
