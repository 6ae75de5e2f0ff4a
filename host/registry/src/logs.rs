//! Log lines of policies, collected per upload for display.

use super::lock;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use treadle_model::tenant::prefix_of;
use treadle_policy_runtime::{LogLine, LogSink, LogTail};
use treadle_store::PluginHead;

/// Lines kept per upload.
const LINES_MAX: usize = 512;
/// Maximum number of unread lines per policy.
const UNREAD_MAX: usize = 256;
/// Maximum number of uploads with logs; beyond it the tenant with most of them loses the one that
/// was bound longest ago.
const UPLOADS_MAX: usize = 256;

/// A line and its position in the log of its upload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoggedLine {
    /// The line's number within the upload's log, from 1.
    pub number: u64,
    /// The line.
    #[serde(flatten)]
    pub line: LogLine,
}

struct Log {
    sink: LogSink,
    tail: LogTail,
    lines: VecDeque<LoggedLine>,
    last: u64,
    bound: u64,
}

/// The logs of all uploads that were bound.
#[derive(Default)]
pub struct PolicyLogs {
    logs: Mutex<(u64, BTreeMap<String, Log>)>,
}

impl PolicyLogs {
    /// The sink for instances of an upload in the bindings of a tenant.
    pub(super) fn sink(&self, head: &PluginHead, tenant_prefix: &str) -> LogSink {
        let key = key(&head.digest, tenant_prefix);
        let mut guard = lock(&self.logs);
        let (bound, logs) = &mut *guard;
        *bound += 1;
        if logs.len() >= UPLOADS_MAX && !logs.contains_key(&key) {
            let most = tenant_with_most(logs.keys());
            let own = logs.iter().filter(|(key, _)| prefix_of(key) == most);
            let oldest = own.min_by_key(|(_, log)| log.bound);
            if let Some(oldest) = oldest.map(|(digest, _)| digest.clone()) {
                logs.remove(&oldest);
            }
        }
        let log = logs.entry(key).or_insert_with(|| {
            let (sink, tail) = LogSink::bounded(UNREAD_MAX);
            Log {
                sink,
                tail,
                lines: VecDeque::new(),
                last: 0,
                bound: 0,
            }
        });
        log.bound = *bound;
        log.sink.clone()
    }

    /// Lines of an upload in the bindings of a tenant after `number`, and how many were dropped
    /// because they were not read in time.
    pub fn after(&self, digest: &str, tenant_prefix: &str, number: u64) -> (Vec<LoggedLine>, u64) {
        let mut guard = lock(&self.logs);
        let Some(log) = guard.1.get_mut(&key(digest, tenant_prefix)) else {
            return (Vec::new(), 0);
        };
        for line in log.tail.drain() {
            log.last += 1;
            if log.lines.len() == LINES_MAX {
                log.lines.pop_front();
            }
            log.lines.push_back(LoggedLine {
                number: log.last,
                line,
            });
        }
        let lines = log.lines.iter().filter(|line| line.number > number);
        (lines.cloned().collect(), log.tail.dropped())
    }
}

/// The prefix of the tenant with most of these keys.
fn tenant_with_most<'k>(keys: impl Iterator<Item = &'k String>) -> String {
    let mut counts = BTreeMap::<&str, usize>::new();
    for key in keys {
        *counts.entry(prefix_of(key)).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.map_or_else(String::new, |(prefix, _)| prefix.to_owned())
}

/// Tenants that upload the same bytes have logs of their own.
fn key(digest: &str, tenant_prefix: &str) -> String {
    format!("{tenant_prefix}{digest}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use treadle_model::Tenant;

    fn head(number: usize) -> PluginHead {
        PluginHead {
            digest: format!("{number:04}"),
            world: "eviction".to_owned(),
            name: "p".to_owned(),
            version: "1".to_owned(),
            summary: String::new(),
            size_bytes: 1,
            uploaded_at_us: 1,
            signed_by: None,
        }
    }

    #[test]
    fn a_tenant_with_many_logs_loses_its_own_first() {
        let logs = PolicyLogs::default();
        let [red, blue] = ["red", "blue"].map(Tenant::new);
        let _other = logs.sink(&head(0), blue.prefix());
        for number in 0..UPLOADS_MAX + 10 {
            let _sink = logs.sink(&head(number), red.prefix());
        }
        let kept = lock(&logs.logs);
        let has = |number, prefix| kept.1.contains_key(&key(&head(number).digest, prefix));
        assert_eq!(kept.1.len(), UPLOADS_MAX);
        assert!(has(0, blue.prefix()) && has(UPLOADS_MAX + 9, red.prefix()));
        assert!(!has(0, red.prefix()));
    }
}
