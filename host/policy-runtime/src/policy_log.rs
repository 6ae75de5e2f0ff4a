//! Logs of policies: limited in rate, cut in length, the last lines stored, all forwarded to
//! `tracing`.

use std::collections::VecDeque;
use std::time::Instant;

use serde::Serialize;

use crate::limits::Limits;
use crate::log_sink::LogSink;

/// Severity of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Every detail.
    Trace,
    /// For the author of the policy.
    Debug,
    /// Worth knowing.
    Info,
    /// Unusual, and handled.
    Warn,
    /// Went wrong.
    Error,
}

/// A line that a policy wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogLine {
    /// The time of the decision during which it was written.
    pub now_ms: u64,
    /// Its severity.
    pub level: LogLevel,
    /// The text, cut to `Limits::log_line_bytes_max`.
    pub message: String,
    /// Lines dropped by the rate limit since the previous line.
    pub dropped_before: u64,
}

/// The log of one instance. It outlives the instance's restarts.
pub(crate) struct PolicyLog {
    policy: String,
    lines: VecDeque<LogLine>,
    lines_kept_max: usize,
    line_bytes_max: usize,
    lines_per_s: f64,
    tokens: f64,
    refilled: Instant,
    dropped: u64,
    sink: Option<LogSink>,
}

impl PolicyLog {
    pub(crate) fn new(limits: &Limits, sink: Option<LogSink>) -> Self {
        Self {
            policy: String::new(),
            lines: VecDeque::new(),
            lines_kept_max: limits.log_lines_kept_max,
            line_bytes_max: limits.log_line_bytes_max,
            lines_per_s: f64::from(limits.log_lines_per_s),
            tokens: f64::from(limits.log_lines_per_s),
            refilled: Instant::now(),
            dropped: 0,
            sink,
        }
    }

    /// The name under which lines are forwarded.
    pub(crate) fn set_policy(&mut self, name: &str) {
        name.clone_into(&mut self.policy);
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = &LogLine> {
        self.lines.iter()
    }

    pub(crate) fn write(&mut self, now_ms: u64, level: LogLevel, message: &str) {
        if !self.take_token(Instant::now()) {
            self.dropped += 1;
            return;
        }
        let message = &message[..message.floor_char_boundary(self.line_bytes_max)];
        let dropped = std::mem::take(&mut self.dropped);
        self.forward(level, message, dropped);
        if self.lines.len() == self.lines_kept_max {
            self.lines.pop_front();
        }
        let line = LogLine {
            now_ms,
            level,
            message: message.to_owned(),
            dropped_before: dropped,
        };
        if let Some(sink) = &self.sink {
            sink.offer(&line);
        }
        self.lines.push_back(line);
    }

    fn take_token(&mut self, now: Instant) -> bool {
        let passed_s = now.duration_since(self.refilled).as_secs_f64();
        self.refilled = now;
        self.tokens = (self.tokens + passed_s * self.lines_per_s).min(self.lines_per_s);
        if self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }

    fn forward(&self, level: LogLevel, message: &str, dropped_before: u64) {
        let policy = self.policy.as_str();
        macro_rules! forward {
            ($level:ident) => {
                tracing::event!(
                    target: "treadle::policy",
                    tracing::Level::$level,
                    policy,
                    dropped_before,
                    "{message}"
                )
            };
        }
        match level {
            LogLevel::Trace => forward!(TRACE),
            LogLevel::Debug => forward!(DEBUG),
            LogLevel::Info => forward!(INFO),
            LogLevel::Warn => forward!(WARN),
            LogLevel::Error => forward!(ERROR),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn log(lines_per_s: u32) -> PolicyLog {
        let limits = Limits {
            log_lines_per_s: lines_per_s,
            log_line_bytes_max: 16,
            log_lines_kept_max: 2,
            ..Limits::default()
        };
        PolicyLog::new(&limits, None)
    }

    #[test]
    fn a_burst_is_cut_off_and_tokens_come_back() {
        let mut log = log(2);
        let begin = log.refilled;
        let taken = [0, 0, 0, 400, 600].map(|ms| log.take_token(begin + Duration::from_millis(ms)));
        assert_eq!(taken, [true, true, false, false, true]);
    }

    #[test]
    fn the_last_lines_are_kept_and_long_ones_cut_between_characters() {
        let mut log = log(1_000);
        for message in ["first", "second", "fifteen bytes..ä"] {
            log.write(7, LogLevel::Info, message);
        }
        let kept: Vec<_> = log.lines().map(|line| line.message.as_str()).collect();
        assert_eq!(kept, ["second", "fifteen bytes.."]);
    }

    #[test]
    fn dropped_lines_are_counted_on_the_next() {
        let mut log = log(1);
        log.write(0, LogLevel::Info, "kept");
        log.write(0, LogLevel::Info, "dropped");
        log.write(0, LogLevel::Info, "dropped");
        log.tokens = 1.0;
        log.write(0, LogLevel::Info, "kept");
        let dropped: Vec<_> = log.lines().map(|line| line.dropped_before).collect();
        assert_eq!(dropped, [0, 2]);
    }
}
