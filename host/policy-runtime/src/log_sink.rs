//! Follows a policy's log as it is written, without ever blocking the policy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use crate::policy_log::LogLine;

/// Where instances send their log lines. Clones feed the same tail; a line without room is dropped
/// and counted.
#[derive(Debug, Clone)]
pub struct LogSink {
    lines: SyncSender<LogLine>,
    dropped: Arc<AtomicU64>,
}

/// The reading end of a [`LogSink`].
#[derive(Debug)]
pub struct LogTail {
    lines: Receiver<LogLine>,
    dropped: Arc<AtomicU64>,
}

impl LogSink {
    /// A sink that holds at most `lines_max` unread lines, at least one.
    pub fn bounded(lines_max: usize) -> (Self, LogTail) {
        let (sender, receiver) = sync_channel(lines_max.max(1));
        let dropped = Arc::new(AtomicU64::new(0));
        let tail = LogTail {
            lines: receiver,
            dropped: Arc::clone(&dropped),
        };
        let sink = Self {
            lines: sender,
            dropped,
        };
        (sink, tail)
    }

    /// Offers a line without waiting.
    pub(crate) fn offer(&self, line: &LogLine) {
        if self.lines.try_send(line.clone()).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl LogTail {
    /// The next line if one comes within `timeout`, which may be zero.
    pub fn next_within(&self, timeout: Duration) -> Option<LogLine> {
        self.lines.recv_timeout(timeout).ok()
    }

    /// All unread lines, oldest first.
    pub fn drain(&self) -> Vec<LogLine> {
        self.lines.try_iter().collect()
    }

    /// Number of dropped lines so far.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy_log::LogLevel;

    fn line(now_ms: u64) -> LogLine {
        LogLine {
            now_ms,
            level: LogLevel::Info,
            message: String::new(),
            dropped_before: 0,
        }
    }

    #[test]
    fn a_full_sink_drops_and_counts() {
        let (sink, tail) = LogSink::bounded(2);
        for now_ms in 0..5 {
            sink.offer(&line(now_ms));
        }
        let times: Vec<_> = tail.drain().iter().map(|line| line.now_ms).collect();
        assert_eq!((times, tail.dropped()), (vec![0, 1], 3));
        sink.clone().offer(&line(9));
        assert_eq!(tail.next_within(Duration::ZERO), Some(line(9)));
        assert_eq!(tail.next_within(Duration::ZERO), None);
    }

    #[test]
    fn lines_without_a_reader_are_counted_too() {
        let (sink, tail) = LogSink::bounded(1);
        let dropped = Arc::clone(&tail.dropped);
        drop(tail);
        sink.offer(&line(0));
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    }
}
