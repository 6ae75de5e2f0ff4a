//! Requests by their clients' ids, so that they can be aborted.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

/// How long an engine may take to end a request after an abort.
const ENGINE_ENDS_MAX: Duration = Duration::from_secs(10);

/// Requests in flight that carry an id of their client's.
#[derive(Default)]
pub struct RequestIds {
    in_flight: Mutex<HashMap<Box<str>, Vec<Arc<Withdrawal>>>>,
}

/// Notification that a request is aborted.
#[derive(Default)]
struct Withdrawal {
    signal: Notify,
    /// Whether it is aborted.
    told: AtomicBool,
    /// Whether the connection to the engine must be closed, because the engine is not notified.
    cut: AtomicBool,
}

/// Keeps a request abortable while it lives.
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

    /// Aborts the chosen requests; returns their number. `cut` closes their connections if the
    /// engine is not notified.
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
    /// True once the request was aborted, even if its engine still runs it.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.withdrawal.told.load(Ordering::Relaxed)
    }

    /// Completes once the request is aborted; may be awaited repeatedly. If the engine is notified
    /// and the connection is not to be cut, the engine gets some time to end the request itself, as
    /// the notification may have reached it before the request.
    pub(crate) async fn withdrawn(&self, engine_is_notified: bool) {
        let ends_max = if engine_is_notified {
            ENGINE_ENDS_MAX
        } else {
            Duration::ZERO
        };
        self.withdrawn_for(ends_max).await;
    }

    /// Completes once it has been aborted for this long, or must be cut.
    async fn withdrawn_for(&self, ends_max: Duration) {
        let told = async {
            while !self.is_withdrawn() {
                self.withdrawal.signal.notified().await;
            }
        };
        told.await;
        let cut = async {
            while !self.withdrawal.cut.load(Ordering::Relaxed) {
                self.withdrawal.signal.notified().await;
            }
        };
        if !ends_max.is_zero() {
            let _ = tokio::time::timeout(ends_max, cut).await;
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

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    /// Whether it is so by now.
    async fn is_heard(registration: &Registration, engine_is_notified: bool) -> bool {
        let withdrawn = registration.withdrawn(engine_is_notified);
        tokio::time::timeout(SHORT, withdrawn).await.is_ok()
    }

    #[tokio::test]
    async fn a_withdrawal_is_heard_whenever_it_is_asked_for() {
        let ids = Arc::new(RequestIds::default());
        let (registration, other) = (ids.register("a"), ids.register("b"));
        assert!(!is_heard(&registration, false).await);
        assert_eq!(ids.withdraw(|key| key == "a", false), 1);
        // Again and again, as an attempt may fail meanwhile.
        for _ in 0..3 {
            assert!(is_heard(&registration, false).await);
        }
        assert!(!is_heard(&other, false).await);
        drop(registration);
        assert_eq!(ids.withdraw(|key| key == "a", false), 0);
    }

    #[tokio::test]
    async fn an_engine_that_was_notified_has_a_while_and_no_more() {
        let ids = Arc::new(RequestIds::default());
        let registration = ids.register("a");
        ids.withdraw(|_| true, false);
        assert!(!is_heard(&registration, true).await);
        // However long that is, it comes to an end.
        registration.withdrawn_for(SHORT).await;
        ids.withdraw(|_| true, true);
        assert!(is_heard(&registration, true).await);
    }
}
