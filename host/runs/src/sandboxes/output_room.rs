//! Memory for output that no client has read yet. Commands and shells reserve it when they start,
//! each kind within the limit for all tenants and within its tenant's share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use treadle_sandbox::{Sandbox, SandboxError, Shared};

/// Memory for the output of all commands, and as much for that of all shells.
const BYTES_MAX: u64 = 2 << 30;
/// Least memory of a command or a shell.
const LEAST_BYTES: u64 = 64 << 10;
/// One reserves at most this part of what its tenant has left, so that later ones get smaller
/// reservations before they are refused.
const PART: u64 = 1_024;

/// Reserved bytes by tenant.
#[derive(Clone, Debug, Default)]
pub(super) struct OutputRoom(Arc<Mutex<BTreeMap<String, u64>>>);

/// A reservation; released when dropped.
#[derive(Debug)]
pub(super) struct Reserved {
    room: OutputRoom,
    tenant: String,
    bytes: u64,
}

impl OutputRoom {
    /// Reserves memory for the output of a command or a shell in a sandbox, at most `most` bytes.
    ///
    /// # Errors
    /// If the tenant's share or the limit for all tenants is reached.
    pub(super) fn reserve(&self, sandbox: &Sandbox, most: usize) -> Result<Reserved, SandboxError> {
        let share = sandbox.share_of(Shared::OutputBytes, BYTES_MAX);
        self.take(&sandbox.tenant(), share, most as u64)
    }

    fn take(&self, tenant: &str, share: u64, most: u64) -> Result<Reserved, SandboxError> {
        let mut reserved = self.lock();
        let all: u64 = reserved.values().sum();
        let has = reserved.get(tenant).copied().unwrap_or(0);
        let own_left = share.saturating_sub(has);
        if own_left < LEAST_BYTES {
            return Err(SandboxError::BeyondShare {
                tenant: tenant.to_owned(),
                of: Shared::OutputBytes,
                has,
                most: share,
            });
        }
        let left = own_left.min(BYTES_MAX.saturating_sub(all));
        if left < LEAST_BYTES {
            return Err(SandboxError::OutputsFull(all, BYTES_MAX));
        }
        let bytes = (left / PART).max(LEAST_BYTES).min(most);
        *reserved.entry(tenant.to_owned()).or_default() += bytes;
        Ok(Reserved {
            room: self.clone(),
            tenant: tenant.to_owned(),
            bytes,
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reserved {
    /// How many bytes of output may be kept.
    pub(super) fn bytes(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(usize::MAX)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut reserved = self.room.lock();
        if let Some(bytes) = reserved.get_mut(&self.tenant) {
            *bytes = bytes.saturating_sub(self.bytes);
            if *bytes == 0 {
                reserved.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 1 << 20;

    #[test]
    fn the_output_of_a_tenant_stays_within_its_share_and_that_of_all_within_the_limit() {
        let room = OutputRoom::default();
        let half = BYTES_MAX / 2;
        let mut red = Vec::new();
        let refused = loop {
            match room.take("red", half, MOST) {
                Ok(reserved) => red.push(reserved),
                Err(error) => break error,
            }
            assert!(red.len() < 100_000, "it is refused some time");
        };
        let message = refused.to_string();
        assert!(message.contains("the tenant `red`"), "{message}");
        assert_eq!(red[0].bytes(), 1 << 20, "the first gets what it needs");
        assert_eq!(red.last().map(Reserved::bytes), Some(64 << 10));
        assert!(red.len() > 1_024, "{}", red.len());
        let sum: u64 = red.iter().map(|reserved| reserved.bytes).sum();
        assert!(sum <= half && half - sum < LEAST_BYTES, "{sum}");

        let mut blue = vec![room.take("blue", half, MOST).expect("a share is left")];
        assert_eq!(blue[0].bytes(), 1 << 20);
        // Tenants that came when there were fewer may have more than a share now.
        let full = loop {
            match room.take("blue", BYTES_MAX, MOST) {
                Ok(reserved) => blue.push(reserved),
                Err(error) => break error,
            }
        };
        assert!(matches!(full, SandboxError::OutputsFull(..)), "{full}");
        let all: u64 = room.lock().values().sum();
        assert!(all <= BYTES_MAX, "{all}");

        drop(red);
        drop(blue);
        assert!(room.lock().is_empty(), "what has ended reserves nothing");
    }
}
