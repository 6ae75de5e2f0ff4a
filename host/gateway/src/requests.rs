//! Requests by the ids that clients gave them, so that they can be withdrawn.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// Requests in flight that carry an id of their client's.
#[derive(Default)]
pub struct RequestIds {
    in_flight: Mutex<HashMap<Box<str>, Vec<Arc<Withdrawal>>>>,
}

/// How a request learns that it is withdrawn.
#[derive(Default)]
struct Withdrawal {
    signal: Notify,
    /// It has been told.
    told: AtomicBool,
    /// The engine is not notified, so that the connection to it has to break.
    cut: AtomicBool,
}

/// Keeps a request withdrawable while it lives.
pub(crate) struct Registration {
    requests: Arc<RequestIds>,
    id: Box<str>,
    withdrawal: Arc<Withdrawal>,
}

impl RequestIds {
    pub(crate) fn register(self: &Arc<Self>, id: &str) -> Registration {
        let withdrawal = Arc::new(Withdrawal::default());
        if let Ok(mut in_flight) = self.in_flight.lock() {
            in_flight
                .entry(id.into())
                .or_default()
                .push(withdrawal.clone());
        }
        Registration {
            requests: self.clone(),
            id: id.into(),
            withdrawal,
        }
    }

    /// Withdraws the requests that are chosen; gives their number. Where the engine is not
    /// notified, their connections are `cut`.
    pub fn withdraw(&self, chosen: impl Fn(&str) -> bool, cut: bool) -> usize {
        let Ok(in_flight) = self.in_flight.lock() else {
            return 0;
        };
        let notified = in_flight
            .iter()
            .filter(|(key, _)| chosen(key))
            .flat_map(|(_, all)| all);
        let tell = |withdrawal: &Arc<Withdrawal>| {
            withdrawal.cut.fetch_or(cut, Ordering::Relaxed);
            withdrawal.told.store(true, Ordering::Relaxed);
            withdrawal.signal.notify_one();
        };
        notified.map(tell).count()
    }
}

impl Registration {
    /// True once the request was withdrawn, though its engine may go on with it.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.withdrawal.told.load(Ordering::Relaxed)
    }

    /// Completes once the request is withdrawn. Where the engine is notified, it ends the request
    /// itself, unless the connection is to be cut.
    pub(crate) async fn withdrawn(&self, engine_is_notified: bool) {
        loop {
            self.withdrawal.signal.notified().await;
            if !engine_is_notified || self.withdrawal.cut.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let Ok(mut in_flight) = self.requests.in_flight.lock() else {
            return;
        };
        if let Some(all) = in_flight.get_mut(&self.id) {
            all.retain(|other| !Arc::ptr_eq(other, &self.withdrawal));
            if all.is_empty() {
                in_flight.remove(&self.id);
            }
        }
    }
}
