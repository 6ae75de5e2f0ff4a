//! Open event streams, with limits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;
use treadle_wire::{ErrorBody, ErrorCode};

/// Most concurrent streams.
const STREAMS_MAX: usize = 256;
/// Most concurrent streams of a tenant.
const STREAMS_OF_TENANT_MAX: usize = 32;

/// The open event streams of a process.
#[derive(Debug)]
pub struct OpenStreams {
    by_tenant: Mutex<BTreeMap<String, usize>>,
    stopped: watch::Sender<bool>,
}

impl Default for OpenStreams {
    fn default() -> Self {
        Self {
            by_tenant: Mutex::default(),
            stopped: watch::Sender::new(false),
        }
    }
}

/// An open stream; it is closed when this is dropped.
#[derive(Debug)]
pub struct OpenStream {
    all: Arc<OpenStreams>,
    tenant: String,
    stopped: watch::Receiver<bool>,
}

impl OpenStreams {
    /// Opens a stream for a tenant, out of `tenants`.
    ///
    /// # Errors
    /// [`ErrorCode::StreamsFull`] if the limit is reached.
    pub fn open(self: &Arc<Self>, tenant: &str, tenants: usize) -> Result<OpenStream, ErrorBody> {
        let own_max = STREAMS_OF_TENANT_MAX.min((STREAMS_MAX / tenants.max(1)).max(1));
        let mut by_tenant = self
            .by_tenant
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let own = by_tenant.get(tenant).copied().unwrap_or(0);
        let all: usize = by_tenant.values().sum();
        let (count, max, whose) = if own >= own_max {
            (own, own_max, "the tenant has")
        } else {
            (all, STREAMS_MAX, "there are")
        };
        if count >= max {
            let message = format!(
                "{whose} {count} event streams open, the limit; close one, or read pages of GET \
                 /api/v1/events"
            );
            return Err(ErrorBody::new(ErrorCode::StreamsFull, message));
        }
        by_tenant.insert(tenant.to_owned(), own + 1);
        Ok(OpenStream {
            all: self.clone(),
            tenant: tenant.to_owned(),
            stopped: self.stopped.subscribe(),
        })
    }

    /// Ends all of them: the daemon stops.
    pub fn stop(&self) {
        self.stopped.send_replace(true);
    }
}

impl OpenStream {
    /// Completes when the daemon stops.
    pub async fn stopped(&mut self) {
        // An error means that the daemon is gone.
        let _ = self.stopped.wait_for(|stopped| *stopped).await;
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut by_tenant = self
            .all
            .by_tenant
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = by_tenant.get_mut(&self.tenant) {
            *own -= 1;
            if *own == 0 {
                by_tenant.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_bounded_per_tenant_and_in_all() {
        let streams = Arc::new(OpenStreams::default());
        let mut open = Vec::new();
        for _ in 0..STREAMS_OF_TENANT_MAX {
            open.push(streams.open("acme", 2).expect("there is room"));
        }
        let full = streams.open("acme", 2).expect_err("it is full");
        assert_eq!(full.code, ErrorCode::StreamsFull);
        assert!(
            full.message.contains("the tenant has 32"),
            "{}",
            full.message
        );
        let mut tenant = 0;
        let full = loop {
            match streams.open(&format!("t{}", tenant / STREAMS_OF_TENANT_MAX), 8) {
                Ok(stream) => open.push(stream),
                Err(full) => break full,
            }
            tenant += 1;
        };
        assert!(full.message.contains("there are 256"), "{}", full.message);
        let many = streams.open("t0", 128).expect_err("two are its share");
        assert!(
            many.message.contains("streams open, the limit"),
            "{}",
            many.message
        );
        open.pop();
        open.push(streams.open("beta", 8).expect("one was closed"));
        drop(open);
        assert!(streams.by_tenant.lock().expect("it is whole").is_empty());
    }
}
