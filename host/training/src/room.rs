//! Memory for answers with the tokens or contents of many members: until the last byte of an answer
//! is sent, its bytes count, in all and for its tenant.

use axum::body::Bytes;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use treadle_http::{InUse, Tally, refuse};
use treadle_wire::ErrorCode;

/// Bytes that such answers take at most at once, while they are made and while they are sent: two of
/// the largest batches.
const BYTES_MAX: u64 = 24 << 30;

/// What such answers take.
pub struct LargeAnswers {
    /// All that they may take.
    bytes_max: u64,
    all: Arc<Tally>,
    tenants: Mutex<BTreeMap<String, Arc<Tally>>>,
}

/// As much as the largest batches need, and at most half of the memory that the daemon may use.
impl Default for LargeAnswers {
    fn default() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let memory = memory_bytes(&read("/proc/meminfo"), &read("/sys/fs/cgroup/memory.max"));
        Self::new(memory.map_or(BYTES_MAX, |bytes| BYTES_MAX.min(bytes / 2)))
    }
}

/// The memory of this machine, or of its container if that is less.
fn memory_bytes(meminfo: &str, cgroup_max: &str) -> Option<u64> {
    let total = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|total| total.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let machine = kib.map(|kib| kib.saturating_mul(1024));
    let container = cgroup_max.trim().parse().ok();
    machine.into_iter().chain(container).min()
}

/// What one answer takes.
pub(crate) struct Room {
    in_use: InUse<2>,
    used: u64,
    /// The tenant's share.
    share: u64,
    bytes_max: u64,
}

impl LargeAnswers {
    fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            all: Arc::default(),
            tenants: Mutex::default(),
        }
    }

    /// What all answers may take together.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Room for an answer to a tenant with this share, which takes nothing so far.
    pub(crate) fn room(&self, tenant: &str, share: u64) -> Room {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        let own = tenants.entry(tenant.to_owned()).or_default().clone();
        Room {
            in_use: InUse::new([(self.all.clone(), self.bytes_max), (own, share)]),
            used: 0,
            share,
            bytes_max: self.bytes_max,
        }
    }
}

impl Room {
    /// Takes more bytes.
    ///
    /// # Errors
    /// There is no room for them now, or never.
    pub(crate) fn grow(&mut self, bytes: u64) -> Result<(), Response> {
        self.used = self.used.saturating_add(bytes);
        let Self {
            used,
            share,
            bytes_max,
            ..
        } = *self;
        if used > self.bytes_max() {
            let message = format!(
                "the answer takes more than {used} bytes of memory, and the tenant's share is \
                 {share}; get the batch in slices, with `rank` and `of`"
            );
            return Err(refuse(ErrorCode::TrainingFull, message));
        }
        self.in_use.grow(bytes).map_err(|full| {
            let whose = ["all tenants", "the tenant"][full];
            let message = format!(
                "answers to {whose} with batches or steps take their share of {bytes_max} bytes of \
                 memory; ask again once others were read"
            );
            refuse(ErrorCode::Overloaded, message)
        })
    }

    /// The most that the answer may take.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.share.min(self.bytes_max)
    }

    /// Bytes that take the room until they were sent.
    pub(crate) fn hold(self, bytes: Bytes) -> Bytes {
        self.in_use.hold(bytes)
    }

    /// An answer that takes its room until it was sent.
    pub(crate) fn answer(self, kind: &'static str, body: Vec<u8>) -> Response {
        let kind = (header::CONTENT_TYPE, HeaderValue::from_static(kind));
        ([kind], self.hold(Bytes::from(body))).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn answers_of_one_tenant_leave_memory_for_those_of_others() {
        let large = LargeAnswers::new(BYTES_MAX);
        let status = |refused: Result<(), Response>| refused.expect_err("is refused").status();
        let (mut one, mut other) = (large.room("busy", 600), large.room("busy", 600));
        one.grow(400).expect("there is room");
        assert_eq!(status(other.grow(201)), 503, "others have its share");
        assert_eq!(
            status(large.room("busy", 600).grow(601)),
            429,
            "it never fits"
        );
        let mut other = large.room("busy", 600);
        other.grow(200).expect("there is room");
        let mut others = large.room("acme", BYTES_MAX);
        assert_eq!(status(others.grow(BYTES_MAX - 599)), 503);
        let mut others = large.room("acme", BYTES_MAX);
        others.grow(BYTES_MAX - 600).expect("there is room");
        // What was made takes room until it was sent.
        let answer = one.answer("application/json", b"{}".to_vec());
        assert_eq!(status(large.room("busy", 600).grow(1)), 503);
        let sent = axum::body::to_bytes(answer.into_body(), 9).await;
        assert_eq!(sent.expect("a body"), "{}");
        large
            .room("busy", 600)
            .grow(400)
            .expect("there is room again");
    }

    #[test]
    fn a_container_bounds_memory_before_its_machine_does() {
        let machine = "MemTotal:       16384 kB\nMemFree: 1 kB\n";
        assert_eq!(memory_bytes(machine, "max\n"), Some(16 << 20));
        assert_eq!(memory_bytes(machine, "1048576\n"), Some(1 << 20));
        assert_eq!(memory_bytes("", ""), None);
    }
}
