//! Limits on what a policy may use.

use crate::error::RuntimeError;

/// Limits on what one policy instance, and one upload, may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Linear memory of an instance, all its memories together. An instance that has reached three
    /// quarters of it is replaced after the call, because linear memory never shrinks. Default 64
    /// MiB, which Python and JavaScript need.
    pub memory_bytes_max: usize,
    /// Stack of a call. Default 512 KiB.
    pub stack_bytes_max: usize,
    /// Elements of an instance's tables together. Default 100,000, because an
    /// interpreter's table of functions is large.
    pub table_elements_max: usize,
    /// Time for a decision that scheduling waits for: all of the worlds `priority`, `eviction`
    /// and `shaping`, `assign` and `route` of `placement`, and `arrange` of `allocation`. Kept to
    /// one tick, 1 ms. Default 2.
    pub hot_deadline_ms: u64,
    /// Time for any other call: starting, describing, configuring, saving and
    /// restoring an instance, all of the worlds `prediction` and `reward`, `migrate` of
    /// `placement`, and `parallelism` of `allocation`. Default 2,000.
    pub background_deadline_ms: u64,
    /// Rows of a call, and so of its answer; also entries of its other columns. Default 8,192.
    pub output_rows_max: usize,
    /// Extra columns that a policy may ask for. Default 64.
    pub extra_columns_max: usize,
    /// Texts of a call of the world `reward` together. Default 8 MiB.
    pub text_bytes_max: usize,
    /// Parts of a reward. Default 16.
    pub reward_parts_max: usize,
    /// Size of a snapshot. Default 4 MiB.
    pub snapshot_bytes_max: usize,
    /// Keys and values of a binding's state together. Default 1 MiB.
    pub state_bytes_max: usize,
    /// Keys of a binding's state. Default 1,024.
    pub state_keys_max: usize,
    /// Length of such a key. Default 256.
    pub state_key_bytes_max: usize,
    /// Size of a configuration. Default 64 KiB.
    pub config_bytes_max: usize,
    /// Size of an upload. Default 32 MiB: a Python policy carries its interpreter.
    pub upload_bytes_max: usize,
    /// Log lines that an instance may write in a second, and in one burst; more are
    /// dropped and counted. Default 20.
    pub log_lines_per_s: u32,
    /// Length of a log line; longer ones are cut. Default 1 KiB.
    pub log_line_bytes_max: usize,
    /// Number of stored log lines. Default 256.
    pub log_lines_kept_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes_max: 64 << 20,
            stack_bytes_max: 512 << 10,
            table_elements_max: 100_000,
            hot_deadline_ms: 2,
            background_deadline_ms: 2_000,
            output_rows_max: 8_192,
            extra_columns_max: 64,
            text_bytes_max: 8 << 20,
            reward_parts_max: 16,
            snapshot_bytes_max: 4 << 20,
            state_bytes_max: 1 << 20,
            state_keys_max: 1_024,
            state_key_bytes_max: 256,
            config_bytes_max: 64 << 10,
            upload_bytes_max: 32 << 20,
            log_lines_per_s: 20,
            log_line_bytes_max: 1 << 10,
            log_lines_kept_max: 256,
        }
    }
}

impl Limits {
    /// Checks that no limit is too small.
    pub(crate) fn check(&self) -> Result<(), RuntimeError> {
        let least = [
            ("memory_bytes_max", self.memory_bytes_max as u64, 1 << 16),
            ("stack_bytes_max", self.stack_bytes_max as u64, 1 << 14),
            ("table_elements_max", self.table_elements_max as u64, 1),
            ("hot_deadline_ms", self.hot_deadline_ms, 1),
            ("background_deadline_ms", self.background_deadline_ms, 1),
            ("output_rows_max", self.output_rows_max as u64, 100),
            ("text_bytes_max", self.text_bytes_max as u64, 1_024),
            ("config_bytes_max", self.config_bytes_max as u64, 2),
            ("upload_bytes_max", self.upload_bytes_max as u64, 8),
            ("log_lines_per_s", u64::from(self.log_lines_per_s), 1),
            ("log_line_bytes_max", self.log_line_bytes_max as u64, 16),
            ("log_lines_kept_max", self.log_lines_kept_max as u64, 1),
        ];
        for (field, value, min) in least {
            if value < min {
                return Err(RuntimeError::Limit { field, value, min });
            }
        }
        Ok(())
    }

    /// Bytes that the guest may pass to the host at once: the largest answer, value or text, and
    /// some room for its encoding.
    pub(crate) fn hostcall_bytes_max(&self) -> usize {
        // Rewards have a total and their parts; estimates have three lists.
        let lists = self.reward_parts_max.saturating_add(1).max(3);
        let answer = self
            .output_rows_max
            .saturating_mul(size_of::<f64>())
            .saturating_mul(lists);
        [answer, self.snapshot_bytes_max, self.state_bytes_max]
            .into_iter()
            .fold(64 << 10, usize::max)
            .saturating_add(16 << 10)
    }

    /// Memory at which an instance is replaced after the call.
    pub(crate) fn memory_recycle_bytes(&self) -> usize {
        self.memory_bytes_max / 4 * 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_acceptable_and_a_zero_is_named() {
        assert!(Limits::default().check().is_ok());
        let limits = Limits {
            hot_deadline_ms: 0,
            ..Limits::default()
        };
        let message = limits.check().unwrap_err().to_string();
        assert!(message.contains("hot_deadline_ms"), "{message}");
    }
}
